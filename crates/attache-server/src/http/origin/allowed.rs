//! Host names and origins that the operator allows, and how they are parsed and compared.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::HeaderValue;
use url::{Host, Url};

use super::RelevantHeaders;

/// A host name that the server answers to, where it does not authenticate callers.
///
/// It is parsed from text: `agents.example.com` with any port, `agents.example.com:8443` with this port, or `*` for all names. With `*` a
/// server without authentication is open to DNS rebinding: every page in a browser that can reach it can call it.
///
/// ```
/// use attache_server::AllowedHost;
///
/// let host: AllowedHost = "agents.example.com".parse()?;
/// # Ok::<(), attache_server::NotAHost>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost(HostPattern);

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    Any,
    Host(HostName<String>, Option<u16>),
}

/// The error for text that is not an [`AllowedHost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a host name such as `agents.example.com`, with or without a port, or `*` for all")]
pub struct NotAHost;

impl AllowedHost {
    /// All names.
    pub const ANY: Self = Self(HostPattern::Any);

    /// Whether all names are allowed.
    pub fn is_any(&self) -> bool {
        self.0 == HostPattern::Any
    }

    pub(super) fn matches(&self, authority: &Authority<'_>) -> bool {
        match &self.0 {
            HostPattern::Any => true,
            HostPattern::Host(name, port) => {
                name.borrowed().is(&authority.host) && port.is_none_or(|port| authority.port == Some(port))
            }
        }
    }
}

impl FromStr for AllowedHost {
    type Err = NotAHost;

    fn from_str(text: &str) -> Result<Self, NotAHost> {
        if text == "*" {
            return Ok(Self::ANY);
        }
        let address = text.parse().ok().map(|address: IpAddr| HostName::Address(address.to_canonical()));
        if let Some(address) = address {
            return Ok(Self(HostPattern::Host(address, None)));
        }
        if text.contains(['*', '/', '@', '?', '#']) {
            return Err(NotAHost);
        }
        // Parsed as the URL that it abbreviates.
        let url = Url::parse(&format!("http://{text}")).map_err(|_| NotAHost)?;
        let host = url.host().ok_or(NotAHost)?;
        let port = Authority::read(text).map(|authority| authority.port).unwrap_or_default();
        Ok(Self(HostPattern::Host(host.into(), port)))
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            HostPattern::Any => f.write_str("*"),
            HostPattern::Host(name, None) => name.fmt(f),
            HostPattern::Host(name, Some(port)) => write!(f, "{name}:{port}"),
        }
    }
}

/// An origin whose pages may call the server.
///
/// It is parsed from text: `https://app.example.com`, or `*` for every origin. Pages of an origin that is listed by name may send the cookies
/// and passwords of the browser. With `*`, requests that carry those are rejected.
///
/// ```
/// use attache_server::AllowedOrigin;
///
/// let origin: AllowedOrigin = "https://app.example.com".parse()?;
/// # Ok::<(), attache_server::NotAnOrigin>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedOrigin(OriginPattern);

#[derive(Debug, Clone, PartialEq, Eq)]
enum OriginPattern {
    Any,
    /// In the form that browsers send.
    Origin(String),
}

/// The error for text that is not an [`AllowedOrigin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an origin such as `https://app.example.com`, without a path, or `*` for all")]
pub struct NotAnOrigin;

impl AllowedOrigin {
    /// Every origin.
    pub const ANY: Self = Self(OriginPattern::Any);

    /// Whether every origin is allowed.
    pub fn is_any(&self) -> bool {
        self.0 == OriginPattern::Any
    }

    pub(super) fn names(&self, origin: &HeaderValue) -> bool {
        match &self.0 {
            OriginPattern::Any => false,
            OriginPattern::Origin(own) => own.as_bytes().eq_ignore_ascii_case(origin.as_bytes()),
        }
    }
}

impl FromStr for AllowedOrigin {
    type Err = NotAnOrigin;

    fn from_str(text: &str) -> Result<Self, NotAnOrigin> {
        if text == "*" {
            return Ok(Self::ANY);
        }
        let url = Url::parse(text).map_err(|_| NotAnOrigin)?;
        let plain = url.username().is_empty() && url.password().is_none();
        let path = !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some();
        if !plain || path || url.host_str().is_none_or(|host| host.is_empty() || host.contains('*')) {
            return Err(NotAnOrigin);
        }
        let origin = url.origin();
        let origin = match origin.is_tuple() {
            true => origin.ascii_serialization(),
            // For example the origin of a browser extension, whose scheme has no standard origin.
            false => text.trim_end_matches('/').to_owned(),
        };
        Ok(Self(OriginPattern::Origin(origin)))
    }
}

impl fmt::Display for AllowedOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            OriginPattern::Any => f.write_str("*"),
            OriginPattern::Origin(origin) => f.write_str(origin),
        }
    }
}

/// Which pages of other origins may call the server. None by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cors {
    /// Their origins.
    pub origins: Vec<AllowedOrigin>,
}

impl Cors {
    /// What the page of a request is allowed to do, if its origin is listed.
    pub(super) fn grant(&self, signs: &RelevantHeaders<'_>) -> Option<Grant> {
        let listed = |origin: &&HeaderValue| self.origins.iter().any(|allowed| allowed.names(origin));
        match signs.origin.filter(listed) {
            Some(origin) => Some(Grant::Listed(origin.clone())),
            None if self.is_open() && !signs.is_ambient() => Some(Grant::Anyone),
            None => None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.origins.iter().any(AllowedOrigin::is_any)
    }
}

/// What a page of another origin is allowed to do.
#[derive(Debug)]
pub(crate) enum Grant {
    /// Read the response, and send the credentials of the browser.
    Listed(HeaderValue),
    /// Read the response.
    Anyone,
}

/// The name or the address of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HostName<S> {
    Name(S),
    /// Never an IPv4-mapped IPv6 address.
    Address(IpAddr),
}

impl HostName<String> {
    pub(super) fn borrowed(&self) -> HostName<&str> {
        match self {
            Self::Name(name) => HostName::Name(name),
            Self::Address(address) => HostName::Address(*address),
        }
    }
}

impl HostName<&str> {
    pub(super) fn is(&self, other: &HostName<&str>) -> bool {
        match (self, other) {
            (HostName::Name(one), HostName::Name(other)) => one.eq_ignore_ascii_case(other),
            (HostName::Address(one), HostName::Address(other)) => one == other,
            (HostName::Name(_), HostName::Address(_)) | (HostName::Address(_), HostName::Name(_)) => false,
        }
    }

    pub(super) fn is_loopback(&self) -> bool {
        match self {
            HostName::Name(name) => name.eq_ignore_ascii_case("localhost"),
            HostName::Address(address) => address.is_loopback(),
        }
    }
}

impl From<Host<&str>> for HostName<String> {
    fn from(host: Host<&str>) -> Self {
        match host {
            Host::Domain(name) => Self::Name(name.trim_end_matches('.').to_owned()),
            Host::Ipv4(address) => Self::Address(address.into()),
            Host::Ipv6(address) => Self::Address(IpAddr::from(address).to_canonical()),
        }
    }
}

impl fmt::Display for HostName<String> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Host and port, as in `Host` and `:authority`.
pub(super) struct Authority<'a> {
    pub(super) host: HostName<&'a str>,
    pub(super) port: Option<u16>,
}

impl<'a> Authority<'a> {
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(text) => {
                let (address, rest) = text.split_once(']')?;
                let address = IpAddr::V6(address.parse().ok()?);
                (HostName::Address(address.to_canonical()), rest)
            }
            None => {
                let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
                // A name that ends in a digit is an address.
                let address = match host.as_bytes().last()?.is_ascii_digit() {
                    true => host.parse().ok().map(|address| HostName::Address(IpAddr::V4(address))),
                    false => None,
                };
                // The dot at the end of a fully qualified name is optional.
                (address.unwrap_or(HostName::Name(host.strip_suffix('.').unwrap_or(host))), rest)
            }
        };
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(port.parse().ok()?),
            None if rest.is_empty() => None,
            None => return None,
        };
        Some(Self { host, port })
    }
}
