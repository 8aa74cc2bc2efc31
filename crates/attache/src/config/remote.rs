//! The settings of a remote agent that is served as this server's own.

use std::sync::Arc;

use attache::core::Store;
use attache_agents::AgentCredentials;
use attache_agents::gateway::GatewayOptions;

use super::settings::Remote;
use crate::command::Failure;

impl Remote {
    /// The address of the agent.
    pub(crate) fn url(&self) -> Result<&str, Failure> {
        self.url.as_ref().map(|url| url.0.0.as_str()).ok_or_else(|| {
            Failure::usage("`agent` is `remote`, and no remote agent is named")
                .hint("name it with `--remote URL`, or with `remote.url` in the configuration file")
        })
    }

    /// The options of the agent, in a server with this store.
    pub(crate) fn options(
        &self,
        store: Arc<dyn Store>,
        credentials: AgentCredentials,
        own_url: Option<String>,
    ) -> Result<GatewayOptions, Failure> {
        Ok(GatewayOptions::new(self.url()?, store).with(|options| {
            options.credentials = credentials;
            options.own_url = own_url;
            options.wait = self.wait;
            options.show_remote_ids = self.show_ids;
            if let Some(time) = &self.refresh {
                options.refresh = time.0.0;
            }
            if let Some(time) = &self.timeout {
                options.timeout = time.0.0;
            }
            if let Some(size) = &self.max_bytes {
                options.max_bytes = usize::try_from(size.0.0).unwrap_or(usize::MAX);
            }
            if let Some(count) = &self.max_links {
                options.max_links = usize::try_from(count.0.0.get()).unwrap_or(usize::MAX);
            }
        }))
    }
}
