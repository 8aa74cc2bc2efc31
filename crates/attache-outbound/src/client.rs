//! The client: one request, to addresses that were checked, within its time, with a small answer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, RETRY_AFTER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, StatusCode};
use reqwest::{Client, ClientBuilder};

use crate::{Guard, Policy, Refused, Resolver, Target, build_client, careful_client, causes};

/// How much of an answer's body is read, in bytes. The rest is dropped, and the connection with it.
pub const MAX_ANSWER: usize = 64 * 1024;

/// How long a connection may take to come about, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection is kept for the next request to the same place.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Headers that say how a request is framed and routed. They follow from the request, so a caller cannot set them.
pub const FRAMING: [HeaderName; 8] =
    [CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// A request to an address that a user gave.
pub struct OutboundRequest {
    /// Where to, as the user gave it.
    pub url: String,
    /// Headers; those that frame the request are set by the client.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// How long everything may take, from resolving the name to the end of the answer.
    pub timeout: Duration,
}

/// Without URL, headers and body, all of which may hold secrets.
impl fmt::Debug for OutboundRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundRequest")
            .field("body", &self.body.len())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// What the receiver answered. A redirect is an answer like any other.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, up to [`MAX_ANSWER`] bytes of it.
    pub body: Bytes,
    /// Whether the body was longer than that.
    pub truncated: bool,
}

impl Answer {
    /// How long the receiver asks to be left alone (`Retry-After`, in seconds or as a date).
    pub fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        retry_after(&self.headers, now)
    }
}

/// How long these headers ask to be left alone (`Retry-After`, in seconds or as a date).
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = value.parse().ok().map(Duration::from_secs);
    let until = || httpdate::parse_http_date(value).ok();
    seconds.or_else(|| until().map(|date| date.duration_since(now).unwrap_or_default()))
}

/// Why there is no answer. No text contains a header, a body, or more of the URL than its host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    /// The address may not be called. Trying again changes that only if its name is given another address.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It took too long.
    #[error("the receiver did not answer within {} s", .limit.as_secs_f64())]
    TimedOut {
        /// What was allowed.
        limit: Duration,
    },
    /// The name, the connection, TLS or HTTP failed.
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
    /// A client under a policy.
    pub fn new(policy: Policy, resolver: Arc<dyn Resolver>) -> Result<Self, SetupError> {
        let policy = Arc::new(policy);
        let guard = Arc::new(Guard::new(policy.clone(), resolver));
        Ok(Self { policy, client: build_client(|| builder(guard.clone()))? })
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Sends a `POST`, once.
    pub async fn post(&self, request: OutboundRequest) -> Result<Answer, OutboundError> {
        // Also the only check for literal addresses: nothing resolves those.
        let target = self.policy.check_url(&request.url)?;
        let limit = request.timeout;
        let exchange = self.exchange(target, request);
        tokio::time::timeout(limit, exchange).await.unwrap_or(Err(OutboundError::TimedOut { limit }))
    }

    async fn exchange(&self, target: Target, request: OutboundRequest) -> Result<Answer, OutboundError> {
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
            let room = MAX_ANSWER - body.len();
            truncated = chunk.len() > room;
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        Ok(Answer { status, headers, body: body.freeze(), truncated })
    }
}

fn builder(guard: Arc<Guard>) -> ClientBuilder {
    careful_client()
        .dns_resolver(guard)
        .http1_only()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
}

/// Finds the refusal in an error of the client, or what the system said. The client's own text has the URL in it.
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
