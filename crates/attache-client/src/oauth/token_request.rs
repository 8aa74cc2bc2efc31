//! Requests to the token endpoint: a grant is exchanged for tokens.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::error::LoginError;
use super::login_method::Server;
use super::tokens::{Tokens, now};
use crate::http::{Http, with_timeout};
use crate::{ClientError, Secret};

/// The client that requests tokens.
#[derive(Debug, Clone)]
pub(super) struct OAuthClient {
    pub(super) id: String,
    pub(super) secret: Option<Secret>,
    /// Whether the secret is sent in the body instead of a header.
    pub(super) in_body: bool,
}

/// A request for tokens: to which server, by which client.
#[derive(Clone, Copy)]
pub(super) struct TokenRequest<'a> {
    pub(super) http: &'a Http,
    pub(super) server: &'a Server,
    pub(super) client: &'a OAuthClient,
    /// The requested scopes, separated by spaces.
    pub(super) scopes: &'a str,
    pub(super) resource: Option<&'a str>,
}

/// The response of a token endpoint (RFC 6749, section 5.1).
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: String,
    expires_in: Option<u64>,
    refresh_token: Option<String>,
}

/// The error response of a server (RFC 6749, section 5.2).
#[derive(Deserialize)]
struct OAuthErrorResponse {
    error: String,
    error_description: Option<String>,
}

impl TokenRequest<'_> {
    /// Requests tokens with the secret of the client.
    pub(super) async fn client_credentials(self) -> Result<Tokens, ClientError> {
        let pairs = [("grant_type", "client_credentials")];
        self.tokens(&self.server.token, &[&pairs[..], &self.scope(), &self.target()].concat()).await
    }

    /// Exchanges an authorization code from the browser for tokens.
    pub(super) async fn code(
        self,
        code: &str,
        redirect: &str,
        verifier: &str,
    ) -> Result<Tokens, ClientError> {
        let pairs = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect),
            ("code_verifier", verifier),
        ];
        self.tokens(&self.server.token, &[&pairs[..], &self.target()].concat()).await
    }

    /// Exchanges a device code for tokens.
    pub(super) async fn device_code(self, code: &str) -> Result<Tokens, ClientError> {
        let pairs = [("grant_type", "urn:ietf:params:oauth:grant-type:device_code"), ("device_code", code)];
        self.tokens(&self.server.token, &[&pairs[..], &self.target()].concat()).await
    }

    /// Exchanges a refresh token for new tokens. If the response has no refresh token, the old one stays valid.
    pub(super) async fn refresh(self, refresh: &Secret) -> Result<Tokens, ClientError> {
        let pairs = [("grant_type", "refresh_token"), ("refresh_token", refresh.reveal())];
        let tokens = self.tokens(&self.server.refresh, &[&pairs[..], &self.target()].concat()).await?;
        let refresh = tokens.refresh.or_else(|| Some(refresh.clone()));
        Ok(Tokens { refresh, ..tokens })
    }

    pub(super) fn scope(&self) -> Vec<(&'static str, &str)> {
        Some(("scope", self.scopes)).into_iter().filter(|(_, scopes)| !scopes.is_empty()).collect()
    }

    pub(super) fn target(&self) -> Vec<(&'static str, &str)> {
        self.resource.map(|resource| ("resource", resource)).into_iter().collect()
    }

    async fn tokens(self, url: &Url, pairs: &[(&str, &str)]) -> Result<Tokens, ClientError> {
        let (status, body) = self.post(url, pairs).await?;
        read_tokens(status, &body).map_err(|error| error.at(&self.server.name))
    }

    /// Sends an authenticated request and parses the response.
    pub(super) async fn ask<T: DeserializeOwned>(
        self,
        url: &Url,
        pairs: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        let (status, body) = self.post(url, pairs).await?;
        read(status, &body).map_err(|error| error.at(&self.server.name))
    }

    /// Sends an authenticated request.
    pub(super) async fn post(
        self,
        url: &Url,
        pairs: &[(&str, &str)],
    ) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let request = self.request(url, pairs);
        with_timeout(self.http.options.call_timeout, async {
            let response = self.http.send(url, request).await?;
            let status = response.status();
            Ok((status, self.http.body(url, response).await?))
        })
        .await
    }

    fn request(&self, url: &Url, pairs: &[(&str, &str)]) -> RequestBuilder {
        let OAuthClient { id, secret, in_body } = self.client;
        let in_body = *in_body || self.server.secret_in_body;
        let mut form = Serializer::new(String::new());
        form.extend_pairs(pairs);
        let mut request = self.http.request(Method::POST, url).header(ACCEPT, "application/json");
        match secret {
            Some(secret) if !in_body => request = request.header(AUTHORIZATION, basic(id, secret)),
            Some(secret) => {
                form.append_pair("client_id", id).append_pair("client_secret", secret.reveal());
            }
            None => {
                form.append_pair("client_id", id);
            }
        }
        request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form.finish())
    }
}

/// Parses the response of a token endpoint.
pub(super) fn read_tokens(status: StatusCode, body: &[u8]) -> Result<Tokens, LoginError> {
    let granted: TokenResponse = read(status, body)?;
    let wrong = |why: &str| LoginError::InvalidResponse(why.to_owned());
    if granted.access_token.is_empty() {
        return Err(wrong("its `access_token` is empty"));
    }
    // Other types bind the token to a key, which is not supported.
    if !granted.token_type.eq_ignore_ascii_case("bearer") {
        return Err(wrong("its `token_type` is not supported, expected `Bearer`"));
    }
    let lifetime = granted.expires_in.map(Duration::from_secs);
    Ok(Tokens {
        access: granted.access_token.into(),
        refresh: granted.refresh_token.filter(|token| !token.is_empty()).map(Secret::from),
        renew: lifetime.map(|lifetime| Tokens::renewal(now(), lifetime)),
    })
}

/// Parses a response. Errors do not repeat its content, because it may contain tokens.
pub(super) fn read<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<T, LoginError> {
    if status == StatusCode::OK {
        return serde_json::from_slice(body).map_err(|error| LoginError::InvalidResponse(place(&error)));
    }
    Err(parse_error(status, body))
}

/// Where a response is invalid, without the text that is there.
pub(super) fn place(error: &serde_json::Error) -> String {
    format!("a member is missing or invalid (line {}, column {})", error.line(), error.column())
}

/// The error that a server reports.
pub(super) fn parse_error(status: StatusCode, body: &[u8]) -> LoginError {
    match serde_json::from_slice(body) {
        Ok(OAuthErrorResponse { error, error_description }) => {
            LoginError::refused(&error, error_description.as_deref())
        }
        Err(_) => LoginError::InvalidResponse(format!("HTTP status {} without a reason", status.as_u16())),
    }
}

/// Id and secret, each encoded before they are joined (RFC 6749, section 2.3.1).
fn basic(id: &str, secret: &Secret) -> HeaderValue {
    let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let pair = STANDARD.encode(format!("{}:{}", encode(id), encode(secret.reveal())));
    let mut value =
        HeaderValue::try_from(format!("Basic {pair}")).unwrap_or(HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(status: u16, body: &str) -> Result<TokenResponse, LoginError> {
        read(StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn an_answer_is_read_strictly_and_nothing_of_it_is_repeated() {
        let good = granted(200, r#"{"access_token": "t", "token_type": "bearer", "expires_in": 60, "x": 1}"#);
        assert!(good.is_ok_and(|it| it.access_token == "t" && it.expires_in == Some(60)));
        for body in [
            "",
            "access_token=s3cret&token_type=bearer",
            r#"{"token_type": "bearer"}"#,
            r#"{"access_token": "s3cret"}"#,
            r#"{"access_token": "s3cret", "token_type": "bearer", "expires_in": "s3cret"}"#,
            r#"{"access_token": ["s3cret"], "token_type": "bearer"}"#,
        ] {
            let Err(error) = granted(200, body) else { panic!("{body}") };
            assert!(
                matches!(error, LoginError::InvalidResponse(_)) && !error.to_string().contains("s3cret"),
                "{error}"
            );
        }
        let redirect = granted(302, r#"{"access_token": "t", "token_type": "bearer"}"#);
        assert!(matches!(redirect, Err(LoginError::InvalidResponse(_))));
    }

    #[test]
    fn a_refusal_says_its_code_and_what_the_server_says_about_it() {
        for (body, said) in [
            (r#"{"error": "invalid_client"}"#, "it refused with `invalid_client`"),
            (
                r#"{"error": "invalid_scope", "error_description": "no\u001b[31m such"}"#,
                "it refused with `invalid_scope`: no [31m such",
            ),
        ] {
            assert_eq!(granted(400, body).err().unwrap().to_string(), said);
        }
    }

    #[test]
    fn a_secret_in_a_header_is_encoded_twice_and_never_shown() {
        let value = basic("a b", &"p:w+ü".into());
        assert_eq!(value.to_str().unwrap(), format!("Basic {}", STANDARD.encode("a+b:p%3Aw%2B%C3%BC")));
        assert!(value.is_sensitive());
    }
}
