//! The settings of a remote agent that is served as this server's own.

use std::sync::Arc;
use std::time::Duration;

use attache::client::{Binding, CommandErrors, Commands, Interface};
use attache::core::Store;
use attache::server::RedisUrl;
use attache_agents::AgentCredentials;
use attache_agents::gateway::GatewayOptions;

use super::settings::Remote;
use crate::command::Failure;

impl Remote {
    /// The address of the agent.
    pub(crate) fn url(&self) -> Result<&str, Failure> {
        self.url.as_ref().map(|url| url.0.0.as_str()).ok_or_else(|| {
            Failure::usage("no remote agent is named")
                .hint("name it with `--remote URL`, or with `remote.url` in the configuration file")
        })
    }

    /// The Redis server with its credentials.
    pub(crate) fn redis(&self) -> Result<Option<RedisUrl>, Failure> {
        let parsed = self.redis.as_ref().map(|url| url.0.parse().map_err(Failure::usage));
        parsed.transpose()
    }

    /// How long a message may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.as_ref().map_or(Duration::from_secs(60 * 60), |time| time.0.0)
    }

    /// The options of the agent, in a server with this store.
    pub(crate) fn options(
        &self,
        store: Arc<dyn Store>,
        credentials: AgentCredentials,
        own_url: Option<String>,
    ) -> Result<GatewayOptions, Failure> {
        let redis = self.redis()?;
        Ok(GatewayOptions::new(self.url()?, store).with(|options| {
            options.credentials = credentials;
            // The operator gives the address, so it may be a command.
            options.client.commands = Commands::Allowed(CommandErrors::Log);
            options.client.redis.extend(redis);
            options.client.interfaces =
                self.prefer.iter().map(|it| Interface::from(Binding::from(*it))).collect();
            options.own_url = own_url;
            options.wait = self.wait;
            options.show_remote_ids = self.show_ids;
            if let Some(time) = &self.refresh {
                options.refresh = time.0.0;
            }
            options.timeout = self.timeout();
            if let Some(size) = &self.max_bytes {
                options.max_bytes = usize::try_from(size.0.0).unwrap_or(usize::MAX);
            }
            if let Some(count) = &self.max_links {
                options.max_links = usize::try_from(count.0.0.get()).unwrap_or(usize::MAX);
            }
        }))
    }
}
