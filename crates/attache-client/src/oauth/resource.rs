//! Tokens for servers that are not A2A agents. They have no card: their own metadata names the authorization server.

use std::sync::Arc;

use reqwest::Url;

use super::browser::RedirectPort;
use super::error::LoginError;
use super::login_method::{Flow, LoginMethod};
use super::registration::{RegisteredClient, register};
use super::tokens::TokenKey;
use super::{LoginPrompt, OAuth, require_secure};
use crate::credentials::Secret;
use crate::http::{Http, display_text};
use crate::{ClientError, ClientOptions};

/// The tokens of an [`OAuth`] client for one server (a resource, in the terms of OAuth) that is not an A2A agent. Cheap to clone.
///
/// As with agents, no person is asked: stored tokens are used and renewed, and a client with a secret requests tokens with it.
/// Nothing is sent to an authorization server that the user has not [agreed to](OAuth::server).
#[derive(Debug, Clone)]
pub struct ResourceTokens {
    oauth: OAuth,
    http: Arc<Http>,
    resource: Url,
}

impl ResourceTokens {
    /// The tokens for a server. They are requested for its URL (RFC 8707), unless the client names another
    /// [resource](OAuth::resource).
    pub fn new(oauth: OAuth, resource: Url, options: ClientOptions) -> Result<Self, ClientError> {
        let named = oauth.resource.clone().unwrap_or_else(|| resource.to_string());
        let oauth = OAuth { resource: Some(named), program: true, ..oauth };
        Ok(Self { oauth, http: Arc::new(Http::new(options)?), resource })
    }

    /// Logs in at an issuer, and stores the tokens for requests to the server. Without a client id, registers a client first, if the
    /// issuer lets clients do that. Returns the key of the tokens and the registered client.
    ///
    /// `show` is called with what the person must do, if anything. The client opens no browser.
    pub async fn login(
        &self,
        issuer: &str,
        scopes: &[String],
        flow: Flow,
        show: &(dyn Fn(LoginPrompt<'_>) + Send + Sync),
    ) -> Result<(TokenKey, Option<RegisteredClient>), ClientError> {
        let mut failed = None;
        for login_method in self.places(issuer, scopes)? {
            let server = match login_method.resolve(&self.http, &self.oauth.agreed).await {
                Ok(server) => server,
                // The metadata is at another URL.
                Err(error @ ClientError::Login { why: LoginError::InvalidResponse(_), .. }) => {
                    failed.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if !self.oauth.client.id.is_empty() {
                let key = self.oauth.key(&login_method, &self.resource);
                let key = self.oauth.login_at(&self.http, &server, key, flow, None, show).await?;
                return Ok((key, None));
            }
            // Some servers compare the whole redirect URI, so the port is opened first.
            let port = RedirectPort::open().await?;
            let client = register(&self.http, &server, flow, &port.uri).await?;
            let mut oauth = self.oauth.clone();
            oauth.client.id.clone_from(&client.id);
            oauth.client.secret.clone_from(&client.secret);
            let key = oauth.key(&login_method, &self.resource);
            let key = oauth.login_at(&self.http, &server, key, flow, Some(port), show).await?;
            return Ok((key, Some(client)));
        }
        Err(failed.unwrap_or_else(|| LoginError::NotAgreed.at(&display_text(issuer))))
    }

    /// The places that can have the metadata of an issuer that the user has agreed to.
    fn places(&self, issuer: &str, scopes: &[String]) -> Result<Vec<LoginMethod>, ClientError> {
        let shown = display_text(issuer);
        let url =
            Url::parse(issuer).map_err(|error| LoginError::InvalidResponse(error.to_string()).at(&shown))?;
        let url = require_secure(url).map_err(|error| error.at(&shown))?;
        if !self.oauth.agreed.contains(&url.origin()) {
            return Err(LoginError::NotAgreed.at(&url.origin().ascii_serialization()));
        }
        Ok(LoginMethod::at_issuer(&url, scopes))
    }

    /// A token from an issuer, with these scopes, other than the refused one. Nothing if a person would have to log in.
    pub async fn token(
        &self,
        issuer: &str,
        scopes: &[String],
        refused: Option<&Secret>,
    ) -> Result<Option<Secret>, ClientError> {
        let mut failed = None;
        for login_method in self.places(issuer, scopes)? {
            let key = self.oauth.key(&login_method, &self.resource);
            match self.oauth.valid_tokens(&self.http, &login_method, &key, refused).await {
                Ok(Some(tokens)) => return Ok(Some(tokens.access)),
                Ok(None) => {}
                // The metadata is at another URL.
                Err(error @ ClientError::Login { why: LoginError::InvalidResponse(_), .. }) => {
                    failed.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        failed.map_or(Ok(None), Err)
    }
}
