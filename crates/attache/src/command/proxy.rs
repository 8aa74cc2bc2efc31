//! `attache proxy`: connects a client on one transport to an agent on another.
//!
//! JSON-RPC requests and responses pass through unchanged, so both sides can speak any generation of the protocol. The proxy has no tasks
//! and no store. Credentials of the flags go to the agent; those of a caller do not.

use std::net::ToSocketAddrs;
use std::time::Duration;

use attache::client::{Client, ClientError, Forwarded, ForwardedResponse, Refreshed};
use attache::protocol::{AgentCard, Error, ErrorKind};
use attache::server::{Forward, JsonRpcFrame, JsonRpcReply, LocalAddress, RedisStreams, Server};
use clap::Args;
use futures::future::BoxFuture;
use futures::stream::{self, Stream, StreamExt};
use reqwest::header::HeaderMap;

use super::client::AgentArgs;
use super::{Failure, say};

/// Where the proxy listens by default.
const DEFAULT_ADDRESS: &str = "127.0.0.1:3112";

/// The address that stands for standard input and output.
const STDIO: &str = "stdio";

/// How long the proxy waits for the first response of a stream, so that a refused request gets an error instead of a stream.
const FIRST_RESPONSE: Duration = Duration::from_secs(1);

/// How often the proxy looks whether the card of the agent has changed.
const CARD_CHECK: Duration = Duration::from_secs(60);

/// How long a command that was the agent may take to end. It is killed before that.
const COMMAND_END: Duration = Duration::from_secs(10);

/// Examples, for `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  attache proxy --stdio https://agents.example.com       an agent for a client that starts a command
  attache proxy --listen 127.0.0.1:8080 'stdio:agent'    a command as an agent over HTTP and WebSocket
  attache proxy --listen unix:/run/agent.sock ws://localhost:3111/ws";

/// The arguments of `attache proxy`.
#[derive(Debug, Args)]
pub(crate) struct Proxy {
    /// Listen on this address: `HOST:PORT` for HTTP and WebSocket, `unix:PATH`, or `stdio`; may be repeated; default 127.0.0.1:3112
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    listen: Vec<String>,

    /// Answer on standard input and output, for the process that started this one
    #[arg(long)]
    stdio: bool,

    /// Answer requests in the streams of this Redis server too, such as `redis://127.0.0.1:6379`
    #[arg(long, value_name = "URL")]
    redis: Option<String>,

    /// Listen also where other machines can connect, though the proxy does not authenticate callers
    #[arg(long)]
    insecure: bool,

    #[command(flatten)]
    target: AgentArgs,
}

fn listen_address(text: &str) -> Result<String, &'static str> {
    let is_path = text.strip_prefix("unix:").is_some_and(|path| !path.is_empty());
    let has_port =
        text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if text == STDIO || is_path || (has_port && !text.starts_with("unix:")) {
        Ok(text.to_owned())
    } else {
        Err("expected `HOST:PORT`, `unix:PATH` or `stdio`")
    }
}

impl Proxy {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
        let result = runtime.block_on(self.serve());
        let _ = runtime
            .block_on(async { tokio::time::timeout(COMMAND_END, attache::client::commands_ended()).await });
        runtime.shutdown_background();
        result
    }

    /// The addresses to listen on, and whether standard input and output are among them.
    fn addresses(&self) -> Result<(Vec<String>, bool), Failure> {
        let is_stdio = self.stdio || self.listen.iter().any(|address| address == STDIO);
        let mut addresses: Vec<_> = self.listen.iter().filter(|address| *address != STDIO).cloned().collect();
        if addresses.is_empty() && !is_stdio {
            addresses.push(DEFAULT_ADDRESS.to_owned());
        }
        for address in addresses.iter().filter(|address| !address.starts_with("unix:")) {
            let is_local = address
                .to_socket_addrs()
                .map_err(|error| Failure::usage(format!("`--listen {address}` is of no use: {error}")))?
                .all(|address| address.ip().to_canonical().is_loopback());
            if !is_local && !self.insecure {
                return Err(open_to_others(&format!("--listen {address}")));
            }
        }
        Ok((addresses, is_stdio))
    }

    /// The streams to answer requests from.
    fn redis_streams(&self) -> Result<Option<RedisStreams>, Failure> {
        let Some(url) = &self.redis else { return Ok(None) };
        let streams =
            RedisStreams::new(url).map_err(|error| Failure::usage(format!("`--redis`: {error}")))?;
        if !streams.is_for_this_machine() && !self.insecure {
            return Err(open_to_others(&format!("--redis {}", streams.url)));
        }
        Ok(Some(streams))
    }

    async fn serve(self) -> Result<(), Failure> {
        let (addresses, is_stdio) = self.addresses()?;
        let redis = self.redis_streams()?;
        let read = redis.as_ref().map(|redis| redis.url.clone());
        let agent = self.target.connect_for_jsonrpc().await?;
        let client = agent.client.clone();
        let card = proxied(&client.card());
        let has_push = card.capabilities.push_notifications == Some(true);
        let mut server = Server::echo()
            .card(card)
            .card_updates(card_updates(client.clone()))
            .push(has_push)
            .forward(Forwarding(client));
        for address in addresses {
            server = server.bind(address);
        }
        if is_stdio {
            server = server.stdio();
        }
        if let Some(redis) = redis {
            server = server.redis(redis);
        }
        let listening = server.listen().await.map_err(Failure::new)?;
        let called = agent.called().to_owned();
        for address in listening.local_addresses().map_err(Failure::new)? {
            match address {
                LocalAddress::Tcp(address) => say(format_args!("http://{address} leads to {called}")),
                LocalAddress::Unix(path) => say(format_args!("unix:{} leads to {called}", path.display())),
            }
        }
        if let Some(redis) = read {
            say(format_args!("{redis} leads to {called}"));
        }
        drop(agent);
        listening.run().await.map_err(Failure::new)
    }
}

fn open_to_others(option: &str) -> Failure {
    let text = format!("`{option}` lets other machines call the agent with the credentials of this proxy");
    Failure::usage(text).hint("stay on this machine, or let everyone in with `--insecure`")
}

/// The card that the proxy serves. Interfaces are those of the proxy, which needs no credentials and does not have the keys of the agent.
fn proxied(card: &AgentCard) -> AgentCard {
    let mut card = card.clone();
    card.supported_interfaces.clear();
    card.security_schemes.clear();
    card.security_requirements.clear();
    card.signatures.clear();
    card
}

/// The card of the proxy whenever that of the agent changes.
fn card_updates(client: Client) -> impl Stream<Item = AgentCard> + Send + 'static {
    stream::unfold(client, |client| async move {
        loop {
            tokio::time::sleep(CARD_CHECK).await;
            match client.refresh_stale_card().await {
                Ok(Refreshed::Changed) => return Some((proxied(&client.card()), client)),
                Ok(Refreshed::Unchanged) => {}
                Err(error) => tracing::debug!(%error, "the card of the agent could not be read again"),
            }
        }
    })
}

/// Sends requests to the agent.
struct Forwarding(Client);

impl Forward for Forwarding {
    fn forward<'a>(
        &'a self,
        request: &'a [u8],
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<JsonRpcReply, Error>> {
        Box::pin(async move {
            let mut forwarded = self.0.forward(request, headers).await.map_err(|error| reported(&error))?;
            if !forwarded.is_stream() {
                let response = forwarded.next().await.map_err(|error| reported(&error))?;
                return Ok(response.map_or(JsonRpcReply::None, |response| JsonRpcReply::One(response.json)));
            }
            let first = match tokio::time::timeout(FIRST_RESPONSE, forwarded.next()).await {
                Err(_) => None,
                Ok(Err(error)) => return Err(reported(&error)),
                Ok(Ok(None)) => None,
                Ok(Ok(Some(response))) if response.is_error => return Ok(JsonRpcReply::One(response.json)),
                Ok(Ok(Some(response))) => Some(response),
            };
            let first = stream::iter(first.map(|response| Ok(frame(response))));
            Ok(JsonRpcReply::Stream(first.chain(rest(forwarded)).boxed()))
        })
    }
}

fn frame(ForwardedResponse { json, event, is_error, .. }: ForwardedResponse) -> JsonRpcFrame {
    JsonRpcFrame { json, event, is_error }
}

/// The responses that have not been read yet. An error is the last item.
fn rest(forwarded: Forwarded) -> impl Stream<Item = Result<JsonRpcFrame, Error>> + Send {
    stream::unfold(Some(forwarded), |forwarded| async {
        let mut forwarded = forwarded?;
        match forwarded.next().await {
            Ok(None) => None,
            Ok(Some(response)) => Some((Ok(frame(response)), Some(forwarded))),
            Err(error) => Some((Err(reported(&error)), None)),
        }
    })
}

/// An error of the proxy's own connection, as its caller gets it.
fn reported(error: &ClientError) -> Error {
    let kind = match (error, error.kind()) {
        (_, Some(ErrorKind::Unauthenticated | ErrorKind::PermissionDenied)) => ErrorKind::PermissionDenied,
        (ClientError::Remote(_), Some(kind)) => kind,
        (ClientError::Invalid(_), _) => ErrorKind::InvalidRequest,
        (ClientError::Protocol(_) | ClientError::TooLarge { .. }, _) => ErrorKind::InvalidAgentResponse,
        (_, _) => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("the agent behind this proxy does not answer as it should: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_port_a_path_or_standard_input() {
        for good in ["127.0.0.1:0", "[::1]:80", "localhost:3112", "unix:/run/a.sock", "unix:a.sock", "stdio"]
        {
            assert!(listen_address(good).is_ok(), "{good}");
        }
        for bad in ["", "unix:", "3112", ":3112", "localhost", "localhost:x", "http://localhost"] {
            assert!(listen_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_card_of_a_proxy_asks_for_nothing_and_is_not_signed() {
        let mut card = AgentCard::new("A", "B");
        card.security_requirements.push(Default::default());
        card.security_schemes
            .insert("x".to_owned(), attache::protocol::SecurityScheme::MutualTls(Default::default()));
        card.signatures.push(Default::default());
        let proxied = proxied(&card);
        assert_eq!(proxied, AgentCard::new("A", "B"));
    }
}
