//! The settings of the Redis Streams transport, and of the push queue in Redis.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use attache::server::{PushQueue, RedisStreams, RedisUrl};
use attache::store::Keyring;

use super::problems::Problems;
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
    problems: &mut Problems<'_>,
) -> Option<RedisStreams> {
    let nothing = Redis::default();
    problems.section("redis", |problems| streams(url, file.unwrap_or(&nothing), problems))
}

fn streams(url: Option<&str>, settings: &Redis, problems: &mut Problems<'_>) -> Option<RedisStreams> {
    let Some(url) = url else {
        // Settings without a server would be ignored without a word.
        if *settings != Redis::default() {
            let failure = Failure::usage("the section names no Redis server");
            problems.add(["url"], failure.hint("set `redis.url`, or leave the section out"));
        }
        return None;
    };
    let Redis { password, password_file, ca_file, .. } = settings;
    let url = server(url, password.as_ref(), password_file.as_deref(), ca_file.as_deref(), problems)?;
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
    if let Some(flaw) = streams.flaw() {
        problems.add([flaw.option], Failure::usage(flaw));
    }
    Some(streams)
}

/// A Redis server with its password and the certificates to trust.
fn server(
    url: &str,
    password: Option<&Masked>,
    password_file: Option<&Path>,
    ca_file: Option<&Path>,
    problems: &mut Problems<'_>,
) -> Option<RedisUrl> {
    let parsed: Result<RedisUrl, _> = url.parse();
    let url = problems.take(["url"], parsed.map_err(Failure::usage));
    let password = match (password, password_file) {
        (Some(_), Some(_)) => {
            let text = "there is both a `password` and a `password-file`";
            problems.add(["password"], Failure::usage(text));
            None
        }
        (Some(password), None) => Some(password.0.clone()),
        (None, Some(path)) => {
            let read = Secret::in_file(path).map_err(Failure::usage);
            problems.take(["password-file"], read).map(|secret| secret.reveal().to_owned())
        }
        (None, None) => None,
    };
    let trusted =
        ca_file.and_then(|path| problems.take(["ca-file"], certificates(path).map_err(Failure::usage)));
    let url = match password {
        Some(password) => url?.with_credentials(None, &password),
        None => url?,
    };
    Some(match trusted {
        Some(certificates) => url.trust(certificates),
        None => url,
    })
}

/// The push queue, if deliveries wait in Redis. Its keys are for this check only: the server sets those of its store.
pub(crate) fn push_queue(push: &Push, problems: &mut Problems<'_>) -> Option<PushQueue> {
    let settings = &push.redis;
    let url = match (push.queue.unwrap_or_default(), &settings.url) {
        (PushQueueKind::Redis, Some(url)) => url.0.to_string(),
        (PushQueueKind::Redis, None) => {
            let failure = Failure::usage("deliveries wait in Redis, and no Redis server is named");
            problems.add(
                ["push.queue", "push.redis.url"],
                failure.hint("set `push.redis.url`, such as `redis://127.0.0.1:6379/0`"),
            );
            return None;
        }
        (PushQueueKind::Store, _) if *settings == PushRedis::default() => return None,
        (PushQueueKind::Store, _) => {
            let failure = Failure::usage("the section has no effect without `push.queue: redis`");
            problems.add(
                ["push.redis", "push.queue"],
                failure.hint("set `push.queue`, or leave the section out"),
            );
            return None;
        }
    };
    problems.section("push.redis", |problems| queue(&url, settings, problems))
}

fn queue(url: &str, settings: &PushRedis, problems: &mut Problems<'_>) -> Option<PushQueue> {
    let PushRedis { password, password_file, ca_file, .. } = settings;
    let url = server(url, password.as_ref(), password_file.as_deref(), ca_file.as_deref(), problems)?;
    let keys = problems.take_placed(Keyring::ephemeral().map_err(Failure::new))?;
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
    if let Some(flaw) = queue.flaw() {
        problems.add([flaw.option], Failure::usage(flaw));
    }
    Some(queue)
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
    use super::super::ResolvedSettings;
    use super::*;

    /// What a check returns, or its errors.
    fn checked<T>(check: impl FnOnce(&mut Problems<'_>) -> Option<T>) -> Result<Option<T>, String> {
        let settings = ResolvedSettings::default();
        let mut problems = Problems::of(&settings);
        let value = check(&mut problems);
        problems.result().map(|()| value).map_err(|failure| failure.to_string())
    }

    fn streams_error(url: Option<&str>, settings: Option<&Redis>) -> String {
        checked(|problems| redis_streams(url, settings, problems)).err().unwrap_or_default()
    }

    #[test]
    fn settings_without_a_server_are_refused() {
        for nothing in [None, Some(&Redis::default())] {
            assert!(checked(|problems| redis_streams(None, nothing, problems)).unwrap().is_none());
        }
        let only_names = Redis { consumer_group: Some("g".to_owned()), ..Redis::default() };
        let error = streams_error(None, Some(&only_names));
        assert!(error.contains("names no Redis server"), "{error}");
    }

    #[test]
    fn names_that_would_let_clients_write_to_the_servers_streams_are_refused() {
        let settings = Redis { reply_prefix: Some("attache:".to_owned()), ..Redis::default() };
        let error = streams_error(Some("redis://127.0.0.1"), Some(&settings));
        assert!(error.contains("`redis.request-stream`") && error.contains("could be named"), "{error}");
    }

    #[test]
    fn all_errors_of_a_server_are_reported() {
        let settings = Redis {
            password_file: Some("/nowhere/password".into()),
            ca_file: Some("/nowhere/ca".into()),
            ..Redis::default()
        };
        let error = streams_error(Some("redis://h:99999"), Some(&settings));
        for setting in ["`redis.url`", "`redis.password-file`", "`redis.ca-file`"] {
            assert!(error.contains(setting), "{error}");
        }
    }

    #[test]
    fn a_push_queue_has_a_server_and_is_asked_for() {
        let with = |queue, url: Option<&str>| {
            let url = url.map(|url| FromText(url.parse().unwrap()));
            let push = Push { queue, redis: PushRedis { url, ..PushRedis::default() }, ..Push::default() };
            checked(|problems| push_queue(&push, problems))
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
        let error = streams_error(Some("redis://:s3cret@h:99999"), None);
        assert!(error.contains("not the URL of a Redis server") && !error.contains("s3cret"), "{error}");
    }
}
