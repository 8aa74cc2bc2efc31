//! Who may come in. Every request passes here before any binding sees it, so that none of them can forget to ask.

mod known;

use attache_core::{BoxFuture, Identity};
use attache_protocol::{Error, ErrorKind, SecurityScheme};
use http::header::{CACHE_CONTROL, HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};

pub use self::known::{KeyPlace, KnownCallers};

use crate::body::Body;
use crate::grpc::{self, Package};
use crate::surface::json_response;

/// Finds out who sends a request.
///
/// [`KnownCallers`] is one for tokens, passwords and API keys.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot tell who sends a request",
    note = "`KnownCallers` can, for tokens, passwords and API keys"
)]
pub trait Authenticator: Send + Sync + 'static {
    /// Who sends a request with this head.
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a>;

    /// What it asks for, under the names that the card gives it. Any one of them suffices.
    fn schemes(&self) -> Vec<(String, SecurityScheme)>;

    /// What would do, for who came with nothing or with the wrong thing: values of `WWW-Authenticate`.
    fn challenges(&self) -> Vec<String>;
}

/// What a request says before its body.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// The headers; over gRPC, the metadata.
    pub headers: &'a HeaderMap,
    /// The query, as it was sent.
    pub query: Option<&'a str>,
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
    /// It is known who it is, and that they may not come in.
    Forbidden(String),
    /// It cannot be found out at the moment.
    Unavailable(String),
}

impl Denied {
    fn error(&self) -> Error {
        let (kind, text) = match self {
            Self::Missing => (ErrorKind::Unauthenticated, "credentials are required: the card says which"),
            Self::Wrong(_) => (ErrorKind::Unauthenticated, "the credentials are not valid"),
            Self::Forbidden(_) => (ErrorKind::PermissionDenied, "this is not for you"),
            Self::Unavailable(_) => {
                (ErrorKind::Unavailable, "who you are cannot be found out at the moment, try again")
            }
        };
        Error::new(kind, text)
    }

    fn reason(&self) -> &str {
        match self {
            Self::Missing => "no credentials",
            Self::Wrong(reason) | Self::Forbidden(reason) | Self::Unavailable(reason) => reason,
        }
    }
}

/// Asks who sends a request. Whoever is not let in gets the response.
pub(crate) async fn admit(
    authenticator: &dyn Authenticator,
    head: &Parts,
) -> Result<Identity, Response<Body>> {
    let asked = Head { headers: &head.headers, query: head.uri.query() };
    let denied = match authenticator.authenticate(asked) {
        Verdict::Known(identity) => return Ok(identity),
        Verdict::Denied(denied) => denied,
        Verdict::Later(found) => match found.await {
            Ok(identity) => return Ok(identity),
            Err(denied) => denied,
        },
    };
    let path: String = head.uri.path().chars().take(128).collect();
    tracing::warn!(target: "attache::audit", method = %head.method, path, reason = denied.reason(), "denied");
    Err(refuse(authenticator, &denied, head.uri.path()))
}

fn refuse(authenticator: &dyn Authenticator, denied: &Denied, path: &str) -> Response<Body> {
    if let Some(package) = Package::of(path) {
        return grpc::refuse(package, &denied.error());
    }
    let (status, text) = match denied {
        Denied::Missing | Denied::Wrong(_) => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        Denied::Forbidden(_) => (StatusCode::FORBIDDEN, "Forbidden"),
        Denied::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable"),
    };
    let body = format!("{{\"error\":\"{text}\"}}").into_bytes();
    let mut response = json_response(status, "application/json", body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::UNAUTHORIZED {
        for challenge in authenticator.challenges() {
            if let Ok(value) = HeaderValue::from_str(&challenge) {
                headers.append(WWW_AUTHENTICATE, value);
            }
        }
    }
    response
}
