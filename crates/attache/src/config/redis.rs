//! The settings of the Redis Streams transport, and of the push queue in Redis.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use attache::server::{PushQueue, RedisStreams, RedisUrl};
use attache::store::Keyring;

use super::secret::{Masked, Secret};
use super::settings::{Push, PushQueueKind, PushRedis, Redis};
use super::units::{Count, Described, FromText, Size};
use crate::command::Failure;

/// The URL of a Redis server in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RedisText(String);

impl FromStr for RedisText {
    type Err = String;

    /// Rejects an invalid URL here, where its line is known. The error repeats the text, so a text with a password is rejected later.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse::<RedisUrl>() {
            Err(error) if !text.contains('@') => Err(error.to_string()),
            Ok(_) | Err(_) => Ok(Self(text.to_owned())),
        }
    }
}

impl fmt::Display for RedisText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Described for RedisText {
    const NAME: &'static str = "RedisUrl";
    const PATTERN: &'static str = "^(rediss?|unix|redis[+]unix)://";
    const EXAMPLE: &'static str = "redis://127.0.0.1:6379/0";
}

/// The options of the transport, if a Redis server is named by the flag, the environment or the file.
pub(crate) fn redis_streams(
    url: Option<&str>,
    file: Option<&Redis>,
) -> Result<Option<RedisStreams>, Failure> {
    let nothing = Redis::default();
    let settings = file.unwrap_or(&nothing);
    let Some(url) = url else {
        // Settings without a server would be ignored without a word.
        return match *settings == nothing {
            true => Ok(None),
            false => Err(Failure::usage("the section `redis` names no Redis server")
                .hint("set `redis.url`, or leave the section out")),
        };
    };
    let usage = |text: String| Failure::usage(format!("`redis`: {text}"));
    let Redis { password, password_file, ca_file, .. } = settings;
    let url = server(url, password.as_ref(), password_file.as_deref(), ca_file.as_deref()).map_err(usage)?;
    let streams = RedisStreams::of(url).with(|redis| {
        let text = |to: &mut String, from: &Option<String>| from.iter().for_each(|from| to.clone_from(from));
        text(&mut redis.request_stream, &settings.request_stream);
        text(&mut redis.response_stream, &settings.response_stream);
        text(&mut redis.group, &settings.consumer_group);
        redis.consumer.clone_from(&settings.consumer_name);
        redis.reply_prefix.clone_from(&settings.reply_prefix);
        redis.dead_stream.clone_from(&settings.dead_stream);
        redis.card_host.clone_from(&settings.card_host);
        redis.in_card = settings.in_card.unwrap_or(true);
        redis.max_entry = settings.max_entry_size.as_ref().map(|FromText(Size(size))| to_usize(*size));
        let count = |to: &mut usize, from: &Option<FromText<Count>>| {
            from.iter().for_each(|FromText(Count(count))| *to = to_usize(count.get().into()));
        };
        count(&mut redis.in_flight, &settings.in_flight);
        count(&mut redis.streams, &settings.streams);
        count(&mut redis.keep, &settings.keep);
        count(&mut redis.keep_dead, &settings.keep_dead);
        if let Some(FromText(Count(count))) = &settings.max_deliveries {
            redis.max_deliveries = count.get().into();
        }
        if let Some(FromText(time)) = &settings.expire {
            redis.expire = time.0;
        }
        if let Some(FromText(time)) = &settings.claim_after {
            redis.claim_after = time.0;
        }
    });
    match streams.flaw() {
        Some(flaw) => Err(usage(flaw)),
        None => Ok(Some(streams)),
    }
}

/// A Redis server with its password and the certificates to trust.
fn server(
    url: &str,
    password: Option<&Masked>,
    password_file: Option<&Path>,
    ca_file: Option<&Path>,
) -> Result<RedisUrl, String> {
    let mut url: RedisUrl = url.parse().map_err(|error| format!("{error}"))?;
    let password = match (password, password_file) {
        (Some(_), Some(_)) => return Err("there is both a `password` and a `password-file`".to_owned()),
        (Some(password), None) => Some(password.0.clone()),
        (None, Some(path)) => {
            Some(Secret::in_file(path).map_err(|error| error.to_string())?.reveal().to_owned())
        }
        (None, None) => None,
    };
    if let Some(password) = password {
        url = url.with_credentials(None, &password);
    }
    match ca_file {
        Some(path) => Ok(url.trust(certificates(path)?)),
        None => Ok(url),
    }
}

/// The push queue, if deliveries wait in Redis. Its keys are for this check only: the server sets those of its store.
pub(crate) fn push_queue(push: &Push) -> Result<Option<PushQueue>, Failure> {
    let settings = &push.redis;
    let url = match (push.queue.unwrap_or_default(), &settings.url) {
        (PushQueueKind::Redis, Some(url)) => url.0.to_string(),
        (PushQueueKind::Redis, None) => {
            return Err(Failure::usage("`push.queue` is `redis`, and no Redis server is named")
                .hint("set `push.redis.url`, such as `redis://127.0.0.1:6379/0`"));
        }
        (PushQueueKind::Store, _) if *settings == PushRedis::default() => return Ok(None),
        (PushQueueKind::Store, _) => {
            return Err(Failure::usage("the section `push.redis` has no effect without `push.queue: redis`")
                .hint("set `push.queue`, or leave the section out"));
        }
    };
    let usage = |text: String| Failure::usage(format!("`push.redis`: {text}"));
    let PushRedis { password, password_file, ca_file, .. } = settings;
    let url = server(&url, password.as_ref(), password_file.as_deref(), ca_file.as_deref()).map_err(usage)?;
    let keys = Keyring::ephemeral().map_err(Failure::new)?;
    let queue = PushQueue::new(url, keys).with(|queue| {
        let text = |to: &mut String, from: &Option<String>| from.iter().for_each(|from| to.clone_from(from));
        text(&mut queue.stream, &settings.stream);
        text(&mut queue.retry_key, &settings.retry_key);
        text(&mut queue.dead_stream, &settings.dead_stream);
        text(&mut queue.group, &settings.consumer_group);
        queue.consumer.clone_from(&settings.consumer_name);
        if let Some(FromText(time)) = &settings.lease {
            queue.lease = time.0;
        }
        if let Some(FromText(Count(count))) = &settings.keep_dead {
            queue.keep_dead = to_usize(count.get().into());
        }
    });
    match queue.flaw() {
        Some(flaw) => Err(usage(flaw)),
        None => Ok(Some(queue)),
    }
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The certificates in a file.
fn certificates(path: &Path) -> Result<Vec<u8>, String> {
    let pem = std::fs::read(path).map_err(|error| format!("`{}` cannot be read: {error}", path.display()))?;
    match pem.windows(BEGIN.len()).any(|window| window == BEGIN) {
        true => Ok(pem),
        false => Err(format!("there is no certificate in `{}`", path.display())),
    }
}

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_without_a_server_are_refused() {
        assert!(redis_streams(None, None).unwrap().is_none());
        assert!(redis_streams(None, Some(&Redis::default())).unwrap().is_none());
        let only_names = Redis { consumer_group: Some("g".to_owned()), ..Redis::default() };
        let error = redis_streams(None, Some(&only_names)).err().map(|failure| failure.to_string());
        assert!(error.unwrap_or_default().contains("names no Redis server"));
    }

    #[test]
    fn names_that_would_let_clients_write_to_the_servers_streams_are_refused() {
        let settings = Redis { reply_prefix: Some("attache:".to_owned()), ..Redis::default() };
        let error = redis_streams(Some("redis://127.0.0.1"), Some(&settings)).err();
        let text = error.map(|failure| failure.to_string()).unwrap_or_default();
        assert!(text.contains("could be named as a reply stream"), "{text}");
    }

    #[test]
    fn a_push_queue_has_a_server_and_is_asked_for() {
        let with = |queue, url: Option<&str>| {
            let url = url.map(|url| FromText(url.parse().unwrap()));
            let push = Push { queue, redis: PushRedis { url, ..PushRedis::default() }, ..Push::default() };
            push_queue(&push).map_err(|failure| failure.to_string())
        };
        assert!(with(None, None).unwrap().is_none());
        assert!(with(Some(PushQueueKind::Store), None).unwrap().is_none());
        let url = Some("redis://:s3cret@127.0.0.1:6379/1");
        let queue = with(Some(PushQueueKind::Redis), url).unwrap().unwrap();
        assert_eq!(
            (queue.stream.as_str(), queue.url.to_string().as_str()),
            ("attache:a2a:push", "redis://127.0.0.1:6379/1")
        );
        assert!(!format!("{queue:?}").contains("s3cret"));
        assert!(with(Some(PushQueueKind::Redis), None).unwrap_err().contains("no Redis server is named"));
        assert!(with(None, url).unwrap_err().contains("has no effect without `push.queue: redis`"));
        let error = with(Some(PushQueueKind::Redis), Some("redis://:s3cret@h:99999")).unwrap_err();
        assert!(error.contains("not the URL of a Redis server") && !error.contains("s3cret"), "{error}");
    }

    #[test]
    fn a_password_is_in_no_error() {
        let error = redis_streams(Some("redis://:s3cret@h:99999"), None).err();
        let text = error.map(|failure| failure.to_string()).unwrap_or_default();
        assert!(text.contains("not the URL of a Redis server") && !text.contains("s3cret"), "{text}");
    }
}
