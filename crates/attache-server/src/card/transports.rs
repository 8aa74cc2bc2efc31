//! The transports that cards list after the interfaces of the specification, with the names and URLs that existing peers expect.

use attache_protocol::{AgentCard, AgentInterface, binding};

use super::build::authority;
use crate::{CardTransports, ServerOptions};

/// Which transports a card lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Listed {
    /// Those of the specification.
    Standard,
    /// Those that other machines can use too.
    Remote,
    /// Those that only this machine can use as well.
    Local,
}

/// The transports of a server beside those of the specification.
#[derive(Clone)]
pub(crate) struct FurtherTransports {
    listed: CardTransports,
    /// The interfaces that the server gives a card that has none.
    standard: Vec<AgentInterface>,
    /// The path of WebSocket connections.
    websocket: Option<String>,
    /// Whether there is the JSON-RPC envelope over gRPC.
    envelope: bool,
    /// The interfaces that only this machine can use.
    local: Vec<AgentInterface>,
    /// Those that do not depend on the base URL.
    elsewhere: Vec<AgentInterface>,
}

impl FurtherTransports {
    pub(crate) fn new(
        standard: &[AgentInterface],
        options: &ServerOptions,
        local: &[AgentInterface],
    ) -> Self {
        Self {
            listed: options.card_transports,
            standard: standard.to_vec(),
            websocket: options.paths.websocket.clone(),
            envelope: cfg!(feature = "grpc") && options.paths.envelope,
            local: local.to_vec(),
            elsewhere: Vec::new(),
        }
    }

    /// Adds the streams of a Redis server. Those of a server on this machine are for this machine.
    #[cfg(feature = "redis")]
    pub(crate) fn with_redis(mut self, redis: &crate::RedisStreams, agent: Option<&str>) -> Self {
        match redis.is_for_this_machine() {
            true => self.local.extend(redis.interface(agent)),
            false => self.elsewhere.extend(redis.interface(agent)),
        }
        self
    }

    /// What the card over HTTP lists for a client. `asks` is whether it names the extension for transports.
    pub(crate) fn over_http(&self, asks: bool, is_local: bool) -> Listed {
        match self.listed {
            CardTransports::All => {}
            CardTransports::Stated if asks => {}
            CardTransports::Stated | CardTransports::Hidden => return Listed::Standard,
        }
        if is_local { Listed::Local } else { Listed::Remote }
    }

    /// What the card over another transport lists.
    pub(crate) fn over_frames(&self, is_local: bool) -> Listed {
        match self.listed {
            CardTransports::Hidden => Listed::Standard,
            CardTransports::All | CardTransports::Stated if is_local => Listed::Local,
            CardTransports::All | CardTransports::Stated => Listed::Remote,
        }
    }

    /// Whether transports are added to a card: not where its author has listed interfaces.
    pub(crate) fn extend(&self, card: &AgentCard, listed: Listed) -> bool {
        listed != Listed::Standard && card.supported_interfaces == self.standard
    }

    /// The interfaces of these transports, below a base URL.
    pub(crate) fn interfaces(&self, base: &str, listed: Listed) -> Vec<AgentInterface> {
        if listed == Listed::Standard {
            return Vec::new();
        }
        let is_secure = base.starts_with("https://");
        let (_, rest) = base.split_once("://").unwrap_or(("http", base));
        let path = rest.find('/').map_or("", |at| &rest[at..]);
        let mut interfaces = Vec::new();
        if let Some(websocket) = &self.websocket {
            let scheme = if is_secure { "wss" } else { "ws" };
            interfaces.push(AgentInterface::new(format!("{scheme}://{rest}{websocket}"), binding::WEBSOCKET));
        }
        if self.envelope {
            let scheme = if is_secure { "grpc-jsonrpcs" } else { "grpc-jsonrpc" };
            let url = format!("{scheme}://{}{path}", authority(base));
            interfaces.push(AgentInterface::new(url, binding::GRPC_JSONRPC));
        }
        interfaces.extend(self.elsewhere.iter().cloned());
        if listed == Listed::Local {
            interfaces.extend(self.local.iter().cloned());
        }
        interfaces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(base: &str, listed: Listed) -> Vec<String> {
        let local = [AgentInterface::new("unix:///run/a.sock", binding::UNIX)];
        let transports = FurtherTransports::new(&[], &ServerOptions::default(), &local);
        transports.interfaces(base, listed).into_iter().map(|interface| interface.url).collect()
    }

    #[test]
    fn the_urls_follow_the_base_url() {
        assert_eq!(
            urls("http://127.0.0.1:3111", Listed::Local),
            ["ws://127.0.0.1:3111/ws", "grpc-jsonrpc://127.0.0.1:3111", "unix:///run/a.sock"]
        );
        assert_eq!(
            urls("https://agents.example.com/agents/a", Listed::Remote),
            ["wss://agents.example.com/agents/a/ws", "grpc-jsonrpcs://agents.example.com:443/agents/a"]
        );
        assert!(urls("https://agents.example.com", Listed::Standard).is_empty());
    }

    #[test]
    fn a_client_that_does_not_ask_gets_the_interfaces_of_the_specification() {
        let with = |listed| {
            let options = ServerOptions::default().with(|options| options.card_transports = listed);
            let transports = FurtherTransports::new(&[], &options, &[]);
            [
                transports.over_http(false, true),
                transports.over_http(true, false),
                transports.over_http(true, true),
                transports.over_frames(true),
            ]
        };
        use Listed::{Local, Remote, Standard};
        assert_eq!(with(CardTransports::Stated), [Standard, Remote, Local, Local]);
        assert_eq!(with(CardTransports::All), [Local, Remote, Local, Local]);
        assert_eq!(with(CardTransports::Hidden), [Standard; 4]);
    }
}
