//! Agents whose address names the transport: `unix:PATH`, `stdio:COMMAND`, `ws://…`, `grpc-jsonrpc://…`, `redis-streams://…`.
//!
//! No card has to be found first. The card is read where the server offers it, and says the version, the tenant and the credentials:
//!
//! 1. over HTTP, at the same socket or the same host and port; not for commands and Redis;
//! 2. over the transport, with the method `GetAgentCard` of servers of this project;
//! 3. over the transport, the extended card.
//!
//! If the agent has no card, the client takes it for one of 1.0 that supports everything, or of 0.3 if it does not know the methods of 1.0.
//! Credentials that the user gave for the address are then sent in the usual headers.

use std::sync::Arc;
use std::time::Duration;

use attache_protocol::{
    AgentCard, AgentInterface, ApiKeySecurityScheme, ErrorKind, GetExtendedAgentCardRequest,
    HttpAuthSecurityScheme, Request, SecurityRequirement, SecurityScheme, Version, binding,
};
use reqwest::Url;

#[cfg(unix)]
use crate::ConnectFailure;
use crate::agent_address;
use crate::card_trust;
use crate::discovery::{DiscoveredAgent, FetchedCard, WELL_KNOWN, fetch_over};
use crate::http::{Http, display_url, with_timeout};
use crate::interface::{ChannelKind, fixed};
use crate::request_headers::RequestHeaders;
use crate::transport::{CardResponse, Channels, Transport};
use crate::{ClientError, ClientOptions, Commands};

/// The header for API keys, if there is no card that names another one.
const API_KEY_HEADER: &str = "X-API-Key";

/// How long a server that may not speak HTTP is waited for.
const HTTP_WAIT: Duration = Duration::from_secs(5);

/// An address that names the transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirectAddress {
    channel: ChannelKind,
    url: Url,
}

impl DirectAddress {
    /// Parses an address. `None` if it is that of a card.
    pub(crate) fn parse(http: &Http, address: &str) -> Result<Option<Self>, ClientError> {
        let Some((channel, url)) = agent_address::direct(address, false)? else { return Ok(None) };
        match channel {
            ChannelKind::Unix => http.check_socket(&url)?,
            ChannelKind::WebSocket | ChannelKind::GrpcEnvelope => {
                http.check(url.as_str())?;
            }
            ChannelKind::Stdio
                if http.options.commands == Commands::Refused || http.options.policy.is_some() =>
            {
                let text = "an address that is a command may not be used here: commands are not allowed";
                return Err(ClientError::Invalid(text.to_owned()));
            }
            // The address of Redis is checked when it is connected to.
            ChannelKind::RedisStreams | ChannelKind::Stdio | ChannelKind::Http => {}
        }
        Ok(Some(Self { channel, url }))
    }

    /// Finds out what the agent says about itself.
    pub(crate) async fn discover(
        &self,
        http: &Arc<Http>,
        channels: &Arc<Channels>,
    ) -> Result<DiscoveredAgent, ClientError> {
        with_timeout(http.options.call_timeout, async {
            if let Some(fetched) = self.card_over_http(http).await? {
                let endpoint = fixed(&http.options, (self.channel, &self.url), &fetched.card)?;
                return Ok(fetched.into_agent(self.url.clone(), endpoint));
            }
            self.card_over_channel(http, channels).await
        })
        .await
    }

    /// The card over HTTP at the same place; nothing if there is no HTTP server, or it has no card.
    async fn card_over_http(&self, http: &Http) -> Result<Option<FetchedCard>, ClientError> {
        let (bases, socket) = match self.channel {
            ChannelKind::RedisStreams | ChannelKind::Stdio | ChannelKind::Http => return Ok(None),
            ChannelKind::Unix => {
                try_socket(&self.url).await?;
                (vec![localhost()?], Some(over_socket(&http.options, &self.url)?))
            }
            ChannelKind::WebSocket | ChannelKind::GrpcEnvelope => (bases(&self.url), None),
        };
        for base in bases {
            let mut url = base.clone();
            url.set_path(&format!("{}{}", base.path().trim_end_matches('/'), WELL_KNOWN[0]));
            let fetching = fetch_over(http, socket.as_ref().unwrap_or(http), &url, None);
            match with_timeout(HTTP_WAIT.min(http.options.call_timeout), fetching).await {
                Ok(Some(fetched)) => return Ok(Some(fetched)),
                Ok(None) => {}
                // Nothing listens there, or what listens there must not be used.
                Err(
                    error @ (ClientError::Connect { .. }
                    | ClientError::Refused { .. }
                    | ClientError::OtherOrigin { .. }),
                ) => return Err(error),
                #[cfg(feature = "signing")]
                Err(error @ ClientError::Untrusted { .. }) => return Err(error),
                // Another server answers in its own way, which need not be HTTP.
                Err(error) => {
                    tracing::debug!(%error, url = display_url(&url), "there is no card over HTTP");
                }
            }
        }
        Ok(None)
    }

    /// The card over the transport, or one that stands for it.
    async fn card_over_channel(
        &self,
        http: &Arc<Http>,
        channels: &Arc<Channels>,
    ) -> Result<DiscoveredAgent, ClientError> {
        let assumed = |version| {
            let card = assumed_card(&http.options, &self.url, version);
            let endpoint = fixed(&http.options, (self.channel, &self.url), &card)?;
            Ok::<_, ClientError>(
                FetchedCard::of(card, None, &self.url).into_agent(self.url.clone(), endpoint),
            )
        };
        let transport = |agent: &DiscoveredAgent| Transport {
            http: http.clone(),
            channels: channels.clone(),
            agent: Arc::new(agent.clone()),
        };
        // The user may want one of the versions only.
        let mut agent = assumed(Version::V1_0).or_else(|_| assumed(Version::V0_3))?;
        let mut found = absent(transport(&agent).card_over_channel().await)?;
        let mut knows_1_0 = true;
        if found.is_none() {
            let extended = extended(&transport(&agent)).await;
            knows_1_0 = !matches!(&extended, Err(error) if error.kind() == Some(ErrorKind::MethodNotFound));
            found = absent(extended)?;
        }
        if found.is_none()
            && !knows_1_0
            && let Ok(older) = assumed(Version::V0_3)
        {
            let extended = extended(&transport(&older)).await;
            if !matches!(&extended, Err(error) if error.kind() == Some(ErrorKind::MethodNotFound)) {
                agent = older;
            }
            found = absent(extended)?;
        }
        let Some(CardResponse { card, json }) = found else {
            return match requires_signature(&http.options) {
                true => Err(ClientError::Invalid(format!(
                    "the agent at `{}` has no card, so there is no signature to verify",
                    display_url(&self.url)
                ))),
                false => Ok(agent),
            };
        };
        let (card, signer) = match card_trust::verify(http, &self.url, &json).await? {
            Some((card, signer)) => (card, Some(signer)),
            None => (card, None),
        };
        let endpoint = fixed(&http.options, (self.channel, &self.url), &card)?;
        Ok(FetchedCard::of(card, signer, &self.url).into_agent(self.url.clone(), endpoint))
    }
}

/// Nothing if the agent refused: it has no such method, or wants other credentials.
fn absent<T>(result: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(ClientError::Remote(_) | ClientError::Credentials { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn extended(transport: &Transport) -> Result<CardResponse, ClientError> {
    let request = Request::GetExtendedAgentCard(GetExtendedAgentCardRequest::default());
    let limit = transport.http.options.call_timeout;
    transport.call(&request, &RequestHeaders::default(), limit).await
}

#[cfg(feature = "signing")]
fn requires_signature(options: &ClientOptions) -> bool {
    options.card_trust.is_some()
}

#[cfg(not(feature = "signing"))]
fn requires_signature(_: &ClientOptions) -> bool {
    false
}

fn localhost() -> Result<Url, ClientError> {
    Url::parse("http://localhost/").map_err(|error| ClientError::Setup(error.to_string()))
}

/// Fails if no server listens on a socket.
#[cfg(unix)]
async fn try_socket(url: &Url) -> Result<(), ClientError> {
    let connected = tokio::net::UnixStream::connect(agent_address::socket_path(url)).await;
    connected.map(drop).map_err(|error| ClientError::Connect {
        url: display_url(url),
        why: ConnectFailure::of_socket(&error),
    })
}

#[cfg(not(unix))]
async fn try_socket(_: &Url) -> Result<(), ClientError> {
    Ok(())
}

#[cfg(unix)]
fn over_socket(options: &ClientOptions, url: &Url) -> Result<Http, ClientError> {
    Http::over_socket(options, &agent_address::socket_path(url))
}

#[cfg(not(unix))]
fn over_socket(_: &ClientOptions, _: &Url) -> Result<Http, ClientError> {
    Err(ClientError::Setup("Unix sockets are not supported on this system".to_owned()))
}

/// Where the card of an agent may be: beside the last segment of its path, which is the endpoint, or below the whole path.
fn bases(url: &Url) -> Vec<Url> {
    let mut base = url.clone();
    base.set_query(None);
    let path = url.path().trim_end_matches('/').to_owned();
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
    let with = |path: &str| {
        let mut base = base.clone();
        base.set_path(path);
        base
    };
    if path.is_empty() { vec![with("")] } else { vec![with(&parent), with(&path)] }
}

/// The card of an agent that has none.
fn assumed_card(options: &ClientOptions, url: &Url, version: Version) -> AgentCard {
    let mut card = AgentCard::new(display_url(url), "");
    let mut interface = AgentInterface::new(url.as_str(), binding::JSONRPC);
    interface.protocol_version = version.to_string();
    card.supported_interfaces.push(interface);
    card.capabilities.streaming = Some(true);
    card.capabilities.push_notifications = Some(true);
    if options.credentials.is_none() {
        return card;
    }
    let http = |scheme: &str| {
        SecurityScheme::HttpAuth(HttpAuthSecurityScheme { scheme: scheme.to_owned(), ..Default::default() })
    };
    let key = ApiKeySecurityScheme {
        location: "header".to_owned(),
        name: API_KEY_HEADER.to_owned(),
        ..Default::default()
    };
    for (name, scheme) in
        [("bearer", http("bearer")), ("basic", http("basic")), ("apiKey", SecurityScheme::ApiKey(key))]
    {
        card.security_schemes.insert(name.to_owned(), scheme);
        let schemes = [(name.to_owned(), Default::default())].into();
        card.security_requirements.push(SecurityRequirement { schemes });
    }
    // No credentials are sufficient as well, as far as the client knows.
    card.security_requirements.push(SecurityRequirement::default());
    card
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_of_a_websocket_is_beside_it() {
        let found = |url: &str| bases(&url.parse().unwrap()).iter().map(Url::to_string).collect::<Vec<_>>();
        assert_eq!(found("http://a.example/ws?x=1"), ["http://a.example/", "http://a.example/ws"]);
        assert_eq!(
            found("http://a.example/agents/one/ws"),
            ["http://a.example/agents/one", "http://a.example/agents/one/ws"]
        );
        assert_eq!(found("http://a.example:50051/"), ["http://a.example:50051/"]);
    }

    #[test]
    fn a_command_is_not_an_address_unless_that_is_allowed() {
        let http = |options| Http::new(options).unwrap();
        let refused = DirectAddress::parse(&http(ClientOptions::default()), "stdio:agent");
        assert!(matches!(refused, Err(ClientError::Invalid(_))));
        let commands = Commands::Allowed(Default::default());
        let allowed = ClientOptions { commands, ..ClientOptions::default() };
        assert!(DirectAddress::parse(&http(allowed.clone()), "stdio:agent").unwrap().is_some());
        let policy = Some(attache_outbound::Policy::default());
        for address in
            ["stdio:agent", "unix:/run/a.sock", "ws://127.0.0.1:1/ws", "grpc-jsonrpc://127.0.0.1:1"]
        {
            let guarded = http(ClientOptions { policy: policy.clone(), ..allowed.clone() });
            assert!(DirectAddress::parse(&guarded, address).is_err(), "{address}");
        }
    }
}
