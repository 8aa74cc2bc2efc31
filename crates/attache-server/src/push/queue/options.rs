//! The options of the push queue.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use attache_core::Seal;
use attache_redis::RedisUrl;

use crate::transport::redis::OptionFlaw;

/// Shares the deliveries of push notifications with other server processes, over Redis Streams.
///
/// See [`PushOptions::queue`](crate::PushOptions::queue).
#[derive(Clone)]
#[non_exhaustive]
pub struct PushQueue {
    /// The Redis server.
    pub url: RedisUrl,
    /// Encrypts the addresses and the credentials of webhooks in jobs. All processes that share the queue need the same keys.
    pub seal: Arc<dyn Seal>,
    /// The stream of jobs.
    pub stream: String,
    /// The sorted set of jobs that wait for their next attempt.
    pub retry_key: String,
    /// The stream of jobs that were given up, and of entries that are no jobs.
    pub dead_stream: String,
    /// The consumer group. All processes that share the queue have the same one.
    pub group: String,
    /// The name of this process in the group. By default one that no other process has.
    pub consumer: Option<String>,
    /// After which time the jobs of a process that does not work on them any more are taken over.
    pub lease: Duration,
    /// How many jobs the dead stream keeps, about.
    pub keep_dead: usize,
}

/// The names by default.
const STREAM: &str = "attache:a2a:push";
const GROUP: &str = "attache-push";

impl PushQueue {
    /// The options for a Redis server, with keys such as the keyring of a store.
    pub fn new(url: RedisUrl, seal: impl Seal + 'static) -> Self {
        Self {
            url,
            seal: Arc::new(seal),
            stream: STREAM.to_owned(),
            retry_key: format!("{STREAM}:retry"),
            dead_stream: format!("{STREAM}:dead"),
            group: GROUP.to_owned(),
            consumer: None,
            lease: Duration::from_secs(5 * 60),
            keep_dead: 1_000,
        }
    }

    /// Changes some of the fields.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// What is wrong with the options, if something is.
    pub fn flaw(&self) -> Option<OptionFlaw> {
        let names = [
            ("stream", &self.stream),
            ("retry-key", &self.retry_key),
            ("dead-stream", &self.dead_stream),
            ("consumer-group", &self.group),
        ];
        if let Some((name, _)) = names.iter().find(|(_, value)| value.is_empty()) {
            return Some(OptionFlaw::new(name, format!("`{name}` is empty")));
        }
        for (at, (name, key)) in names[..3].iter().enumerate() {
            if let Some((other, _)) = names[..at].iter().find(|(_, other)| other == key) {
                return Some(OptionFlaw::new(name, format!("`{other}` and `{name}` are the same")));
            }
        }
        if self.consumer.as_ref().is_some_and(String::is_empty) {
            return Some(OptionFlaw::new("consumer-name", "`consumer-name` is empty"));
        }
        if self.lease < Duration::from_secs(1) {
            return Some(OptionFlaw::new("lease", "`lease` is shorter than a second"));
        }
        (self.keep_dead == 0).then(|| OptionFlaw::new("keep-dead", "`keep-dead` is 0"))
    }

    /// A name that no other process has.
    pub(super) fn consumer_name(&self) -> String {
        let random = || format!("{}-{:012x}", std::process::id(), fastrand::u64(..1 << 48));
        self.consumer.clone().unwrap_or_else(random)
    }
}

impl fmt::Debug for PushQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, seal: _, stream, retry_key, dead_stream, group, consumer, lease, keep_dead } = self;
        f.debug_struct("PushQueue")
            .field("url", url)
            .field("stream", stream)
            .field("retry_key", retry_key)
            .field("dead_stream", dead_stream)
            .field("group", group)
            .field("consumer", consumer)
            .field("lease", lease)
            .field("keep_dead", keep_dead)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use attache_core::SealError;

    use super::*;

    struct NoKeys;

    impl Seal for NoKeys {
        fn seal(&self, _: &[u8], _: &[u8]) -> Result<Vec<u8>, SealError> {
            Err(SealError::new("no keys"))
        }

        fn open(&self, _: &[u8], _: &[u8]) -> Result<Vec<u8>, SealError> {
            Err(SealError::new("no keys"))
        }
    }

    #[test]
    fn names_that_would_mix_jobs_are_refused() {
        let queue = || PushQueue::new("redis://ops:s3cret@10.0.0.1".parse().unwrap(), NoKeys);
        assert_eq!(queue().flaw(), None);
        assert!(!format!("{:?}", queue()).contains("s3cret"));
        let flaw = |change: fn(&mut PushQueue)| {
            queue().with(change).flaw().map(|flaw| flaw.to_string()).unwrap_or_default()
        };
        assert!(
            flaw(|queue| queue.dead_stream = queue.stream.clone()).contains("`stream` and `dead-stream`")
        );
        assert!(flaw(|queue| queue.retry_key = queue.stream.clone()).contains("are the same"));
        assert!(flaw(|queue| queue.group.clear()).contains("`consumer-group` is empty"));
        assert!(flaw(|queue| queue.lease = Duration::from_millis(999)).contains("`lease`"));
        assert!(flaw(|queue| queue.keep_dead = 0).contains("`keep-dead`"));
    }
}
