//! URLs that users give: none that leads to this machine or into its network gets past the policy, however it is spelled.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use attache_outbound::{MAX_URL, Policy};

/// A URL, as text.
pub fn outbound_url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let strict = Policy::default();
    let lenient = Policy::default().allow_loopback(true);
    let https = Policy::default().https_only(true);
    let Ok(target) = strict.check_url(text) else {
        assert!(https.check_url(text).is_err(), "what is refused is allowed where less is: {text}");
        return;
    };
    let url = target.url();
    assert!(lenient.check_url(text).is_ok(), "what is allowed is refused where more is: {text}");
    assert_eq!(https.check_url(text).is_ok(), url.scheme() == "https", "{text}");
    assert!(text.len() <= MAX_URL && ["http", "https"].contains(&url.scheme()), "{text}");
    assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none(), "{text}");
    assert_eq!(
        strict.check_url(url.as_str()).as_ref(),
        Ok(&target),
        "{text} means something else when read again"
    );

    // Read once more, in a way that has nothing to do with how the policy reads it.
    let host = host_of(text);
    let name = host.to_ascii_lowercase();
    assert!(name != "localhost" && !name.ends_with(".localhost") && name.contains(['.', ':']), "{text}");
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(!is_inside(IpAddr::V6(address)), "{text}");
    } else if let Some(address) = as_c_reads_it(host) {
        assert!(!is_inside(IpAddr::V4(address)), "{text} is {address} to those who ask the C library");
        assert_eq!(host, address.to_string(), "{text} is read differently by different programs");
    }
}

/// What stands between the scheme and the path, without a port.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let authority = authority.rsplit_once('@').map_or(authority, |(_, authority)| authority);
    match authority.rfind(']') {
        Some(end) => &authority[..=end],
        None => authority.split(':').next().unwrap_or(authority),
    }
}

/// Whether an address is of this machine or of a network that is not public.
fn is_inside(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_loopback()
                || address.is_private()
                || address.is_link_local()
                || address.is_unspecified()
                || address.is_broadcast()
                || address.is_multicast()
                || address.octets()[0] == 0
        }
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unspecified()
                || address.is_unique_local()
                || address.is_unicast_link_local()
                || address.is_multicast()
        }
    }
}

/// The address that `inet_aton` makes of a text: one to four numbers, each decimal, octal or hexadecimal, the last of which fills
/// what is left.
fn as_c_reads_it(host: &str) -> Option<Ipv4Addr> {
    let numbers = host.split('.').map(|number| {
        let lower = number.to_ascii_lowercase();
        match (lower.strip_prefix("0x"), lower.strip_prefix('0')) {
            (Some(""), _) => Some(0),
            (Some(hex), _) => u32::from_str_radix(hex, 16).ok(),
            (None, Some("")) => Some(0),
            (None, Some(octal)) => u32::from_str_radix(octal, 8).ok(),
            (None, None) => lower.parse().ok(),
        }
    });
    let numbers: Vec<u32> = numbers.collect::<Option<_>>()?;
    let (last, first) = numbers.split_last().filter(|(_, first)| first.len() < 4)?;
    let mut address = 0;
    for (place, number) in first.iter().enumerate() {
        address |= u32::from(u8::try_from(*number).ok()?) << (24 - 8 * place);
    }
    let room = u32::MAX.checked_shr(8 * u32::try_from(first.len()).ok()?).unwrap_or(0);
    (*last <= room).then(|| Ipv4Addr::from_bits(address | last))
}
