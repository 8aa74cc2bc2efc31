//! The settings of a worker.

use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use url::Url;

use crate::wire::DEFAULT_PORT;

/// Settings of a [`Worker`](super::Worker). The defaults suit an engine on this machine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// The URL of the engine: `ws://` or `wss://`.
    pub url: String,
    /// The name of the worker. Engines since 0.23 accept only one worker of each name.
    pub name: String,
    /// The namespace of its functions. The engine's default namespace if not set.
    pub namespace: Option<String>,
    /// Headers of the requests that open connections.
    pub headers: HeaderMap,
    /// The back-off before the first attempt to reconnect, approximately. It doubles with each attempt.
    pub reconnect_min: Duration,
    /// The longest back-off.
    pub reconnect_max: Duration,
    /// How often to ping the engine.
    pub ping_interval: Duration,
    /// The connection counts as lost after this time without a frame.
    pub dead_after: Duration,
    /// How many calls of the worker's functions run at the same time. More calls are rejected.
    pub at_once: usize,
    /// How often to list the functions, in case the engine does not report a change.
    pub poll_interval: Duration,
    /// The largest payload of a call, in bytes. If it is not set, the limit is that of the SDK of the called worker.
    pub max_payload: Option<usize>,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            url: format!("ws://localhost:{DEFAULT_PORT}"),
            // In containers, many processes have the same id.
            name: format!("attache:{}-{:04x}", std::process::id(), fastrand::u16(..)),
            namespace: None,
            headers: HeaderMap::new(),
            reconnect_min: Duration::from_millis(250),
            reconnect_max: Duration::from_secs(5),
            ping_interval: Duration::from_secs(20),
            dead_after: Duration::from_secs(60),
            at_once: 1024,
            poll_interval: Duration::from_secs(5),
            max_payload: None,
        }
    }
}

impl WorkerOptions {
    /// The default settings, for the engine at this URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), ..Self::default() }
    }

    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Sets the token for the engine.
    pub fn token(mut self, token: &str) -> Result<Self, WorkerError> {
        let mut value =
            HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| WorkerError::BadToken)?;
        value.set_sensitive(true);
        self.headers.insert(AUTHORIZATION, value);
        Ok(self)
    }
}

/// Why a worker cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// The URL of the engine is invalid.
    #[error("`{url}` is not the URL of an engine: {problem}; expected something like `ws://localhost:49134`")]
    BadUrl {
        /// The given URL.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A header cannot carry the token.
    #[error("the token contains characters that are not allowed in a header")]
    BadToken,
    /// There is no tokio runtime.
    #[error("a worker must be connected within a tokio runtime")]
    NoRuntime,
}

/// Parses the URL of an engine.
pub(super) fn engine_url(text: &str) -> Result<Url, WorkerError> {
    let bad = |problem: String| WorkerError::BadUrl { url: text.to_owned(), problem };
    let url = Url::parse(text.trim()).map_err(|error| bad(error.to_string()))?;
    if !matches!(url.scheme(), "ws" | "wss") {
        return Err(bad(format!("it begins with `{}:`, not with `ws:` or `wss:`", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(WorkerError::BadUrl {
            // The password must not appear in logs.
            url: url.host_str().unwrap_or_default().to_owned(),
            problem: "a URL must not contain a user name or a password: use a token or a header".to_owned(),
        });
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_engine_url_is_refused_with_the_reason() {
        let problem = |url| engine_url(url).unwrap_err().to_string();
        assert!(problem("localhost:49134").contains("not with `ws:`"), "{}", problem("localhost:49134"));
        assert!(problem("http://localhost:49134").contains("begins with `http:`"));
        assert!(problem("engine").contains("ws://localhost:49134"));
        assert!(!problem("ws://me:secret@localhost").contains("secret"));
    }

    #[test]
    fn a_token_is_not_shown() {
        let options = WorkerOptions::default().token("s3cret").unwrap();
        assert!(!format!("{options:?}").contains("s3cret"));
        assert_eq!(WorkerOptions::default().token("new\nline").unwrap_err(), WorkerError::BadToken);
    }
}
