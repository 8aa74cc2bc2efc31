//! Delegation: tasks given to other agents by the functions `a2a::*` and by an HTTP API.
//!
//! [`Delegation`] finds agents, sends them tasks and keeps a record of each, with the address of the agent that has it.
//!
//! - An agent is spoken to in the words of its card: 1.0, 0.3, or 0.1 where the card or the address says so. Answers are in the words
//!   of 0.1 whoever gave them.
//! - A message is sent once. If its agent takes longer than [`DelegationOptions::patience`] to answer, the caller gets the task as
//!   it is, and the answer is recorded when it comes.
//! - A task that has not ended can be gone on with: what is said to it goes to the task that the agent has.
//! - Every address goes through the guard of outgoing requests, whoever it comes from: also those in cards and in records.
//! - An agent is shown the [credential](DelegationOptions::credentials) that is for its address, and no other.
//! - There are at most [`DelegationOptions::max_tasks`] records. The oldest that has ended makes room; one that has not is never
//!   forgotten. Records and cards are values of the store, in the scopes `a2a_tasks` and `a2a`.
//!
//! [`Delegation::offer`] makes functions of it, and [`Api`] answers HTTP requests.

mod agents;
mod api;
mod cards;
mod errand;
mod error;
mod fetch;
mod functions;
mod input;
mod record;
mod sending;
mod table;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use attache_core::{Clock, Store, SystemClock};
use attache_iii::Gateway;
use attache_outbound::{Policy, SetupError};
use attache_protocol::{Json, Task, Timestamp};
use futures::future::join_all;
use serde_json::Value;

use self::agents::{Agent, Agents};
use self::cards::Cards;
use self::fetch::Fetch;
use self::input::Input;
use self::record::Record;
use self::table::Table;
use crate::AgentCredentials;

pub use self::api::{Access, Api, serve_api_through};
pub use self::error::DelegationError;

/// How many tasks are looked at at once to see whether they have ended, when there is no room for another one.
const LOOKED_AT: usize = 8;

/// How much longer than it may take an answer is waited for before its task counts as lost.
const GRACE: Duration = Duration::from_secs(60);

/// How tasks are delegated.
#[derive(Debug, Clone)]
pub struct DelegationOptions {
    /// Which addresses may be called. By default any public one.
    pub policy: Policy,
    /// What agents are shown. By default nothing.
    pub credentials: AgentCredentials,
    /// How many records are kept.
    pub max_tasks: usize,
    /// How long a caller waits for the answer to a message before it gets the task as it is. Engines give a call 30 seconds.
    pub patience: Duration,
    /// How long an agent may take to answer a message.
    pub send_limit: Duration,
}

impl Default for DelegationOptions {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            credentials: AgentCredentials::default(),
            max_tasks: 1000,
            patience: Duration::from_secs(20),
            send_limit: Duration::from_secs(10 * 60),
        }
    }
}

/// Gives tasks to other agents. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Delegation(Arc<Inner>);

struct Inner {
    options: DelegationOptions,
    clock: SystemClock,
    fetch: Fetch,
    agents: Agents,
    cards: Cards,
    table: Table,
    home: OnceLock<Home>,
}

/// The agent that delegates.
struct Home {
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
        Ok(Self(Arc::new(Inner {
            clock: SystemClock,
            fetch: Fetch::new(options.policy.clone(), options.credentials.clone())?,
            agents: Agents::new(
                options.policy.clone(),
                options.send_limit,
                options.credentials.book().clone(),
            ),
            cards: Cards::new(store.clone()),
            table: Table::new(store, options.max_tasks),
            home: OnceLock::new(),
            options,
        })))
    }

    /// Says which agent this is and where it is, for its own card. Once; what is said later counts for nothing.
    pub fn at_home(&self, gateway: Gateway, url: impl Into<String>) {
        let url = url.into().trim_end_matches('/').to_owned();
        let _ = self.0.home.set(Home { gateway, url });
    }

    async fn get(&self, input: &Input) -> Result<Json, DelegationError> {
        let inner = &self.0;
        let (id, address) = (input.need("taskId")?, input.text("agentUrl")?);
        match inner.recorded(&id, address.as_deref()).await? {
            Some(record) if record.ended() => record.shown(),
            Some(record) => match inner.look_at(record.clone()).await {
                Ok(record) => record.shown(),
                // What is known is better than nothing, unless the agent itself was to be asked.
                Err(error) if address.is_none() => {
                    tracing::debug!(task = id, %error, "the agent of a delegated task cannot be asked about it");
                    record.shown()
                }
                Err(error) => Err(error),
            },
            None => {
                let address = address.ok_or_else(|| DelegationError::TaskNotFound(id.clone()))?;
                let task = inner.agent(&address).await?.get(&inner.fetch, &id.clone().into()).await?;
                inner.foreign(&id, address, task).shown()
            }
        }
    }

    async fn cancel(&self, input: &Input) -> Result<Json, DelegationError> {
        let inner = &self.0;
        let (id, address) = (input.need("taskId")?, input.text("agentUrl")?);
        match inner.recorded(&id, address.as_deref()).await? {
            Some(record) if record.ended() => Err(DelegationError::Ended(record.state())),
            Some(mut record) => {
                let remote_id = record.remote_id.clone().ok_or(DelegationError::NotTaken(id))?;
                let agent = inner.agent(&record.agent_url).await?;
                let task = agent.cancel(&inner.fetch, &remote_id).await?;
                record.learn(attache_client::Reply::Task(task), inner.clock.now());
                inner.table.save(record).await?.shown()
            }
            None => {
                let address = address.ok_or_else(|| DelegationError::TaskNotFound(id.clone()))?;
                let task = inner.agent(&address).await?.cancel(&inner.fetch, &id.clone().into()).await?;
                inner.foreign(&id, address, task).shown()
            }
        }
    }

    async fn discover(&self, input: &Input) -> Result<Json, DelegationError> {
        let inner = &self.0;
        let card = inner.cards.discover(&inner.fetch, &input.need("url")?, inner.clock.now()).await?;
        json(&serde_json::json!({ "discovered": true, "card": card }))
    }

    async fn card(&self, input: &Input) -> Result<Json, DelegationError> {
        let base = input.need("baseUrl")?;
        let mut card = self.0.home.get().map(|home| home.gateway.card()).unwrap_or_default();
        if let Some(name) = input.text("name")? {
            card.name = name;
        }
        if let Some(description) = input.text("description")? {
            card.description = description;
        }
        if let Some(skills) = input.json("skills") {
            card.skills = skills.read().map_err(|error| {
                DelegationError::Invalid(format!(
                    "`skills` must be a list of skills with `id` and `name`: {error}"
                ))
            })?;
        }
        let card = cards::written(&card, &format!("{}{}", base.trim_end_matches('/'), cards::OLDEST_RPC));
        self.0.cards.keep_own(&card).await?;
        json(&card)
    }

    async fn list_cards(&self) -> Result<Json, DelegationError> {
        let own = self.0.home.get().map(|Home { gateway, url }| {
            cards::written(&gateway.card(), &format!("{url}{}", cards::OLDEST_RPC))
        });
        let cards: Vec<Value> = own.into_iter().chain(self.0.cards.list().await?).collect();
        json(&cards)
    }
}

impl Inner {
    /// The agent at an address.
    async fn agent(&self, address: &str) -> Result<Agent, DelegationError> {
        let url = self.fetch.check(address)?;
        if let Some(agent) = self.agents.recall(address) {
            return Ok(agent);
        }
        let home = match self.cards.home_of(&url).await? {
            // Whoever names the path of the oldest protocol means it.
            Some(home) if !url.path().ends_with(cards::OLDEST_RPC) => self.fetch.check(&home)?,
            Some(_) | None => url.clone(),
        };
        let found = match cards::find(&self.fetch, &home).await {
            Ok(found) => Some(found),
            // There are agents of the oldest protocol that have no card, or an empty one. They answer where they are said to.
            Err(DelegationError::NoCard(_)) if url.path() != "/" => None,
            // Some say so of what is not there, and a card may be for fewer than what it describes. Whoever is let in next time finds it.
            Err(DelegationError::Denied(_)) if url.path() != "/" => return Ok(Agent::Oldest(url)),
            Err(error) => return Err(error),
        };
        self.agents.meet(&self.fetch, address, url, found).await
    }

    /// The record of a task, unless the caller means one of another agent.
    async fn recorded(&self, id: &str, address: Option<&str>) -> Result<Option<Record>, DelegationError> {
        let record = self.table.get(id).await?;
        Ok(record.filter(|record| address.is_none_or(|address| address == record.agent_url)))
    }

    /// A task that is shown, but not recorded: nobody here has delegated it.
    fn foreign(&self, id: &str, agent_url: String, mut task: Task) -> Record {
        let remote_id = Some(std::mem::replace(&mut task.id, id.into()));
        let now = self.clock.now();
        let created_at = task.status.timestamp.unwrap_or(now);
        Record { task, agent_url, remote_id, created_at }
    }

    /// Asks the agent what has become of a task, and records it.
    async fn look_at(&self, mut record: Record) -> Result<Record, DelegationError> {
        let now = self.clock.now();
        let lost = self.is_lost(&record, now);
        let Some(remote_id) = record.remote_id.clone() else {
            if lost {
                record.fail("the agent's answer never came", now);
                return self.table.save(record).await;
            }
            return Ok(record);
        };
        let asked = async { self.agent(&record.agent_url).await?.get(&self.fetch, &remote_id).await };
        match asked.await {
            Ok(task) => record.learn(attache_client::Reply::Task(task), now),
            Err(error) if lost && error.is_unknown_task() => {
                record.fail("the agent does not know the task any more", now);
            }
            Err(error) => return Err(error),
        }
        self.table.save(record).await
    }

    /// Whether an answer that has not come will never come: the process that waited for it is gone.
    fn is_lost(&self, record: &Record, now: Timestamp) -> bool {
        record.created_at.after(self.options.send_limit + GRACE) < now
    }

    /// Adds a record. Where all others are of tasks under way, the oldest of them are looked at: they may have ended unseen.
    async fn make_room_for(&self, record: &Record) -> Result<(), DelegationError> {
        match self.table.add(record).await {
            Err(DelegationError::Full(_)) => {
                let oldest = self.table.oldest(LOOKED_AT).await?;
                // Who cannot be asked makes no room.
                let _ = join_all(oldest.into_iter().map(|record| self.look_at(record))).await;
                self.table.add(record).await
            }
            added => added,
        }
    }
}

fn json(value: &impl serde::Serialize) -> Result<Json, DelegationError> {
    Json::new(value).map_err(|error| DelegationError::Unreadable(error.to_string()))
}
