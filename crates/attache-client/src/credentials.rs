//! Credentials, as the agent's card asks for them.
//!
//! A card names security schemes and says which of them are sufficient. For each request the client tries the sufficient
//! combinations in the order of the card, and takes the first one for which [`Credentials`] has everything. Credentials that
//! the card does not ask for are not sent.

use std::fmt;

use attache_protocol::SecurityScheme;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::{BoxFuture, FutureExt, ready};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderValue};

use crate::ClientError;
use crate::http::Http;

/// A secret text. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl<S: Into<String>> From<S> for Secret {
    fn from(text: S) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A credential for one scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// A token, for example from OAuth. It is sent in the `Authorization` header after the name of its scheme.
    Token(Secret),
    /// A user name and a password.
    Basic {
        /// The user name.
        user: String,
        /// The password.
        password: Secret,
    },
    /// An API key. It is sent in the header, the query or the cookie that the card names.
    ApiKey(Secret),
}

/// A request for the credential of one scheme.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CredentialRequest<'a> {
    /// The name of the scheme in the card.
    pub name: &'a str,
    /// The scheme.
    pub scheme: &'a SecurityScheme,
    /// The required scopes, if the scheme has scopes.
    pub scopes: &'a [String],
    /// The URL that the credential is sent to.
    pub url: &'a Url,
    /// The address of the agent, which the credentials were given for.
    #[cfg_attr(not(feature = "oauth"), expect(dead_code, reason = "only logins need it"))]
    pub(crate) card_url: &'a Url,
    /// Whether the URL has another origin than the address, and that origin is not trusted.
    pub(crate) is_other_origin: bool,
    /// The HTTP client, with the options of this client.
    #[cfg_attr(not(feature = "oauth"), expect(dead_code, reason = "only logins need it"))]
    pub(crate) http: &'a Http,
}

impl<'a> CredentialRequest<'a> {
    /// The credential that may be sent to this URL.
    pub(crate) fn resolve(self, credentials: &'a dyn Credentials) -> CredentialFuture<'a> {
        match self.is_other_origin {
            false => credentials.credential(self),
            true => credentials.credential_for_other_origin(self),
        }
    }
}

/// What is sent to an address, independently of its card.
#[derive(Debug, Clone, Default)]
pub enum PresetCredentials {
    /// Nothing is preset: the card decides which credentials are sent.
    #[default]
    FromCard,
    /// These headers are sent with every request, including the one for the card.
    Headers(HeaderMap),
    /// No credentials are sent. The agent decides whether it accepts that.
    Anonymous,
}

/// The result of looking up a credential; nothing if there is none.
pub type CredentialFuture<'a> = BoxFuture<'a, Result<Option<Credential>, ClientError>>;

/// A source of credentials.
///
/// It is called before every request, so an implementation that fetches tokens must cache them. [`SchemeCredentials`] has fixed
/// credentials.
pub trait Credentials: Send + Sync + 'static {
    /// The credential for a scheme; nothing if there is none. An error ends the request.
    fn credential<'a>(&'a self, request: CredentialRequest<'a>) -> CredentialFuture<'a>;

    /// The credential for a URL at another origin than that of the agent's address, which is not
    /// [trusted](crate::ClientOptions::trusted_origins) either. Return only a credential that was given for exactly that
    /// [URL](CredentialRequest::url). The default returns none.
    fn credential_for_other_origin<'a>(&'a self, request: CredentialRequest<'a>) -> CredentialFuture<'a> {
        let _ = request;
        ready(Ok(None)).boxed()
    }

    /// Called when the agent refused a credential. Returns whether another one is available now; then the request is sent once
    /// more.
    fn refused<'a>(
        &'a self,
        request: CredentialRequest<'a>,
        credential: &'a Credential,
    ) -> BoxFuture<'a, Result<bool, ClientError>> {
        let _ = (request, credential);
        ready(Ok(false)).boxed()
    }

    /// What is sent to an address, independently of its card.
    fn preset(&self, url: &Url) -> PresetCredentials {
        let _ = url;
        PresetCredentials::FromCard
    }
}

/// Uses the credential of the first source that has one.
impl<A: Credentials, B: Credentials> Credentials for (A, B) {
    fn credential<'a>(&'a self, request: CredentialRequest<'a>) -> CredentialFuture<'a> {
        async move {
            match self.0.credential(request).await? {
                Some(credential) => Ok(Some(credential)),
                None => self.1.credential(request).await,
            }
        }
        .boxed()
    }

    fn credential_for_other_origin<'a>(&'a self, request: CredentialRequest<'a>) -> CredentialFuture<'a> {
        async move {
            match self.0.credential_for_other_origin(request).await? {
                Some(credential) => Ok(Some(credential)),
                None => self.1.credential_for_other_origin(request).await,
            }
        }
        .boxed()
    }

    fn refused<'a>(
        &'a self,
        request: CredentialRequest<'a>,
        credential: &'a Credential,
    ) -> BoxFuture<'a, Result<bool, ClientError>> {
        async move {
            match request.resolve(&self.0).await? {
                Some(_) => self.0.refused(request, credential).await,
                None => self.1.refused(request, credential).await,
            }
        }
        .boxed()
    }

    /// Uses the headers of the first source that has some. Sends nothing only if both sources preset that.
    fn preset(&self, url: &Url) -> PresetCredentials {
        match (self.0.preset(url), self.1.preset(url)) {
            (headers @ PresetCredentials::Headers(_), _) | (_, headers @ PresetCredentials::Headers(_)) => {
                headers
            }
            (PresetCredentials::Anonymous, PresetCredentials::Anonymous) => PresetCredentials::Anonymous,
            (PresetCredentials::FromCard, _) | (_, PresetCredentials::FromCard) => {
                PresetCredentials::FromCard
            }
        }
    }
}

/// An optional source.
impl<C: Credentials> Credentials for Option<C> {
    fn credential<'a>(&'a self, request: CredentialRequest<'a>) -> CredentialFuture<'a> {
        match self {
            Some(credentials) => credentials.credential(request),
            None => ready(Ok(None)).boxed(),
        }
    }

    fn credential_for_other_origin<'a>(&'a self, request: CredentialRequest<'a>) -> CredentialFuture<'a> {
        match self {
            Some(credentials) => credentials.credential_for_other_origin(request),
            None => ready(Ok(None)).boxed(),
        }
    }

    fn refused<'a>(
        &'a self,
        request: CredentialRequest<'a>,
        credential: &'a Credential,
    ) -> BoxFuture<'a, Result<bool, ClientError>> {
        match self {
            Some(credentials) => credentials.refused(request, credential),
            None => ready(Ok(false)).boxed(),
        }
    }

    fn preset(&self, url: &Url) -> PresetCredentials {
        self.as_ref().map_or(PresetCredentials::FromCard, |credentials| credentials.preset(url))
    }
}

impl fmt::Debug for dyn Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(credentials)")
    }
}

/// Fixed credentials for security schemes.
///
/// A credential that is named for a scheme takes precedence over one that only fits its type.
///
/// ```
/// use attache_client::{ClientOptions, SchemeCredentials};
///
/// let keys = SchemeCredentials::new().token("eyJhbGciOi…").named("partner", attache_client::Credential::ApiKey("k-17".into()));
/// let options = ClientOptions::default().with_credentials(keys);
/// ```
#[derive(Debug, Clone, Default)]
pub struct SchemeCredentials {
    named: Vec<(String, Credential)>,
    any: Vec<Credential>,
}

impl SchemeCredentials {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a token for every scheme that takes one: HTTP `Bearer`, OAuth, OpenID Connect.
    pub fn token(self, token: impl Into<Secret>) -> Self {
        self.any(Credential::Token(token.into()))
    }

    /// Adds a user name and a password for HTTP `Basic`.
    pub fn basic(self, user: impl Into<String>, password: impl Into<Secret>) -> Self {
        self.any(Credential::Basic { user: user.into(), password: password.into() })
    }

    /// Adds an API key for every scheme that takes one.
    pub fn api_key(self, key: impl Into<Secret>) -> Self {
        self.any(Credential::ApiKey(key.into()))
    }

    /// Adds a credential for the scheme with this name in a card, and for no other scheme.
    pub fn named(mut self, scheme: impl Into<String>, credential: Credential) -> Self {
        self.named.push((scheme.into(), credential));
        self
    }

    fn any(mut self, credential: Credential) -> Self {
        self.any.push(credential);
        self
    }
}

impl Credentials for SchemeCredentials {
    fn credential<'a>(&'a self, request: CredentialRequest<'a>) -> CredentialFuture<'a> {
        let named =
            self.named.iter().filter(|(name, _)| name == request.name).map(|(_, credential)| credential);
        let found = named.chain(&self.any).find(|credential| credential.fits(request.scheme));
        ready(Ok(found.cloned())).boxed()
    }
}

impl Credential {
    fn fits(&self, scheme: &SecurityScheme) -> bool {
        match (scheme, self) {
            (SecurityScheme::HttpAuth(http), Self::Basic { .. }) => is_basic(&http.scheme),
            (SecurityScheme::HttpAuth(http), Self::Token(_)) => !is_basic(&http.scheme),
            (SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_), Self::Token(_))
            | (SecurityScheme::ApiKey(_), Self::ApiKey(_)) => true,
            (SecurityScheme::HttpAuth(_), Self::ApiKey(_))
            | (
                SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_),
                Self::Basic { .. } | Self::ApiKey(_),
            )
            | (SecurityScheme::ApiKey(_), Self::Token(_) | Self::Basic { .. })
            | (SecurityScheme::MutualTls(_), _) => false,
        }
    }
}

pub(crate) fn is_basic(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("basic")
}

/// User name and password, encoded for `Basic`.
pub(crate) fn basic_pair(user: &str, password: &str) -> String {
    STANDARD.encode(format!("{user}:{password}"))
}

/// A secret as a header value, marked as sensitive. `what` names it in the error.
pub(crate) fn secret_header(text: &str, what: impl fmt::Display) -> Result<HeaderValue, ClientError> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| ClientError::Invalid(format!("the {what} cannot be sent as a header")))?;
    value.set_sensitive(true);
    Ok(value)
}
