//! Giving tokens back (RFC 7009): whoever has a copy of them can then do nothing with it.

use reqwest::{StatusCode, Url};

use super::OAuth;
use super::error::LoginError;
use super::exchange::{Exchange, refusal};
use super::offer;
use super::tokens::{TokenKey, Tokens};
use crate::http::Http;
use crate::{ClientError, ClientOptions, Secret};

/// What came of asking an authorization server to revoke tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Revocation {
    /// None of them is good any longer.
    Revoked,
    /// No new ones can be got, but the server cannot take back the access token: it is good until it expires.
    AccessRemains,
    /// The server does not say where tokens are revoked: they are good until they expire.
    NotOffered,
}

impl OAuth {
    /// Has the authorization server that gave out tokens revoke them. They stay where they are kept; [`logout`](Self::logout)
    /// forgets them too.
    ///
    /// The agent is not needed for it: where tokens are revoked, the server says itself.
    pub async fn revoke(
        &self,
        key: &TokenKey,
        tokens: &Tokens,
        options: ClientOptions,
    ) -> Result<Revocation, ClientError> {
        self.give_back(key, tokens, options).await.map_err(|error| {
            if let ClientError::Login { server, why } = error {
                return ClientError::Revocation { server, why };
            }
            error
        })
    }

    async fn give_back(
        &self,
        key: &TokenKey,
        tokens: &Tokens,
        options: ClientOptions,
    ) -> Result<Revocation, ClientError> {
        let http = Http::new(options)?;
        let Some(server) = offer::server_of(&http, &key.server, &self.agreed).await? else {
            return Ok(Revocation::NotOffered);
        };
        let Some(url) = &server.revoke else { return Ok(Revocation::NotOffered) };
        let exchange = self.exchange(&http, &server, "");
        // First what others are got with. Most servers then take back the other one by themselves, but they need not.
        let refresh = match &tokens.refresh {
            Some(refresh) => Some(exchange.revoke(url, refresh, "refresh_token").await?),
            None => None,
        };
        let access = exchange.revoke(url, &tokens.access, "access_token").await?;
        Ok(match (refresh, access) {
            (Some(Answer::Revoked) | None, Answer::Revoked) => Revocation::Revoked,
            (Some(Answer::Revoked), Answer::Unsupported) => Revocation::AccessRemains,
            (Some(Answer::Unsupported) | None, Answer::Unsupported) => Revocation::NotOffered,
            (Some(Answer::Unsupported), Answer::Revoked) => {
                let why = "it takes back no refresh tokens".to_owned();
                return Err(LoginError::Unsupported(why).at(&server.name));
            }
        })
    }

    /// Forgets the tokens for something and has the authorization server [revoke](Self::revoke) them. Nothing comes of it if there
    /// are none.
    ///
    /// They are forgotten first, and so also where the server cannot be asked, which is then the error.
    pub async fn logout(
        &self,
        key: &TokenKey,
        options: ClientOptions,
    ) -> Result<Option<Revocation>, ClientError> {
        let mut locked = self.store.lock(key).await?;
        let Some(tokens) = locked.read()? else { return Ok(None) };
        locked.write(None)?;
        drop(locked);
        self.revoke(key, &tokens, options).await.map(Some)
    }
}

/// What a server says about one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Revoked,
    /// It takes back none of this kind.
    Unsupported,
}

impl Exchange<'_> {
    async fn revoke(self, url: &Url, token: &Secret, kind: &str) -> Result<Answer, ClientError> {
        let (status, body) = self.post(url, &[("token", token.reveal()), ("token_type_hint", kind)]).await?;
        // There need not be anything in the answer. A token that the server does not know is no error to it.
        if status == StatusCode::OK {
            return Ok(Answer::Revoked);
        }
        let why = refusal(status, &body);
        if matches!(&why, LoginError::Refused { code, .. } if code == "unsupported_token_type") {
            return Ok(Answer::Unsupported);
        }
        Err(why.at(&self.server.name))
    }
}
