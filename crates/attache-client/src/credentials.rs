//! Credentials, as the agent's card asks for them.
//!
//! A card names security schemes and says which of them are sufficient. For each request the client tries the sufficient
//! combinations in the order of the card, and takes the first one for which [`Credentials`] has everything. Credentials that
//! the card does not ask for are not sent.

use std::fmt;

use attache_protocol::{AgentCard, ApiKeySecurityScheme, Operation, SecurityRequirement, SecurityScheme};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::{BoxFuture, FutureExt, ready};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue};

use crate::ClientError;
use crate::http::{Http, place};

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
pub struct Asked<'a> {
    /// The name of the scheme in the card.
    pub name: &'a str,
    /// The scheme.
    pub scheme: &'a SecurityScheme,
    /// The required scopes, if the scheme has scopes.
    pub scopes: &'a [String],
    /// The URL that the credential is sent to.
    pub url: &'a Url,
    /// The address of the agent, which the credentials were given for.
    pub(crate) card_url: &'a Url,
    /// Whether the URL has another origin than the address, and that origin is not trusted.
    pub(crate) is_elsewhere: bool,
    /// The HTTP client, with the options of this client.
    pub(crate) http: &'a Http,
}

impl<'a> Asked<'a> {
    /// The credential that may be sent to this URL.
    fn of(self, credentials: &'a dyn Credentials) -> BoxFuture<'a, Result<Option<Credential>, ClientError>> {
        match self.is_elsewhere {
            false => credentials.credential(self),
            true => credentials.credential_elsewhere(self),
        }
    }
}

/// What is sent to an address, independently of its card.
#[derive(Debug, Clone, Default)]
pub enum Beforehand {
    /// Nothing is preset: the card decides which credentials are sent.
    #[default]
    AsAsked,
    /// These headers are sent with every request, including the one for the card.
    Headers(HeaderMap),
    /// No credentials are sent. The agent decides whether it accepts that.
    Without,
}

/// A source of credentials.
///
/// It is called before every request, so an implementation that fetches tokens must cache them. [`SchemeCredentials`] has fixed
/// credentials.
pub trait Credentials: Send + Sync + 'static {
    /// The credential for a scheme; nothing if there is none. An error ends the request.
    fn credential<'a>(&'a self, asked: Asked<'a>) -> BoxFuture<'a, Result<Option<Credential>, ClientError>>;

    /// The credential for a URL at another origin than that of the agent's address, which is not
    /// [trusted](crate::ClientOptions::trusted_origins) either. Return only a credential that was given for exactly that
    /// [URL](CredentialRequest::url). The default returns none.
    fn credential_elsewhere<'a>(
        &'a self,
        asked: Asked<'a>,
    ) -> BoxFuture<'a, Result<Option<Credential>, ClientError>> {
        let _ = asked;
        ready(Ok(None)).boxed()
    }

    /// Called when the agent refused a credential. Returns whether another one is available now; then the request is sent once
    /// more.
    fn refused<'a>(
        &'a self,
        asked: Asked<'a>,
        credential: &'a Credential,
    ) -> BoxFuture<'a, Result<bool, ClientError>> {
        let _ = (asked, credential);
        ready(Ok(false)).boxed()
    }

    /// What is sent to an address, independently of its card.
    fn beforehand(&self, url: &Url) -> Beforehand {
        let _ = url;
        Beforehand::AsAsked
    }
}

/// Uses the credential of the first source that has one.
impl<A: Credentials, B: Credentials> Credentials for (A, B) {
    fn credential<'a>(&'a self, asked: Asked<'a>) -> BoxFuture<'a, Result<Option<Credential>, ClientError>> {
        async move {
            match self.0.credential(asked).await? {
                Some(credential) => Ok(Some(credential)),
                None => self.1.credential(asked).await,
            }
        }
        .boxed()
    }

    fn credential_elsewhere<'a>(
        &'a self,
        asked: Asked<'a>,
    ) -> BoxFuture<'a, Result<Option<Credential>, ClientError>> {
        async move {
            match self.0.credential_elsewhere(asked).await? {
                Some(credential) => Ok(Some(credential)),
                None => self.1.credential_elsewhere(asked).await,
            }
        }
        .boxed()
    }

    fn refused<'a>(
        &'a self,
        asked: Asked<'a>,
        credential: &'a Credential,
    ) -> BoxFuture<'a, Result<bool, ClientError>> {
        async move {
            match asked.of(&self.0).await? {
                Some(_) => self.0.refused(asked, credential).await,
                None => self.1.refused(asked, credential).await,
            }
        }
        .boxed()
    }

    /// Uses the headers of the first source that has some. Sends nothing only if both sources say so.
    fn beforehand(&self, url: &Url) -> Beforehand {
        match (self.0.beforehand(url), self.1.beforehand(url)) {
            (headers @ Beforehand::Headers(_), _) | (_, headers @ Beforehand::Headers(_)) => headers,
            (Beforehand::Without, Beforehand::Without) => Beforehand::Without,
            (Beforehand::AsAsked, _) | (_, Beforehand::AsAsked) => Beforehand::AsAsked,
        }
    }
}

/// An optional source.
impl<C: Credentials> Credentials for Option<C> {
    fn credential<'a>(&'a self, asked: Asked<'a>) -> BoxFuture<'a, Result<Option<Credential>, ClientError>> {
        match self {
            Some(credentials) => credentials.credential(asked),
            None => ready(Ok(None)).boxed(),
        }
    }

    fn credential_elsewhere<'a>(
        &'a self,
        asked: Asked<'a>,
    ) -> BoxFuture<'a, Result<Option<Credential>, ClientError>> {
        match self {
            Some(credentials) => credentials.credential_elsewhere(asked),
            None => ready(Ok(None)).boxed(),
        }
    }

    fn refused<'a>(
        &'a self,
        asked: Asked<'a>,
        credential: &'a Credential,
    ) -> BoxFuture<'a, Result<bool, ClientError>> {
        match self {
            Some(credentials) => credentials.refused(asked, credential),
            None => ready(Ok(false)).boxed(),
        }
    }

    fn beforehand(&self, url: &Url) -> Beforehand {
        self.as_ref().map_or(Beforehand::AsAsked, |credentials| credentials.beforehand(url))
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
/// use attache_client::{ClientOptions, Keyring};
///
/// let keys = Keyring::new().token("eyJhbGciOi…").named("partner", attache_client::Credential::ApiKey("k-17".into()));
/// let options = ClientOptions::default().with_credentials(keys);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Keyring {
    named: Vec<(String, Credential)>,
    any: Vec<Credential>,
}

impl Keyring {
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

impl Credentials for Keyring {
    fn credential<'a>(&'a self, asked: Asked<'a>) -> BoxFuture<'a, Result<Option<Credential>, ClientError>> {
        let named =
            self.named.iter().filter(|(name, _)| name == asked.name).map(|(_, credential)| credential);
        let found = named.chain(&self.any).find(|credential| credential.fits(asked.scheme));
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

fn is_basic(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("basic")
}

/// The agent that credentials are sent to.
#[derive(Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub(crate) card: &'a AgentCard,
    /// The address of the agent.
    pub(crate) card_url: &'a Url,
    /// The URL that the credentials are sent to.
    pub(crate) url: &'a Url,
}

/// What authenticates one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) query: Vec<(String, Secret)>,
    cookies: Vec<String>,
    /// The credentials that were used, with the names of their schemes.
    used: Vec<(String, Credential)>,
}

impl Proof {
    /// Collects what the card requires for an operation. Without any credentials it is empty: the agent decides whether it
    /// accepts that.
    pub(crate) async fn gather(
        http: &Http,
        asking: Asking<'_>,
        operation: Operation,
    ) -> Result<Self, ClientError> {
        let Some(credentials) = http.options.credentials.as_deref() else { return Ok(Self::default()) };
        match credentials.beforehand(asking.url) {
            Beforehand::AsAsked => {}
            Beforehand::Without => return Ok(Self::default()),
            Beforehand::Headers(headers) => {
                let headers = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                return Ok(Self { headers, ..Self::default() });
            }
        }
        let sufficient = sufficient(asking.card, operation);
        if sufficient.is_empty() {
            return Ok(Self::default());
        }
        for requirement in &sufficient {
            if let Some(proof) = Self::satisfy(http, credentials, asking, requirement).await? {
                return Ok(proof);
            }
        }
        http.options.trusted_origins.may_show(asking.card_url, asking.url)?;
        Err(ClientError::Credentials {
            agent: asking.card.name.clone(),
            wanted: sufficient.iter().map(names).collect(),
        })
    }

    /// Whether other credentials are available after the agent refused these.
    pub(crate) async fn refused(
        &self,
        http: &Http,
        asking: Asking<'_>,
        operation: Operation,
    ) -> Result<bool, ClientError> {
        let Asking { card, card_url, url } = asking;
        let is_elsewhere = http.options.trusted_origins.may_show(card_url, url).is_err();
        let Some(credentials) = http.options.credentials.as_deref() else { return Ok(false) };
        let sufficient = sufficient(card, operation);
        let is_used = |requirement: &&SecurityRequirement| {
            self.used.iter().all(|(name, _)| requirement.schemes.contains_key(name))
        };
        let Some(requirement) = sufficient.iter().find(is_used) else { return Ok(false) };
        let mut changed = false;
        for (name, credential) in &self.used {
            let (scheme, scopes) = (card.security_schemes.get(name), requirement.schemes.get(name));
            let (Some(scheme), Some(scopes)) = (scheme, scopes) else { continue };
            let asked = Asked { name, scheme, scopes: &scopes.list, url, card_url, is_elsewhere, http };
            changed |= credentials.refused(asked, credential).await?;
        }
        Ok(changed)
    }

    async fn satisfy(
        http: &Http,
        credentials: &dyn Credentials,
        asking: Asking<'_>,
        requirement: &SecurityRequirement,
    ) -> Result<Option<Self>, ClientError> {
        let Asking { card, card_url, url } = asking;
        let is_elsewhere = http.options.trusted_origins.may_show(card_url, url).is_err();
        let mut proof = Self::default();
        for (name, scopes) in &requirement.schemes {
            let Some(scheme) = card.security_schemes.get(name) else { return Ok(None) };
            // The certificate was sent with the TLS handshake.
            if matches!(scheme, SecurityScheme::MutualTls(_)) && http.options.identity.is_some() {
                continue;
            }
            let asked = Asked { name, scheme, scopes: &scopes.list, url, card_url, is_elsewhere, http };
            let Some(credential) = asked.of(credentials).await? else { return Ok(None) };
            proof.add(asked, &credential)?;
            proof.used.push((name.clone(), credential));
        }
        if !proof.cookies.is_empty() {
            let value = scheme_header(&proof.cookies.join("; "), "cookie")?;
            proof.headers.push((COOKIE, value));
        }
        Ok(Some(proof))
    }

    fn add(&mut self, asked: Asked<'_>, credential: &Credential) -> Result<(), ClientError> {
        let authorization = |scheme: &str, value: &str| {
            let text = format!("{scheme} {value}");
            scheme_header(&text, asked.name).map(|value| (AUTHORIZATION, value))
        };
        match (asked.scheme, credential) {
            (SecurityScheme::HttpAuth(http), Credential::Basic { user, password })
                if is_basic(&http.scheme) =>
            {
                self.headers.push(authorization("Basic", &basic_pair(user, password.reveal()))?);
            }
            (SecurityScheme::HttpAuth(http), Credential::Token(token)) if !is_basic(&http.scheme) => {
                let bearer = http.scheme.is_empty() || http.scheme.eq_ignore_ascii_case("bearer");
                let scheme = if bearer { "Bearer" } else { http.scheme.as_str() };
                self.headers.push(authorization(scheme, token.reveal())?);
            }
            (SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_), Credential::Token(token)) => {
                self.headers.push(authorization("Bearer", token.reveal())?);
            }
            (SecurityScheme::ApiKey(scheme), Credential::ApiKey(key)) => self.add_key(asked, scheme, key)?,
            (
                SecurityScheme::HttpAuth(_)
                | SecurityScheme::OAuth2(_)
                | SecurityScheme::OpenIdConnect(_)
                | SecurityScheme::ApiKey(_)
                | SecurityScheme::MutualTls(_),
                _,
            ) => {
                let text = format!(
                    "the credential for the scheme `{}` is of another kind than the scheme",
                    asked.name
                );
                return Err(ClientError::Invalid(text));
            }
        }
        Ok(())
    }

    fn add_key(
        &mut self,
        asked: Asked<'_>,
        scheme: &ApiKeySecurityScheme,
        key: &Secret,
    ) -> Result<(), ClientError> {
        let unclear = |why: String| {
            let text = format!("the scheme `{}` of the card at `{}` {why}", asked.name, place(asked.url));
            ClientError::Protocol(text)
        };
        match scheme.location.to_ascii_lowercase().as_str() {
            _ if scheme.name.is_empty() => return Err(unclear("does not name its key".to_owned())),
            "header" => {
                let name = HeaderName::from_bytes(scheme.name.as_bytes())
                    .map_err(|_| unclear("has a key that no header can be named after".to_owned()))?;
                self.headers.push((name, scheme_header(key.reveal(), asked.name)?));
            }
            "query" => self.query.push((scheme.name.clone(), key.clone())),
            "cookie" => {
                // Either character would end the cookie and start another one.
                if scheme.name.contains(['=', ';']) || key.reveal().contains(';') {
                    return Err(unclear("has a key that cannot be a cookie".to_owned()));
                }
                self.cookies.push(format!("{}={}", scheme.name, key.reveal()));
            }
            other => {
                let other: String = other.chars().take(64).collect();
                return Err(unclear(format!(
                    "has its key in `{other}`, expected one of: header, query, cookie"
                )));
            }
        }
        Ok(())
    }
}

/// The sufficient requirements for an operation. The extended card requires an authenticated caller, even if other operations
/// do not.
fn sufficient(card: &AgentCard, operation: Operation) -> Vec<SecurityRequirement> {
    if operation != Operation::GetExtendedAgentCard || !card.security_requirements.is_empty() {
        return card.security_requirements.clone();
    }
    let alone = |name: &String| SecurityRequirement { schemes: [(name.clone(), Default::default())].into() };
    card.security_schemes.keys().map(alone).collect()
}

fn names(requirement: &SecurityRequirement) -> String {
    requirement.schemes.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" with ")
}

/// User name and password, encoded for `Basic`.
pub(crate) fn basic_pair(user: &str, password: &str) -> String {
    STANDARD.encode(format!("{user}:{password}"))
}

fn scheme_header(text: &str, scheme: &str) -> Result<HeaderValue, ClientError> {
    secret_header(text, format_args!("credential for the scheme `{scheme}`"))
}

/// A secret as a header value, marked as sensitive. `what` names it in the error.
pub(crate) fn secret_header(text: &str, what: impl fmt::Display) -> Result<HeaderValue, ClientError> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| ClientError::Invalid(format!("the {what} cannot be sent as a header")))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use attache_protocol::dialect::read_card;
    use serde_json::{Value, json};

    use super::*;
    use crate::ClientOptions;

    fn card(requirements: &Value) -> AgentCard {
        let card = json!({
            "name": "Safe",
            "supportedInterfaces": [{}],
            "securitySchemes": {
                "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}},
                "basic": {"httpAuthSecurityScheme": {"scheme": "Basic"}},
                "custom": {"httpAuthSecurityScheme": {"scheme": "DPoP"}},
                "header": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
                "query": {"apiKeySecurityScheme": {"location": "query", "name": "key"}},
                "cookie": {"apiKeySecurityScheme": {"location": "cookie", "name": "session"}},
                "cookie2": {"apiKeySecurityScheme": {"location": "cookie", "name": "second"}},
                "nowhere": {"apiKeySecurityScheme": {"location": "body", "name": "k"}},
                "oauth": {"oauth2SecurityScheme": {"flows": {"clientCredentials": {"tokenUrl": "https://t"}}}},
                "openid": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://o"}},
                "tls": {"mtlsSecurityScheme": {}},
            },
            "securityRequirements": requirements,
        });
        read_card(card.to_string().as_bytes()).unwrap()
    }

    /// What is sent to an agent with these requirements, one line each.
    async fn sent(
        keys: &Keyring,
        requirements: Value,
        operation: Operation,
    ) -> Result<Vec<String>, ClientError> {
        let url = "https://a.example/rpc".parse().unwrap();
        let http = Http::new(ClientOptions::default().with_credentials(keys.clone())).unwrap();
        let asking = Asking { card: &card(&requirements), card_url: &url, url: &url };
        let proof = Proof::gather(&http, asking, operation).await?;
        let headers = proof.headers.iter().map(|(name, value)| {
            assert!(value.is_sensitive());
            format!("{name}: {}", value.to_str().unwrap())
        });
        let query = proof.query.iter().map(|(name, value)| format!("?{name}={}", value.reveal()));
        Ok(headers.chain(query).collect())
    }

    fn all(names: &[&str]) -> Value {
        let schemes: serde_json::Map<_, _> =
            names.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        json!({ "schemes": schemes })
    }

    fn keys() -> Keyring {
        Keyring::new().token("t-1").basic("ann", "p:w").api_key("k-1")
    }

    #[tokio::test]
    async fn a_credential_goes_where_its_scheme_says() {
        for (scheme, expected) in [
            ("bearer", "authorization: Bearer t-1"),
            ("custom", "authorization: DPoP t-1"),
            ("oauth", "authorization: Bearer t-1"),
            ("openid", "authorization: Bearer t-1"),
            ("basic", "authorization: Basic YW5uOnA6dw=="),
            ("header", "x-key: k-1"),
            ("query", "?key=k-1"),
            ("cookie", "cookie: session=k-1"),
        ] {
            let sent = sent(&keys(), json!([all(&[scheme])]), Operation::SendMessage).await.unwrap();
            assert_eq!(sent, [expected], "{scheme}");
        }
        let both =
            sent(&keys(), json!([all(&["cookie", "cookie2", "bearer"])]), Operation::GetTask).await.unwrap();
        assert_eq!(both, ["authorization: Bearer t-1", "cookie: session=k-1; second=k-1"]);
    }

    #[tokio::test]
    async fn the_first_requirement_that_can_be_met_is_met_and_nothing_else_is_sent() {
        let key = Keyring::new().api_key("k-1");
        let requirements =
            json!([all(&["tls"]), all(&["header", "bearer"]), all(&["query"]), all(&["cookie"])]);
        assert_eq!(sent(&key, requirements, Operation::SendMessage).await.unwrap(), ["?key=k-1"]);
        assert!(sent(&keys(), json!([]), Operation::SendMessage).await.unwrap().is_empty());
        assert!(sent(&keys(), json!([all(&[])]), Operation::SendMessage).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_is_asked_for_and_not_there_is_named() {
        let requirements = json!([all(&["basic", "header"]), all(&["unheard-of"])]);
        let error =
            sent(&Keyring::new().token("t-1"), requirements, Operation::SendMessage).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the agent `Safe` asks for credentials that there are none of: `basic` with `header`, or `unheard-of`"
        );
        let error = sent(&keys(), json!([all(&["nowhere"])]), Operation::SendMessage).await.unwrap_err();
        assert!(error.to_string().contains("expected one of: header, query, cookie"), "{error}");
    }

    #[tokio::test]
    async fn a_credential_for_one_scheme_is_for_no_other() {
        let keys = keys().named("bearer", Credential::Token("t-2".into()));
        let bearer = sent(&keys, json!([all(&["bearer"])]), Operation::SendMessage).await.unwrap();
        assert_eq!(bearer, ["authorization: Bearer t-2"]);
        let oauth = sent(&keys, json!([all(&["oauth"])]), Operation::SendMessage).await.unwrap();
        assert_eq!(oauth, ["authorization: Bearer t-1"]);
    }

    #[tokio::test]
    async fn the_extended_card_is_asked_for_by_somebody_even_where_anybody_may_ask() {
        let extended = Operation::GetExtendedAgentCard;
        assert_eq!(
            sent(&Keyring::new().api_key("k-1"), json!([]), extended).await.unwrap(),
            ["cookie: session=k-1"]
        );
    }

    #[tokio::test]
    async fn secrets_are_not_shown() {
        let shown = format!("{:?}", keys().named("a", Credential::ApiKey("k-2".into())));
        for secret in ["t-1", "p:w", "k-1", "k-2"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        let error = sent(&Keyring::new().token("t\n1"), json!([all(&["bearer"])]), Operation::GetTask).await;
        assert!(!error.unwrap_err().to_string().contains("t\n1"));
    }
}
