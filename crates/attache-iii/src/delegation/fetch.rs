//! Requests to addresses that callers give: each is checked, and so is everything that its name resolves to.
//!
//! No redirect is followed, and an answer is read up to a limit. Each address is shown the credential that is for it, and no other.

use std::sync::Arc;
use std::time::Duration;

use attache_client::{Beforehand, ClientError, Credentials};
use attache_outbound::{
    PolicyResolver, Policy, Refused, SetupError, SystemResolver, build_client, restricted_client, causes,
};
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder};
use url::Url;

use super::DelegationError;
use crate::AgentCredentials;
use crate::credentials::Denial;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a connection is kept for the next request.
const POOL: Duration = Duration::from_secs(4);

/// The largest answer, in bytes.
const LARGEST: usize = 16 * 1024 * 1024;

/// The HTTP client for cards and for agents of the oldest protocol.
pub(super) struct Fetch {
    policy: Arc<Policy>,
    client: Client,
    credentials: AgentCredentials,
}

impl Fetch {
    pub(super) fn new(policy: Policy, credentials: AgentCredentials) -> Result<Self, SetupError> {
        let policy = Arc::new(policy);
        let guard = Arc::new(PolicyResolver::new(policy.clone(), Arc::new(SystemResolver)));
        let client = build_client(|| {
            restricted_client()
                .user_agent(concat!("attache/", env!("CARGO_PKG_VERSION")))
                .dns_resolver(guard.clone())
                .connect_timeout(CONNECT)
                .pool_idle_timeout(POOL)
        })?;
        Ok(Self { policy, client, credentials })
    }

    /// An address that may be called, as far as can be said before its name is resolved.
    pub(super) fn check(&self, address: &str) -> Result<Url, DelegationError> {
        match self.policy.check_url(address) {
            Ok(target) => Ok(target.url().clone()),
            Err(refused) => Err(DelegationError::Blocked { url: shown(address), refused }),
        }
    }

    pub(super) async fn get(&self, url: &Url) -> Result<(StatusCode, Vec<u8>), DelegationError> {
        let url = self.check(url.as_str())?;
        self.exchange(&url, self.client.get(url.clone()).header(ACCEPT, "application/json")).await
    }

    pub(super) async fn post(
        &self,
        url: &Url,
        body: String,
    ) -> Result<(StatusCode, Vec<u8>), DelegationError> {
        let url = self.check(url.as_str())?;
        let request = self.client.post(url.clone()).header(CONTENT_TYPE, "application/json");
        self.exchange(&url, request.header(ACCEPT, "application/json").body(body)).await
    }

    /// What an error of a client means that talks to an address.
    pub(super) fn explain(&self, url: &Url, error: ClientError) -> DelegationError {
        match self.credentials.explain(url, &error) {
            Some(text) => DelegationError::Denied(text),
            None => error.into(),
        }
    }

    /// What a status means that an address answered with, if it is that whoever asks is not let in.
    pub(super) fn denied(&self, url: &Url, status: StatusCode) -> Option<DelegationError> {
        let denial = Denial::of_status(status)?;
        Some(DelegationError::Denied(self.credentials.denied(url, denial, None)))
    }

    async fn exchange(
        &self,
        url: &Url,
        request: RequestBuilder,
    ) -> Result<(StatusCode, Vec<u8>), DelegationError> {
        let request = match self.credentials.book().beforehand(url) {
            Beforehand::Headers(headers) => request.headers(headers),
            // Who has to get a token first does so for agents whose cards say where.
            Beforehand::AsAsked | Beforehand::Without => request,
        };
        let mut response = request.send().await.map_err(|error| explain(url, &error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| explain(url, &error))? {
            if chunk.len() > LARGEST - body.len() {
                return Err(DelegationError::Unreadable(format!("the answer has more than {LARGEST} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, body))
    }
}

/// What an error of the HTTP client means. Its own text has the whole URL in it.
fn explain(url: &Url, error: &reqwest::Error) -> DelegationError {
    let url = shown(url.as_str());
    if let Some(refused) = causes(error).find_map(|cause| cause.downcast_ref::<Refused>()) {
        return DelegationError::Blocked { url, refused: refused.clone() };
    }
    let text = causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ");
    let text = if text.is_empty() { "the request failed".to_owned() } else { text };
    DelegationError::Unreachable(format!("`{url}`: {text}"))
}

/// An address without credentials and query.
pub(super) fn shown(address: &str) -> String {
    match Url::parse(address) {
        Ok(url) => format!("{}{}", url.origin().ascii_serialization(), url.path()),
        Err(_) => address.split(['?', '#']).next().unwrap_or_default().chars().take(200).collect(),
    }
}
