//! Which addresses `check_address` refuses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use attache_outbound::{Policy, Refused};
use proptest::prelude::*;

/// The reserved ranges, listed independently of the code: first address and prefix length.
const SPECIAL: [([u8; 4], u32); 15] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

fn special() -> impl Strategy<Value = Ipv4Addr> {
    (proptest::sample::select(SPECIAL.to_vec()), any::<u32>()).prop_map(|((first, prefix), rest)| {
        Ipv4Addr::from_bits(u32::from_be_bytes(first) | (rest & (u32::MAX >> prefix)))
    })
}

fn is_special(address: Ipv4Addr) -> bool {
    let within = |(first, prefix): ([u8; 4], u32)| {
        (address.to_bits() ^ u32::from_be_bytes(first)).leading_zeros() >= prefix
    };
    address.octets() == [168, 63, 129, 16] || SPECIAL.into_iter().any(within)
}

/// Every way to write an IPv4 address as an IPv6 one; `noise` fills the unused bits.
fn forms(inner: Ipv4Addr, noise: u64) -> Vec<Ipv6Addr> {
    let v4 = u128::from(inner.to_bits());
    let noise = u128::from(noise);
    let high = noise << 64;
    [
        v4,
        0xffff << 32 | v4,
        0xffff << 48 | v4,
        0x64_ff9b << 96 | v4,
        0x64_ff9b_0001 << 80 | v4,
        0x64_ff9b_0001 << 80 | (v4 >> 16) << 64 | (v4 & 0xffff) << 40,
        0x2002 << 112 | v4 << 80 | noise,
        0x2001 << 112 | v4 << 64 | noise,
        0x2001 << 112 | high >> 32 | (!v4 & 0xffff_ffff),
        high | 0x5efe << 32 | v4,
        high | 0x0200_5efe << 32 | v4,
    ]
    .map(Ipv6Addr::from_bits)
    .to_vec()
}

proptest! {
    #[test]
    fn what_is_not_public_is_refused_bare_and_in_every_ipv6_form(inner in special(), noise: u64) {
        prop_assert!(Policy::default().check_address(IpAddr::V4(inner)).is_err());
        for outer in forms(inner, noise) {
            prop_assert!(Policy::default().check_address(IpAddr::V6(outer)).is_err(), "{inner} in {outer}");
        }
    }

    #[test]
    fn any_ipv4_address_that_is_not_special_passes(bits: u32) {
        let address = Ipv4Addr::from_bits(bits);
        prop_assert_eq!(Policy::default().check_address(IpAddr::V4(address)).is_err(), is_special(address));
    }

    #[test]
    fn nothing_outside_of_global_unicast_passes(bits: u128) {
        let address = Ipv6Addr::from_bits(bits);
        let is_global = bits >> 125 == 1;
        let wraps = address.to_ipv4_mapped().is_some() || bits >> 32 == 0x64_ff9b << 64;
        prop_assert!(is_global || wraps || Policy::default().check_address(IpAddr::V6(address)).is_err());
    }

    #[test]
    fn allowing_loopback_allows_no_other_form_of_it(host in 1_u32..0x00ff_ffff, noise: u64) {
        let policy = Policy::default().allow_loopback(true);
        let inner = Ipv4Addr::from_bits(0x7f00_0000 | host);
        for outer in forms(inner, noise).into_iter().filter(|outer| outer.to_ipv4_mapped().is_none() && !outer.is_loopback()) {
            prop_assert!(policy.check_address(IpAddr::V6(outer)).is_err(), "{inner} in {outer}");
        }
    }
}

#[test]
fn a_refusal_names_the_address_and_what_it_is_for() {
    let text =
        |address: &str| Policy::default().check_address(address.parse().unwrap()).unwrap_err().to_string();
    assert_eq!(
        text("::ffff:10.0.0.1"),
        "`10.0.0.1` is not a public address (private); use a public one, or have the operator allow its network"
    );
    assert!(text("64:ff9b::7f00:1").contains("(loopback)"));
    assert!(text("255.255.255.255").contains("(broadcast)"));
    assert!(text("2001:0:1::1").contains("(Teredo)"));
    assert!(text("4000::1").contains("(not given out for public use)"));
    assert_eq!(Policy::default().check_address([168, 63, 129, 16].into()), Err(Refused::Metadata));
}
