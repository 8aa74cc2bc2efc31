//! Who may come in. Every request passes here before any binding sees it, so that none of them can forget to ask.

mod certificates;
mod combined;
mod reloadable;
mod function;
mod hide;
mod jwt;
mod known;

use std::collections::BTreeMap;
use std::sync::Arc;

use attache_core::{BoxFuture, Identity};
use attache_protocol::{Error, ErrorKind, SecurityRequirement, SecurityScheme, StringList};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::header::{CACHE_CONTROL, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};

pub use self::certificates::{CertificateCallers, CertificateName};
pub use self::combined::{AllOf, AnyOf};
pub use self::reloadable::{AnonymousAccess, Reloadable};
pub use self::function::authenticator_fn;
pub use self::jwt::{JwtCallers, JwtIssuer, JwtSetupError};
pub use self::known::{KeyPlace, KnownCallers};

pub(crate) use self::hide::hide_credentials;

use crate::Peer;
use crate::dispatch::RequestHead;
use crate::http::body::Body;
#[cfg(feature = "grpc")]
use crate::binding::grpc;
use crate::http::response::json_response;

/// Finds out who sends a request.
///
/// [`KnownCallers`] is one for tokens, passwords and API keys, [`JwtCallers`] for tokens of an identity provider and
/// [`CertificateCallers`] for certificates of clients. [`AnyOf`] and [`AllOf`] put several together.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot tell who sends a request",
    note = "`KnownCallers` can, for tokens, passwords and API keys"
)]
pub trait Authenticator: Send + Sync + 'static {
    /// Who sends a request with this head.
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a>;

    /// What it asks for, under the names that the card gives it.
    fn schemes(&self) -> Vec<(String, SecurityScheme)>;

    /// Which of the schemes suffice. Any one of them, unless it says otherwise.
    fn requirements(&self) -> Vec<SecurityRequirement> {
        let alone =
            |(name, _)| SecurityRequirement { schemes: BTreeMap::from([(name, StringList::default())]) };
        self.schemes().into_iter().map(alone).collect()
    }

    /// What would do, for who came with nothing or with the wrong thing: values of `WWW-Authenticate`.
    fn challenges(&self) -> Vec<String>;

    /// The same for who was denied for this reason. Nothing is asked for of who is known and may not come in, unless it says otherwise.
    fn challenges_for(&self, head: Head<'_>, denied: &Denied) -> Vec<String> {
        let _ = head;
        match denied {
            Denied::Missing | Denied::Wrong(_) | Denied::Expired(_) => self.challenges(),
            Denied::Forbidden(_) | Denied::Unavailable(_) => Vec::new(),
        }
    }

    /// Whether it lets in everyone, whatever they show. The server then guards against web pages as one without authentication does.
    fn admits_everyone(&self) -> bool {
        false
    }

    /// Brings something each time that the [`schemes`](Self::schemes) may have become others, so that the card follows.
    fn changes(&self) -> BoxStream<'static, ()> {
        stream::empty().boxed()
    }
}

impl<A: Authenticator + ?Sized> Authenticator for Arc<A> {
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a> {
        (**self).authenticate(head)
    }

    fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        (**self).schemes()
    }

    fn requirements(&self) -> Vec<SecurityRequirement> {
        (**self).requirements()
    }

    fn challenges(&self) -> Vec<String> {
        (**self).challenges()
    }

    fn challenges_for(&self, head: Head<'_>, denied: &Denied) -> Vec<String> {
        (**self).challenges_for(head, denied)
    }

    fn admits_everyone(&self) -> bool {
        (**self).admits_everyone()
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        (**self).changes()
    }
}

/// What a request says before its body.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// The headers; over gRPC, the metadata.
    pub headers: &'a HeaderMap,
    /// The query, as it was sent.
    pub query: Option<&'a str>,
    /// The other end of the connection, as far as it is known.
    pub peer: Option<&'a Peer>,
}

impl<'a> From<&RequestHead<'a>> for Head<'a> {
    fn from(head: &RequestHead<'a>) -> Self {
        Self { headers: head.headers, query: head.query, peer: Some(head.peer) }
    }
}

impl<'a> Head<'a> {
    fn of(parts: &'a Parts, peer: &'a Peer) -> Self {
        Self { headers: &parts.headers, query: parts.uri.query(), peer: Some(peer) }
    }
}

/// Whether somebody is let in.
pub enum Verdict<'a> {
    /// This is who it is.
    Known(Identity),
    /// Nobody that is known.
    Denied(Denied),
    /// It takes a while to find out.
    Later(BoxFuture<'a, Result<Identity, Denied>>),
}

/// Why somebody is not let in. Reasons go to the log and to nobody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// There is no credential.
    Missing,
    /// There is one that is not good.
    Wrong(String),
    /// There is one that was good once.
    Expired(String),
    /// It is known who it is, and that they may not come in.
    Forbidden(String),
    /// It cannot be found out at the moment.
    Unavailable(String),
}

impl Denied {
    pub(crate) fn error(&self) -> Error {
        let (kind, text) = match self {
            Self::Missing => (ErrorKind::Unauthenticated, "credentials are required: the card says which"),
            Self::Wrong(_) => (ErrorKind::Unauthenticated, "the credentials are not valid"),
            Self::Expired(_) => (ErrorKind::Unauthenticated, "the credentials have expired"),
            Self::Forbidden(_) => (ErrorKind::PermissionDenied, "this is not for you"),
            Self::Unavailable(_) => {
                (ErrorKind::Unavailable, "who you are cannot be found out at the moment, try again")
            }
        };
        Error::new(kind, text)
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Missing => "no credentials",
            Self::Wrong(reason)
            | Self::Expired(reason)
            | Self::Forbidden(reason)
            | Self::Unavailable(reason) => reason,
        }
    }
}

/// Authenticates a request.
pub(crate) async fn authenticate(authenticator: &dyn Authenticator, head: Head<'_>) -> Result<Identity, Denied> {
    match authenticator.authenticate(head) {
        Verdict::Known(identity) => Ok(identity),
        Verdict::Denied(denied) => Err(denied),
        Verdict::Later(found) => found.await,
    }
}

/// The HTTP response to a request whose caller was denied.
pub(crate) fn error_response(
    authenticator: &dyn Authenticator,
    denied: &Denied,
    head: &Parts,
    peer: &Peer,
) -> Response<Body> {
    #[cfg(feature = "grpc")]
    if let Some(package) = grpc::Package::of(head.uri.path()) {
        return grpc::error_response(package, &denied.error());
    }
    let (status, text) = match denied {
        Denied::Missing | Denied::Wrong(_) | Denied::Expired(_) => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        Denied::Forbidden(_) => (StatusCode::FORBIDDEN, "Forbidden"),
        Denied::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable"),
    };
    let body = format!("{{\"error\":\"{text}\"}}").into_bytes();
    let mut response = json_response(status, "application/json", body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    for challenge in authenticator.challenges_for(Head::of(head, peer), denied) {
        if let Ok(value) = HeaderValue::from_str(&challenge) {
            headers.append(WWW_AUTHENTICATE, value);
        }
    }
    response
}
