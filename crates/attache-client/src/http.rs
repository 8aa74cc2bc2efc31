//! HTTP requests to checked addresses, with time limits and size limits.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::origins::is_loopback;
use crate::tls::RootCertificates;
use crate::{ClientError, ClientOptions, ConnectFailure};
use attache_outbound::{PolicyResolver, Refused, SystemResolver, build_client, causes, restricted_client};
use bytes::Bytes;
use futures::FutureExt;
use reqwest::header::TE;
use reqwest::{Body, Client, ClientBuilder, Method, Request, RequestBuilder, Response, Url};

/// How long an idle connection is kept. Some servers close theirs after 5 seconds. A send on a connection that the server is
/// closing fails and cannot be repeated, so this is shorter.
const POOL_TIMEOUT: Duration = Duration::from_secs(4);

/// How often a waiting gRPC connection is pinged. gRPC servers treat more than one ping in five minutes as an attack. TCP
/// detects a dead connection earlier.
const KEEP_ALIVE: Duration = Duration::from_secs(330);

/// How long the server may take to respond to a ping.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// A body that a server may refuse while it is being sent. A smaller one fits into the buffers of the connection.
const LARGE_BODY: usize = 64 * 1024;

/// How long a server may take to refuse a body that it has refused before.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// How much of an unexpected response body is shown.
const EXCERPT: usize = 200;

/// The HTTP client with its limits.
pub(crate) struct Http {
    client: Client,
    /// The client for gRPC, created on first use. gRPC servers expect HTTP/2 from the first byte, so it needs its own client.
    grpc_client: OnceLock<Client>,
    /// The client for WebSockets, created on first use. Their handshake exists in HTTP/1.1 only.
    upgrade_client: OnceLock<Client>,
    pub(crate) options: ClientOptions,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

impl Http {
    pub(crate) fn new(options: ClientOptions) -> Result<Self, ClientError> {
        let client = build_client(|| builder(&options));
        let client = client.map_err(|error| ClientError::Setup(text(&error)))?;
        Ok(Self::of(client, options))
    }

    fn of(client: Client, options: ClientOptions) -> Self {
        Self { client, grpc_client: OnceLock::new(), upgrade_client: OnceLock::new(), options }
    }

    /// A client whose requests all go to a Unix socket, without credentials.
    #[cfg(unix)]
    pub(crate) fn over_socket(options: &ClientOptions, path: &std::path::Path) -> Result<Self, ClientError> {
        // Addresses are not checked, because none is connected to.
        let options = ClientOptions { policy: None, credentials: None, ..options.clone() };
        let client = build_client(|| builder(&options).unix_socket(path));
        let client = client.map_err(|error| ClientError::Setup(text(&error)))?;
        Ok(Self::of(client, options))
    }

    /// Builds a request for another protocol on its connection.
    pub(crate) fn upgrade_request(&self, method: Method, url: &Url) -> Result<RequestBuilder, ClientError> {
        let client = match self.upgrade_client.get() {
            Some(client) => client,
            None => {
                let client = build_client(|| builder(&self.options).http1_only());
                let client = client.map_err(|error| ClientError::Setup(text(&error)))?;
                self.upgrade_client.get_or_init(|| client)
            }
        };
        Ok(client.request(method, url.clone()))
    }

    /// Builds a gRPC request.
    pub(crate) fn grpc_request(&self, method: Method, url: &Url) -> Result<RequestBuilder, ClientError> {
        let client = match self.grpc_client.get() {
            Some(client) => client,
            None => {
                let client = build_client(|| {
                    builder(&self.options)
                        .http2_prior_knowledge()
                        .http2_keep_alive_interval(KEEP_ALIVE)
                        .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
                });
                let client = client.map_err(|error| ClientError::Setup(text(&error)))?;
                self.grpc_client.get_or_init(|| client)
            }
        };
        Ok(client.request(method, url.clone()).header(TE, "trailers"))
    }

    pub(crate) fn request(&self, method: Method, url: &Url) -> RequestBuilder {
        self.client.request(method, url.clone())
    }

    /// Checks an address before it is used. For a literal address this is the only check, because it is not resolved.
    pub(crate) fn check(&self, address: &str) -> Result<Url, ClientError> {
        let invalid = |why: &str| {
            let shown = display_text(address);
            ClientError::Invalid(format!("`{shown}` is not the address of an agent: {why}"))
        };
        let url = Url::parse(address).map_err(|error| invalid(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid("it must begin with `http://` or `https://`"));
        }
        if let Some(policy) = &self.options.policy {
            let refuse = |refused| ClientError::Refused { url: display_url(&url), refused };
            policy.check_url(address).map_err(refuse)?;
        }
        Ok(url)
    }

    /// Checks whether sockets of this machine may be connected to.
    pub(crate) fn check_socket(&self, url: &Url) -> Result<(), ClientError> {
        let Some(policy) = &self.options.policy else { return Ok(()) };
        let refuse = |refused| ClientError::Refused { url: display_url(url), refused };
        policy.check_address(std::net::Ipv4Addr::LOCALHOST.into()).map_err(refuse)
    }

    /// Sends a request and waits for the response head.
    pub(crate) async fn send(&self, url: &Url, request: RequestBuilder) -> Result<Response, ClientError> {
        let (client, request) = request.build_split();
        let request = request.map_err(|error| convert_error(url, &error))?;
        let length = request.body().and_then(Body::as_bytes).map_or(0, <[u8]>::len);
        let announcement = if length > LARGE_BODY { request.try_clone() } else { None };
        let error = match client.execute(request).await {
            Ok(response) => return Ok(response),
            Err(error) => convert_error(url, &error),
        };
        match announcement {
            Some(announcement) if matches!(error, ClientError::Broken(_)) => {
                let refusal = refusal_of(&client, announcement, length).boxed().await;
                refusal.ok_or(error)
            }
            Some(_) | None => Err(error),
        }
    }

    /// Reads a complete body.
    pub(crate) async fn body(&self, url: &Url, mut response: Response) -> Result<Vec<u8>, ClientError> {
        let limit = self.options.max_body;
        let announced =
            response.content_length().map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
        if announced > limit {
            return Err(ClientError::TooLarge { limit });
        }
        let mut body = Vec::with_capacity(announced);
        while let Some(chunk) = response.chunk().await.map_err(|error| convert_error(url, &error))? {
            if chunk.len() > limit - body.len() {
                return Err(ClientError::TooLarge { limit });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// Asks again whether a server refuses a request, without its body.
///
/// A server that refuses a large body responds and closes the connection while the body is being sent. The HTTP client then reports
/// the broken connection and not the response. This sends the head of the request with the length of the body and waits for a
/// refusal. The request is never complete, so the server cannot execute it.
async fn refusal_of(client: &Client, mut request: Request, length: usize) -> Option<Response> {
    *request.body_mut() = Some(Body::wrap(AnnouncedBody { length }));
    let response = tokio::time::timeout(REFUSAL_TIMEOUT, client.execute(request)).await.ok()?.ok()?;
    response.status().is_client_error().then_some(response)
}

/// A body of which only the length is sent.
struct AnnouncedBody {
    length: usize,
}

impl http_body::Body for AnnouncedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.length as u64)
    }
}

/// Runs a future with a time limit.
///
/// This is no `async fn`: that would reserve the space of `what` twice.
pub(crate) fn with_timeout<T>(
    limit: Duration,
    what: impl Future<Output = Result<T, ClientError>>,
) -> impl Future<Output = Result<T, ClientError>> {
    tokio::time::timeout(limit, what).map(move |result| result.unwrap_or(Err(ClientError::Timeout { limit })))
}

/// The error for a status that is not a success.
pub(crate) fn status_error(url: &Url, status: reqwest::StatusCode, body: &[u8]) -> ClientError {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * EXCERPT)]);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let body = line.chars().take(EXCERPT).collect();
    ClientError::Http { url: display_url(url), status: status.as_u16(), body, retry_after: None }
}

/// A URL that may be shown: without credentials and query, which may contain secrets.
pub(crate) fn display_url(url: &Url) -> String {
    if let Some(shown) = crate::agent_address::display_direct(url) {
        return shown;
    }
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// An address that cannot be parsed, as it may be shown: without credentials and query. It is empty if it is not clear where the
/// credentials end: a password may contain `?` or `#`.
pub(crate) fn display_text(address: &str) -> String {
    let (address, query) = address.split_at(address.find(['?', '#']).unwrap_or(address.len()));
    let shown = if query.contains('@') { "" } else { address.rsplit('@').next().unwrap_or_default() };
    shown.chars().take(200).collect()
}

/// Whether a URL points to this machine.
pub(crate) fn is_local(url: &Url) -> bool {
    url.host().is_some_and(|host| is_loopback(&host))
}

fn builder(options: &ClientOptions) -> ClientBuilder {
    let builder = restricted_client()
        .user_agent(concat!("attache-client/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(options.connect_timeout)
        .pool_idle_timeout(POOL_TIMEOUT);
    let builder = match &options.identity {
        Some(identity) => builder.identity(identity.to_reqwest()),
        None => builder,
    };
    let builder = if options.roots.is_empty() {
        builder
    } else {
        builder.tls_certs_merge(options.roots.iter().flat_map(RootCertificates::to_reqwest))
    };
    match &options.policy {
        Some(policy) => {
            let guard = PolicyResolver::new(Arc::new(policy.clone()), Arc::new(SystemResolver));
            builder.dns_resolver(Arc::new(guard))
        }
        None => builder,
    }
}

/// Converts an error of the HTTP client.
pub(crate) fn convert_error(url: &Url, error: &reqwest::Error) -> ClientError {
    if let Some(refused) = causes(error).find_map(|cause| cause.downcast_ref::<Refused>()) {
        return ClientError::Refused { url: display_url(url), refused: refused.clone() };
    }
    if error.is_connect() {
        return ClientError::Connect { url: display_url(url), why: ConnectFailure::of(error, text(error)) };
    }
    ClientError::Broken(text(error))
}

/// The system's message. The HTTP client's own text contains the URL.
fn text(error: &(dyn Error + 'static)) -> String {
    let text = causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ");
    if text.is_empty() { "the request failed".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use attache_outbound::Policy;

    use super::*;

    #[test]
    fn no_secret_of_an_invalid_address_is_shown() {
        for (address, shown) in [
            ("agent", "agent"),
            ("https://a.example/x?key=s3cret#s3cret", "https://a.example/x"),
            ("https://user:s3cret@a.example", "a.example"),
            ("https://user:s3?cret@a.example", ""),
            ("https://a.example/?mail=s3@cret", ""),
        ] {
            assert_eq!(display_text(address), shown, "{address}");
        }
        assert_eq!(display_text(&"a".repeat(300)).len(), 200);
    }

    #[test]
    fn an_address_is_checked_before_it_is_used() {
        let open = Http::new(ClientOptions::default()).unwrap();
        assert!(open.check("http://127.0.0.1:3111").is_ok());
        for address in ["localhost:3111", "ftp://example.com", "agent", "", "http://", "file:///etc/passwd"] {
            let error = open.check(address).unwrap_err();
            assert!(matches!(error, ClientError::Invalid(_)), "{address}: {error}");
        }
        let policy = Some(Policy::default());
        let guarded = Http::new(ClientOptions { policy, ..ClientOptions::default() }).unwrap();
        assert!(guarded.check("https://agent.example.com/a2a").is_ok());
        for address in ["http://127.0.0.1:3111", "http://localhost/", "http://169.254.169.254/?secret"] {
            let error = guarded.check(address).unwrap_err();
            assert!(matches!(error, ClientError::Refused { .. }), "{address}: {error}");
            assert!(!error.to_string().contains("secret"));
        }
    }
}
