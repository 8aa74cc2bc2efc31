//! Login with OAuth 2.0 and OpenID Connect, and the tokens that result.
//!
//! [`OAuth::login`] runs a [flow](Flow), may wait for a person, and stores the tokens. As [`Credentials`], [`OAuth`] never
//! waits for a person: it uses the stored tokens, renews them in time, and requests tokens with the client's secret if it has
//! one.
//!
//! The agent writes its card, so what the card says about the authorization server is not trusted. Nothing is sent to a server
//! that the user has not [agreed to](OAuth::server), to a server without TLS on another machine, or to an address that the
//! client's [policy](crate::ClientOptions::policy) forbids. Tokens are stored per agent and sent to no other agent.

mod browser;
mod device;
mod error;
mod file;
mod login_method;
pub mod parsing;
mod registration;
mod resource;
mod revoke;
mod token_request;
mod tokens;

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use reqwest::Url;
use url::Origin;

use self::browser::RedirectPort;
pub use self::error::LoginError;
pub use self::file::FileTokens;
use self::login_method::require_secure;
pub use self::login_method::{Flow, LoginMethod};
pub use self::registration::RegisteredClient;
pub use self::resource::ResourceTokens;
pub use self::revoke::Revocation;
use self::token_request::{OAuthClient, TokenRequest};
use self::tokens::now;
pub use self::tokens::{LockedTokens, MemoryTokens, TokenKey, TokenStore, TokenStoreError, Tokens};
use crate::credentials::{Credential, CredentialFuture, CredentialRequest, Credentials, Secret};
use crate::http::{Http, display_text};
use crate::{Client, ClientError};

/// The scope that requests a refresh token.
const OFFLINE: &str = "offline_access";

/// What a person must do to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoginPrompt<'a> {
    /// Open this in a browser on this machine.
    Browser {
        /// The address.
        url: &'a str,
    },
    /// Open this in any browser, and enter the code there.
    Code {
        /// The address.
        url: &'a str,
        /// The code.
        code: &'a str,
        /// An address that already contains the code, for example for a QR code.
        url_with_code: Option<&'a str>,
    },
}

/// An OAuth client, with its tokens.
///
/// ```
/// use attache_client::{ClientOptions, SchemeCredentials, OAuth};
///
/// let oauth = OAuth::new("my-program").secret("s3cret").server("https://auth.example.com")?;
/// // A token that is known from the beginning goes before one that has to be got.
/// let options = ClientOptions::default().with_credentials((SchemeCredentials::new(), oauth));
/// # Ok::<(), attache_client::ClientError>(())
/// ```
#[derive(Clone)]
pub struct OAuth {
    client: OAuthClient,
    agreed: Vec<Origin>,
    scopes: Vec<String>,
    resource: Option<String>,
    account: Option<String>,
    program: bool,
    store: Arc<dyn TokenStore>,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth").field("client", &self.client.id).finish_non_exhaustive()
    }
}

impl OAuth {
    /// A client with this id. Its tokens are kept in memory.
    pub fn new(client: impl Into<String>) -> Self {
        Self {
            client: OAuthClient { id: client.into(), secret: None, in_body: false },
            agreed: Vec::new(),
            scopes: Vec::new(),
            resource: None,
            account: None,
            program: false,
            store: Arc::new(MemoryTokens::new()),
        }
    }

    /// The client secret, for programs that can keep one. It is sent in a header (`client_secret_basic`).
    pub fn secret(mut self, secret: impl Into<Secret>) -> Self {
        self.client.secret = Some(secret.into());
        self
    }

    /// Sends the secret in the request body instead (`client_secret_post`).
    pub fn secret_in_body(mut self) -> Self {
        self.client.in_body = true;
        self
    }

    /// Agrees to an authorization server, by its scheme, host and port, in addition to earlier ones. That server receives the
    /// secret and the refresh tokens.
    ///
    /// A server that publishes [metadata](LoginMethod) may name other servers for some of its endpoints.
    pub fn server(mut self, server: &str) -> Result<Self, ClientError> {
        let shown = display_text(server);
        let url = Url::parse(server).map_err(|error| {
            let text = format!("`{shown}` is not an authorization server: {error}; expected something like `https://auth.example.com`");
            ClientError::Invalid(text)
        })?;
        let url = require_secure(url).map_err(|error| error.at(&shown))?;
        self.agreed.push(url.origin());
        Ok(self)
    }

    /// Scopes to request in addition to those that cards ask for.
    pub fn scopes(mut self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.scopes.extend(scopes.into_iter().map(Into::into));
        self
    }

    /// The resource to request tokens for (RFC 8707).
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// The account that the tokens are for, if the user has several with the same agent.
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.account = Some(account.into());
        self
    }

    /// Requests tokens with the [secret](Self::secret), even if the card does not offer that flow.
    pub fn program(mut self) -> Self {
        self.program = true;
        self
    }

    /// Uses another token store.
    pub fn store(mut self, store: impl TokenStore) -> Self {
        self.store = Arc::new(store);
        self
    }

    /// Logs in, and stores the tokens for requests to this agent.
    ///
    /// `show` is called with what the person must do, if anything. The client opens no browser.
    pub async fn login(
        &self,
        agent: &Client,
        login_method: &LoginMethod,
        flow: Flow,
        show: &(dyn Fn(LoginPrompt<'_>) + Send + Sync),
    ) -> Result<TokenKey, ClientError> {
        let transport = agent.transport();
        let http = &*transport.http;
        let key = self.key(login_method, &transport.agent.card_url);
        let server = login_method.resolve(http, &self.agreed).await?;
        self.login_at(http, &server, key, flow, None, show).await
    }

    /// Logs in at a server, and stores the tokens. A browser is redirected to the port, if one is open already.
    async fn login_at(
        &self,
        http: &Http,
        server: &login_method::Server,
        key: TokenKey,
        flow: Flow,
        port: Option<RedirectPort>,
        show: &(dyn Fn(LoginPrompt<'_>) + Send + Sync),
    ) -> Result<TokenKey, ClientError> {
        let mut scopes = key.scopes.clone();
        if server.offline_access
            && flow != Flow::ClientCredentials
            && !scopes.iter().any(|scope| scope == OFFLINE)
        {
            scopes.push(OFFLINE.to_owned());
        }
        let scopes = scopes.join(" ");
        let token_request = self.token_request(http, server, &scopes);
        let tokens = match flow {
            Flow::Browser => {
                let port = match port {
                    Some(port) => port,
                    None => RedirectPort::open().await?,
                };
                browser::login(token_request, port, &self.agreed, show).await?
            }
            Flow::Device => device::login(token_request, show).await?,
            Flow::ClientCredentials if self.client.secret.is_none() => {
                let why = "this flow requires a client secret, and there is none".to_owned();
                return Err(LoginError::Unsupported(why).at(&server.name));
            }
            Flow::ClientCredentials => token_request.client_credentials().await?,
        };
        self.store.lock(&key).await?.write(Some(&tokens))?;
        Ok(key)
    }

    fn token_request<'a>(
        &'a self,
        http: &'a Http,
        server: &'a login_method::Server,
        scopes: &'a str,
    ) -> TokenRequest<'a> {
        TokenRequest { http, server, client: &self.client, scopes, resource: self.resource.as_deref() }
    }

    fn key(&self, login_method: &LoginMethod, agent: &Url) -> TokenKey {
        let mut scopes = [login_method.scopes.as_slice(), &self.scopes].concat();
        scopes.sort();
        scopes.dedup();
        TokenKey {
            server: login_method.server_key(),
            client: self.client.id.clone(),
            scopes,
            resource: self.resource.clone(),
            agent: agent.origin().ascii_serialization(),
            account: self.account.clone(),
        }
    }

    /// Whether the client requests tokens with its secret.
    fn is_program(&self, login_method: &LoginMethod) -> bool {
        self.client.secret.is_some() && (self.program || login_method.flow() == Some(Flow::ClientCredentials))
    }

    /// Valid tokens other than the refused one, if they can be had without a person.
    async fn valid_tokens(
        &self,
        http: &Http,
        login_method: &LoginMethod,
        key: &TokenKey,
        refused: Option<&Secret>,
    ) -> Result<Option<Tokens>, ClientError> {
        let is_good = |tokens: &Tokens| !tokens.is_stale(now()) && Some(&tokens.access) != refused;
        let kept = self.store.read(key)?;
        if kept.as_ref().is_some_and(is_good) {
            return Ok(kept);
        }
        let can_renew = |tokens: &Option<Tokens>| tokens.as_ref().is_some_and(|kept| kept.refresh.is_some());
        if !can_renew(&kept) && !self.is_program(login_method) || !login_method.is_agreed(&self.agreed) {
            // It cannot be renewed. The agent decides whether it is still valid.
            return Ok(kept.filter(|tokens| Some(&tokens.access) != refused));
        }
        let mut locked = self.store.lock(key).await?;
        // The previous holder of the lock may have renewed them.
        let kept = locked.read()?;
        if kept.as_ref().is_some_and(is_good) {
            return Ok(kept);
        }
        let server = login_method.resolve(http, &self.agreed).await?;
        let scopes = key.scopes.join(" ");
        let token_request = self.token_request(http, &server, &scopes);
        if let Some(refresh) = kept.as_ref().and_then(|tokens| tokens.refresh.as_ref()) {
            tracing::debug!(server = server.name, client = key.client, "renewing a token");
            match token_request.refresh(refresh).await {
                Ok(tokens) => {
                    locked.write(Some(&tokens))?;
                    return Ok(Some(tokens));
                }
                Err(ClientError::Login { why, server }) if why.is_invalid_grant() => {
                    locked.write(None)?;
                    if !self.is_program(login_method) {
                        return Err(why.at(&server));
                    }
                }
                // The token may still be valid for a moment. The agent decides.
                Err(error) if error.is_transient() && refused.is_none() => return Ok(kept),
                Err(error) => return Err(error),
            }
        }
        if !self.is_program(login_method) {
            return Ok(None);
        }
        tracing::debug!(server = server.name, client = key.client, "getting a token");
        let tokens = token_request.client_credentials().await?;
        locked.write(Some(&tokens))?;
        Ok(Some(tokens))
    }
}

impl Credentials for OAuth {
    fn credential<'a>(&'a self, request: CredentialRequest<'a>) -> CredentialFuture<'a> {
        async move {
            let Some(login_method) = LoginMethod::from_scheme(request.name, request.scheme, request.scopes)
            else {
                return Ok(None);
            };
            let key = self.key(&login_method, request.card_url);
            let tokens = self.valid_tokens(request.http, &login_method, &key, None).await?;
            Ok(tokens.map(|tokens| Credential::Token(tokens.access)))
        }
        .boxed()
    }

    fn refused<'a>(
        &'a self,
        request: CredentialRequest<'a>,
        credential: &'a Credential,
    ) -> BoxFuture<'a, Result<bool, ClientError>> {
        async move {
            let login_method = LoginMethod::from_scheme(request.name, request.scheme, request.scopes);
            let (Some(login_method), Credential::Token(refused)) = (login_method, credential) else {
                return Ok(false);
            };
            let key = self.key(&login_method, request.card_url);
            Ok(self.valid_tokens(request.http, &login_method, &key, Some(refused)).await?.is_some())
        }
        .boxed()
    }
}
