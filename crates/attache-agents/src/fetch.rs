//! Reads remote URLs of messages. The policy checks each URL, and each IP address that its host resolves to. Redirects are not
//! followed, and no credentials are sent.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{BoxFuture, Fetch, FetchError, Fetched};
use attache_outbound::{Policy, Refused, SetupError, causes, guarded_client};
use http::header::CONTENT_TYPE;
use reqwest::Client;

/// How long a whole request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How requests of this process name it.
pub(crate) const USER_AGENT: &str = concat!("attache/", env!("CARGO_PKG_VERSION"));

/// Reads remote URLs of messages, for [`InputRules::fetch`](attache_core::InputRules::fetch).
pub struct UrlFetcher {
    policy: Arc<Policy>,
    client: Client,
}

impl UrlFetcher {
    /// Reads URLs that the policy allows.
    pub fn new(policy: Policy) -> Result<Self, SetupError> {
        let policy = Arc::new(policy);
        let client = guarded_client(policy.clone(), |client| {
            client.user_agent(USER_AGENT).connect_timeout(CONNECT_TIMEOUT).timeout(TIMEOUT)
        })?;
        Ok(Self { policy, client })
    }

    async fn read(&self, url: &str, limit: usize) -> Result<Fetched, FetchError> {
        let refused =
            |refused: &Refused| FetchError(format!("the URL is refused: {}", self.policy.explain(refused)));
        let target = self.policy.check_url(url).map_err(|error| refused(&error))?;
        let failed = |error: reqwest::Error| {
            match causes(&error).find_map(|cause| cause.downcast_ref::<Refused>()) {
                Some(error) => refused(error),
                // The causes can name addresses of this network.
                None => FetchError("the URL cannot be read".to_owned()),
            }
        };
        let mut response = self.client.get(target.url().clone()).send().await.map_err(failed)?;
        let status = response.status();
        if !status.is_success() {
            return Err(FetchError(format!(
                "the URL cannot be read: its server responds with {}",
                status.as_u16()
            )));
        }
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.map(str::to_owned);
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if chunk.len() > limit.saturating_sub(bytes.len()) {
                return Err(FetchError(format!("it is too large: the limit is {limit} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Fetched { bytes, media_type })
    }
}

impl Fetch for UrlFetcher {
    fn fetch<'a>(&'a self, url: &'a str, limit: usize) -> BoxFuture<'a, Result<Fetched, FetchError>> {
        Box::pin(self.read(url, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn serve() -> String {
        let app = axum::Router::new()
            .route("/text", axum::routing::get(async || "hello"))
            .route("/away", axum::routing::get(async || axum::response::Redirect::to("/text")));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }

    #[tokio::test]
    async fn a_url_is_read_within_its_limit_and_without_redirects() {
        let url = serve().await;
        let fetcher = UrlFetcher::new(Policy::default().allow_loopback(true)).unwrap();
        let text = fetcher.fetch(&format!("{url}/text"), 5).await.unwrap();
        assert_eq!(
            (text.bytes.as_slice(), text.media_type.as_deref()),
            (&b"hello"[..], Some("text/plain; charset=utf-8"))
        );
        for (path, limit, words) in [
            ("/text", 4, "the limit is 4 bytes"),
            ("/missing", 9, "responds with 404"),
            ("/away", 9, "responds with 303"),
        ] {
            let error = fetcher.fetch(&format!("{url}{path}"), limit).await.unwrap_err();
            assert!(error.to_string().contains(words), "{path}: {error}");
        }
    }

    #[tokio::test]
    async fn addresses_of_this_machine_and_other_schemes_are_refused() {
        let url = serve().await;
        let fetcher = UrlFetcher::new(Policy::default()).unwrap();
        for url in [format!("{url}/text"), "http://localhost:1/".to_owned(), "ftp://example.org/".to_owned()]
        {
            let error = fetcher.fetch(&url, 10).await.unwrap_err();
            assert!(error.to_string().starts_with("the URL is refused"), "{url}: {error}");
        }
    }
}
