//! Selecting one of an agent's interfaces.

use std::borrow::Cow;
use std::fmt;

use attache_protocol::{AgentCard, AgentInterface, Version, binding};
use reqwest::Url;

use crate::credentials::PresetCredentials;
use crate::http::Http;
use crate::{ClientError, ClientOptions};

/// A binding that this client supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Binding {
    /// JSON-RPC 2.0 over HTTP.
    JsonRpc,
    /// Plain HTTP with JSON bodies.
    HttpJson,
    /// gRPC.
    Grpc,
}

impl Binding {
    /// Its name in cards.
    pub const fn name(self) -> &'static str {
        match self {
            Self::JsonRpc => binding::JSONRPC,
            Self::HttpJson => binding::HTTP_JSON,
            Self::Grpc => binding::GRPC,
        }
    }
}

/// An interface that the user prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    /// The binding.
    pub binding: Binding,
    /// The protocol version; any supported one, if none is set.
    pub version: Option<Version>,
}

impl From<Binding> for Interface {
    fn from(binding: Binding) -> Self {
        Self { binding, version: None }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.binding.name())?;
        self.version.map_or(Ok(()), |version| write!(f, " {version}"))
    }
}

impl Interface {
    fn suits(self, wire: Wire) -> bool {
        self.binding == wire.binding() && self.version.is_none_or(|version| version == wire.version())
    }
}

/// The tenant of an interface. Some servers write an empty one for none.
fn tenant(interface: &AgentInterface) -> Option<&str> {
    interface.tenant.as_deref().filter(|tenant| !tenant.is_empty())
}

/// The wire format: a binding and a version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    JsonRpc,
    JsonRpc0_3,
    HttpJson,
    HttpJson0_3,
    Grpc,
    Grpc0_3,
}

impl Wire {
    /// The wire format of an interface, if the client supports it.
    fn of(interface: &AgentInterface) -> Option<Self> {
        // Some servers leave the version out. Before 1.0 there was no list of interfaces with versions.
        let version: Version = match interface.protocol_version.as_str() {
            "" => Version::V1_0,
            stated => stated.parse().ok()?,
        };
        match (interface.protocol_binding.to_ascii_uppercase().as_str(), (version.major, version.minor)) {
            (binding::JSONRPC, (1, _)) => Some(Self::JsonRpc),
            (binding::HTTP_JSON, (1, _)) => Some(Self::HttpJson),
            (binding::GRPC, _) if !cfg!(feature = "grpc") => None,
            (binding::GRPC, (1, _)) => Some(Self::Grpc),
            // 0.2 is a subset of 0.3. Neither has tenants, so an interface with a tenant would reach another agent.
            (binding::JSONRPC, (0, 2 | 3)) if tenant(interface).is_none() => Some(Self::JsonRpc0_3),
            (binding::HTTP_JSON, (0, 3)) if tenant(interface).is_none() => Some(Self::HttpJson0_3),
            (binding::GRPC, (0, 3)) if tenant(interface).is_none() => Some(Self::Grpc0_3),
            _ => None,
        }
    }

    const fn binding(self) -> Binding {
        match self {
            Self::JsonRpc | Self::JsonRpc0_3 => Binding::JsonRpc,
            Self::HttpJson | Self::HttpJson0_3 => Binding::HttpJson,
            Self::Grpc | Self::Grpc0_3 => Binding::Grpc,
        }
    }

    /// The version that requests state.
    pub(crate) const fn version(self) -> Version {
        match self {
            Self::JsonRpc | Self::HttpJson | Self::Grpc => Version::V1_0,
            Self::JsonRpc0_3 | Self::HttpJson0_3 | Self::Grpc0_3 => Version::V0_3,
        }
    }
}

/// Where to send requests, and in which format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) url: Url,
    pub(crate) tenant: Option<String>,
    pub(crate) wire: Wire,
}

/// The address of an interface as a URL. A gRPC address may be only host and port, which does not say whether to use TLS. TLS
/// is used if the card was read over TLS, or if the port is 443. So requests are never less protected than the card was.
fn address<'a>(card: &Url, interface: &'a AgentInterface, wire: Wire) -> Cow<'a, str> {
    let address = interface.url.as_str();
    if wire.binding() != Binding::Grpc || address.contains("://") {
        return Cow::Borrowed(address);
    }
    let secure = card.scheme() == "https" || address.ends_with(":443");
    Cow::Owned(format!("{}://{address}", if secure { "https" } else { "http" }))
}

/// Whether the credentials, if any are required, may be sent to this URL.
fn suits_credentials(options: &ClientOptions, home: &Url, card: &AgentCard, url: &Url) -> bool {
    let Some(credentials) = &options.credentials else { return true };
    card.security_requirements.is_empty()
        || options.trusted_origins.check_credentials(home, url).is_ok()
        || matches!(credentials.preset(url), PresetCredentials::Headers(_))
}

/// Selects the first interface that the client supports and may call, in the order of the options or else of the card.
/// Interfaces that may not receive the credentials come last. If none may be called, the error says why.
///
/// `home` is the address that the user gave. `card_url` is where the card was found.
pub(crate) fn choose(
    http: &Http,
    home: &Url,
    card_url: &Url,
    card: &AgentCard,
) -> Result<Endpoint, ClientError> {
    let options = &http.options;
    let spoken: Vec<_> =
        card.supported_interfaces.iter().filter_map(|it| Some((it, Wire::of(it)?))).collect();
    let ordered: Vec<_> = if options.interfaces.is_empty() {
        spoken
    } else {
        let suiting = |wanted: Interface| spoken.iter().filter(move |(_, wire)| wanted.suits(*wire));
        options.interfaces.iter().copied().flat_map(suiting).copied().collect()
    };
    let (mut refused, mut last) = (None, None);
    for (interface, wire) in ordered {
        let url = http.check(&address(card_url, interface, wire));
        match url.and_then(|url| options.trusted_origins.check_destination(home, &url).map(|()| url)) {
            Ok(url) => {
                let suits = suits_credentials(options, home, card, &url);
                let endpoint = Endpoint { url, tenant: tenant(interface).map(str::to_owned), wire };
                if suits {
                    return Ok(endpoint);
                }
                last = last.or(Some(endpoint));
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    if let Some(endpoint) = last {
        return Ok(endpoint);
    }
    let offered = |it: &AgentInterface| format!("`{}` {}", it.protocol_binding, it.protocol_version);
    Err(refused.unwrap_or_else(|| ClientError::NoInterface {
        agent: card.name.clone(),
        offered: card.supported_interfaces.iter().map(offered).collect(),
        wanted: options.interfaces.iter().map(ToString::to_string).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SchemeCredentials, TrustedOrigins};

    fn http(options: ClientOptions) -> Http {
        Http::new(options).unwrap()
    }

    fn origins(others: bool) -> Http {
        let trusted_origins = TrustedOrigins::new();
        let trusted_origins = if others { trusted_origins } else { trusted_origins.only() };
        http(ClientOptions { trusted_origins, ..ClientOptions::default() })
    }

    fn card(interfaces: &[(&str, &str, &str)]) -> AgentCard {
        let mut card = AgentCard::new("Recipes", "Finds something to cook");
        for (url, binding, version) in interfaces {
            let mut interface = AgentInterface::new(*url, *binding);
            interface.protocol_version = (*version).to_owned();
            card.supported_interfaces.push(interface);
        }
        card
    }

    fn chosen(http: &Http, interfaces: &[(&str, &str, &str)]) -> Result<Endpoint, ClientError> {
        let url = "https://a.example/.well-known/agent-card.json".parse().unwrap();
        choose(http, &url, &url, &card(interfaces))
    }

    const OFFERED: [(&str, &str, &str); 8] = [
        ("https://a.example/v2", "JSONRPC", "2.0"),
        ("a.example", "GRPC", "0.2"),
        ("https://a.example/old-rest", "HTTP+JSON", "0.3"),
        ("https://a.example/rest", "http+json", "1.0.1"),
        ("https://a.example/old", "JSONRPC", "0.3.0"),
        ("https://a.example/rpc", "JSONRPC", "1.0"),
        ("https://a.example/rpc2", "JSONRPC", "1.0"),
        ("https://a.example/calls", "grpc", "1.0"),
    ];

    #[test]
    fn the_first_interface_that_is_spoken_is_used_unless_the_user_wants_another() {
        let [rpc, rest, grpc] = [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc].map(Interface::from);
        let of = |binding, version| Interface { binding, version: Some(version) };
        for (interfaces, wire, path) in [
            (vec![], Wire::HttpJson0_3, "/old-rest"),
            (vec![rest], Wire::HttpJson0_3, "/old-rest"),
            (vec![of(Binding::HttpJson, Version::V1_0)], Wire::HttpJson, "/rest"),
            (vec![rpc], Wire::JsonRpc0_3, "/old"),
            (vec![of(Binding::JsonRpc, Version::V1_0)], Wire::JsonRpc, "/rpc"),
            (vec![of(Binding::JsonRpc, Version::V0_3)], Wire::JsonRpc0_3, "/old"),
            (vec![of(Binding::HttpJson, Version::V0_3), rpc], Wire::HttpJson0_3, "/old-rest"),
            (vec![of(Binding::JsonRpc, Version::V1_0), rest], Wire::JsonRpc, "/rpc"),
            (vec![grpc], Wire::Grpc, "/calls"),
            (vec![of(Binding::Grpc, Version::V0_3), grpc], Wire::Grpc, "/calls"),
        ] {
            let shown = format!("{interfaces:?}");
            let http = http(ClientOptions { interfaces, ..ClientOptions::default() });
            let endpoint = chosen(&http, &OFFERED).unwrap();
            assert_eq!((endpoint.wire, endpoint.url.path()), (wire, path), "{shown}");
        }
    }

    #[test]
    fn an_interface_without_a_version_is_of_1_0_and_an_empty_tenant_is_none() {
        let mut card = card(&[("https://a.example/rpc", "JSONRPC", "")]);
        card.supported_interfaces[0].tenant = Some(String::new());
        let url = "https://a.example/.well-known/agent-card.json".parse().unwrap();
        let endpoint = choose(&http(ClientOptions::default()), &url, &url, &card).unwrap();
        assert_eq!((endpoint.wire, endpoint.tenant), (Wire::JsonRpc, None));
    }

    #[test]
    fn an_interface_of_0_3_with_a_tenant_cannot_be_used() {
        let mut older = card(&[("https://a.example/old", "JSONRPC", "0.3")]);
        older.supported_interfaces[0].tenant = Some("acme".to_owned());
        let url = "https://a.example/".parse().unwrap();
        assert!(matches!(choose(&origins(true), &url, &url, &older), Err(ClientError::NoInterface { .. })));
    }

    #[test]
    fn a_card_without_such_an_interface_is_told_what_it_offers() {
        let offered = [("a:1", "GRPC", "2.0"), ("https://a/", "JSONRPC", "0.1")];
        let ClientError::NoInterface { agent, offered, wanted } =
            chosen(&origins(true), &offered).unwrap_err()
        else {
            panic!("another error")
        };
        assert_eq!((agent.as_str(), wanted.len()), ("Recipes", 0));
        assert_eq!(offered, ["`GRPC` 2.0", "`JSONRPC` 0.1"]);
        let version = Some(Version::V0_3);
        let interfaces = vec![Interface { binding: Binding::HttpJson, version }];
        let error = chosen(&http(ClientOptions { interfaces, ..ClientOptions::default() }), &OFFERED[..2]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "the agent `Recipes` offers `JSONRPC` 2.0, `GRPC` 0.2; the options ask for `HTTP+JSON` 0.3"
        );
    }

    #[test]
    fn another_origin_is_followed_only_if_that_is_allowed() {
        let elsewhere = [("https://b.example/rpc", "JSONRPC", "1.0")];
        assert!(chosen(&origins(true), &elsewhere).is_ok());
        for url in ["https://b.example/rpc", "http://a.example/rpc", "https://a.example:8443/rpc"] {
            let error = chosen(&origins(false), &[(url, "JSONRPC", "1.0")]).unwrap_err();
            assert!(matches!(error, ClientError::OtherOrigin { .. }), "{url}: {error}");
        }
        let here = [elsewhere[0], ("https://a.example:443/rpc", "JSONRPC", "1.0")];
        assert_eq!(chosen(&origins(false), &here).unwrap().url.as_str(), "https://a.example/rpc");
    }

    #[test]
    fn an_interface_that_may_get_the_credentials_is_preferred_where_the_card_asks_for_some() {
        let offered =
            [("https://b.example/rpc", "JSONRPC", "1.0"), ("https://a.example/rest", "HTTP+JSON", "1.0")];
        let mut card = card(&offered);
        let url: Url = "https://a.example/".parse().unwrap();
        let host = |options, card: &AgentCard| {
            choose(&http(options), &url, &url, card).unwrap().url.host_str().unwrap().to_owned()
        };
        let with_token = || ClientOptions::default().with_credentials(SchemeCredentials::new().token("t"));
        assert_eq!(host(with_token(), &card), "b.example", "it asks for none");
        card.security_requirements.push(Default::default());
        assert_eq!(host(with_token(), &card), "a.example");
        assert_eq!(host(ClientOptions::default(), &card), "b.example", "there are none");
        let trusted_origins = TrustedOrigins::new().trust("https://b.example").unwrap();
        assert_eq!(host(ClientOptions { trusted_origins, ..with_token() }, &card), "b.example");
        card.supported_interfaces.pop();
        assert_eq!(host(with_token(), &card), "b.example", "which fails when something is asked of it");
    }

    #[test]
    fn a_host_and_a_port_are_reached_as_openly_as_the_card_and_no_more() {
        for (card_url, offered, reached) in [
            ("http://a.example/", "a.example:50051", "http://a.example:50051/"),
            ("http://a.example/", "127.0.0.1:50051", "http://127.0.0.1:50051/"),
            ("http://a.example/", "[::1]:50051", "http://[::1]:50051/"),
            ("http://a.example/", "a.example:443", "https://a.example/"),
            ("https://a.example/", "a.example:50051", "https://a.example:50051/"),
            ("https://a.example/", "a.example", "https://a.example/"),
            ("https://a.example/", "http://a.example:50051", "http://a.example:50051/"),
            ("http://a.example/", "https://a.example/calls/", "https://a.example/calls/"),
        ] {
            for version in ["1.0", "0.3"] {
                let card = card(&[(offered, "GRPC", version)]);
                let card_url = card_url.parse().unwrap();
                let endpoint = choose(&origins(true), &card_url, &card_url, &card).unwrap();
                assert_eq!(endpoint.url.as_str(), reached, "{offered} {version}");
            }
        }
        for url in ["", ":50051", "a b:1", "dns:///a.example", "unix:///tmp/a", "a.example:99999"] {
            assert!(chosen(&origins(true), &[(url, "GRPC", "1.0")]).is_err(), "{url}");
        }
    }

    #[test]
    fn an_interface_is_reached_over_http_or_not_at_all() {
        for url in ["", "/rpc", "file:///etc/passwd", "ws://a.example/rpc", "a.example:443"] {
            assert!(chosen(&origins(true), &[(url, "JSONRPC", "1.0")]).is_err(), "{url}");
        }
    }
}
