//! Selecting one of an agent's interfaces.

use std::borrow::Cow;
use std::fmt;

use attache_protocol::{AgentCard, AgentInterface, Version, binding};
use reqwest::Url;

use crate::credentials::PresetCredentials;
use crate::http::{Http, display_url, is_local};
use crate::{ClientError, ClientOptions, agent_address};

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
    /// JSON-RPC over a WebSocket.
    WebSocket,
    /// JSON-RPC in the gRPC envelope.
    GrpcJsonRpc,
    /// JSON-RPC over a Unix socket.
    Unix,
    /// JSON-RPC over the standard input and output of a command. No card can start one.
    Stdio,
    /// JSON-RPC over Redis Streams.
    RedisStreams,
}

impl Binding {
    /// Its name in cards.
    pub const fn name(self) -> &'static str {
        match self {
            Self::JsonRpc => binding::JSONRPC,
            Self::HttpJson => binding::HTTP_JSON,
            Self::Grpc => binding::GRPC,
            Self::WebSocket => binding::WEBSOCKET,
            Self::GrpcJsonRpc => binding::GRPC_JSONRPC,
            Self::Unix => binding::UNIX,
            Self::Stdio => binding::STDIO,
            Self::RedisStreams => binding::REDIS_STREAMS,
        }
    }
}

impl Binding {
    /// Whether the specification does not have it.
    pub(crate) const fn is_further(self) -> bool {
        match self {
            Self::JsonRpc | Self::HttpJson | Self::Grpc => false,
            Self::WebSocket | Self::GrpcJsonRpc | Self::Unix | Self::Stdio | Self::RedisStreams => true,
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
    fn suits(self, wire: Wire, channel: ChannelKind) -> bool {
        self.binding == wire.binding(channel) && self.version.is_none_or(|version| version == wire.version())
    }
}

/// The tenant of an interface. Some servers write an empty one for none.
fn tenant(interface: &AgentInterface) -> Option<&str> {
    interface.tenant.as_deref().filter(|tenant| !tenant.is_empty())
}

/// What carries requests to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ChannelKind {
    /// HTTP, in the form that the wire format says. All others carry JSON-RPC.
    Http,
    WebSocket,
    GrpcEnvelope,
    Unix,
    Stdio,
    RedisStreams,
}

impl ChannelKind {
    const fn binding(self) -> Option<Binding> {
        match self {
            Self::Http => None,
            Self::WebSocket => Some(Binding::WebSocket),
            Self::GrpcEnvelope => Some(Binding::GrpcJsonRpc),
            Self::Unix => Some(Binding::Unix),
            Self::Stdio => Some(Binding::Stdio),
            Self::RedisStreams => Some(Binding::RedisStreams),
        }
    }

    /// The channel of an interface that carries JSON-RPC otherwise than over HTTP, by its binding or by its URL. `None` for bindings over
    /// HTTP.
    fn of(interface: &AgentInterface) -> Option<Self> {
        let scheme = || interface.url.split_once(':').map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
        match interface.protocol_binding.to_ascii_uppercase().as_str() {
            "WEBSOCKET" | "WS" => Some(Self::WebSocket),
            "GRPC-JSONRPC" | "GRPC+JSONRPC" => Some(Self::GrpcEnvelope),
            "UNIX" => Some(Self::Unix),
            "STDIO" => Some(Self::Stdio),
            "REDIS-STREAMS" | "REDIS-STREAM" | "REDIS" => Some(Self::RedisStreams),
            binding::JSONRPC => match scheme().as_str() {
                "ws" | "wss" => Some(Self::WebSocket),
                "grpc-jsonrpc" | "grpc+jsonrpc" | "grpc-jsonrpcs" => Some(Self::GrpcEnvelope),
                "unix" => Some(Self::Unix),
                "stdio" => Some(Self::Stdio),
                "redis-streams" | "rediss-streams" => Some(Self::RedisStreams),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The wire format: a binding and a version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    JsonRpc,
    JsonRpc0_3,
    JsonRpc0_1,
    HttpJson,
    HttpJson0_3,
    Grpc,
    Grpc0_3,
}

impl Wire {
    /// The wire format of an interface and what carries it, if the client supports it.
    fn of(interface: &AgentInterface) -> Option<(Self, ChannelKind)> {
        match ChannelKind::of(interface) {
            // A card must not be able to start a command.
            Some(ChannelKind::Stdio) => None,
            Some(ChannelKind::GrpcEnvelope) if !cfg!(feature = "grpc") => None,
            Some(ChannelKind::RedisStreams) if !cfg!(feature = "redis") => None,
            Some(channel) => {
                let binding = binding::JSONRPC.to_owned();
                let interface = AgentInterface { protocol_binding: binding, ..interface.clone() };
                Some((Self::over_http(&interface)?, channel))
            }
            None => Some((Self::over_http(interface)?, ChannelKind::Http)),
        }
    }

    fn over_http(interface: &AgentInterface) -> Option<Self> {
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
            (binding::JSONRPC, (0, 1)) if tenant(interface).is_none() => Some(Self::JsonRpc0_1),
            (binding::HTTP_JSON, (0, 3)) if tenant(interface).is_none() => Some(Self::HttpJson0_3),
            (binding::GRPC, (0, 3)) if tenant(interface).is_none() => Some(Self::Grpc0_3),
            _ => None,
        }
    }

    /// The JSON-RPC of a version.
    pub(crate) const fn jsonrpc(is_older: bool) -> Self {
        if is_older { Self::JsonRpc0_3 } else { Self::JsonRpc }
    }

    const fn binding(self, channel: ChannelKind) -> Binding {
        if let Some(binding) = channel.binding() {
            return binding;
        }
        match self {
            Self::JsonRpc | Self::JsonRpc0_3 | Self::JsonRpc0_1 => Binding::JsonRpc,
            Self::HttpJson | Self::HttpJson0_3 => Binding::HttpJson,
            Self::Grpc | Self::Grpc0_3 => Binding::Grpc,
        }
    }

    /// The version that requests state.
    pub(crate) const fn version(self) -> Version {
        match self {
            Self::JsonRpc | Self::HttpJson | Self::Grpc => Version::V1_0,
            Self::JsonRpc0_3 | Self::HttpJson0_3 | Self::Grpc0_3 => Version::V0_3,
            Self::JsonRpc0_1 => Version::V0_1,
        }
    }
}

/// Where to send requests, and in which format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The URL. For WebSockets and the gRPC envelope it has the scheme `http` or `https`.
    pub(crate) url: Url,
    pub(crate) tenant: Option<String>,
    pub(crate) wire: Wire,
    pub(crate) channel: ChannelKind,
}

/// Where to send requests, for an agent whose address names the transport. The card says the version and the tenant, unless the options ask
/// for a version.
pub(crate) fn fixed(
    options: &ClientOptions,
    (channel, url): (ChannelKind, &Url),
    card: &AgentCard,
) -> Result<Endpoint, ClientError> {
    let endpoint = |wire, tenant| Endpoint { url: url.clone(), tenant, wire, channel };
    let offered = card.supported_interfaces.iter().filter(|it| {
        let is_jsonrpc = it.protocol_binding.eq_ignore_ascii_case(binding::JSONRPC);
        is_jsonrpc || ChannelKind::of(it) == Some(channel)
    });
    let mut offered = offered.filter_map(|it| {
        let jsonrpc = AgentInterface { protocol_binding: binding::JSONRPC.to_owned(), ..it.clone() };
        Some((Wire::over_http(&jsonrpc)?, tenant(it).map(str::to_owned)))
    });
    if options.interfaces.is_empty() {
        let (wire, tenant) = offered.next().unwrap_or((Wire::JsonRpc, None));
        return Ok(endpoint(wire, tenant));
    }
    let offered: Vec<_> = offered.collect();
    for interface in options.interfaces.iter().copied() {
        let is_meant = interface.binding == Binding::JsonRpc || channel.binding() == Some(interface.binding);
        let suits =
            |(wire, _): &&(Wire, Option<String>)| interface.version.is_none_or(|it| it == wire.version());
        match offered.iter().find(suits) {
            Some((wire, tenant)) if is_meant => return Ok(endpoint(*wire, tenant.clone())),
            // Without a card, the version that the user wants is the only one known.
            None if is_meant && offered.is_empty() => {
                return Ok(endpoint(Wire::jsonrpc(interface.version == Some(Version::V0_3)), None));
            }
            Some(_) | None => {}
        }
    }
    let name = channel.binding().map_or(binding::JSONRPC, Binding::name);
    Err(ClientError::NoInterface {
        agent: card.name.clone(),
        offered: vec![format!("`{name}` at this address")],
        wanted: options.interfaces.iter().map(ToString::to_string).collect(),
    })
}

/// The URL of an interface, if the client may use it.
fn interface_url(
    http: &Http,
    card_url: &Url,
    interface: &AgentInterface,
    (wire, channel): (Wire, ChannelKind),
) -> Result<Url, ClientError> {
    let is_secure = card_url.scheme() == "https";
    let direct = match channel {
        ChannelKind::Http => return http.check(&address(card_url, interface, wire)),
        ChannelKind::WebSocket
        | ChannelKind::GrpcEnvelope
        | ChannelKind::Unix
        | ChannelKind::Stdio
        | ChannelKind::RedisStreams => agent_address::direct(&interface.url, is_secure)?,
    };
    match direct {
        Some((ChannelKind::Unix, url)) if channel == ChannelKind::Unix => {
            http.check_socket(&url)?;
            if card_url.scheme() != "unix" && !is_local(card_url) {
                let text = format!(
                    "the card at `{}` leads to a Unix socket of this machine, which only a card of this machine may do",
                    display_url(card_url)
                );
                return Err(ClientError::Invalid(text));
            }
            Ok(url)
        }
        // The address of Redis is checked when it is connected to.
        Some((ChannelKind::RedisStreams, url)) if channel == ChannelKind::RedisStreams => Ok(url),
        Some((found, url)) if found == channel => http.check(url.as_str()),
        Some(_) | None => {
            let text = format!(
                "the card at `{}` has an interface `{}` with a URL of another kind",
                display_url(card_url),
                interface.protocol_binding
            );
            Err(ClientError::Invalid(text))
        }
    }
}

/// The address of an interface as a URL. A gRPC address may be only host and port, which does not say whether to use TLS. TLS
/// is used if the card was read over TLS, or if the port is 443. So requests are never less protected than the card was.
fn address<'a>(card: &Url, interface: &'a AgentInterface, wire: Wire) -> Cow<'a, str> {
    let address = interface.url.as_str();
    if wire.binding(ChannelKind::Http) != Binding::Grpc {
        return Cow::Borrowed(address);
    }
    // Some servers write a scheme that says nothing more.
    if let Some(address) = address.strip_prefix("grpcs://") {
        return Cow::Owned(format!("https://{address}"));
    }
    let address = address.strip_prefix("grpc://").unwrap_or(address);
    if address.contains("://") {
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
        let suiting = |wanted: Interface| {
            spoken.iter().filter(move |(_, (wire, channel))| wanted.suits(*wire, *channel))
        };
        options.interfaces.iter().copied().flat_map(suiting).copied().collect()
    };
    let (mut refused, mut last) = (None, None);
    for (interface, (wire, channel)) in ordered {
        let url = interface_url(http, card_url, interface, (wire, channel));
        match url.and_then(|url| options.trusted_origins.check_destination(home, &url).map(|()| url)) {
            Ok(url) => {
                let suits = suits_credentials(options, home, card, &url);
                let endpoint = Endpoint { url, tenant: tenant(interface).map(str::to_owned), wire, channel };
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
        let offered = [("a:1", "GRPC", "2.0"), ("https://a/", "JSONRPC", "0.0")];
        let ClientError::NoInterface { agent, offered, wanted } =
            chosen(&origins(true), &offered).unwrap_err()
        else {
            panic!("another error")
        };
        assert_eq!((agent.as_str(), wanted.len()), ("Recipes", 0));
        assert_eq!(offered, ["`GRPC` 2.0", "`JSONRPC` 0.0"]);
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
        for url in ["", "/rpc", "file:///etc/passwd", "stdio:agent", "a.example:443"] {
            assert!(chosen(&origins(true), &[(url, "JSONRPC", "1.0")]).is_err(), "{url}");
        }
    }

    #[test]
    fn an_interface_of_another_transport_is_used_if_it_is_the_first_that_can_be() {
        for (offered, binding, reached) in [
            (("wss://a.example/ws", "websocket", "1.0"), Binding::WebSocket, "https://a.example/ws"),
            (("wss://a.example/ws", "JSONRPC", "1.0"), Binding::WebSocket, "https://a.example/ws"),
            (
                ("grpc-jsonrpc://a.example:50051", "grpc-jsonrpc", "1.0"),
                Binding::GrpcJsonRpc,
                "https://a.example:50051/",
            ),
            (("grpc://a.example:50051", "grpc", "1.0"), Binding::Grpc, "https://a.example:50051/"),
        ] {
            let offered =
                [("stdio:agent", "stdio", "1.0"), offered, ("https://a.example/rpc", "JSONRPC", "1.0")];
            let endpoint = chosen(&origins(true), &offered).unwrap();
            assert_eq!((endpoint.wire.binding(endpoint.channel), endpoint.url.as_str()), (binding, reached));
            let interfaces = vec![Interface::from(Binding::JsonRpc)];
            let endpoint = chosen(&http(ClientOptions { interfaces, ..ClientOptions::default() }), &offered);
            assert_eq!(endpoint.unwrap().channel, ChannelKind::Http);
        }
    }

    #[test]
    fn a_websocket_has_the_origin_of_its_http_address() {
        let here = [("wss://a.example/ws", "websocket", "1.0")];
        assert!(chosen(&origins(false), &here).is_ok());
        for url in ["ws://a.example/ws", "wss://b.example/ws"] {
            let error = chosen(&origins(false), &[(url, "websocket", "1.0")]).unwrap_err();
            assert!(matches!(error, ClientError::OtherOrigin { .. }), "{url}: {error}");
        }
    }

    #[test]
    fn only_a_card_of_this_machine_leads_to_a_socket_and_no_card_to_a_command() {
        let card = card(&[("unix:///run/a.sock", "unix", "1.0")]);
        let choose_from = |http: &Http, url: &str| {
            let url = url.parse().unwrap();
            choose(http, &url, &url, &card)
        };
        let endpoint = choose_from(&origins(true), "http://127.0.0.1:1/").unwrap();
        assert_eq!((endpoint.channel, endpoint.url.as_str()), (ChannelKind::Unix, "unix:/run/a.sock"));
        assert!(matches!(choose_from(&origins(true), "https://a.example/"), Err(ClientError::Invalid(_))));
        assert!(matches!(
            choose_from(&origins(false), "http://127.0.0.1:1/"),
            Err(ClientError::OtherOrigin { .. })
        ));
        let policy = Some(attache_outbound::Policy::default());
        let guarded = http(ClientOptions { policy, ..ClientOptions::default() });
        assert!(matches!(choose_from(&guarded, "http://127.0.0.1:1/"), Err(ClientError::Refused { .. })));
        for url in ["stdio:agent", "stdio://agent"] {
            let error = chosen(&origins(true), &[(url, "stdio", "1.0")]).unwrap_err();
            assert!(matches!(error, ClientError::NoInterface { .. }), "{error}");
        }
    }
}
