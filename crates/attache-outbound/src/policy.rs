//! Which addresses may be called.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use url::{Host, Url};

use crate::Refused;
use crate::ranges;

/// The longest URL, in bytes.
pub const MAX_URL: usize = 2048;

/// The longest name and the longest label that DNS allows.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// Suffixes of names that exist only in private networks.
const PRIVATE: [&str; 9] =
    ["local", "internal", "intranet", "private", "corp", "home", "lan", "localdomain", "home.arpa"];

/// Names of metadata services. A cloud's resolver completes the short ones.
const METADATA: [&str; 5] =
    ["metadata", "metadata.goog", "metadata.google.internal", "instance-data", "instance-data.ec2.internal"];

/// Which addresses may be called. By default any public one, over `http` or `https`.
///
/// ```
/// use attache_outbound::Policy;
///
/// let policy = Policy::default().allow(["10.1.0.0/16".parse()?]);
/// assert!(policy.check_url("http://10.1.2.3:8080/hook").is_ok());
/// assert!(policy.check_url("http://10.2.0.1:8080/hook").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Policy {
    loopback: bool,
    https_only: bool,
    networks: Vec<IpNet>,
    loopback_setting: Option<&'static str>,
}

impl Policy {
    /// Sets whether this machine may be called: `localhost`, `127.0.0.0/8` and `::1`. For development.
    #[must_use]
    pub fn allow_loopback(mut self, allowed: bool) -> Self {
        self.loopback = allowed;
        self
    }

    /// Also allows these networks, even if they are reserved. A metadata service in them stays forbidden.
    ///
    /// If any network is allowed, names of private networks (`hooks`, `hooks.internal`) may be used too. What they resolve to
    /// must still be public or in an allowed network.
    #[must_use]
    pub fn allow(mut self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        self.networks.extend(networks);
        self
    }

    /// Sets whether `http` is refused.
    #[must_use]
    pub fn https_only(mut self, only: bool) -> Self {
        self.https_only = only;
        self
    }

    /// Names the setting that allows this machine, for [`explain`](Self::explain).
    #[must_use]
    pub fn loopback_setting(mut self, setting: &'static str) -> Self {
        self.loopback_setting = Some(setting);
        self
    }

    /// Describes why an address was refused. For an address of this machine it names the setting that would allow it.
    pub fn explain(&self, refused: &Refused) -> String {
        match self.loopback_setting {
            Some(setting) if refused.is_loopback() => format!("{refused} (`{setting}` allows this machine)"),
            Some(_) | None => refused.to_string(),
        }
    }

    /// Checks the text of a URL, when it is stored. Nothing is resolved: the name need not exist yet.
    ///
    /// Only spellings that every parser reads in the same way pass: no whitespace, backslashes or percent-encoding around the
    /// host, no credentials, no fragment, no trailing dot, IPv4 addresses as four decimal numbers, international names as
    /// `xn--`. Names without a dot and names such as `hooks.internal` are refused unless a network is [allowed](Self::allow).
    pub fn check_url(&self, url: &str) -> Result<Target, Refused> {
        if url.len() > MAX_URL {
            return Err(Refused::TooLong { length: url.len() });
        }
        if url.contains(|c: char| c.is_ascii_control() || c == ' ' || c == '\\') {
            return Err(Refused::Character);
        }
        let (scheme, rest) = url.split_once("://").ok_or(Refused::Scheme)?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return Err(Refused::Scheme);
        }
        if self.https_only && !scheme.eq_ignore_ascii_case("https") {
            return Err(Refused::Insecure);
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(Refused::Credentials);
        }
        if rest.contains('#') {
            return Err(Refused::Fragment);
        }
        if authority.is_empty() || authority.starts_with(':') {
            return Err(Refused::NoHost);
        }
        if !authority.is_ascii() || authority.contains('%') {
            return Err(Refused::Host);
        }

        let url = Url::parse(url)?;
        if url.port() == Some(0) {
            return Err(Refused::Port);
        }
        match url.host().ok_or(Refused::NoHost)? {
            Host::Domain(name) => self.check_name(name)?,
            Host::Ipv6(address) => self.check_address(IpAddr::V6(address))?,
            Host::Ipv4(address) => {
                self.check_address(IpAddr::V4(address))?;
                let written = authority.split_once(':').map_or(authority, |(host, _)| host);
                if written != address.to_string() {
                    return Err(Refused::Spelling(address));
                }
            }
        }
        Ok(Target { url })
    }

    /// Checks an address before a connection to it.
    pub fn check_address(&self, address: IpAddr) -> Result<(), Refused> {
        let address = address.to_canonical();
        if ranges::is_metadata(address) {
            return Err(Refused::Metadata);
        }
        if self.is_allowed(address) {
            return Ok(());
        }
        ranges::reserved_for(address).map_or(Ok(()), |what| Err(Refused::Address { address, what }))
    }

    fn is_allowed(&self, address: IpAddr) -> bool {
        self.loopback && address.is_loopback()
            || self.networks.iter().any(|network| network.contains(&address))
    }

    /// `name` is in lower case: the parser converts it.
    fn check_name(&self, name: &str) -> Result<(), Refused> {
        if name.ends_with('.') {
            return Err(Refused::TrailingDot);
        }
        if name.len() > MAX_NAME || !name.split('.').all(is_label) {
            return Err(Refused::Host);
        }
        if METADATA.contains(&name) {
            return Err(Refused::Metadata);
        }
        if is_at_or_below(name, "localhost") {
            let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
            let allowed = loopback.into_iter().any(|address| self.is_allowed(address));
            return if allowed { Ok(()) } else { Err(Refused::LoopbackName) };
        }
        let is_private = !name.contains('.') || PRIVATE.iter().any(|end| is_at_or_below(name, end));
        if is_private && self.networks.is_empty() { Err(Refused::PrivateName) } else { Ok(()) }
    }
}

fn is_label(label: &str) -> bool {
    (1..=MAX_LABEL).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn is_at_or_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// A URL that passed a [`Policy`]. Its name is not resolved yet, and the addresses are not checked yet.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
}

impl Target {
    /// The URL, normalized.
    pub fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn into_url(self) -> Url {
        self.url
    }
}

/// Omits path and query: receivers often put secrets there.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.url.origin().ascii_serialization()).finish()
    }
}
