//! The addresses of agents, as people write them.

use url::{Host, Url};

use crate::origins::is_loopback;

/// The URL for an address without a scheme: `http` on this machine and `https` elsewhere. `None` if the text has a scheme, or is not
/// a host with a port or a path: then it may be a name that only the caller knows.
///
/// ```
/// use attache_client::complete_address;
///
/// assert_eq!(complete_address("localhost:3111").as_deref(), Some("http://localhost:3111"));
/// assert_eq!(complete_address("agents.example:8443/recipes").as_deref(), Some("https://agents.example:8443/recipes"));
/// assert_eq!(complete_address("http://agents.example"), None);
/// assert_eq!(complete_address("recipes"), None);
/// ```
pub fn complete_address(address: &str) -> Option<String> {
    if address.contains("://") {
        return None;
    }
    let url = Url::parse(&format!("https://{address}")).ok()?;
    let host = url.host()?;
    let is_local = match &host {
        Host::Domain(name) => is_loopback(&host) || name.ends_with(".localhost"),
        Host::Ipv4(_) | Host::Ipv6(_) => is_loopback(&host),
    };
    let is_address = is_local || address.contains([':', '/']);
    // `user:secret@host` or `mailto:x` is no address.
    if !is_address || address.contains('@') {
        return None;
    }
    Some(format!("{}://{address}", if is_local { "http" } else { "https" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_called_without_tls() {
        for (address, url) in [
            ("localhost", Some("http://localhost")),
            ("localhost:3111/a2a", Some("http://localhost:3111/a2a")),
            ("127.0.0.1:80", Some("http://127.0.0.1:80")),
            ("[::1]:3111", Some("http://[::1]:3111")),
            ("demo.localhost:3111", Some("http://demo.localhost:3111")),
            ("192.168.0.7:3111", Some("https://192.168.0.7:3111")),
            ("agents.example/x", Some("https://agents.example/x")),
            ("localhost.example:3111", Some("https://localhost.example:3111")),
            ("agents.example", None),
            ("recipes", None),
            ("", None),
            (":3111", None),
            ("localhost:port", None),
            ("user:secret@agents.example", None),
            ("https://agents.example", None),
        ] {
            assert_eq!(complete_address(address).as_deref(), url, "{address}");
        }
    }
}
