//! The client: it sends one request to checked addresses, within a time limit, and reads a small response.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, RETRY_AFTER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, StatusCode};
use reqwest::{Client, ClientBuilder};

use crate::{Policy, PolicyResolver, Refused, Resolver, Target, build_client, causes, restricted_client};

/// How much of a response body is read, in bytes. The rest is dropped, and the connection is closed.
pub const MAX_RESPONSE: usize = 64 * 1024;

/// How long it may take to connect, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an idle connection is kept for the next request to the same address.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Headers that frame and route a request. The client derives them from the request, so a caller cannot set them.
pub const FRAMING: [HeaderName; 8] =
    [CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// A request to an address that a user gave.
pub struct OutboundRequest {
    /// The URL, as the user gave it.
    pub url: String,
    /// The headers. The client sets those that frame the request.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The time limit for everything, from resolving the name to the end of the response.
    pub timeout: Duration,
}

/// Omits URL, headers and body: all of them may contain secrets.
impl fmt::Debug for OutboundRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundRequest")
            .field("body", &self.body.len())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// The response of the receiver. Redirects are returned, not followed.
#[derive(Debug, Clone)]
pub struct OutboundResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, up to [`MAX_RESPONSE`] bytes.
    pub body: Bytes,
    /// Whether the body was longer.
    pub truncated: bool,
}

impl OutboundResponse {
    /// How long the receiver asks the client to wait (`Retry-After`, in seconds or as a date).
    pub fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        retry_after(&self.headers, now)
    }
}

/// How long these headers ask the client to wait (`Retry-After`, in seconds or as a date).
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = value.parse().ok().map(Duration::from_secs);
    let until = || httpdate::parse_http_date(value).ok();
    seconds.or_else(|| until().map(|date| date.duration_since(now).unwrap_or_default()))
}

/// Why there is no response. No text contains a header, a body, or more of the URL than its host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    /// The policy does not allow the address. A retry helps only if the name resolves to another address later.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The time limit was exceeded.
    #[error("the receiver did not answer within {} s", .limit.as_secs_f64())]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// Name resolution, the connection, TLS or HTTP failed.
    #[error("the request failed: {0}")]
    Failed(String),
}

/// The client could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client cannot be set up: {0}")]
pub struct SetupError(#[source] pub(crate) reqwest::Error);

/// Sends requests to addresses that users give. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Outbound {
    policy: Arc<Policy>,
    client: Client,
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Outbound {
    /// A client that follows a policy.
    pub fn new(policy: Policy, resolver: Arc<dyn Resolver>) -> Result<Self, SetupError> {
        let policy = Arc::new(policy);
        let guard = Arc::new(PolicyResolver::new(policy.clone(), resolver));
        Ok(Self { policy, client: build_client(|| builder(guard.clone()))? })
    }

    /// The policy that this client follows.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Sends a `POST`. It is never repeated.
    pub async fn post(&self, request: OutboundRequest) -> Result<OutboundResponse, OutboundError> {
        // For a literal address this is the only check, because the client does not resolve it.
        let target = self.policy.check_url(&request.url)?;
        let limit = request.timeout;
        let exchange = self.exchange(target, request);
        tokio::time::timeout(limit, exchange).await.unwrap_or(Err(OutboundError::TimedOut { limit }))
    }

    async fn exchange(
        &self,
        target: Target,
        request: OutboundRequest,
    ) -> Result<OutboundResponse, OutboundError> {
        let mut headers = request.headers;
        for name in &FRAMING {
            headers.remove(name);
        }
        let sending = self.client.post(target.into_url()).headers(headers).body(request.body);
        let mut response = sending.send().await.map_err(explain)?;
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let mut body = BytesMut::new();
        let mut truncated = false;
        while !truncated && let Some(chunk) = response.chunk().await.map_err(explain)? {
            let remaining = MAX_RESPONSE - body.len();
            truncated = chunk.len() > remaining;
            body.extend_from_slice(&chunk[..chunk.len().min(remaining)]);
        }
        Ok(OutboundResponse { status, headers, body: body.freeze(), truncated })
    }
}

fn builder(guard: Arc<PolicyResolver>) -> ClientBuilder {
    restricted_client()
        .dns_resolver(guard)
        .http1_only()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
}

/// Finds the policy's refusal among the causes, or else the system's message. The client's own text contains the URL.
fn explain(error: reqwest::Error) -> OutboundError {
    if let Some(refused) = causes(&error).find_map(|cause| cause.downcast_ref::<Refused>()) {
        return OutboundError::Refused(refused.clone());
    }
    if error.is_timeout() {
        return OutboundError::TimedOut { limit: CONNECT_TIMEOUT };
    }
    let text = causes(&error).map(ToString::to_string).collect::<Vec<_>>().join(": ");
    OutboundError::Failed(if text.is_empty() { error.without_url().to_string() } else { text })
}
