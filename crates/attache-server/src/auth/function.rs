//! An authenticator from an async closure.

use std::fmt;

use attache_core::Identity;
use attache_protocol::SecurityScheme;
use http::HeaderMap;

use super::{Authenticator, Denied, Head, Verdict};

/// An authenticator from an async closure over the headers of a request.
///
/// `name` and `scheme` are what the card lists. The closure gets a copy of the headers, and returns the caller or the reason why the
/// request is denied. The reason goes to the audit log only. [`Identity::metadata`] takes along what the agent should know about the
/// caller.
///
/// ```
/// use attache_core::Identity;
/// use attache_protocol::{ApiKeySecurityScheme, SecurityScheme};
/// use attache_server::auth::{Denied, authenticator_fn};
///
/// let scheme = SecurityScheme::ApiKey(ApiKeySecurityScheme {
///     location: "header".into(),
///     name: "X-Session".into(),
///     ..Default::default()
/// });
/// let callers = authenticator_fn("session", scheme, |headers: http::HeaderMap| async move {
///     match headers.get("x-session").map(|session| session.as_bytes()) {
///         Some(b"s3ss10n-of-ann") => Ok(Identity::named("ann").metadata("team", "red")),
///         Some(_) => Err(Denied::Wrong("unknown session".to_owned())),
///         None => Err(Denied::Missing),
///     }
/// });
/// ```
pub fn authenticator_fn<F, Fut>(
    name: impl Into<String>,
    scheme: SecurityScheme,
    authenticate: F,
) -> impl Authenticator
where
    F: Fn(HeaderMap) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Identity, Denied>> + Send + 'static,
{
    AuthenticatorFn { name: name.into(), scheme, authenticate }
}

struct AuthenticatorFn<F> {
    name: String,
    scheme: SecurityScheme,
    authenticate: F,
}

impl<F> fmt::Debug for AuthenticatorFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticatorFn").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<F, Fut> Authenticator for AuthenticatorFn<F>
where
    F: Fn(HeaderMap) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Identity, Denied>> + Send + 'static,
{
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a> {
        Verdict::Later(Box::pin((self.authenticate)(head.headers.clone())))
    }

    fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        vec![(self.name.clone(), self.scheme.clone())]
    }

    fn challenges(&self) -> Vec<String> {
        match &self.scheme {
            SecurityScheme::HttpAuth(http) => vec![format!("{} realm=\"a2a\"", http.scheme)],
            SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => {
                vec!["Bearer realm=\"a2a\"".to_owned()]
            }
            SecurityScheme::ApiKey(_) | SecurityScheme::MutualTls(_) => Vec::new(),
        }
    }
}
