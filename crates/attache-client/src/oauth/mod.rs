//! Logging in with OAuth 2.0 and OpenID Connect, and the tokens that come of it.
//!
//! [`OAuth::login`] is for when somebody is there to wait for a person: it goes through a [flow](Flow) and keeps the tokens. As
//! [`Credentials`], [`OAuth`] never waits for anybody: it shows what is kept, renews it in time, and gets tokens for a program
//! that has a secret.
//!
//! A card is written by the agent, so what it says about the authorization server is not believed by itself: nothing is sent to
//! a server that the user has not [agreed to](OAuth::server), nor to one without TLS that is not on this machine, nor to an
//! address that the client's [policy](crate::ClientOptions::policy) forbids. Tokens are kept for the agent that asked for them
//! and shown to no other.

mod browser;
mod device;
mod error;
mod exchange;
mod file;
mod offer;
mod revoke;
mod tokens;

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use reqwest::Url;
use url::Origin;

pub use self::error::LoginError;
use self::exchange::{Exchange, Party};
pub use self::file::FileTokens;
use self::offer::secure;
pub use self::offer::{Flow, LoginOffer};
pub use self::revoke::Revocation;
use self::tokens::now;
pub use self::tokens::{LockedTokens, MemoryTokens, TokenKey, TokenStore, TokenStoreError, Tokens};
use crate::credentials::{Asked, Credential, Credentials, Secret};
use crate::http::Http;
use crate::{Client, ClientError};

/// The scope that refresh tokens are asked for with.
const OFFLINE: &str = "offline_access";

/// What a person is to do to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Visit<'a> {
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
        /// An address that has the code in it already, for those who cannot type.
        url_with_code: Option<&'a str>,
    },
}

/// A client of authorization servers, and the tokens that they gave it.
///
/// ```
/// use attache_client::{ClientOptions, Keyring, OAuth};
///
/// let oauth = OAuth::new("my-program").secret("s3cret").server("https://auth.example.com")?;
/// // A token that is known from the beginning goes before one that has to be got.
/// let options = ClientOptions::default().with_credentials((Keyring::new(), oauth));
/// # Ok::<(), attache_client::ClientError>(())
/// ```
#[derive(Clone)]
pub struct OAuth {
    party: Party,
    agreed: Vec<Origin>,
    scopes: Vec<String>,
    resource: Option<String>,
    account: Option<String>,
    program: bool,
    store: Arc<dyn TokenStore>,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth").field("client", &self.party.id).finish_non_exhaustive()
    }
}

impl OAuth {
    /// A client that authorization servers know by this id. Its tokens are kept for as long as the process runs.
    pub fn new(client: impl Into<String>) -> Self {
        Self {
            party: Party { id: client.into(), secret: None, in_body: false },
            agreed: Vec::new(),
            scopes: Vec::new(),
            resource: None,
            account: None,
            program: false,
            store: Arc::new(MemoryTokens::new()),
        }
    }

    /// The secret that proves that it is this client, for programs that can keep one. It is sent in a header
    /// (`client_secret_basic`).
    pub fn secret(mut self, secret: impl Into<Secret>) -> Self {
        self.party.secret = Some(secret.into());
        self
    }

    /// Sends the secret in the body of requests instead (`client_secret_post`).
    pub fn secret_in_body(mut self) -> Self {
        self.party.in_body = true;
        self
    }

    /// Agrees to an authorization server, by its scheme, host and port, besides those that are agreed to already. Whoever is
    /// there gets the secret and the refresh tokens.
    ///
    /// A server that [describes itself](LoginOffer) may name others for parts of its work.
    pub fn server(mut self, server: &str) -> Result<Self, ClientError> {
        let shown: String = server.split(['?', '#']).next().unwrap_or_default().chars().take(200).collect();
        let url = Url::parse(server).map_err(|error| {
            let text = format!("`{shown}` is not an authorization server: {error}; expected something like `https://auth.example.com`");
            ClientError::Invalid(text)
        })?;
        let url = secure(url).map_err(|error| error.at(&shown))?;
        self.agreed.push(url.origin());
        Ok(self)
    }

    /// Scopes to ask for besides those that cards ask for.
    pub fn scopes(mut self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.scopes.extend(scopes.into_iter().map(Into::into));
        self
    }

    /// The resource to ask for tokens for (RFC 8707).
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Which account the tokens are for, where one user has several with the same agent.
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.account = Some(account.into());
        self
    }

    /// Gets tokens by itself, with its [secret](Self::secret), also where the card does not say that programs do so.
    pub fn program(mut self) -> Self {
        self.program = true;
        self
    }

    /// Keeps tokens elsewhere.
    pub fn store(mut self, store: impl TokenStore) -> Self {
        self.store = Arc::new(store);
        self
    }

    /// Logs in, and keeps the tokens for requests to this agent.
    ///
    /// `show` is told what the person is to do, if there is something to do; nothing is opened by itself.
    pub async fn login(
        &self,
        agent: &Client,
        offer: &LoginOffer,
        flow: Flow,
        show: &(dyn Fn(Visit<'_>) + Send + Sync),
    ) -> Result<TokenKey, ClientError> {
        let transport = agent.transport();
        let http = &*transport.http;
        let key = self.key(offer, &transport.known.place);
        let server = offer.resolve(http, &self.agreed).await?;
        let mut scopes = key.scopes.clone();
        if server.offline && flow != Flow::ClientCredentials && !scopes.iter().any(|scope| scope == OFFLINE) {
            scopes.push(OFFLINE.to_owned());
        }
        let scopes = scopes.join(" ");
        let exchange = self.exchange(http, &server, &scopes);
        let tokens = match flow {
            Flow::Browser => browser::login(exchange, &self.agreed, show).await?,
            Flow::Device => device::login(exchange, show).await?,
            Flow::ClientCredentials if self.party.secret.is_none() => {
                let why = "a program logs in with a secret, and there is none".to_owned();
                return Err(LoginError::Unsupported(why).at(&server.name));
            }
            Flow::ClientCredentials => exchange.client_credentials().await?,
        };
        self.store.lock(&key).await?.write(Some(&tokens))?;
        Ok(key)
    }

    fn exchange<'a>(&'a self, http: &'a Http, server: &'a offer::Server, scopes: &'a str) -> Exchange<'a> {
        Exchange { http, server, party: &self.party, scopes, resource: self.resource.as_deref() }
    }

    fn key(&self, offer: &LoginOffer, agent: &Url) -> TokenKey {
        let mut scopes = [offer.scopes.as_slice(), &self.scopes].concat();
        scopes.sort();
        scopes.dedup();
        TokenKey {
            server: offer.place(),
            client: self.party.id.clone(),
            scopes,
            resource: self.resource.clone(),
            agent: agent.origin().ascii_serialization(),
            account: self.account.clone(),
        }
    }

    /// Whether a program gets tokens there by itself.
    fn is_program(&self, offer: &LoginOffer) -> bool {
        self.party.secret.is_some() && (self.program || offer.flow() == Some(Flow::ClientCredentials))
    }

    /// Tokens that are good, other than a refused one, if they are to be had without anybody's help.
    async fn good(
        &self,
        http: &Http,
        offer: &LoginOffer,
        key: &TokenKey,
        refused: Option<&Secret>,
    ) -> Result<Option<Tokens>, ClientError> {
        let is_good = |tokens: &Tokens| !tokens.is_stale(now()) && Some(&tokens.access) != refused;
        let kept = self.store.read(key)?;
        if kept.as_ref().is_some_and(is_good) {
            return Ok(kept);
        }
        let can_renew = |tokens: &Option<Tokens>| tokens.as_ref().is_some_and(|kept| kept.refresh.is_some());
        if !can_renew(&kept) && !self.is_program(offer) || !offer.is_agreed(&self.agreed) {
            // The agent is to say whether a token that nobody can renew is still good.
            return Ok(kept.filter(|tokens| Some(&tokens.access) != refused));
        }
        let mut locked = self.store.lock(key).await?;
        // Whoever held the lock may have renewed them.
        let kept = locked.read()?;
        if kept.as_ref().is_some_and(is_good) {
            return Ok(kept);
        }
        let server = offer.resolve(http, &self.agreed).await?;
        let scopes = key.scopes.join(" ");
        let exchange = self.exchange(http, &server, &scopes);
        if let Some(refresh) = kept.as_ref().and_then(|tokens| tokens.refresh.as_ref()) {
            tracing::debug!(server = server.name, client = key.client, "renewing a token");
            match exchange.refresh(refresh).await {
                Ok(tokens) => {
                    locked.write(Some(&tokens))?;
                    return Ok(Some(tokens));
                }
                Err(ClientError::Login { why, server }) if why.is_over() => {
                    locked.write(None)?;
                    if !self.is_program(offer) {
                        return Err(why.at(&server));
                    }
                }
                // It may be good for a moment longer, which the agent is to say.
                Err(error) if error.is_transient() && refused.is_none() => return Ok(kept),
                Err(error) => return Err(error),
            }
        }
        if !self.is_program(offer) {
            return Ok(None);
        }
        tracing::debug!(server = server.name, client = key.client, "getting a token");
        let tokens = exchange.client_credentials().await?;
        locked.write(Some(&tokens))?;
        Ok(Some(tokens))
    }
}

impl Credentials for OAuth {
    fn credential<'a>(&'a self, asked: Asked<'a>) -> BoxFuture<'a, Result<Option<Credential>, ClientError>> {
        async move {
            let Some(offer) = LoginOffer::of_scheme(asked.name, asked.scheme, asked.scopes) else {
                return Ok(None);
            };
            let key = self.key(&offer, asked.card_url);
            let tokens = self.good(asked.http, &offer, &key, None).await?;
            Ok(tokens.map(|tokens| Credential::Token(tokens.access)))
        }
        .boxed()
    }

    fn refused<'a>(
        &'a self,
        asked: Asked<'a>,
        credential: &'a Credential,
    ) -> BoxFuture<'a, Result<bool, ClientError>> {
        async move {
            let offer = LoginOffer::of_scheme(asked.name, asked.scheme, asked.scopes);
            let (Some(offer), Credential::Token(refused)) = (offer, credential) else { return Ok(false) };
            let key = self.key(&offer, asked.card_url);
            Ok(self.good(asked.http, &offer, &key, Some(refused)).await?.is_some())
        }
        .boxed()
    }
}
