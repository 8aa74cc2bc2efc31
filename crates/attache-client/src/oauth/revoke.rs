//! Revoking tokens (RFC 7009), so that copies of them are useless.

use reqwest::{StatusCode, Url};

use super::OAuth;
use super::error::LoginError;
use super::login_method;
use super::token_request::{TokenRequest, parse_error};
use super::tokens::{TokenKey, Tokens};
use crate::http::Http;
use crate::{ClientError, ClientOptions, Secret};

/// The result of revoking tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Revocation {
    /// All tokens are revoked.
    Revoked,
    /// The refresh token is revoked, but the server cannot revoke the access token. It is valid until it expires.
    AccessRemains,
    /// The server has no revocation endpoint. The tokens are valid until they expire.
    NotOffered,
}

impl OAuth {
    /// Asks the authorization server to revoke tokens. The token store is not changed; [`logout`](Self::logout) also removes
    /// them there.
    ///
    /// The agent is not contacted: the revocation endpoint is in the metadata of the server.
    pub async fn revoke(
        &self,
        key: &TokenKey,
        tokens: &Tokens,
        options: ClientOptions,
    ) -> Result<Revocation, ClientError> {
        self.try_revoke(key, tokens, options).await.map_err(|error| {
            if let ClientError::Login { server, why } = error {
                return ClientError::Revocation { server, why };
            }
            error
        })
    }

    async fn try_revoke(
        &self,
        key: &TokenKey,
        tokens: &Tokens,
        options: ClientOptions,
    ) -> Result<Revocation, ClientError> {
        let http = Http::new(options)?;
        let Some(server) = login_method::find_server(&http, &key.server, &self.agreed).await? else {
            return Ok(Revocation::NotOffered);
        };
        let Some(url) = &server.revoke else { return Ok(Revocation::NotOffered) };
        let token_request = self.token_request(&http, &server, "");
        // The refresh token goes first. Most servers then revoke the access token too, but they need not.
        let refresh = match &tokens.refresh {
            Some(refresh) => Some(token_request.revoke(url, refresh, "refresh_token").await?),
            None => None,
        };
        let access = token_request.revoke(url, &tokens.access, "access_token").await?;
        Ok(match (refresh, access) {
            (Some(RevokeResult::Revoked) | None, RevokeResult::Revoked) => Revocation::Revoked,
            (Some(RevokeResult::Revoked), RevokeResult::Unsupported) => Revocation::AccessRemains,
            (Some(RevokeResult::Unsupported) | None, RevokeResult::Unsupported) => Revocation::NotOffered,
            (Some(RevokeResult::Unsupported), RevokeResult::Revoked) => {
                let why = "it does not revoke refresh tokens".to_owned();
                return Err(LoginError::Unsupported(why).at(&server.name));
            }
        })
    }

    /// Removes the tokens of this key from the store and [revokes](Self::revoke) them. Returns nothing if there are none.
    ///
    /// They are removed first. So they are gone even if the server cannot be reached, which is then the error.
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

/// The result for one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RevokeResult {
    Revoked,
    /// The server does not revoke tokens of this type.
    Unsupported,
}

impl TokenRequest<'_> {
    async fn revoke(self, url: &Url, token: &Secret, kind: &str) -> Result<RevokeResult, ClientError> {
        let (status, body) = self.post(url, &[("token", token.reveal()), ("token_type_hint", kind)]).await?;
        // The body may be empty. Revoking an unknown token succeeds.
        if status == StatusCode::OK {
            return Ok(RevokeResult::Revoked);
        }
        let why = parse_error(status, &body);
        if matches!(&why, LoginError::Refused { code, .. } if code == "unsupported_token_type") {
            return Ok(RevokeResult::Unsupported);
        }
        Err(why.at(&self.server.name))
    }
}
