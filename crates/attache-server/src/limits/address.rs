//! The address that a request comes from.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use attache_outbound::IpNet;
use http::HeaderMap;

const FORWARDED: &str = "x-forwarded-for";

/// The address that a request comes from: the peer's or, if the peer is a trusted proxy, the address that the proxy names.
pub(crate) fn of(connection: SocketAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let mut address = connection.ip().to_canonical();
    if trusted.is_empty() {
        return address;
    }
    let is_trusted = |address: &IpAddr| trusted.iter().any(|net| net.contains(address));
    let fields = headers.get_all(FORWARDED).iter().rev();
    let mut hops = fields.flat_map(|field| field.to_str().unwrap_or_default().rsplit(','));
    // Each proxy appends the address of its peer. What precedes the first untrusted address may be forged.
    while is_trusted(&address)
        && let Some(before) = hops.next().and_then(read)
    {
        address = before;
    }
    address
}

/// An address as proxies write it, with or without a port.
fn read(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse().map(|address: SocketAddr| address.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

/// The address that an account is for. For IPv6 it is the network, because a host there can use all addresses of its network.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(peer: &str, forwarded: &[&'static str], trusted: &[&str]) -> String {
        let connection = SocketAddr::new(peer.parse().unwrap(), 4711);
        let mut headers = HeaderMap::new();
        for field in forwarded {
            headers.append(FORWARDED, field.parse().unwrap());
        }
        let trusted: Vec<IpNet> = trusted.iter().map(|net| net.parse().unwrap()).collect();
        of(connection, &headers, &trusted).to_string()
    }

    #[test]
    fn forwarded_addresses_of_untrusted_proxies_are_ignored() {
        assert_eq!(from("203.0.113.9", &["198.51.100.1"], &[]), "203.0.113.9");
        assert_eq!(from("203.0.113.9", &["198.51.100.1"], &["10.0.0.0/8"]), "203.0.113.9");
    }

    #[test]
    fn the_last_address_that_is_no_proxy_is_the_callers() {
        let nets = ["10.0.0.0/8", "fd00::/8"];
        assert_eq!(from("10.0.0.1", &["198.51.100.1"], &nets), "198.51.100.1");
        assert_eq!(from("10.0.0.1", &["1.1.1.1, 198.51.100.1, 10.0.0.2"], &nets), "198.51.100.1");
        assert_eq!(from("10.0.0.1", &["1.1.1.1", "198.51.100.1", "fd00::7"], &nets), "198.51.100.1");
        assert_eq!(from("::ffff:10.0.0.1", &["198.51.100.1:8080"], &nets), "198.51.100.1");
        assert_eq!(from("fd00::1", &["[2001:db8::1]:443"], &nets), "2001:db8::1");
        assert_eq!(from("fd00::1", &["[2001:db8::1]"], &nets), "2001:db8::1");
    }

    #[test]
    fn what_cannot_be_read_ends_the_trail() {
        let nets = ["10.0.0.0/8"];
        assert_eq!(from("10.0.0.1", &["198.51.100.1, unknown"], &nets), "10.0.0.1");
        assert_eq!(from("10.0.0.1", &["198.51.100.1, nonsense, 10.0.0.2"], &nets), "10.0.0.2");
        assert_eq!(from("10.0.0.1", &["", "10.0.0.3"], &nets), "10.0.0.3");
        assert_eq!(from("10.0.0.1", &[], &nets), "10.0.0.1");
    }

    #[test]
    fn neighbours_in_ipv6_are_one_caller() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(of("203.0.113.9"), "203.0.113.9");
    }
}
