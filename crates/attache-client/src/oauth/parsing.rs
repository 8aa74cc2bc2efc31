//! Parsers of what authorization servers and browsers send, for fuzzing. Not part of the public API.

use std::time::Duration;

use reqwest::{StatusCode, Url};
use tokio::io::AsyncRead;

use super::LoginError;
use super::browser::read_redirect;
use super::device::{DeviceCodeResponse, Polling};
use super::login_method::{Server, read_metadata};
use super::registration::{RegisteredClient, read_client};
use super::token_request::{read, read_tokens};
use super::tokens::Tokens;
use crate::http::Http;
use crate::{ClientError, ClientOptions};

/// How a client polls for tokens while a person logs in on another device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLogin {
    /// What the person enters.
    pub code: String,
    /// Where the person enters it.
    pub url: String,
    /// The time between two polls.
    pub interval: Duration,
    /// How long the client polls.
    pub limit: Duration,
}

/// An authorization server, as its metadata describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedServer {
    /// The issuer.
    pub issuer: Option<String>,
    /// The endpoints that secrets are sent to.
    pub endpoints: Vec<Url>,
}

/// The reader of metadata. It has the HTTP client that checks the endpoints.
#[derive(Debug)]
pub struct MetadataReader(Http);

impl MetadataReader {
    /// A reader with these options.
    pub fn new(options: ClientOptions) -> Result<Self, ClientError> {
        Http::new(options).map(Self)
    }

    /// Parses the metadata at a URL.
    pub fn read(&self, url: &Url, status: StatusCode, body: &[u8]) -> Result<DescribedServer, ClientError> {
        let name = url.origin().ascii_serialization();
        let metadata = read_metadata(url, status, body).map_err(|error| error.at(&name))?;
        let Server { token, refresh, authorize, device, revoke, registration, issuer, .. } =
            Server::from_metadata(&self.0, name, metadata)?;
        let others = [authorize, device, revoke, registration].into_iter().flatten();
        Ok(DescribedServer { issuer, endpoints: [token, refresh].into_iter().chain(others).collect() })
    }
}

/// Parses the response of a token endpoint.
pub fn tokens(status: StatusCode, body: &[u8]) -> Result<Tokens, LoginError> {
    read_tokens(status, body)
}

/// Parses the response of a device authorization endpoint.
pub fn device(status: StatusCode, body: &[u8]) -> Result<DeviceLogin, LoginError> {
    let response: DeviceCodeResponse = read(status, body)?;
    let Polling { interval, limit } = Polling::of(&response);
    Ok(DeviceLogin { code: response.user_code, url: response.verification_uri, interval, limit })
}

/// Parses the response to a registration.
pub fn registration(status: StatusCode, body: &[u8]) -> Result<RegisteredClient, LoginError> {
    read_client(status, body)
}

/// The result of the login that a request of a browser ends, if it ends one: the code, or an error.
pub async fn redirect(
    request: impl AsyncRead + Unpin,
    state: &str,
    issuer: &Url,
    sends_issuer: bool,
) -> Option<Result<String, LoginError>> {
    read_redirect(request, state, issuer, sends_issuer).await
}
