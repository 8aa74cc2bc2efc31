//! Delegation: sends tasks to other agents, by the functions `a2a::*` and by an HTTP API.
//!
//! [`Delegation`] finds agents, sends them tasks, and keeps a record of each task with the address of its agent.
//!
//! - The card of an agent determines the protocol version: 1.0, 0.3 or 0.1. Callers always get tasks of protocol 0.1.
//! - A message is sent once. The caller waits until the task has ended or needs input, by default for at most
//!   [`DelegationOptions::max_wait`]. Then it gets the task as it is, and a later response is recorded.
//! - A task that has not ended can be continued: the message goes to the task at the agent.
//! - Each address is checked against the [policy](DelegationOptions::policy), also an address from a card or from a record.
//! - The signatures of cards are verified if there are [trusted keys](DelegationOptions::card_trust).
//! - A request has only the [credential](DelegationOptions::credentials) for its own address.
//! - There are at most [`DelegationOptions::max_tasks`] records. A new record replaces the oldest record of a task that has ended. The
//!   record of a task that has not ended is never removed. Records and cards are values of the store, in the scopes `a2a_tasks` and
//!   `a2a`.
//!
//! [`Delegation::register_functions`] registers the functions with an engine, and [`Api`] is the HTTP API.

mod agents;
mod api;
mod cards;
mod error;
mod fetch;
mod functions;
mod input;
#[doc(hidden)]
pub mod parsing;
mod record;
mod request;
mod sending;
mod table;
mod waiting;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use attache_client::{Reply, Verifier};
use attache_core::{Clock, Store, SystemClock};
use attache_iii::{CardOverrides, Gateway};
use attache_outbound::{Policy, SetupError};
use attache_protocol::{AgentCard, AgentSkill, Json, Task, Timestamp};
use futures::future::join_all;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use self::agents::{AgentConnection, ConnectionCache};
use self::cards::CardStore;
use self::fetch::Fetcher;
use self::input::Input;
use self::record::Record;
use self::table::Table;
use crate::AgentCredentials;

pub use self::api::{Access, Api, serve_api_through};
pub use self::error::DelegationError;

/// How many tasks are refreshed when the table is full, to see whether they have ended.
const REFRESHED_WHEN_FULL: usize = 8;

/// After [`DelegationOptions::send_limit`], how much later a task without a response counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(60);

/// Options of [`Delegation`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DelegationOptions {
    /// The addresses that requests may go to. By default all public addresses.
    pub policy: Policy,
    /// The credentials for the agents. By default none.
    pub credentials: AgentCredentials,
    /// The keys that sign the cards of agents. A card with signatures must have a valid one of these keys. By default signatures are not
    /// verified.
    pub card_trust: Option<Verifier>,
    /// How many records are kept.
    pub max_tasks: usize,
    /// How long a caller waits until a task has ended or needs input, unless its input has `wait`. Engines give a call 30 seconds.
    pub max_wait: Duration,
    /// How long an agent may take to respond to a message.
    pub send_limit: Duration,
}

impl Default for DelegationOptions {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            credentials: AgentCredentials::default(),
            card_trust: None,
            max_tasks: 1000,
            max_wait: Duration::from_secs(20),
            send_limit: Duration::from_secs(10 * 60),
        }
    }
}

impl DelegationOptions {
    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// Sends tasks to other agents. Cheap to clone. All clones share their state.
#[derive(Clone)]
pub struct Delegation(Arc<Inner>);

struct Inner {
    options: DelegationOptions,
    clock: SystemClock,
    fetcher: Fetcher,
    connections: ConnectionCache,
    cards: CardStore,
    table: Table,
    own_agent: OnceLock<OwnAgent>,
    served_card: OnceLock<ServedCard>,
}

/// Gets the card that the server of this agent serves.
type ServedCard = Box<dyn Fn() -> Option<Value> + Send + Sync>;

/// The agent of this process.
struct OwnAgent {
    gateway: Gateway,
    url: String,
}

impl std::fmt::Debug for Delegation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delegation").field("options", &self.0.options).finish_non_exhaustive()
    }
}

impl Delegation {
    /// Delegation with records and cards in `store`.
    pub fn new(store: Arc<dyn Store>, options: DelegationOptions) -> Result<Self, SetupError> {
        let credentials = options.credentials.clone();
        let book = credentials.book().clone();
        Ok(Self(Arc::new(Inner {
            clock: SystemClock,
            fetcher: Fetcher::new(options.policy.clone(), credentials, options.card_trust.clone())?,
            connections: ConnectionCache::new(options.policy.clone(), options.send_limit, book),
            cards: CardStore::new(store.clone()),
            table: Table::new(store, options.max_tasks),
            own_agent: OnceLock::new(),
            served_card: OnceLock::new(),
            options,
        })))
    }

    /// Sets the agent of this process and its address, for its own card. Only the first call has an effect.
    pub fn set_own_agent(&self, gateway: Gateway, url: impl Into<String>) {
        let url = url.into().trim_end_matches('/').to_owned();
        let _ = self.0.own_agent.set(OwnAgent { gateway, url });
    }

    /// Sets the members of the own card again that `a2a::agent_card` set before the process was restarted.
    pub async fn restore_own_card(&self) {
        let Some(OwnAgent { gateway, .. }) = self.0.own_agent.get() else { return };
        match self.0.cards.own_members().await {
            Ok(members) => gateway.override_card(members.unwrap_or_default()),
            Err(error) => error.log_store_failure(),
        }
    }

    /// Sets how to get the card that is served. Only the first call has an effect.
    fn set_served_card(&self, served: ServedCard) {
        let _ = self.0.served_card.set(served);
    }

    async fn get(&self, input: &Input) -> Result<Json, DelegationError> {
        let inner = &self.0;
        let (id, address) = (input.required("taskId")?, input.text("agentUrl")?);
        let deadline = Instant::now() + input.wait()?.unwrap_or(inner.options.max_wait);
        match inner.find_record(&id, address.as_deref()).await? {
            Some(record) if record.ended() => record.to_output(),
            Some(record) => match inner.refresh(record.clone()).await {
                Ok(record) => inner.settled(record, deadline).await.to_output(),
                // The last known state is better than an error, unless the caller names the agent.
                Err(error) if address.is_none() => {
                    tracing::debug!(task = id, %error, "cannot refresh a delegated task");
                    record.to_output()
                }
                Err(error) => Err(error),
            },
            None => {
                let address = address.ok_or_else(|| DelegationError::TaskNotFound(id.clone()))?;
                let task = inner.connect(&address).await?.get(&inner.fetcher, &id.clone().into()).await?;
                inner.settled(inner.unrecorded(&id, address, task), deadline).await.to_output()
            }
        }
    }

    async fn cancel(&self, input: &Input) -> Result<Json, DelegationError> {
        let inner = &self.0;
        let (id, address) = (input.required("taskId")?, input.text("agentUrl")?);
        match inner.find_record(&id, address.as_deref()).await? {
            Some(record) if record.ended() => Err(DelegationError::NotCancelable(record.state())),
            Some(mut record) => {
                let remote_id = record.remote_id.clone().ok_or(DelegationError::NotAccepted(id))?;
                let agent = inner.connect(&record.agent_url).await?;
                let task = agent.cancel(&inner.fetcher, &remote_id).await?;
                record.apply_reply(Reply::Task(task), inner.clock.now());
                inner.table.save(record).await?.to_output()
            }
            None => {
                let address = address.ok_or_else(|| DelegationError::TaskNotFound(id.clone()))?;
                let task = inner.connect(&address).await?.cancel(&inner.fetcher, &id.clone().into()).await?;
                inner.unrecorded(&id, address, task).to_output()
            }
        }
    }

    async fn discover(&self, input: &Input) -> Result<Json, DelegationError> {
        let inner = &self.0;
        let card = inner.cards.discover(&inner.fetcher, &input.required("url")?, inner.clock.now()).await?;
        encode(&serde_json::json!({ "discovered": true, "card": card }))
    }

    /// Sets members of the card that this agent serves. The result has the given address.
    async fn card(&self, input: &Input) -> Result<Json, DelegationError> {
        let base = input.required("baseUrl")?;
        let skills = input.json("skills").map(|skills| {
            let skills = skills.read::<Vec<AgentSkill>>().map_err(|error| error.to_string());
            let skills = skills.and_then(|skills| match skills.iter().any(|skill| skill.id.is_empty()) {
                true => Err("one of them has no `id`".to_owned()),
                false => Ok(skills),
            });
            skills.map_err(|error| {
                DelegationError::Invalid(format!(
                    "`skills` must be a list of skills with `id` and `name`: {error}"
                ))
            })
        });
        let members = CardOverrides {
            name: input.text("name")?,
            description: input.text("description")?,
            skills: skills.transpose()?,
        };
        let url = format!("{}{}", base.trim_end_matches('/'), cards::V0_1_RPC);
        let served = self.0.own_card();
        let mut card = match self.0.own_agent.get() {
            Some(own) => {
                own.gateway.override_card(members.clone());
                let mut card = own.gateway.card();
                // The server does the same with the card that it serves.
                card.fill_skill_modes();
                cards::v0_1_json(&card, &url)
            }
            None => cards::v0_1_json(&AgentCard::default(), &url),
        };
        // The server knows these members, and the agent does not.
        if let Some(served) = served {
            card["capabilities"]["pushNotifications"] = served["capabilities"]["pushNotifications"].clone();
            card["authentication"] = served["authentication"].clone();
        }
        self.0.cards.put_own(&card, &members).await?;
        encode(&card)
    }

    async fn list_cards(&self) -> Result<Json, DelegationError> {
        let own = self.0.own_card();
        let cards: Vec<Value> = own.into_iter().chain(self.0.cards.list().await?).collect();
        encode(&cards)
    }
}

impl Inner {
    /// The card of this agent as it is served, in protocol 0.1.
    fn own_card(&self) -> Option<Value> {
        let served = self.served_card.get().and_then(|served| served());
        let OwnAgent { gateway, url } = self.own_agent.get()?;
        served.or_else(|| Some(cards::v0_1_json(&gateway.card(), &format!("{url}{}", cards::V0_1_RPC))))
    }

    /// Connects to the agent at an address.
    async fn connect(&self, address: &str) -> Result<AgentConnection, DelegationError> {
        let url = self.fetcher.check(address)?;
        if let Some(connection) = self.connections.get(address) {
            return Ok(connection);
        }
        let base = match self.cards.agent_with_interface(&url).await? {
            // A caller that names the path of protocol 0.1 wants that version.
            Some(base) if !url.path().ends_with(cards::V0_1_RPC) => self.fetcher.check(&base)?,
            Some(_) | None => url.clone(),
        };
        let card = match cards::find(&self.fetcher, &base).await {
            Ok(card) => Some(card),
            // Some agents of protocol 0.1 have no card, or an empty one. The address is then the endpoint.
            Err(DelegationError::NoCard(_)) if url.path() != "/" => None,
            // Some servers respond with 401 or 403 if there is no card, and some cards need more rights than the endpoint. This
            // connection is not cached: with other credentials the next attempt may find the card.
            Err(DelegationError::Denied(_)) if url.path() != "/" => return Ok(AgentConnection::V0_1(url)),
            Err(error) => return Err(error),
        };
        self.connections.connect(&self.fetcher, address, url, card).await
    }

    /// The record of a task. `None` if the caller names another agent than that of the record.
    async fn find_record(&self, id: &str, address: Option<&str>) -> Result<Option<Record>, DelegationError> {
        let record = self.table.get(id).await?;
        Ok(record.filter(|record| address.is_none_or(|address| address == record.agent_url)))
    }

    /// A record for a task that was not delegated here. It is returned to the caller, but not stored.
    fn unrecorded(&self, id: &str, agent_url: String, mut task: Task) -> Record {
        let remote_id = Some(std::mem::replace(&mut task.id, id.into()));
        let created_at = task.status.timestamp.unwrap_or_else(|| self.clock.now());
        Record { task, agent_url, remote_id, created_at }
    }

    /// Gets a task from its agent, and records it.
    async fn refresh(&self, mut record: Record) -> Result<Record, DelegationError> {
        let now = self.clock.now();
        let lost = self.is_lost(&record, now);
        let Some(remote_id) = record.remote_id.clone() else {
            if lost {
                record.fail("no response from the agent", now);
                return self.table.save(record).await;
            }
            return Ok(record);
        };
        let getting = async { self.connect(&record.agent_url).await?.get(&self.fetcher, &remote_id).await };
        match getting.await {
            Ok(task) => record.apply_reply(Reply::Task(task), now),
            Err(error) if lost && error.is_unknown_task() => {
                record.fail("the agent no longer has the task", now);
            }
            Err(error) => return Err(error),
        }
        self.table.save(record).await
    }

    /// Whether the response can no longer arrive: it is overdue, so the process that waited for it has stopped.
    fn is_lost(&self, record: &Record, now: Timestamp) -> bool {
        record.created_at.after(self.options.send_limit + LOST_AFTER) < now
    }

    /// Adds a record. If the table is full of tasks that have not ended, refreshes the oldest of them: they may have ended since.
    async fn add_record(&self, record: &Record) -> Result<(), DelegationError> {
        match self.table.add(record).await {
            Err(DelegationError::TooManyTasks(_)) => {
                let oldest = self.table.oldest(REFRESHED_WHEN_FULL).await?;
                // A task that cannot be refreshed stays in the table.
                let _ = join_all(oldest.into_iter().map(|record| self.refresh(record))).await;
                self.table.add(record).await
            }
            added => added,
        }
    }
}

/// Encodes a value as JSON.
fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Json, DelegationError> {
    Json::new(value).map_err(|error| DelegationError::Unreadable(error.to_string()))
}
