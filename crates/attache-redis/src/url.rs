//! The URL of a Redis server, with its credentials.

#![expect(clippy::wildcard_enum_match_arm, reason = "the enums of the library are not exhaustive")]

use std::fmt;
use std::str::FromStr;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::ServerAddress;

/// A Redis server with its credentials: `redis://USER:PASSWORD@HOST:PORT/DB`, `rediss://…` for TLS, or `unix:///PATH`.
///
/// Its credentials are never printed.
#[derive(Clone)]
pub struct RedisUrl {
    info: ConnectionInfo,
    /// Certificates (PEM) that are trusted instead of those of the system.
    pub(crate) roots: Option<Vec<u8>>,
}

/// A text is not the URL of a Redis server. The message has no part of the text: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is not the URL of a Redis server: {0}; expected something like `redis://127.0.0.1:6379/0`")]
pub struct InvalidUrl(String);

impl FromStr for RedisUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let url = ::url::Url::parse(text).map_err(|error| InvalidUrl(error.to_string()))?;
        if !matches!(url.scheme(), "redis" | "rediss" | "unix" | "redis+unix") {
            return Err(InvalidUrl("it must begin with `redis://`, `rediss://` or `unix://`".to_owned()));
        }
        // The library understands `#insecure`, which would switch the check of certificates off.
        if url.fragment().is_some() {
            return Err(InvalidUrl("it must have no `#`".to_owned()));
        }
        let info = url.into_connection_info().map_err(|error| InvalidUrl(error.to_string()))?;
        Ok(Self { info, roots: None })
    }
}

impl RedisUrl {
    /// Sets the password, and the user if it has a name. They replace those of the URL.
    #[must_use]
    pub fn with_credentials(mut self, user: Option<&str>, password: &str) -> Self {
        let mut settings = self.info.redis_settings().clone().set_password(password);
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        self.info = self.info.set_redis_settings(settings);
        self
    }

    /// Trusts these certificates (PEM) instead of those of the system.
    #[must_use]
    pub fn trust(mut self, roots: Vec<u8>) -> Self {
        self.roots = Some(roots);
        self
    }

    /// Whether only programs on this machine can connect to the server: it has a Unix socket or a loopback address.
    pub fn is_local(&self) -> bool {
        match self.server() {
            Some(server) => server.is_local(),
            None => true,
        }
    }

    /// Host, port and database. A server on a Unix socket has none.
    pub fn server(&self) -> Option<ServerAddress> {
        let db = self.info.redis_settings().db();
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                Some(ServerAddress { host: host.clone(), port: *port, db, tls: false })
            }
            ConnectionAddr::TcpTls { host, port, .. } => {
                Some(ServerAddress { host: host.clone(), port: *port, db, tls: true })
            }
            _ => None,
        }
    }

    /// Whether the credentials of this URL are for that server: host, port and encryption are the same.
    pub fn is_for(&self, server: &ServerAddress) -> bool {
        self.server().is_some_and(|own| {
            own.host.eq_ignore_ascii_case(&server.host) && own.port == server.port && own.tls == server.tls
        })
    }

    /// The same server with another database.
    #[must_use]
    pub fn database(mut self, db: i64) -> Self {
        let settings = self.info.redis_settings().clone().set_db(db);
        self.info = self.info.set_redis_settings(settings);
        self
    }

    pub(crate) fn info(&self) -> &ConnectionInfo {
        &self.info
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.server(), self.info.addr()) {
            (Some(server), _) => {
                let scheme = if server.tls { "rediss" } else { "redis" };
                write!(f, "{scheme}://{}/{}", server.authority(), server.db)
            }
            (None, ConnectionAddr::Unix(path)) => write!(f, "unix://{}", path.display()),
            (None, _) => f.write_str("redis"),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_never_printed() {
        let url: RedisUrl = "redis://ops:s3cret@redis.example:6380/2".parse().unwrap();
        assert_eq!(url.to_string(), "redis://redis.example:6380/2");
        assert_eq!(format!("{url:?}"), "RedisUrl(redis://redis.example:6380/2)");
        for bad in ["http://ops:s3cret@redis.example", "redis://ops:s3cret@redis.example/x", "s3cret", ""] {
            let error = bad.parse::<RedisUrl>().unwrap_err().to_string();
            assert!(error.contains("redis://127.0.0.1:6379/0") && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn the_check_of_certificates_cannot_be_switched_off() {
        assert!("rediss://redis.example/#insecure".parse::<RedisUrl>().is_err());
        assert!("rediss://redis.example/".parse::<RedisUrl>().is_ok());
    }

    #[test]
    fn this_machine_is_told_from_others() {
        for local in ["redis://127.0.0.1", "redis://localhost:1", "redis://[::1]/3", "unix:///run/redis.sock"]
        {
            assert!(local.parse::<RedisUrl>().unwrap().is_local(), "{local}");
        }
        for other in ["redis://10.0.0.1", "rediss://redis.example", "redis://localhost.example"] {
            assert!(!other.parse::<RedisUrl>().unwrap().is_local(), "{other}");
        }
    }

    #[test]
    fn credentials_are_for_one_server() {
        let url: RedisUrl = "redis://:s3cret@redis.example:6379".parse().unwrap();
        let server = |text: &str| text.parse::<RedisUrl>().unwrap().server().unwrap();
        assert!(url.is_for(&server("redis://REDIS.example:6379/4")));
        for other in
            ["redis://redis.example:6380", "rediss://redis.example:6379", "redis://evil.example:6379"]
        {
            assert!(!url.is_for(&server(other)), "{other}");
        }
    }
}
