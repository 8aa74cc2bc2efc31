//! The options of a gateway.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use attache_client::{ClientError, ClientOptions, TrustedOrigins};
use attache_core::Store;

use crate::AgentCredentials;

/// Which agent a gateway serves, and how.
#[derive(Clone)]
#[non_exhaustive]
pub struct GatewayOptions {
    /// The address of the remote agent, or the URL of its card, which ends in `.json`.
    pub url: String,
    /// The store of the server that the gateway runs in. It must be the same one: the gateway keeps the ids of the remote tasks there,
    /// and reads from it whether a task was canceled.
    pub store: Arc<dyn Store>,
    /// The interval between two reads of the card. 5 minutes unless set.
    pub refresh: Duration,
    /// Whether [`Gateway::connect`](super::Gateway::connect) waits until the remote agent can be reached. No unless set: then it
    /// fails.
    pub wait: bool,
    /// How long one message may take. 1 hour unless set. The server has a limit of its own, so a longer time needs a longer
    /// [`turn_timeout`](attache_core::Options::turn_timeout) as well.
    pub timeout: Duration,
    /// How many bytes the remote agent may answer to one message, with the files that the gateway downloads. 64 MiB unless set.
    pub max_bytes: usize,
    /// Whether callers see the ids of the remote task and its context, as `attache.remoteTaskId` and `attache.remoteContextId` in the
    /// metadata of artifacts and of parts. No unless set.
    pub show_remote_ids: bool,
    /// How many contexts, tasks under way and ended tasks the gateway remembers the remote ids of, each. 10,000 unless set. Beyond
    /// that it forgets the oldest: the next message of a forgotten context begins a new one at the remote agent.
    pub max_links: usize,
    /// The address of this server. A remote agent with an interface there is refused. None unless set.
    pub own_url: Option<String>,
    /// The credentials for the remote agent, by address. None unless set.
    pub credentials: AgentCredentials,
    /// The options of the client. Unless set, the card may not name another server: the operator trusts the address of the agent, but
    /// not the content of its card. Credentials that are set here replace [`credentials`](Self::credentials).
    pub client: ClientOptions,
}

impl GatewayOptions {
    /// A gateway for the agent at this address, in a server with this store.
    pub fn new(url: impl Into<String>, store: Arc<dyn Store>) -> Self {
        Self {
            url: url.into(),
            store,
            refresh: Duration::from_secs(5 * 60),
            wait: false,
            timeout: Duration::from_secs(60 * 60),
            max_bytes: 64 * 1024 * 1024,
            show_remote_ids: false,
            max_links: 10_000,
            own_url: None,
            credentials: AgentCredentials::default(),
            client: ClientOptions::default().trusted_origins(TrustedOrigins::new().only()),
        }
    }

    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Checks the values that have no meaning, and puts the credentials into the options of the client.
    pub(super) fn checked(mut self) -> Result<Self, GatewayError> {
        let zero = [
            ("refresh", self.refresh.is_zero()),
            ("timeout", self.timeout.is_zero()),
            ("max_bytes", self.max_bytes == 0),
            ("max_links", self.max_links == 0),
        ];
        if let Some((option, _)) = zero.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(GatewayError::Zero(option));
        }
        let book = self.credentials.book().clone();
        self.client.credentials.get_or_insert_with(|| Arc::new(book));
        Ok(self)
    }
}

impl fmt::Debug for GatewayOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayOptions")
            .field("url", &crate::address::redact(&self.url))
            .field("refresh", &self.refresh)
            .field("wait", &self.wait)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Why a gateway could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// An option has no meaning as zero.
    #[error("the option `{0}` of the gateway is 0, expected more")]
    Zero(&'static str),
    /// The card of the remote agent cannot be read.
    #[error("cannot connect to the remote agent at `{url}`: {text}")]
    Connect {
        /// The address, without secrets.
        url: String,
        /// What to tell the operator.
        text: String,
        /// The error of the client.
        #[source]
        error: Box<ClientError>,
    },
    /// The remote agent is this server.
    #[error("the remote agent at `{url}` is this server itself: give the address of another agent")]
    OwnAddress {
        /// The address, without secrets.
        url: String,
    },
}
