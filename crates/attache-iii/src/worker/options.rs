//! What can be set about a worker, and what is wrong with it.

use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use url::Url;

use crate::wire::DEFAULT_PORT;

/// Settings of a [`Worker`](super::Worker). The defaults suit an engine on this machine.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Where the engine listens for workers: `ws://` or `wss://`.
    pub url: String,
    /// What the worker calls itself. Engines from 0.23 on let in only one worker of a name.
    pub name: String,
    /// The namespace of its functions; the engine's default one if not given.
    pub namespace: Option<String>,
    /// Headers of the requests that open connections.
    pub headers: HeaderMap,
    /// How long to wait before the first attempt to reconnect, about; twice as long before each further one.
    pub reconnect_min: Duration,
    /// How long to wait at most before an attempt to reconnect.
    pub reconnect_max: Duration,
    /// How often to ask whether the engine is there.
    pub ping_interval: Duration,
    /// After how long a silence the engine is taken to be gone.
    pub dead_after: Duration,
    /// How many calls of the worker's functions are worked on at once; more are refused.
    pub at_once: usize,
    /// How often to look for functions that came or went without the engine saying so.
    pub poll_interval: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            url: format!("ws://localhost:{DEFAULT_PORT}"),
            name: format!("attache:{}", std::process::id()),
            namespace: None,
            headers: HeaderMap::new(),
            reconnect_min: Duration::from_millis(250),
            reconnect_max: Duration::from_secs(5),
            ping_interval: Duration::from_secs(20),
            dead_after: Duration::from_secs(60),
            at_once: 1024,
            poll_interval: Duration::from_secs(5),
        }
    }
}

impl WorkerOptions {
    /// The defaults, for the engine at a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), ..Self::default() }
    }

    /// Sets the token that the worker shows to the engine.
    pub fn token(mut self, token: &str) -> Result<Self, WorkerError> {
        let mut value =
            HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| WorkerError::BadToken)?;
        value.set_sensitive(true);
        self.headers.insert(AUTHORIZATION, value);
        Ok(self)
    }
}

/// Why a worker cannot even try to join an engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// The URL of the engine is none.
    #[error("`{url}` is not the address of an engine: {problem}; give one like `ws://localhost:49134`")]
    BadUrl {
        /// What was given.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The token is not one that a header can carry.
    #[error("the token has characters that a header cannot carry")]
    BadToken,
    /// There is nothing to run on.
    #[error("a worker runs on tokio: connect it within a runtime")]
    NoRuntime,
}

/// Reads the URL of an engine.
pub(super) fn engine_url(text: &str) -> Result<Url, WorkerError> {
    let bad = |problem: String| WorkerError::BadUrl { url: text.to_owned(), problem };
    let url = Url::parse(text.trim()).map_err(|error| bad(error.to_string()))?;
    if !matches!(url.scheme(), "ws" | "wss") {
        return Err(bad(format!("it begins with `{}:`, not with `ws:` or `wss:`", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(WorkerError::BadUrl {
            // The password is not for logs.
            url: url.host_str().unwrap_or_default().to_owned(),
            problem: "names and passwords belong into a token or a header".to_owned(),
        });
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_no_engine_can_have_is_refused_with_the_reason() {
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
