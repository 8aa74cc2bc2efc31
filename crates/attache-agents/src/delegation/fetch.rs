//! HTTP requests to addresses that callers give. The policy checks each URL, and each IP address that its host resolves to.
//!
//! Redirects are not followed, and the size of a response is limited. A request has only the credential for its own address.

use std::sync::Arc;
use std::time::Duration;

use attache_client::{ClientError, Credentials, PresetCredentials, Verifier};
use attache_core::TraceParent;
use attache_outbound::{Policy, Refused, SetupError, causes, guarded_client};
use attache_protocol::Error;
use attache_protocol::tolerant::{ReadTolerantly, Source, Tolerated};
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder};
use url::Url;

use super::DelegationError;
use crate::AgentCredentials;
use crate::address::{redact, redact_url};
use crate::credentials::Denial;
use crate::fetch::USER_AGENT;

/// The timeout for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an idle connection stays open for the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The largest response, in bytes.
const MAX_RESPONSE: usize = 16 * 1024 * 1024;

/// The HTTP client for cards, and for agents of protocol 0.1.
pub(super) struct Fetcher {
    policy: Arc<Policy>,
    client: Client,
    credentials: AgentCredentials,
    card_trust: Option<Verifier>,
}

impl Fetcher {
    pub(super) fn new(
        policy: Policy,
        credentials: AgentCredentials,
        card_trust: Option<Verifier>,
    ) -> Result<Self, SetupError> {
        let policy = Arc::new(policy);
        let client = guarded_client(policy.clone(), |client| {
            client.user_agent(USER_AGENT).connect_timeout(CONNECT_TIMEOUT).pool_idle_timeout(IDLE_TIMEOUT)
        })?;
        Ok(Self { policy, client, credentials, card_trust })
    }

    /// The keys that cards with signatures must be signed with.
    pub(super) fn card_trust(&self) -> Option<&Verifier> {
        self.card_trust.as_ref()
    }

    /// Parses an address and checks it against the policy. The IP addresses are checked later, when the host is resolved.
    pub(super) fn check(&self, address: &str) -> Result<Url, DelegationError> {
        match self.policy.check_url(address) {
            Ok(target) => Ok(target.url().clone()),
            Err(refused) => Err(DelegationError::Blocked { url: redact(address), refused }),
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
        trace_parent: Option<TraceParent>,
    ) -> Result<(StatusCode, Vec<u8>), DelegationError> {
        let url = self.check(url.as_str())?;
        let mut request = self.client.post(url.clone()).header(CONTENT_TYPE, "application/json");
        if let Some(trace_parent) = &trace_parent {
            request = request.header("traceparent", trace_parent.as_str());
        }
        self.exchange(&url, request.header(ACCEPT, "application/json").body(body)).await
    }

    /// Converts the error of a client that sent a request to an address.
    pub(super) fn explain(&self, url: &Url, error: ClientError) -> DelegationError {
        match self.credentials.explain(url, &error) {
            Some(text) => DelegationError::Denied(text),
            None => error.into(),
        }
    }

    /// The error for a status that means missing or rejected credentials. `None` for any other status.
    pub(super) fn denied(&self, url: &Url, status: StatusCode) -> Option<DelegationError> {
        let denial = Denial::from_status(status)?;
        Some(DelegationError::Denied(self.credentials.denied(url, denial, None)))
    }

    /// Sends a request with the credential for its address, and reads the response.
    async fn exchange(
        &self,
        url: &Url,
        request: RequestBuilder,
    ) -> Result<(StatusCode, Vec<u8>), DelegationError> {
        let request = match self.credentials.book().preset(url) {
            PresetCredentials::Headers(headers) => request.headers(headers),
            // An OAuth token is requested only for agents whose card asks for it.
            PresetCredentials::FromCard | PresetCredentials::Anonymous => request,
        };
        let mut response = request.send().await.map_err(|error| request_error(url, &error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| request_error(url, &error))? {
            if chunk.len() > MAX_RESPONSE - body.len() {
                return Err(DelegationError::Unreadable(format!(
                    "the response is larger than {MAX_RESPONSE} bytes"
                )));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, body))
    }
}

/// Converts an error of the HTTP client. The text of that error contains the whole URL, so only its causes are used.
fn request_error(url: &Url, error: &reqwest::Error) -> DelegationError {
    let url = redact_url(url);
    if let Some(refused) = causes(error).find_map(|cause| cause.downcast_ref::<Refused>()) {
        return DelegationError::Blocked { url, refused: refused.clone() };
    }
    let text = causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ");
    let text = if text.is_empty() { "the request failed".to_owned() } else { text };
    DelegationError::Unreachable(format!("`{url}`: {text}"))
}

/// What the tolerant reader makes of a response that the reader of its version cannot read. If it cannot read it either, the error is
/// that of the first reader.
pub(super) fn or_tolerantly<T: ReadTolerantly>(error: Error, json: &[u8]) -> Result<T, Error> {
    let Ok(Tolerated { value, deviations }) = T::read_tolerantly(Source::Other, json) else {
        return Err(error);
    };
    for deviation in deviations {
        tracing::debug!(deviation, "a response does not follow the protocol");
    }
    Ok(value)
}
