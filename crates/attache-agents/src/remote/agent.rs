//! One remote agent: polls its card, and keeps the functions in step with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use attache_client::{Client, ClientError, Refreshed};
use attache_protocol::AgentCard;
use tokio::time::Instant;
use url::Url;

use super::names::{sanitize, unique};
use super::skills::functions;
use super::{ImportedFunction, RemoteOptions, Shared};
use crate::address::redact;
use crate::{FunctionGuard, FunctionHandler};

/// The delay before the first retry when an agent cannot be reached. It doubles with each retry, up to the poll interval.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// A remote agent and its registered functions.
pub(super) struct RemoteAgent {
    shared: Arc<Shared>,
    address: String,
    /// The address without secrets.
    url: String,
    /// `None` while no function of the agent is registered.
    client: Option<Client>,
    /// The name in the card, and the name in the ids of the functions.
    name: Option<(String, String)>,
    functions: BTreeMap<Arc<str>, RegisteredFunction>,
    outage: Option<Outage>,
}

struct RegisteredFunction {
    function: Arc<ImportedFunction>,
    guard: FunctionGuard,
}

/// The agent cannot be reached at the moment.
struct Outage {
    since: Instant,
    attempts: u32,
}

impl RemoteAgent {
    pub(super) fn new(shared: Arc<Shared>, address: String) -> Self {
        let url = redact(&address).trim_end_matches('/').to_owned();
        Self { shared, address, url, client: None, name: None, functions: BTreeMap::new(), outage: None }
    }

    /// Keeps the functions in step with the card. Never returns.
    pub(super) async fn run(mut self) {
        loop {
            let wait = match self.refresh_card().await {
                Ok(changed) => self.on_reached(changed),
                Err(error) => self.on_unreachable(&error, Instant::now()),
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Reads the card. Returns the client if the card has changed.
    async fn refresh_card(&mut self) -> Result<Option<Client>, ClientError> {
        let refreshed = match &self.client {
            Some(client) => client.refresh_card().await?,
            None => {
                let client = Client::connect_with(&self.address, self.shared.options.client.clone()).await?;
                self.client = Some(client);
                Refreshed::Changed
            }
        };
        Ok(self.client.clone().filter(|_| refreshed == Refreshed::Changed))
    }

    /// Updates the functions if the card has changed. Returns the time until the next poll.
    fn on_reached(&mut self, changed: Option<Client>) -> Duration {
        if self.outage.take().is_some() {
            tracing::info!(url = self.url, "remote agent is reachable again");
        }
        if let Some(client) = changed {
            self.update_functions(&client);
        }
        self.shared.options.poll
    }

    /// Unregisters the functions if the outage is too long. Returns the time until the next attempt.
    fn on_unreachable(&mut self, error: &ClientError, now: Instant) -> Duration {
        let RemoteOptions { poll, gone_after, ref credentials, .. } = self.shared.options;
        let denied = Url::parse(&self.address).ok().and_then(|url| credentials.explain(&url, error));
        let error = denied.unwrap_or_else(|| error.to_string());
        let outage = self.outage.get_or_insert_with(|| {
            tracing::warn!(url = self.url, error, "cannot reach remote agent");
            Outage { since: now, attempts: 0 }
        });
        let wait = FIRST_RETRY.min(poll).saturating_mul(2_u32.saturating_pow(outage.attempts));
        outage.attempts += 1;
        // The agent keeps its name, and has it again after the outage.
        if now.duration_since(outage.since) >= gone_after && self.client.take().is_some() {
            tracing::warn!(url = self.url, error, "removing the functions of an unreachable remote agent");
            self.replace_functions(Vec::new());
        }
        wait.min(poll)
    }

    /// Registers exactly the functions that the card describes.
    fn update_functions(&mut self, client: &Client) {
        let card = &*client.card();
        if self.is_own_agent(card) {
            tracing::warn!(url = self.url, "not importing the skills of this agent itself");
            return self.replace_functions(Vec::new());
        }
        let agent = self.claim_name(&card.name);
        let credentials = &self.shared.options.credentials;
        let imported = functions(card, &agent, &self.url).into_iter().map(|(info, skill)| ImportedFunction {
            client: client.clone(),
            credentials: credentials.clone(),
            skill,
            info,
        });
        let imported: Vec<_> = imported.collect();
        tracing::info!(
            url = self.url,
            agent,
            functions = imported.len(),
            "importing the skills of a remote agent"
        );
        self.replace_functions(imported);
    }

    fn is_own_agent(&self, card: &AgentCard) -> bool {
        let Some(own) = self.shared.options.own_url.as_deref() else { return false };
        let own = own.trim_end_matches('/');
        card.supported_interfaces.iter().any(|interface| {
            interface.url.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// The agent's name in the ids of its functions: the name in the card, with a number if another agent has it.
    fn claim_name(&mut self, name: &str) -> String {
        if let Some((card_name, claimed)) = &self.name
            && card_name == name
        {
            return claimed.clone();
        }
        let wanted = sanitize(name, "agent");
        let mut names = self.shared.names.lock();
        names.retain(|_, address| *address != self.address);
        let claimed = unique(wanted.clone(), |name| names.contains_key(name));
        if let Some(other) = names.get(&wanted) {
            let other = redact(other);
            tracing::warn!(url = self.url, other, name = claimed, "two remote agents have the same name");
        }
        names.insert(claimed.clone(), self.address.clone());
        self.name = Some((name.to_owned(), claimed.clone()));
        claimed
    }

    /// Registers these functions, and unregisters all others. Functions that have not changed stay registered.
    fn replace_functions(&mut self, wanted: Vec<ImportedFunction>) {
        let mut before = std::mem::take(&mut self.functions);
        for function in wanted {
            let id = function.info.id.clone();
            let registered = match before.remove(&id) {
                Some(same) if same.function.is_same(&function) => same,
                Some(changed) => {
                    let registered = self.shared.register(function);
                    changed.guard.disarm();
                    registered
                }
                None => self.shared.register(function),
            };
            self.functions.insert(id, registered);
        }
        let mut functions = self.shared.functions.lock();
        before.keys().for_each(|removed| {
            functions.remove(removed);
        });
        // Dropping `before` unregisters its functions.
    }
}

impl Shared {
    fn register(&self, function: ImportedFunction) -> RegisteredFunction {
        let (function, timeout) = (Arc::new(function), self.options.call_timeout);
        let called = function.clone();
        let handler: FunctionHandler = Arc::new(move |payload, trace_parent| {
            let function = called.clone();
            Box::pin(async move { function.call(&payload, timeout, 1, trace_parent).await })
        });
        self.functions.lock().insert(function.info.id.clone(), function.clone());
        let guard = self.host.register_function(function.info.clone(), handler);
        RegisteredFunction { function, guard }
    }
}
