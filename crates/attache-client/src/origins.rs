//! Which origins receive credentials, and which may be called.
//!
//! The user gives credentials for the address of an agent. A card or a redirect can name any other address. That address must
//! not receive the credentials only because a card names it.

use reqwest::Url;
use url::{Host, Origin};

use crate::ClientError;
use crate::agent_address::display_direct;
use crate::http::{display_text, display_url, is_local};

/// Origins (scheme, host and port) that are trusted in addition to that of the agent's address.
///
/// Credentials are sent to the origin of the address that the user gave, and to these origins. The names of this machine
/// (`localhost`, `127.0.0.0/8` and `::1`) count as one host. Credentials for an `https` origin are never sent to an `http`
/// origin, unless that is trusted and on this machine.
///
/// ```
/// use attache_client::{ClientOptions, TrustedOrigins};
///
/// let trusted_origins = TrustedOrigins::new().trust("https://gateway.example.com")?;
/// let options = ClientOptions::default().trusted_origins(trusted_origins);
/// # Ok::<(), attache_client::ClientError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedOrigins {
    trusted: Vec<Origin>,
    only: bool,
}

impl TrustedOrigins {
    /// Trusts no other origin. A card may still lead to other origins, which are called without credentials.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts an origin, such as `https://gateway.example.com` or `http://127.0.0.1:4700`.
    pub fn trust(mut self, origin: &str) -> Result<Self, ClientError> {
        let invalid = |why: &str| {
            let shown = display_text(origin);
            let text = format!(
                "`{shown}` is not an origin: {why}; expected something like `https://agents.example.com:8443`"
            );
            ClientError::Invalid(text)
        };
        let url = Url::parse(origin).map_err(|error| invalid(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https" | STREAMS | TLS_STREAMS) {
            return Err(invalid("it must begin with `http://` or `https://`"));
        }
        let beyond =
            !url.username().is_empty() || url.password().is_some() || !matches!(url.path(), "" | "/");
        // Trust applies to a whole server. A path would suggest otherwise, so it is rejected.
        if beyond || url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("there is more in it than a scheme, a host and a port"));
        }
        self.trusted.push(origin_of(&url));
        Ok(self)
    }

    /// Forbids all other origins, even without credentials. A card that leads to another origin is refused.
    pub fn only(mut self) -> Self {
        self.only = true;
        self
    }

    /// Whether a card at `home` may lead to this address.
    pub(crate) fn check_destination(&self, home: &Url, to: &Url) -> Result<(), ClientError> {
        if !self.only || is_same_place(home, to) || self.is_trusted(to) {
            return Ok(());
        }
        Err(ClientError::OtherOrigin { card: display_url(home), leads_to: display_url(to) })
    }

    /// Whether credentials for `home` may be sent to this address.
    pub(crate) fn check_credentials(&self, home: &Url, to: &Url) -> Result<(), ClientError> {
        if is_same_place(home, to) {
            return Ok(());
        }
        let is_encrypted = |url: &Url| matches!(url.scheme(), "https" | TLS_STREAMS);
        let opens = is_encrypted(home) && !is_encrypted(to) && !is_local(to);
        if self.is_trusted(to) && !opens {
            return Ok(());
        }
        Err(ClientError::Withheld {
            given_for: display_origin(home),
            leads_to: display_origin(to),
            can_be_trusted: !opens,
        })
    }

    fn is_trusted(&self, url: &Url) -> bool {
        let origin = origin_of(url);
        self.trusted.iter().any(|trusted| is_same(trusted, &origin))
    }
}

/// The schemes of Redis Streams, without and with TLS.
const STREAMS: &str = "redis-streams";
const TLS_STREAMS: &str = "rediss-streams";

/// The port of Redis, if an address has none.
const REDIS_PORT: u16 = 6379;

/// The origin of a URL. For Redis Streams it is the Redis server.
fn origin_of(url: &Url) -> Origin {
    match (url.scheme(), url.host_str()) {
        (scheme @ (STREAMS | TLS_STREAMS), Some(host)) => match Host::parse(host) {
            Ok(host) => Origin::Tuple(scheme.to_owned(), host, url.port().unwrap_or(REDIS_PORT)),
            Err(_) => url.origin(),
        },
        (_, _) => url.origin(),
    }
}

/// Whether two URLs have the same origin. The URL of a socket or a command is its own origin.
fn is_same_place(one: &Url, other: &Url) -> bool {
    one == other || is_same(&origin_of(one), &origin_of(other))
}

/// An origin, as it may be shown.
fn display_origin(url: &Url) -> String {
    display_direct(url).unwrap_or_else(|| url.origin().ascii_serialization())
}

/// Whether two origins are the same. All names of this machine are the same host.
pub(crate) fn is_same(one: &Origin, other: &Origin) -> bool {
    let Origin::Tuple(scheme, host, port) = one else { return false };
    let Origin::Tuple(other_scheme, other_host, other_port) = other else { return false };
    scheme == other_scheme
        && port == other_port
        && (host == other_host || is_loopback(host) && is_loopback(other_host))
}

/// Whether a host is this machine.
pub(crate) fn is_loopback<S: AsRef<str>>(host: &Host<S>) -> bool {
    match host {
        Host::Domain(name) => name.as_ref() == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    fn shows(trusted: &[&str], home: &str, to: &str) -> bool {
        let trusted = trusted.iter().fold(TrustedOrigins::new(), |all, one| all.trust(one).unwrap());
        trusted.check_credentials(&url(home), &url(to)).is_ok()
    }

    #[test]
    fn credentials_stay_with_the_origin_that_they_were_given_for() {
        let home = "https://a.example/agents/7";
        for to in ["https://a.example/rpc", "https://a.example:443/", "https://A.example/"] {
            assert!(shows(&[], home, to), "{to}");
        }
        for to in [
            "http://a.example/",
            "https://a.example:8443/",
            "https://b.example/",
            "https://a.example./",
            "https://sub.a.example/",
            "https://a.example@b.example/",
            "http://127.0.0.1/",
        ] {
            assert!(!shows(&[], home, to), "{to}");
        }
        assert!(shows(&["https://b.example"], home, "https://b.example/rpc"));
        assert!(!shows(&["https://b.example"], home, "https://b.example:8443/rpc"));
    }

    #[test]
    fn the_names_of_this_machine_are_one_on_one_port() {
        let names = ["http://localhost:1", "http://127.0.0.1:1", "http://127.8.0.9:1", "http://[::1]:1"];
        for home in names {
            for to in names {
                assert!(shows(&[], home, to), "{home} {to}");
                assert!(!shows(&[], home, &to.replace(":1", ":2").replace("[::2]", "[::1]")), "{home} {to}");
                assert!(shows(&[to], "http://a.example", home), "{home} {to}");
            }
            for other in [
                "https://localhost:1",
                "http://a.example:1",
                "http://localhost.a.example:1",
                "http://[::2]:1",
            ] {
                assert!(!shows(&[], home, other), "{home} {other}");
            }
        }
    }

    #[test]
    fn what_was_given_for_https_goes_to_http_only_on_this_machine_and_only_if_trusted() {
        let trusted = ["http://b.example", "http://127.0.0.1:8080"];
        assert!(!shows(&trusted, "https://a.example", "http://b.example"));
        assert!(shows(&trusted, "http://a.example", "http://b.example"));
        assert!(shows(&trusted, "https://localhost:8443", "http://localhost:8080"));
        assert!(!shows(&[], "https://localhost:8080", "http://localhost:8080"));
        let error =
            TrustedOrigins::new().check_credentials(&url("https://a.example"), &url("http://b.example"));
        assert!(matches!(error, Err(ClientError::Withheld { can_be_trusted: false, .. })), "{error:?}");
    }

    #[test]
    fn trust_is_for_a_whole_origin() {
        for bad in [
            "",
            "b.example",
            "ftp://b.example",
            "https://b.example/agents",
            "https://b.example/?k=s3cret",
            "https://user:s3cret@b.example",
        ] {
            let error = TrustedOrigins::new().trust(bad).unwrap_err().to_string();
            assert!(error.contains("is not an origin") && !error.contains("s3cret"), "{error}");
        }
        assert!(TrustedOrigins::new().trust("https://b.example/").is_ok());
    }

    #[test]
    fn no_other_origin_is_called_if_only_trusted_ones_are_allowed() {
        let only = TrustedOrigins::new().trust("https://b.example").unwrap().only();
        let leads = |to: &str| only.check_destination(&url("https://a.example"), &url(to)).is_ok();
        assert!(leads("https://a.example/rpc") && leads("https://b.example/rpc"));
        assert!(!leads("https://c.example/rpc") && !leads("http://a.example/rpc"));
        assert!(
            TrustedOrigins::new()
                .check_destination(&url("https://a.example"), &url("http://c.example"))
                .is_ok()
        );
    }
}
