//! The options of the Redis Streams transport.

use std::time::Duration;

use attache_protocol::{AgentInterface, binding};
use attache_redis::{Consumer, InvalidUrl, RedisUrl, ServerAddress, StreamsAddress};

use super::flaw::OptionFlaw;

/// Answers requests that arrive as entries of a Redis stream, in addition to HTTP. See [`Server::redis`](crate::Server::redis).
///
/// ```
/// use attache_server::RedisStreams;
///
/// let redis = RedisStreams::new("redis://127.0.0.1:6379")?.with(|redis| redis.in_flight = 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RedisStreams {
    /// The Redis server.
    pub url: RedisUrl,
    /// The stream of requests.
    pub request_stream: String,
    /// The stream of responses, for clients without a reply stream of their own.
    pub response_stream: String,
    /// The consumer group. All server processes that answer the same requests have the same one.
    pub group: String,
    /// The name of this process in the group. By default one that no other process has.
    pub consumer: Option<String>,
    /// What the names of reply streams begin with. By default the response stream and a colon. A request with another reply stream than
    /// these and the response stream is refused.
    pub reply_prefix: Option<String>,
    /// The stream of refused entries. By default the request stream and `:dead`.
    pub dead_stream: Option<String>,
    /// How many requests are processed at once. Further ones stay in Redis.
    pub in_flight: usize,
    /// How many streams of events may be open at once. Further ones are refused.
    pub streams: usize,
    /// The largest entry, in bytes. By default the largest body of the server and 64 KiB.
    pub max_entry: Option<usize>,
    /// What the entries that are processed may use of memory together, in bytes, in addition to one entry of the largest size.
    pub memory: usize,
    /// About how many responses a reply stream keeps.
    pub keep: usize,
    /// How long a reply stream is kept after its last response.
    pub expire: Duration,
    /// About how many refused entries are kept.
    pub keep_dead: usize,
    /// After which time the requests of a process that does not work on them any more are taken over.
    pub claim_after: Duration,
    /// How often a request is delivered at most. After that it is refused, because it may have ended the processes that had it.
    pub max_deliveries: u64,
    /// Whether the card lists the transport.
    pub in_card: bool,
    /// `HOST:PORT` of Redis in the card, if clients reach it under another one.
    pub card_host: Option<String>,
}

/// The names of streams and group by default.
const REQUESTS: &str = "attache:a2a:requests";
const RESPONSES: &str = "attache:a2a:responses";
const GROUP: &str = "attache";

impl RedisStreams {
    /// The options for a Redis server, such as `redis://127.0.0.1:6379` or `rediss://user:password@redis.example.com/0`.
    pub fn new(url: &str) -> Result<Self, InvalidUrl> {
        Ok(Self::of(url.parse()?))
    }

    /// The options for a Redis server.
    pub fn of(url: RedisUrl) -> Self {
        Self {
            url,
            request_stream: REQUESTS.to_owned(),
            response_stream: RESPONSES.to_owned(),
            group: GROUP.to_owned(),
            consumer: None,
            reply_prefix: None,
            dead_stream: None,
            in_flight: 256,
            streams: 256,
            max_entry: None,
            memory: 64 * 1024 * 1024,
            keep: 10_000,
            expire: Duration::from_secs(60 * 60),
            keep_dead: 1_000,
            claim_after: Duration::from_secs(60),
            max_deliveries: 5,
            in_card: true,
            card_host: None,
        }
    }

    /// Changes some of the fields.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The interface in the card of an agent. A Redis server on a Unix socket has no address that a card could name.
    pub(crate) fn interface(&self, agent: Option<&str>) -> Option<AgentInterface> {
        let server = self.url.server().filter(|_| self.in_card)?;
        let server = match self.card_host.as_deref().map(host_and_port) {
            None => server,
            Some((host, port)) => {
                ServerAddress { host: host.to_owned(), port: port.unwrap_or(server.port), ..server }
            }
        };
        let address = StreamsAddress {
            server,
            request_stream: self.request_stream.clone(),
            response_stream: self.response_stream.clone(),
            group: self.group.clone(),
            agent: agent.map(str::to_owned),
            reply_prefix: self.reply_prefix.clone(),
        };
        Some(AgentInterface::new(address.to_string(), binding::REDIS_STREAMS))
    }

    /// Whether only clients on this machine can use the transport: Redis is on it, and [`card_host`](Self::card_host) names no other
    /// machine.
    pub fn is_for_this_machine(&self) -> bool {
        let is_local = |text: &str| {
            let host = host_and_port(text).0.to_owned();
            ServerAddress { host, port: 0, db: 0, tls: false }.is_local()
        };
        self.url.is_local() && self.card_host.as_deref().is_none_or(is_local)
    }

    pub(super) fn prefix(&self) -> String {
        self.reply_prefix.clone().unwrap_or_else(|| format!("{}:", self.response_stream))
    }

    pub(super) fn dead(&self) -> String {
        self.dead_stream.clone().unwrap_or_else(|| format!("{}:dead", self.request_stream))
    }

    /// What the names begin with under which Redis has which process has what.
    pub(super) fn members_prefix(&self) -> String {
        format!("{}:{}", self.request_stream, self.group)
    }

    /// The process with this name in the group.
    pub(super) fn consumer_named<'a>(&'a self, name: &'a str) -> Consumer<'a> {
        Consumer { stream: &self.request_stream, group: &self.group, name }
    }

    /// A name that no other process has.
    pub(super) fn consumer_name(&self) -> String {
        let random = || format!("{}-{:012x}", std::process::id(), fastrand::u64(..1 << 48));
        self.consumer.clone().unwrap_or_else(random)
    }

    /// What is wrong with the options, if anything.
    pub fn flaw(&self) -> Option<OptionFlaw> {
        let (dead, prefix) = (self.dead(), self.prefix());
        let names = [
            ("request-stream", &self.request_stream),
            ("response-stream", &self.response_stream),
            ("consumer-group", &self.group),
            ("dead-stream", &dead),
            ("reply-prefix", &prefix),
        ];
        if let Some((name, _)) = names.iter().find(|(_, value)| value.is_empty()) {
            return Some(OptionFlaw::new(name, format!("`{name}` is empty")));
        }
        if self.request_stream == self.response_stream {
            return Some(OptionFlaw::new(
                "response-stream",
                "`request-stream` and `response-stream` are the same",
            ));
        }
        for (name, key) in [("request-stream", &self.request_stream), ("dead-stream", &dead)] {
            if key.starts_with(&prefix) || *key == self.response_stream {
                let text = format!("`{name}` could be named as a reply stream: give it another name");
                return Some(OptionFlaw::new(name, text));
            }
        }
        // Requests name reply streams.
        let members = format!("{}:", self.members_prefix());
        if members.starts_with(&prefix) || prefix.starts_with(&members) {
            let text = format!(
                "`reply-prefix` is `{prefix}`, and the servers keep their own data below `{members}`"
            );
            return Some(OptionFlaw::new("reply-prefix", text));
        }
        if dead == self.request_stream {
            return Some(OptionFlaw::new("dead-stream", "`request-stream` and `dead-stream` are the same"));
        }
        let counts = [
            ("in-flight", self.in_flight),
            ("streams", self.streams),
            ("keep", self.keep),
            ("keep-dead", self.keep_dead),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Some(OptionFlaw::new(name, format!("`{name}` is 0")));
        }
        if self.claim_after < Duration::from_secs(1) {
            return Some(OptionFlaw::new("claim-after", "`claim-after` is shorter than a second"));
        }
        if self.expire < Duration::from_secs(1) {
            return Some(OptionFlaw::new("expire", "`expire` is shorter than a second"));
        }
        (self.max_deliveries == 0).then(|| OptionFlaw::new("max-deliveries", "`max-deliveries` is 0"))
    }
}

/// The host and the port of `HOST:PORT`, `HOST`, or `[ADDRESS]:PORT`.
fn host_and_port(text: &str) -> (&str, Option<u16>) {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse().ok()),
        Some(_) | None => (text, None),
    };
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> RedisStreams {
        RedisStreams::new("redis://ops:s3cret@10.0.0.1:6380/2").unwrap()
    }

    #[test]
    fn the_card_names_the_streams_without_credentials() {
        let url = |options: RedisStreams, agent| options.interface(agent).map(|interface| interface.url);
        let usual = "redis-streams://10.0.0.1:6380/2/attache:a2a:requests/attache:a2a:responses/attache";
        assert_eq!(url(options(), None).as_deref(), Some(usual));
        assert_eq!(url(options(), Some("research")), Some(format!("{usual}?agent=research")));
        let public = options().with(|redis| redis.card_host = Some("redis.example.com:6379".to_owned()));
        assert!(url(public, None).unwrap().starts_with("redis-streams://redis.example.com:6379/2/"));
        assert_eq!(url(options().with(|redis| redis.in_card = false), None), None);
        assert_eq!(url(RedisStreams::new("unix:///run/redis.sock").unwrap(), None), None);
    }

    #[test]
    fn redis_is_for_this_machine_unless_the_card_leads_there_from_others() {
        let is_local = |url: &str, host: Option<&str>| {
            let card_host = host.map(str::to_owned);
            RedisStreams::new(url).unwrap().with(|redis| redis.card_host = card_host).is_for_this_machine()
        };
        for host in [None, Some("localhost:6379"), Some("127.0.0.1"), Some("[::1]:6379")] {
            assert!(
                is_local("redis://127.0.0.1", host) && is_local("unix:///run/redis.sock", host),
                "{host:?}"
            );
            assert!(!is_local("redis://10.0.0.1", host), "{host:?}");
        }
        assert!(!is_local("redis://127.0.0.1", Some("redis.example.com:6379")));
    }

    #[test]
    fn a_client_cannot_name_the_servers_own_streams() {
        assert_eq!(options().flaw(), None);
        let flaw = |change: fn(&mut RedisStreams)| {
            options().with(change).flaw().map(|flaw| flaw.to_string()).unwrap_or_default()
        };
        assert!(
            flaw(|redis| redis.reply_prefix = Some("attache:".to_owned())).contains("`request-stream` could")
        );
        assert!(
            flaw(|redis| redis.dead_stream = Some("attache:a2a:responses:dead".to_owned()))
                .contains("`dead-stream`")
        );
        assert!(flaw(|redis| redis.response_stream = redis.request_stream.clone()).contains("are the same"));
        assert!(flaw(|redis| redis.reply_prefix = Some(String::new())).contains("`reply-prefix` is empty"));
        let own = |redis: &mut RedisStreams| {
            redis.reply_prefix = Some("attache:a2a:requests:attache:task:".to_owned())
        };
        assert!(flaw(own).contains("keep their own data"));
        assert!(flaw(|redis| redis.in_flight = 0).contains("`in-flight` is 0"));
    }
}
