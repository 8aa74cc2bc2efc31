//! Address ranges that are reserved.
//!
//! They follow the IANA special-purpose registries. Ranges that are no longer in use, or that can contain another address,
//! count as reserved too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

const V4: [(Ipv4Net, &str); 16] = [
    (v4([0, 0, 0, 0], 8), "this network"),
    (v4([10, 0, 0, 0], 8), "private"),
    (v4([100, 64, 0, 0], 10), "shared, carrier-grade NAT"),
    (v4([127, 0, 0, 0], 8), "loopback"),
    (v4([169, 254, 0, 0], 16), "link-local"),
    (v4([172, 16, 0, 0], 12), "private"),
    (v4([192, 0, 0, 0], 24), "protocol assignments"),
    (v4([192, 0, 2, 0], 24), "documentation"),
    (v4([192, 88, 99, 0], 24), "6to4 relay"),
    (v4([192, 168, 0, 0], 16), "private"),
    (v4([198, 18, 0, 0], 15), "benchmarking"),
    (v4([198, 51, 100, 0], 24), "documentation"),
    (v4([203, 0, 113, 0], 24), "documentation"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    (v4([255, 255, 255, 255], 32), "broadcast"),
    (v4([240, 0, 0, 0], 4), "reserved"),
];

/// Everything outside of [`GLOBAL`] is refused anyway. Ranges outside of it are listed for the error text.
const V6: [(Ipv6Net, &str); 16] = [
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "IPv4-compatible"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "local NAT64"),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "discard"),
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "segment routing"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "unique local"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "site-local"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "Teredo"),
    (v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), "benchmarking"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "protocol assignments"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "documentation"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "6to4"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "documentation"),
];

/// The only part of IPv6 that is assigned for public use.
const GLOBAL: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// NAT64: networks without IPv4 use these addresses to reach IPv4. Their resolvers return them for public names.
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);

/// Metadata and credential services of AWS, Azure, Google, Oracle, Alibaba and compatible clouds.
const METADATA: [IpAddr; 10] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 0, 23)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}

/// What an address is reserved for; nothing if it is public. `address` is canonical: IPv4 is not mapped into IPv6.
pub(crate) fn reserved_for(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => reserved_v4(address),
        IpAddr::V6(address) if NAT64.contains(&address) => reserved_v4(low(address)),
        IpAddr::V6(address) => V6
            .iter()
            .find(|(range, _)| range.contains(&address))
            .map(|(_, what)| *what)
            .or((!GLOBAL.contains(&address)).then_some("not given out for public use"))
            .or(is_isatap(address).then_some("ISATAP")),
    }
}

fn reserved_v4(address: Ipv4Addr) -> Option<&'static str> {
    V4.iter().find(|(range, _)| range.contains(&address)).map(|(_, what)| *what)
}

/// Whether a metadata service has this address, or an IPv4 address that it contains. `address` is canonical.
pub(crate) fn is_metadata(address: IpAddr) -> bool {
    let wrapped = match address {
        IpAddr::V4(_) => Vec::new(),
        IpAddr::V6(address) => wrapped(address),
    };
    METADATA.contains(&address) || wrapped.into_iter().any(|inner| METADATA.contains(&IpAddr::V4(inner)))
}

/// The IPv4 addresses that a gateway could translate this address to.
fn wrapped(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    match address.segments() {
        // IPv4-compatible and IPv4-translated.
        [0, 0, 0, 0, 0, 0, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => vec![low(address)],
        // Local NAT64 has the IPv4 address at the end or, as in RFC 6052, right after the prefix, around an unused byte.
        [0x64, 0xff9b, 1, a, b, c, ..] => vec![low(address), join(a, (b << 8) | (c >> 8))],
        [0x64, 0xff9b, ..] => vec![low(address)],
        [0x2002, a, b, ..] => vec![join(a, b)],
        // Teredo: the address of a server, and the inverted address of a client.
        [0x2001, 0, a, b, .., c, d] => vec![join(a, b), join(!c, !d)],
        _ if is_isatap(address) => vec![low(address)],
        _ => Vec::new(),
    }
}

/// Whether this is an ISATAP address, which carries IPv6 inside an IPv4 network.
fn is_isatap(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [_, _, _, _, 0 | 0x200, 0x5efe, _, _])
}

fn low(address: Ipv6Addr) -> Ipv4Addr {
    let [.., high, low] = address.segments();
    join(high, low)
}

fn join(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low))
}
