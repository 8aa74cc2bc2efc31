//! The addresses of agents, as people write them.
//!
//! An `http` or `https` address is that of a card. The other kinds name the transport itself, and lead to the agent without a card.

use std::path::PathBuf;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use url::{Host, Url};

use crate::ClientError;
use crate::interface::ChannelKind;
use crate::origins::is_loopback;

/// What is encoded in the URL of a socket or a command, so that the URL has the text unchanged.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'#').add(b'?').add(b'%');

const UNIX: &str = "unix";
const STDIO: &str = "stdio";

/// The URL for an address without a scheme: `http` on this machine and `https` elsewhere. `None` if the text has a scheme, or is not
/// a host with a port or a path: then it may be a name that only the caller knows.
///
/// ```
/// use attache_client::complete_address;
///
/// assert_eq!(complete_address("localhost:3111").as_deref(), Some("http://localhost:3111"));
/// assert_eq!(complete_address("agents.example:8443/recipes").as_deref(), Some("https://agents.example:8443/recipes"));
/// assert_eq!(complete_address("http://agents.example"), None);
/// assert_eq!(complete_address("unix:/run/agent.sock"), None);
/// assert_eq!(complete_address("recipes"), None);
/// ```
pub fn complete_address(address: &str) -> Option<String> {
    if address.contains("://") || is_agent_url(address) {
        return None;
    }
    let url = Url::parse(&format!("https://{address}")).ok()?;
    let host = url.host()?;
    let is_local = match &host {
        Host::Domain(name) => is_loopback(&host) || name.ends_with(".localhost"),
        Host::Ipv4(_) | Host::Ipv6(_) => is_loopback(&host),
    };
    let is_address = is_local || address.contains([':', '/']);
    // `user:secret@host` or `mailto:x` is no address.
    if !is_address || address.contains('@') {
        return None;
    }
    Some(format!("{}://{address}", if is_local { "http" } else { "https" }))
}

/// Whether a text is an address of an agent that begins with a scheme which the client knows.
///
/// ```
/// use attache_client::is_agent_url;
///
/// for address in ["https://agents.example", "unix:/run/agent.sock", "stdio:agent --quiet", "ws://localhost:3111/ws"] {
///     assert!(is_agent_url(address), "{address}");
/// }
/// assert!(!is_agent_url("recipes") && !is_agent_url("ftp://agents.example"));
/// ```
pub fn is_agent_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    match kind(scheme) {
        Some(ChannelKind::Unix | ChannelKind::Stdio) => true,
        Some(
            ChannelKind::Http
            | ChannelKind::WebSocket
            | ChannelKind::GrpcEnvelope
            | ChannelKind::RedisStreams,
        ) => rest.starts_with("//"),
        None => false,
    }
}

/// The transport that a scheme stands for.
fn kind(scheme: &str) -> Option<ChannelKind> {
    match scheme.to_ascii_lowercase().as_str() {
        "http" | "https" => Some(ChannelKind::Http),
        UNIX => Some(ChannelKind::Unix),
        STDIO => Some(ChannelKind::Stdio),
        "ws" | "wss" => Some(ChannelKind::WebSocket),
        "grpc-jsonrpc" | "grpc+jsonrpc" | "grpc-jsonrpcs" => Some(ChannelKind::GrpcEnvelope),
        "redis-streams" | "rediss-streams" => Some(ChannelKind::RedisStreams),
        _ => None,
    }
}

/// The address of an agent over Redis Streams, without credentials.
#[cfg(feature = "redis")]
fn redis_address(address: &str) -> Result<String, String> {
    let address: Result<attache_redis::StreamsAddress, _> = address.parse();
    address.map(|address| address.to_string()).map_err(|error| error.to_string())
}

#[cfg(not(feature = "redis"))]
fn redis_address(_: &str) -> Result<String, String> {
    Err(crate::error::WITHOUT_REDIS.to_owned())
}

/// The transport of an address, with its URL: that of the socket or the command, or else one with the scheme `http` or `https`.
///
/// `is_secure` is whether an address that does not say so itself is reached over TLS.
pub(crate) fn direct(address: &str, is_secure: bool) -> Result<Option<(ChannelKind, Url)>, ClientError> {
    let Some((scheme, rest)) = address.split_once(':') else { return Ok(None) };
    let invalid = |why: &str| {
        let shown = crate::http::display_text(address);
        ClientError::Invalid(format!("`{shown}` is not the address of an agent: {why}"))
    };
    let scheme = scheme.to_ascii_lowercase();
    let Some(kind) = kind(&scheme) else { return Ok(None) };
    let text = match kind {
        ChannelKind::Http => return Ok(None),
        ChannelKind::Unix => {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            if path.is_empty() {
                return Err(invalid("the path is missing: expected `unix:PATH`"));
            }
            format!("{UNIX}:{}", utf8_percent_encode(path, ENCODED))
        }
        ChannelKind::Stdio => {
            let command = rest.trim();
            if command.is_empty() || command.starts_with("//") {
                return Err(invalid("the command is missing: expected `stdio:COMMAND`"));
            }
            format!("{STDIO}:{}", utf8_percent_encode(command, ENCODED))
        }
        ChannelKind::RedisStreams => redis_address(address).map_err(|why| invalid(&why))?,
        ChannelKind::WebSocket => format!("{}:{rest}", if scheme == "wss" { "https" } else { "http" }),
        ChannelKind::GrpcEnvelope => {
            let authority = rest.trim_start_matches('/').split(['/', '?', '#']).next().unwrap_or_default();
            let is_secure = is_secure || scheme == "grpc-jsonrpcs" || authority.ends_with(":443");
            format!("{}:{rest}", if is_secure { "https" } else { "http" })
        }
    };
    let mut url = Url::parse(&text).map_err(|error| invalid(&error.to_string()))?;
    if url.has_host() {
        url.set_fragment(None);
    }
    Ok(Some((kind, url)))
}

/// The text after the scheme of the URL of a socket or a command.
fn decoded(url: &Url) -> String {
    percent_decode_str(url.path()).decode_utf8_lossy().into_owned()
}

/// The path of a Unix socket.
#[cfg(unix)]
pub(crate) fn socket_path(url: &Url) -> PathBuf {
    PathBuf::from(decoded(url))
}

/// The words of a command.
pub(crate) fn command_line(url: &Url) -> Result<Vec<String>, ClientError> {
    let words = shlex::split(&decoded(url)).filter(|words| !words.is_empty());
    words.ok_or_else(|| {
        let text =
            "the command after `stdio:` cannot be split into words: a quote is not closed, or there is none";
        ClientError::Invalid(text.to_owned())
    })
}

/// The URL of a socket or a command as it may be shown. The arguments of a command may contain secrets. `None` for other URLs.
pub(crate) fn display_direct(url: &Url) -> Option<String> {
    match url.scheme() {
        UNIX => Some(format!("{UNIX}:{}", decoded(url))),
        STDIO => {
            let program = decoded(url).split_whitespace().next().unwrap_or_default().to_owned();
            Some(format!("{STDIO}:{program}"))
        }
        "redis-streams" | "rediss-streams" => Some(url.as_str().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_called_without_tls() {
        for (address, url) in [
            ("localhost", Some("http://localhost")),
            ("localhost:3111/a2a", Some("http://localhost:3111/a2a")),
            ("127.0.0.1:80", Some("http://127.0.0.1:80")),
            ("[::1]:3111", Some("http://[::1]:3111")),
            ("demo.localhost:3111", Some("http://demo.localhost:3111")),
            ("192.168.0.7:3111", Some("https://192.168.0.7:3111")),
            ("agents.example/x", Some("https://agents.example/x")),
            ("localhost.example:3111", Some("https://localhost.example:3111")),
            ("agents.example", None),
            ("recipes", None),
            ("", None),
            (":3111", None),
            ("localhost:port", None),
            ("user:secret@agents.example", None),
            ("https://agents.example", None),
            ("unix:/tmp/a.sock", None),
            ("unix:a.sock", None),
            ("stdio:agent --port 80", None),
        ] {
            assert_eq!(complete_address(address).as_deref(), url, "{address}");
        }
    }

    #[test]
    fn an_address_says_which_transport_leads_to_the_agent() {
        for (address, expected, url) in [
            ("unix:/tmp/a b#c%20.sock", ChannelKind::Unix, "unix:/tmp/a%20b%23c%2520.sock"),
            ("unix:///tmp/a.sock", ChannelKind::Unix, "unix:/tmp/a.sock"),
            ("unix:a.sock", ChannelKind::Unix, "unix:a.sock"),
            ("stdio:agent '--a b'", ChannelKind::Stdio, "stdio:agent%20'--a%20b'"),
            ("ws://a.example:3111/ws", ChannelKind::WebSocket, "http://a.example:3111/ws"),
            ("WSS://a.example/ws?x=1#y", ChannelKind::WebSocket, "https://a.example/ws?x=1"),
            ("grpc-jsonrpc://a.example:50051", ChannelKind::GrpcEnvelope, "http://a.example:50051/"),
            ("grpc-jsonrpc://a.example:443", ChannelKind::GrpcEnvelope, "https://a.example/"),
            ("grpc-jsonrpcs://a.example:50051", ChannelKind::GrpcEnvelope, "https://a.example:50051/"),
            #[cfg(feature = "redis")]
            (
                "redis-streams://u:p@a.example/q:r/q:s/g",
                ChannelKind::RedisStreams,
                "redis-streams://a.example:6379/0/q:r/q:s/g",
            ),
        ] {
            let (kind, found) = direct(address, false).unwrap().unwrap();
            assert_eq!((kind, found.as_str()), (expected, url), "{address}");
        }
        for address in ["http://a.example", "recipes", "ftp://a.example", "localhost:3111"] {
            assert!(direct(address, false).unwrap().is_none(), "{address}");
        }
        for address in
            ["unix:", "unix://", "stdio:", "stdio: ", "stdio://iac-code", "ws://", "grpc-jsonrpc://"]
        {
            assert!(matches!(direct(address, false), Err(ClientError::Invalid(_))), "{address}");
        }
    }

    #[test]
    fn a_command_is_split_into_words_and_shown_without_its_arguments() {
        let url = |text: &str| direct(text, false).unwrap().unwrap().1;
        let command = url("stdio:agent '--a b' é 100%");
        assert_eq!(command_line(&command).unwrap(), ["agent", "--a b", "é", "100%"]);
        assert_eq!(display_direct(&command).as_deref(), Some("stdio:agent"));
        assert!(command_line(&url("stdio:agent 'a")).is_err());
        assert_eq!(display_direct(&url("unix:/tmp/a b.sock")).as_deref(), Some("unix:/tmp/a b.sock"));
        assert_eq!(display_direct(&url("ws://a.example/ws")), None);
    }
}
