//! Agents by their addresses, each spoken to in the words of its card.

use std::collections::HashMap;
use std::time::Duration;

use attache_client::{AddressBook, Backoff, Client, ClientOptions, Outgoing, Policy, Reply};
use attache_protocol::{Dialect, Json, SendMessageRequest, Task, TaskId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use url::Url;

use super::DelegationError;
use super::cards::{Found, Speaks};
use super::errand::{Aim, Errand};
use super::fetch::Fetch;

/// How long getting or canceling a task may take.
const CALL: Duration = Duration::from_secs(30);

/// For how long it is remembered how an agent is spoken to.
const REMEMBERED: Duration = Duration::from_secs(5 * 60);

/// How many agents are remembered.
const MOST: usize = 256;

/// How an agent is spoken to.
#[derive(Clone)]
pub(super) enum Agent {
    /// With protocol 1.0 or 0.3, as its card says.
    Current(Client),
    /// With protocol 0.1, at this address.
    Oldest(Url),
}

/// The agents that were spoken to of late.
pub(super) struct Agents {
    options: ClientOptions,
    known: Mutex<HashMap<String, (Instant, Agent)>>,
}

impl Agents {
    pub(super) fn new(policy: Policy, send: Duration, credentials: AddressBook) -> Self {
        let backoff = Backoff::default().attempts(2);
        let options = ClientOptions::default().policy(policy).send_timeout(send).call_timeout(CALL).backoff(backoff);
        let options = options.with_credentials(credentials);
        Self { options, known: Mutex::default() }
    }

    pub(super) fn recall(&self, address: &str) -> Option<Agent> {
        let known = self.known.lock();
        let (since, agent) = known.get(address)?;
        (since.elapsed() < REMEMBERED).then(|| agent.clone())
    }

    /// How to speak to the agent at an address, given its card. Agents without a readable one are those of the oldest protocol.
    pub(super) async fn meet(
        &self,
        fetch: &Fetch,
        address: &str,
        url: Url,
        found: Option<Found>,
    ) -> Result<Agent, DelegationError> {
        let agent = match found {
            Some(Found { speaks: Speaks::Current, place, .. }) => {
                let client = Client::connect_with(place.as_str(), self.options.clone()).await;
                Agent::Current(client.map_err(|error| fetch.explain(&place, error))?)
            }
            Some(Found { speaks: Speaks::Oldest(named), .. }) => Agent::Oldest(named),
            None => Agent::Oldest(url),
        };
        let mut known = self.known.lock();
        if known.len() >= MOST {
            known.retain(|_, (since, _)| since.elapsed() < REMEMBERED);
        }
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(address.to_owned(), (Instant::now(), agent.clone()));
        Ok(agent)
    }
}

impl Agent {
    /// Sends a message, once. An agent of the oldest protocol answers when it is done, others as soon as there is a task. What goes on
    /// with a task is answered when that settles: until then it may still say what it said before.
    pub(super) async fn send(
        &self,
        fetch: &Fetch,
        errand: &Errand,
        request: SendMessageRequest,
        limit: Duration,
    ) -> Result<Reply, DelegationError> {
        match self {
            Self::Current(client) => {
                let mut request = request;
                request.configuration = None;
                let outgoing = match errand.aim {
                    Aim::New => {
                        // The agent names its tasks itself.
                        request.message.task_id = None;
                        Outgoing::from(request).return_immediately()
                    }
                    Aim::Known => Outgoing::from(request).task(errand.id.clone()),
                };
                let sent = client.send(outgoing).await;
                sent.map_err(|error| fetch.explain(&client.interface_url(), error))
            }
            Self::Oldest(url) => {
                let id = errand.id.as_str();
                call(fetch, url, "tasks/send", id, &errand.params(), limit).await.map(Reply::Task)
            }
        }
    }

    pub(super) async fn get(&self, fetch: &Fetch, id: &TaskId) -> Result<Task, DelegationError> {
        match self {
            Self::Current(client) => {
                let got = client.get(id.clone()).await;
                got.map_err(|error| fetch.explain(&client.interface_url(), error))
            }
            Self::Oldest(url) => call(fetch, url, "tasks/get", id.as_str(), &json!({"id": id}), CALL).await,
        }
    }

    pub(super) async fn cancel(&self, fetch: &Fetch, id: &TaskId) -> Result<Task, DelegationError> {
        match self {
            Self::Current(client) => {
                let canceled = client.cancel(id.clone()).await;
                canceled.map_err(|error| fetch.explain(&client.interface_url(), error))
            }
            Self::Oldest(url) => {
                call(fetch, url, "tasks/cancel", id.as_str(), &json!({"id": id}), CALL).await
            }
        }
    }
}

/// Calls a method of protocol 0.1, all of which answer with a task.
async fn call(
    fetch: &Fetch,
    url: &Url,
    method: &str,
    id: &str,
    params: &impl Serialize,
    limit: Duration,
) -> Result<Task, DelegationError> {
    #[derive(Deserialize)]
    struct Answer {
        result: Option<Json>,
        error: Option<Refusal>,
    }
    #[derive(Deserialize)]
    struct Refusal {
        #[serde(default)]
        code: i64,
        #[serde(default)]
        message: String,
    }
    let params: Value =
        serde_json::to_value(params).map_err(|error| DelegationError::Invalid(error.to_string()))?;
    let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
    let answered = timeout(limit, fetch.post(url, body)).await;
    let (status, body) = answered.unwrap_or(Err(DelegationError::TimedOut(limit)))?;
    if let Some(denied) = fetch.denied(url, status) {
        return Err(denied);
    }
    let answer: Answer = match serde_json::from_slice(&body) {
        Ok(answer) => answer,
        Err(_) if !status.is_success() => {
            return Err(DelegationError::Unreachable(format!("HTTP status {}", status.as_u16())));
        }
        Err(error) => return Err(DelegationError::Unreadable(error.to_string())),
    };
    match answer {
        Answer { error: Some(Refusal { code, message }), .. } => {
            Err(DelegationError::Agent { code, message })
        }
        Answer { result: Some(result), .. } => Dialect::V0_1
            .read_task(result.as_str().as_bytes())
            .map_err(|error| DelegationError::Unreadable(error.to_string())),
        Answer { result: None, error: None } if !status.is_success() => {
            Err(DelegationError::Unreachable(format!("HTTP status {}", status.as_u16())))
        }
        Answer { result: None, error: None } => {
            Err(DelegationError::Unreadable("the answer has neither a result nor an error".to_owned()))
        }
    }
}
