//! What authenticates requests to an MCP server with a URL.

use attache_client::{ClientError, ClientOptions, OAuth, ResourceTokens, Secret};
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use reqwest::Client;
use serde::Deserialize;
use url::Url;

use super::http::{HttpError, read_body};

/// The largest metadata document, in bytes.
const MAX_METADATA: usize = 64 * 1024;

/// The source of tokens for a server.
pub(super) enum Login {
    /// The server gets the fixed headers only.
    None { has_credentials: bool },
    /// Tokens of an authorization server.
    OAuth(Box<OAuthLogin>),
}

/// Tokens of an authorization server, which the MCP server names when it asks for a login.
pub(super) struct OAuthLogin {
    tokens: ResourceTokens,
    url: Url,
    /// Where the login is stored, if it is. Otherwise the server says where to log in.
    stored: Option<LoginPlace>,
    current: Mutex<Option<Secret>>,
    /// Only one request at a time asks for a token.
    renewing: tokio::sync::Mutex<()>,
}

/// A login that is stored: the tokens of a person, or of a program, at an issuer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoredLogin {
    /// The client, with the store that has its tokens.
    pub oauth: OAuth,
    /// The issuer of the tokens.
    pub issuer: String,
    /// The scopes that they were requested for.
    pub scopes: Vec<String>,
}

impl StoredLogin {
    /// A login at this issuer.
    pub fn new(oauth: OAuth, issuer: impl Into<String>, scopes: Vec<String>) -> Self {
        Self { oauth, issuer: issuer.into(), scopes }
    }
}

/// Where callers of an MCP server log in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoginPlace {
    /// The authorization server.
    pub issuer: String,
    /// The scopes that the MCP server asks for.
    pub scopes: Vec<String>,
}

/// The metadata of a protected resource (RFC 9728).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResourceMetadata {
    authorization_servers: Vec<String>,
    scopes_supported: Vec<String>,
}

impl Login {
    pub(super) fn new(
        oauth: Option<&OAuth>,
        stored: Option<&StoredLogin>,
        url: &Url,
        has_credentials: bool,
        policy: Option<attache_outbound::Policy>,
    ) -> Result<Self, ClientError> {
        let Some(oauth) = oauth.or(stored.map(|stored| &stored.oauth)) else {
            return Ok(Self::None { has_credentials });
        };
        let mut options = ClientOptions::default();
        options.policy = policy;
        let tokens = ResourceTokens::new(oauth.clone(), url.clone(), options)?;
        let stored = stored.map(|StoredLogin { issuer, scopes, .. }| LoginPlace {
            issuer: issuer.clone(),
            scopes: scopes.clone(),
        });
        let login = OAuthLogin {
            tokens,
            url: url.clone(),
            stored,
            current: Mutex::default(),
            renewing: Default::default(),
        };
        Ok(Self::OAuth(Box::new(login)))
    }

    /// The token for the next request, if one is known.
    pub(super) fn token(&self) -> Option<Secret> {
        match self {
            Self::None { .. } => None,
            Self::OAuth(login) => login.current.lock().clone(),
        }
    }

    /// Gets a token after the server refused a request. The error says what the operator has to do.
    pub(super) async fn renew(
        &self,
        client: &Client,
        challenge: &HeaderMap,
        refused: Option<&Secret>,
    ) -> Result<Secret, HttpError> {
        match self {
            Self::None { has_credentials: false } => Err(HttpError::Login(
                "no credentials are configured: set a token, headers, or an OAuth client".to_owned(),
            )),
            Self::None { has_credentials: true } => Err(HttpError::Login(
                "it rejected the configured credentials, which may be wrong or expired".to_owned(),
            )),
            Self::OAuth(login) => login.renew(client, challenge, refused).await,
        }
    }
}

impl OAuthLogin {
    async fn renew(
        &self,
        client: &Client,
        challenge: &HeaderMap,
        refused: Option<&Secret>,
    ) -> Result<Secret, HttpError> {
        let _renewing = self.renewing.lock().await;
        // Another request may have renewed it in the meantime.
        let current = self.current.lock().clone();
        if let Some(current) = current.filter(|current| Some(current) != refused) {
            return Ok(current);
        }
        let LoginPlace { issuer, scopes } = match &self.stored {
            Some(stored) => stored.clone(),
            None => login_place(client, &self.url, challenge).await,
        };
        let token = self.tokens.token(&issuer, &scopes, refused).await;
        let token = token.map_err(|error| HttpError::Login(error.to_string()))?;
        let token = token.ok_or_else(|| {
            let text =
                "there is no stored token that it accepts, and the OAuth client has no secret to get one";
            HttpError::Login(format!("{text} from `{issuer}`"))
        })?;
        *self.current.lock() = Some(token.clone());
        Ok(token)
    }
}

/// Where callers log in, according to the response to a request without credentials, and to the metadata of the server.
pub(super) async fn login_place(client: &Client, url: &Url, challenge: &HeaderMap) -> LoginPlace {
    let challenge = Challenge::read(challenge);
    let metadata = metadata(client, url, &challenge).await;
    challenge.place(url, metadata)
}

/// The URLs that a challenge names for the metadata, and where callers log in, if this is the metadata.
pub(super) fn read_login_place(
    url: &Url,
    challenge: &HeaderMap,
    metadata: &[u8],
) -> Result<(Vec<Url>, LoginPlace), serde_json::Error> {
    let challenge = Challenge::read(challenge);
    let urls = challenge.metadata_urls(url);
    Ok((urls, challenge.place(url, serde_json::from_slice(metadata)?)))
}

/// The metadata of the server, from the first place that has it.
async fn metadata(client: &Client, server: &Url, challenge: &Challenge) -> ResourceMetadata {
    for url in challenge.metadata_urls(server) {
        let Ok(response) = client.get(url).header("accept", "application/json").send().await else {
            continue;
        };
        if !response.status().is_success() {
            continue;
        }
        let Ok(body) = read_body(response, MAX_METADATA).await else { continue };
        match serde_json::from_slice(&body) {
            Ok(metadata) => return metadata,
            Err(error) => {
                tracing::warn!(target: "attache::mcp", %error, "the metadata of an MCP server is invalid");
            }
        }
    }
    ResourceMetadata::default()
}

/// What the server wants, from its `WWW-Authenticate` header.
#[derive(Debug, Default, PartialEq, Eq)]
struct Challenge {
    metadata: Option<String>,
    scopes: Option<Vec<String>>,
}

impl Challenge {
    fn read(headers: &HeaderMap) -> Self {
        let mut challenge = Self::default();
        for value in headers.get_all(http::header::WWW_AUTHENTICATE).iter().filter_map(|it| it.to_str().ok())
        {
            challenge.metadata = challenge.metadata.or_else(|| parameter(value, "resource_metadata"));
            let scopes = || {
                let scopes = parameter(value, "scope")?;
                Some(scopes.split_whitespace().map(str::to_owned).collect())
            };
            challenge.scopes = challenge.scopes.or_else(scopes);
        }
        challenge
    }

    /// Where the metadata of the server can be: where it says, and at the well-known places. It must have the origin of the server.
    fn metadata_urls(&self, server: &Url) -> Vec<Url> {
        let well_known = "/.well-known/oauth-protected-resource";
        let path = server.path().trim_end_matches('/');
        let usual = [format!("{well_known}{path}"), well_known.to_owned()];
        let named = self.metadata.as_deref().and_then(|url| Url::parse(url).ok());
        let usual = usual.iter().filter_map(|path| server.join(path).ok());
        let mut urls: Vec<Url> = named.into_iter().chain(usual).collect();
        urls.retain(|url| {
            let is_own = url.origin() == server.origin();
            if !is_own {
                tracing::warn!(target: "attache::mcp", %url, "the metadata of an MCP server is at another origin and is not used");
            }
            is_own
        });
        urls
    }

    /// Where callers log in, according to the challenge and the metadata.
    fn place(self, server: &Url, metadata: ResourceMetadata) -> LoginPlace {
        let issuer = match metadata.authorization_servers.into_iter().next() {
            Some(issuer) => issuer,
            // Before there was metadata of resources, the MCP server was its own authorization server.
            None => server.origin().ascii_serialization(),
        };
        LoginPlace { issuer, scopes: self.scopes.unwrap_or(metadata.scopes_supported) }
    }
}

/// A parameter of a challenge.
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let mut rest = challenge;
    while let Some(at) = rest.find(name) {
        let before = rest[..at].chars().next_back();
        let after = &rest[at + name.len()..];
        rest = after;
        let is_name = before.is_none_or(|c| c.is_whitespace() || c == ',');
        if let Some(value) = after.trim_start().strip_prefix('=').filter(|_| is_name) {
            let value = value.trim_start();
            return Some(match value.strip_prefix('"') {
                Some(quoted) => quoted.split('"').next().unwrap_or_default().to_owned(),
                None => value.split([',', ' ']).next().unwrap_or_default().to_owned(),
            });
        }
    }
    None
}

/// The header with a token.
pub(super) fn bearer(token: &Secret) -> Result<HeaderValue, HttpError> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.reveal()))
        .map_err(|_| HttpError::Login("the token has characters that a header cannot have".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_names_metadata_and_scopes() {
        let read = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::WWW_AUTHENTICATE, value.parse().unwrap());
            Challenge::read(&headers)
        };
        let url = "https://a.example/.well-known/oauth-protected-resource";
        let full =
            read(&format!("Bearer error=\"invalid_token\", resource_metadata=\"{url}\", scope=\"a b\""));
        assert_eq!(
            full,
            Challenge { metadata: Some(url.into()), scopes: Some(vec!["a".into(), "b".into()]) }
        );
        assert_eq!(read("Bearer scope=a").scopes, Some(vec!["a".into()]));
        assert_eq!(read("Bearer x_scope=\"a\""), Challenge::default());
        assert_eq!(read("Basic realm=\"x\""), Challenge::default());
    }
}
