//! Why an address may not be called.

use std::net::{IpAddr, Ipv4Addr};

/// Why an address may not be called.
///
/// Each text says what is wrong and what would be right. The texts may be shown to the user who gave the URL: they repeat
/// nothing of the URL but a literal address, so they contain no credentials. The exception is a refusal from
/// [`Outbound::post`](crate::Outbound::post): it may contain an address that a name resolved to, which only the operator should
/// see.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The URL is longer than [`MAX_URL`](crate::MAX_URL).
    #[error("the URL has {length} bytes; at most {max} are allowed", max = crate::MAX_URL)]
    TooLong {
        /// How long it is, in bytes.
        length: usize,
    },
    /// The URL contains characters that parsers read differently.
    #[error("the URL contains a space, a control character or a backslash; percent-encode it")]
    Character,
    /// The URL has another scheme, or none.
    #[error("the URL must begin with `http://` or `https://`")]
    Scheme,
    /// Only `https` is allowed.
    #[error("the URL must begin with `https://`")]
    Insecure,
    /// There is nothing between the scheme and the path.
    #[error("the URL names no host; write it as `https://host/path`")]
    NoHost,
    /// A user name or a password, even an empty one.
    #[error("the URL contains credentials before an `@`; remove them and use an authentication header")]
    Credentials,
    /// A fragment. It would never be sent.
    #[error("the URL contains a fragment, which is never sent; remove the `#` and what follows")]
    Fragment,
    /// The host is neither a name that DNS can resolve nor an address.
    #[error(
        "the host is neither a plain name nor an address; write an international name in its `xn--` form, \
         and an IPv6 address in brackets and without a zone"
    )]
    Host,
    /// The host ends in a dot.
    #[error("the host ends in a dot; remove it")]
    TrailingDot,
    /// An IPv4 address in a form that other programs read differently.
    #[error("the host is an unusual way to write `{0}`; write it like this")]
    Spelling(Ipv4Addr),
    /// Port 0.
    #[error("port 0 cannot be connected to; use a port from 1 to 65535")]
    Port,
    /// The URL cannot be parsed for another reason.
    #[error("the URL cannot be parsed: {0}")]
    Malformed(#[from] url::ParseError),
    /// `localhost` and names below it.
    #[error("the host is this machine; use a public name, or have the operator allow loopback")]
    LoopbackName,
    /// A name that exists only in a private network.
    #[error(
        "the host is a name of a private network; use a public name, or have the operator allow that network"
    )]
    PrivateName,
    /// An address that is not public.
    #[error(
        "`{address}` is not a public address ({what}); use a public one, or have the operator allow its network"
    )]
    Address {
        /// The address.
        address: IpAddr,
        /// What it is reserved for.
        what: &'static str,
    },
    /// A cloud's metadata service, by name or by address. Metadata services give out credentials, so no setting allows them.
    #[error("the host is a cloud metadata service, which is never called; use another address")]
    Metadata,
}

impl Refused {
    /// Whether the address is this machine, which a [policy](crate::Policy::allow_loopback) can allow.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::LoopbackName => true,
            Self::Address { address, .. } => address.is_loopback(),
            Self::TooLong { .. }
            | Self::Character
            | Self::Scheme
            | Self::Insecure
            | Self::NoHost
            | Self::Credentials
            | Self::Fragment
            | Self::Host
            | Self::TrailingDot
            | Self::Spelling(_)
            | Self::Port
            | Self::Malformed(_)
            | Self::PrivateName
            | Self::Metadata => false,
        }
    }
}
