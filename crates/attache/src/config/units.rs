//! Values that are written as text: sizes, times, networks, URLs, paths.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use attache::client::is_agent_url;
use attache::server::{AllowedHost, AllowedOrigin, IpNet};
use attache::store::{StoreRegistry, StoreUrl};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tracing_subscriber::EnvFilter;

/// A value that the file has as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FromText<T>(pub(crate) T);

/// The description of such a text in the schema.
pub(crate) trait Described {
    const NAME: &'static str;
    /// A regular expression for the text.
    const PATTERN: &'static str;
    const EXAMPLE: &'static str;
    /// How YAML reads such a text. It reads a size without a unit as a number.
    const TYPES: [&'static str; 2] = ["string", "integer"];
}

impl<T: FromStr<Err: fmt::Display>> FromStr for FromText<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        text.parse().map(Self)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for FromText<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error| serde::de::Error::custom(format!("{error}, not `{text}`")))
    }
}

impl<T: fmt::Display> Serialize for FromText<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<T: Described> JsonSchema for FromText<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": T::TYPES, "pattern": T::PATTERN, "examples": [T::EXAMPLE]})
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

const SIZES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = "expected a size such as `64KiB` or `8MiB`";
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let factor = match unit.trim_start() {
            "" => 1,
            "kB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            unit => SIZES.iter().find(|(name, _)| *name == unit).ok_or(bad)?.1,
        };
        let number: u64 = number.parse().map_err(|_| bad)?;
        match number.checked_mul(factor) {
            Some(size) if size > 0 => Ok(Self(size)),
            Some(_) | None => Err(bad),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = largest(self.0, &SIZES);
        write!(f, "{}{unit}", self.0 / factor)
    }
}

/// The largest unit that divides the number.
fn largest<'a>(number: u64, units: &[(&'a str, u64)]) -> (&'a str, u64) {
    units
        .iter()
        .copied()
        .find(|(_, factor)| number >= *factor && number.is_multiple_of(*factor))
        .unwrap_or(("", 1))
}

impl Described for Size {
    const NAME: &'static str = "Size";
    const PATTERN: &'static str = "^[0-9]+ ?(B|kB|KiB|MB|MiB|GB|GiB)?$";
    const EXAMPLE: &'static str = "8MiB";
}

/// A length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Duration);

const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a length of time such as `90s`, `15m`, `12h` or `30d`.
pub(crate) fn age(text: &str) -> Result<Duration, &'static str> {
    let bad = "expected a number and a unit, such as `90s`, `15m`, `12h` or `30d`";
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or(bad)?);
    let (_, factor) = TIMES.into_iter().find(|(name, _)| *name == unit).ok_or(bad)?;
    let number: u64 = number.parse().map_err(|_| bad)?;
    number.checked_mul(factor).map(Duration::from_millis).ok_or(bad)
}

impl FromStr for Time {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        age(text).map(Self)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        match largest(milliseconds, &TIMES) {
            ("", _) => f.write_str("0s"),
            (unit, factor) => write!(f, "{}{unit}", milliseconds / factor),
        }
    }
}

impl Described for Time {
    const NAME: &'static str = "Time";
    const PATTERN: &'static str = "^[0-9]+(ms|s|m|h|d)$";
    const EXAMPLE: &'static str = "30s";
}

/// A number of at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) NonZeroU32);

impl FromStr for Count {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Underscores group digits, as in `10_000`.
        let number = text.replace('_', "").parse();
        number.map(Self).map_err(|_| "expected a number from 1 to 4294967295")
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Described for Count {
    const NAME: &'static str = "Count";
    const PATTERN: &'static str = "^[1-9][0-9_]*$";
    const EXAMPLE: &'static str = "100";
}

/// A timeout in whole seconds, up to a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seconds(u64);

impl FromStr for Seconds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = "expected whole seconds up to a day, such as `30s`";
        let time = age(text).map_err(|_| bad)?;
        match time.as_secs() {
            seconds @ 1..=86_400 if time.subsec_nanos() == 0 => Ok(Self(seconds)),
            _ => Err(bad),
        }
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0)
    }
}

impl Described for Seconds {
    const NAME: &'static str = "Seconds";
    const PATTERN: &'static str = Time::PATTERN;
    const EXAMPLE: &'static str = "30s";
}

/// A network, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network(pub(crate) IpNet);

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let alone = || text.parse::<IpAddr>().map(IpNet::from);
        let network = text.parse().or_else(|_| alone());
        network.map(Self).map_err(|_| "expected a network such as `10.1.0.0/16`, or an address")
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Described for Network {
    const NAME: &'static str = "Network";
    const PATTERN: &'static str = "^[0-9a-fA-F.:]+(/[0-9]+)?$";
    const EXAMPLE: &'static str = "10.1.0.0/16";
}

/// An `http` or `https` URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpUrl(pub(crate) String);

impl FromStr for HttpUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        match rest {
            Some(rest) if !rest.is_empty() && !rest.starts_with('/') => Ok(Self(text.to_owned())),
            Some(_) | None => Err("expected an `http` or `https` URL such as `https://agents.example.com`"),
        }
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Described for HttpUrl {
    const NAME: &'static str = "Url";
    const PATTERN: &'static str = "^https?://[^/]";
    const EXAMPLE: &'static str = "https://agents.example.com";
}

/// The address of an agent: an `http` or `https` URL, or one that names another transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentUrl(pub(crate) String);

impl FromStr for AgentUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_empty = text.split_once(':').is_none_or(|(_, rest)| rest.trim_matches('/').trim().is_empty());
        match is_agent_url(text) && !is_empty {
            true => Ok(Self(text.to_owned())),
            false => {
                Err("expected the address of an agent such as `https://agents.example.com` or `unix:PATH`")
            }
        }
    }
}

impl fmt::Display for AgentUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Described for AgentUrl {
    const NAME: &'static str = "AgentUrl";
    const PATTERN: &'static str =
        "^((https?|wss?|grpc-jsonrpcs?|grpc[+]jsonrpc|rediss?-streams)://[^/]|(unix|stdio):.)";
    const EXAMPLE: &'static str = "https://agents.example.com";
}

/// A filter for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter(String);

impl FromStr for Filter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match EnvFilter::try_new(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(_) => Err("expected a filter such as `info` or `attache_server=debug`"),
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Described for Filter {
    const NAME: &'static str = "Filter";
    const PATTERN: &'static str = ".";
    const EXAMPLE: &'static str = "info";
}

/// The kinds of stores that the command can open.
pub(crate) fn stores() -> StoreRegistry {
    StoreRegistry::built_in()
}

/// The URL of a store. It is written with its password, because flags are made from the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreText(StoreUrl);

impl FromStr for StoreText {
    type Err = String;

    /// Rejects an unknown store here, where its line is known. The error repeats the text, so a text with a password is rejected later.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (url, registry) = (StoreUrl::from(text), stores());
        match registry.check(&url) {
            Err(_) if url.to_string() == text => Err(format!("expected {}", registry.forms())),
            Ok(()) | Err(_) => Ok(Self(url)),
        }
    }
}

impl fmt::Display for StoreText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_os_string().to_string_lossy())
    }
}

impl Described for StoreText {
    const NAME: &'static str = "Store";
    const PATTERN: &'static str = "^([a-z]+:|memory$)";
    const EXAMPLE: &'static str = "sqlite:/var/lib/attache/tasks.db";
}

impl Described for AllowedHost {
    const NAME: &'static str = "Host";
    const PATTERN: &'static str = "^([*]|[^*/@?# ]+)$";
    const EXAMPLE: &'static str = "agents.example.com";
}

impl Described for AllowedOrigin {
    const NAME: &'static str = "Origin";
    const PATTERN: &'static str = "^([*]|[a-z][a-z0-9+.-]*://[^*/@?# ]+/?)$";
    const EXAMPLE: &'static str = "https://app.example.com";
}

/// The path of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpPath(pub(crate) String);

impl FromStr for HttpPath {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = text.starts_with('/') && !text.contains(['?', '#', '{', '}', ' ']);
        if plain { Ok(Self(text.to_owned())) } else { Err("expected a path such as `/a2a`") }
    }
}

impl fmt::Display for HttpPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Described for HttpPath {
    const NAME: &'static str = "Path";
    const PATTERN: &'static str = "^/[^?#{} ]*$";
    const EXAMPLE: &'static str = "/a2a";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_written_as_it_was_read() {
        for text in ["1B", "64KiB", "8MiB", "1GiB", "1500B"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        for text in ["0s", "250ms", "90s", "15m", "12h", "30d"] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
        }
        assert_eq!("1000".parse::<Size>(), Ok(Size(1000)));
        assert_eq!("2 MB".parse::<Size>(), Ok(Size(2_000_000)));
        assert_eq!("60s".parse::<Time>().unwrap().to_string(), "1m");
    }

    #[test]
    fn invalid_text_is_refused() {
        for text in ["", "MiB", "8 mib", "-1", "1.5MiB", "0", "99999999999GiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        for text in ["", "30", "s", "30 s", "1w", "99999999999999999999d"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        for text in ["", "agents.example.com", "http://", "https:///x", "ftp://x"] {
            assert!(text.parse::<HttpUrl>().is_err(), "{text}");
        }
        for text in ["0s", "1500ms", "2d"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
    }
}
