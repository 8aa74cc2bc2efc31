//! Authentication. The dispatcher authenticates every request before a binding parses it.

mod certificates;
mod combined;
mod function;
mod hide;
#[cfg(feature = "signing")]
mod jwt;
mod known;
mod reloadable;

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
pub use self::function::authenticator_fn;
#[cfg(feature = "signing")]
pub use self::jwt::{JwtCallers, JwtIssuer, JwtSetupError};
pub use self::known::{KeyPlace, KnownCallers};
pub use self::reloadable::{AnonymousAccess, Reloadable};

pub(crate) use self::hide::hide_credentials;

use crate::Peer;
#[cfg(feature = "grpc")]
use crate::binding::grpc;
use crate::dispatch::RequestHead;
use crate::http::body::Body;
use crate::http::response::json_response;

/// Authenticates the callers of requests.
///
/// [`KnownCallers`] does it for static tokens, passwords and API keys, `JwtCallers` for tokens of an identity provider,
/// [`CertificateCallers`] for client certificates, [`authenticator_fn`] for a closure. [`AnyOf`] and [`AllOf`] combine several.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot tell who sends a request",
    note = "`KnownCallers` can, for tokens, passwords and API keys"
)]
pub trait Authenticator: Send + Sync + 'static {
    /// The caller of a request.
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a>;

    /// The security schemes, with their names in the card.
    fn schemes(&self) -> Vec<(String, SecurityScheme)>;

    /// Which schemes are required. By default any one of them.
    fn requirements(&self) -> Vec<SecurityRequirement> {
        let alone =
            |(name, _)| SecurityRequirement { schemes: BTreeMap::from([(name, StringList::default())]) };
        self.schemes().into_iter().map(alone).collect()
    }

    /// The values of `WWW-Authenticate` for a request without valid credentials.
    fn challenges(&self) -> Vec<String>;

    /// The same by the reason of the denial. By default there are none for a caller that is known but not allowed.
    fn challenges_for(&self, head: Head<'_>, denied: &Denied) -> Vec<String> {
        let _ = head;
        match denied {
            Denied::Missing | Denied::Wrong(_) | Denied::Expired(_) => self.challenges(),
            Denied::Forbidden(_) | Denied::Unavailable(_) => Vec::new(),
        }
    }

    /// Whether every caller is admitted without credentials. The server then protects itself from web pages as if it had no authenticator.
    fn admits_everyone(&self) -> bool {
        false
    }

    /// Yields an item whenever the [`schemes`](Self::schemes) may have changed, so that the card follows.
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

/// The part of a request that authenticators see.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// The headers; over gRPC, the metadata.
    pub headers: &'a HeaderMap,
    /// The query as it was sent.
    pub query: Option<&'a str>,
    /// The other end of the connection, if it is known.
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

/// The result of authenticating a request.
pub enum Verdict<'a> {
    /// The caller.
    Known(Identity),
    /// The request is denied.
    Denied(Denied),
    /// The result needs waiting, for example for a key.
    Later(BoxFuture<'a, Result<Identity, Denied>>),
}

/// Why a request is denied. The reasons go to the audit log only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// The request has no credential.
    Missing,
    /// The credential is not valid.
    Wrong(String),
    /// The credential has expired.
    Expired(String),
    /// The caller is known but not allowed.
    Forbidden(String),
    /// The credential cannot be verified at the moment.
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
pub(crate) async fn authenticate(
    authenticator: &dyn Authenticator,
    head: Head<'_>,
) -> Result<Identity, Denied> {
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
    if let Some(package) = grpc::package_of(head.uri.path()) {
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
