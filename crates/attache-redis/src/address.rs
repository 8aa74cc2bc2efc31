//! The address of an agent that is reached over Redis Streams, as its card names it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::RedisUrl;

/// What is escaped in a segment of the address. A colon is not: names of streams usually have some.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'&');

/// Host, port and database of a Redis server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    /// The host, without the brackets of an IPv6 address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The number of the database.
    pub db: i64,
    /// Whether the connection uses TLS.
    pub tls: bool,
}

impl ServerAddress {
    /// Whether the server is on this machine.
    pub fn is_local(&self) -> bool {
        let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
        self.host.eq_ignore_ascii_case("localhost") || self.host.parse().is_ok_and(is_loopback)
    }

    /// `HOST:PORT`.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Where requests to an agent go: `redis-streams://HOST:PORT/DB/REQUESTS/RESPONSES/GROUP`, or `rediss-streams://…` for TLS. The part
/// `?agent=NAME` names one of several agents, and `?replies=PREFIX` what the names of reply streams begin with.
///
/// It never has credentials. Those in a text are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamsAddress {
    /// The Redis server.
    pub server: ServerAddress,
    /// The stream that requests are added to.
    pub request_stream: String,
    /// The stream of responses. Unless the address says otherwise, the reply streams of clients have names that begin with it and a colon.
    pub response_stream: String,
    /// The consumer group of the server.
    pub group: String,
    /// The named agent that requests are for.
    pub agent: Option<String>,
    /// What the names of reply streams begin with, if it is not the response stream and a colon.
    pub reply_prefix: Option<String>,
}

/// A text is not the address of an agent that is reached over Redis Streams.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not an address of an agent over Redis Streams: {0}; expected \
     `redis-streams://HOST:PORT/DB/REQUESTS/RESPONSES/GROUP`"
)]
pub struct InvalidAddress(&'static str);

impl StreamsAddress {
    /// Whether a text has the scheme of such an address.
    pub fn is_scheme_of(text: &str) -> bool {
        [PLAIN, TLS].iter().any(|scheme| text.starts_with(scheme))
    }

    /// What the names of reply streams begin with.
    pub fn prefix(&self) -> String {
        self.reply_prefix.clone().unwrap_or_else(|| format!("{}:", self.response_stream))
    }
}

const PLAIN: &str = "redis-streams://";
const TLS: &str = "rediss-streams://";

impl FromStr for StreamsAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let (rest, mut tls) = match (text.strip_prefix(PLAIN), text.strip_prefix(TLS)) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return Err(InvalidAddress("it must begin with `redis-streams://`")),
        };
        // Some servers write the whole URL of their Redis after the scheme.
        let rest = match (rest.strip_prefix("redis://"), rest.strip_prefix("rediss://")) {
            (Some(rest), _) => rest,
            (None, Some(rest)) => {
                tls = true;
                rest
            }
            (None, None) => rest,
        };
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) =
            path.split_once('/').ok_or(InvalidAddress("the names of the streams are missing"))?;
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let server: RedisUrl = format!("redis://{authority}")
            .parse()
            .map_err(|_| InvalidAddress("host and port cannot be read"))?;
        let server = server.server().ok_or(InvalidAddress("there is no host"))?;
        let decoded: Result<Vec<String>, _> = path
            .split('/')
            .map(|segment| percent_decode_str(segment).decode_utf8().map(|text| text.into_owned()))
            .collect();
        let decoded = decoded.map_err(|_| InvalidAddress("a name is not text"))?;
        let (db, names) = match decoded.as_slice() {
            [db, names @ ..] if names.len() == 3 => {
                (db.parse().map_err(|_| InvalidAddress("the database is not a number"))?, names)
            }
            names => (0, names),
        };
        let [request_stream, response_stream, group] = names else {
            return Err(InvalidAddress("it must name two streams and a group"));
        };
        if [request_stream, response_stream, group].into_iter().any(String::is_empty) {
            return Err(InvalidAddress("a name is empty"));
        }
        let parameter = |name: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            value.map(|value| percent_decode_str(value).decode_utf8_lossy().into_owned())
        };
        Ok(Self {
            server: ServerAddress { db, tls, ..server },
            request_stream: request_stream.clone(),
            response_stream: response_stream.clone(),
            group: group.clone(),
            agent: parameter("agent"),
            reply_prefix: parameter("replies"),
        })
    }
}

impl fmt::Display for StreamsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, request_stream, response_stream, group, agent, reply_prefix } = self;
        let escaped = |text| utf8_percent_encode(text, ESCAPED);
        write!(f, "{}{}/{}", if server.tls { TLS } else { PLAIN }, server.authority(), server.db)?;
        for name in [request_stream, response_stream, group] {
            write!(f, "/{}", escaped(name))?;
        }
        let parameters = [("agent", agent), ("replies", reply_prefix)];
        let given = parameters.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        for (i, (name, value)) in given.enumerate() {
            write!(f, "{}{name}={}", if i == 0 { '?' } else { '&' }, escaped(value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in [
            "redis-streams://127.0.0.1:6379/0/attache:a2a:requests/attache:a2a:responses/attache",
            "rediss-streams://redis.example:6380/3/a%2Fb/c%20d/g?agent=research",
            "redis-streams://[::1]:6379/0/a/b/c",
            "redis-streams://redis.example:6379/0/a/b/c?agent=research&replies=x:%26",
        ] {
            assert_eq!(text.parse::<StreamsAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn the_database_and_the_port_may_be_left_out_and_credentials_are_ignored() {
        for text in [
            "redis-streams://redis.example/a/b/c",
            "redis-streams://redis.example:6379/0/a/b/c",
            "redis-streams://user:s3cret@redis.example:6379/0/a/b/c",
            "redis-streams://redis://user:s3cret@redis.example:6379/0/a/b/c",
            "redis-streams://redis://redis.example/a/b/c",
        ] {
            let address: StreamsAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), "redis-streams://redis.example:6379/0/a/b/c", "{text}");
        }
        let tls: StreamsAddress = "redis-streams://rediss://redis.example/a/b/c".parse().unwrap();
        assert_eq!(tls.to_string(), "rediss-streams://redis.example:6379/0/a/b/c");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("redis://redis.example/0/a/b/c", "must begin with"),
            ("redis-streams://redis.example", "names of the streams are missing"),
            ("redis-streams://redis.example/a/b", "two streams and a group"),
            ("redis-streams://redis.example/x/a/b/c", "database is not a number"),
            ("redis-streams://redis.example/0/a//c", "a name is empty"),
            ("redis-streams://redis.example:99999/0/a/b/c", "host and port"),
        ] {
            let error = text.parse::<StreamsAddress>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
