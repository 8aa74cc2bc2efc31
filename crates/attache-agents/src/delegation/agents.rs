//! Connections to agents, each in the protocol version of its card.

use std::collections::HashMap;
use std::time::Duration;

use attache_client::{AddressBook, Backoff, Client, ClientError, ClientOptions, Outgoing, Policy, Reply};
use attache_core::TraceParent;
use attache_protocol::{Dialect, Json, SendMessageRequest, Task, TaskId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, timeout};
use url::Url;

use super::DelegationError;
use super::cards::{CardProtocol, FoundCard};
use super::fetch::{Fetcher, or_tolerantly};
use super::request::{DelegationRequest, Target};

/// The timeout for getting or canceling a task.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection stays in the cache.
const CACHE_TTL: Duration = Duration::from_secs(5 * 60);

/// How many connections the cache holds.
const CACHE_SIZE: usize = 256;

/// A connection to an agent.
#[derive(Clone)]
pub(super) enum AgentConnection {
    /// An agent with protocol 1.0 or 0.3.
    Current(Client),
    /// An agent with protocol 0.1 at this URL.
    V0_1(Url),
}

/// Opens connections, and caches them by address.
pub(super) struct ConnectionCache {
    options: ClientOptions,
    connections: Mutex<HashMap<String, (Instant, AgentConnection)>>,
}

impl ConnectionCache {
    pub(super) fn new(policy: Policy, send_timeout: Duration, credentials: AddressBook) -> Self {
        let backoff = Backoff::default().attempts(2);
        let options = ClientOptions::default()
            .policy(policy)
            .send_timeout(send_timeout)
            .call_timeout(CALL_TIMEOUT)
            .backoff(backoff);
        let options = options.with_credentials(credentials);
        Self { options, connections: Mutex::default() }
    }

    pub(super) fn get(&self, address: &str) -> Option<AgentConnection> {
        let connections = self.connections.lock();
        let (since, connection) = connections.get(address)?;
        (since.elapsed() < CACHE_TTL).then(|| connection.clone())
    }

    /// Connects to the agent at an address, and caches the connection. An agent without a card is taken to have protocol 0.1.
    pub(super) async fn connect(
        &self,
        fetcher: &Fetcher,
        address: &str,
        url: Url,
        card: Option<FoundCard>,
    ) -> Result<AgentConnection, DelegationError> {
        let connection = match card {
            Some(card @ FoundCard { protocol: CardProtocol::Current, .. }) => {
                let mut options = self.options.clone();
                options.card_trust = fetcher.card_trust().filter(|_| card.is_signed()).cloned();
                let url = card.url;
                let client = Client::connect_with(url.as_str(), options).await;
                AgentConnection::Current(client.map_err(|error| fetcher.explain(&url, error))?)
            }
            Some(FoundCard { protocol: CardProtocol::V0_1(url), .. }) => AgentConnection::V0_1(url),
            None => AgentConnection::V0_1(url),
        };
        let mut connections = self.connections.lock();
        if connections.len() >= CACHE_SIZE {
            connections.retain(|_, (since, _)| since.elapsed() < CACHE_TTL);
        }
        if connections.len() >= CACHE_SIZE {
            connections.clear();
        }
        connections.insert(address.to_owned(), (Instant::now(), connection.clone()));
        Ok(connection)
    }
}

impl AgentConnection {
    /// Sends a message once.
    ///
    /// For a new task, an agent responds as soon as it has created the task; an agent of protocol 0.1 responds at the end. For an existing
    /// task, the agent responds when the task has ended or is interrupted, since an immediate response could have the previous status.
    pub(super) async fn send(
        &self,
        fetcher: &Fetcher,
        request: &DelegationRequest,
        mut message: SendMessageRequest,
        timeout: Duration,
    ) -> Result<Reply, DelegationError> {
        match self {
            Self::Current(client) => {
                message.configuration = None;
                let mut outgoing = match request.target {
                    Target::NewTask => {
                        // The agent chooses the ids of its tasks.
                        message.message.task_id = None;
                        Outgoing::from(message).return_immediately()
                    }
                    Target::ExistingTask => Outgoing::from(message).task(request.id.clone()),
                };
                if let Some(trace_parent) = &request.trace_parent {
                    outgoing = outgoing.trace_parent(trace_parent.as_str());
                }
                explain(fetcher, client, client.send(outgoing).await)
            }
            Self::V0_1(url) => {
                let call = Call { method: "tasks/send", id: &request.id, trace_parent: request.trace_parent };
                call.send(fetcher, url, &request.params(), timeout).await.map(Reply::Task)
            }
        }
    }

    pub(super) async fn get(&self, fetcher: &Fetcher, id: &TaskId) -> Result<Task, DelegationError> {
        match self {
            Self::Current(client) => explain(fetcher, client, client.get(id.clone()).await),
            Self::V0_1(url) => {
                let call = Call { method: "tasks/get", id, trace_parent: None };
                call.send(fetcher, url, &json!({"id": id}), CALL_TIMEOUT).await
            }
        }
    }

    /// Waits until the task has ended or needs input. An agent of protocol 0.1 cannot be waited for: this returns its task as it is.
    pub(super) async fn wait(&self, fetcher: &Fetcher, id: &TaskId) -> Result<Task, DelegationError> {
        match self {
            Self::Current(client) => explain(fetcher, client, client.wait(id.clone()).await),
            Self::V0_1(_) => self.get(fetcher, id).await,
        }
    }

    pub(super) async fn cancel(&self, fetcher: &Fetcher, id: &TaskId) -> Result<Task, DelegationError> {
        match self {
            Self::Current(client) => explain(fetcher, client, client.cancel(id.clone()).await),
            Self::V0_1(url) => {
                let call = Call { method: "tasks/cancel", id, trace_parent: None };
                call.send(fetcher, url, &json!({"id": id}), CALL_TIMEOUT).await
            }
        }
    }
}

/// Converts the error of a client.
fn explain<T>(
    fetcher: &Fetcher,
    client: &Client,
    result: Result<T, ClientError>,
) -> Result<T, DelegationError> {
    result.map_err(|error| fetcher.explain(&client.interface_url(), error))
}

/// A JSON-RPC response.
#[derive(Deserialize)]
struct RpcResponse {
    result: Option<Json>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

/// A call of a method of protocol 0.1. All of them are about a task and return it.
struct Call<'a> {
    method: &'a str,
    id: &'a TaskId,
    trace_parent: Option<TraceParent>,
}

impl Call<'_> {
    async fn send(
        self,
        fetcher: &Fetcher,
        url: &Url,
        params: &impl Serialize,
        limit: Duration,
    ) -> Result<Task, DelegationError> {
        let Self { method, id, trace_parent } = self;
        let params =
            serde_json::to_value(params).map_err(|error| DelegationError::Invalid(error.to_string()))?;
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        let response = timeout(limit, fetcher.post(url, body, trace_parent)).await;
        let (status, body) = response.unwrap_or(Err(DelegationError::TimedOut(limit)))?;
        if let Some(denied) = fetcher.denied(url, status) {
            return Err(denied);
        }
        let invalid = |reason: String| {
            if status.is_success() {
                DelegationError::Unreadable(reason)
            } else {
                DelegationError::Unreachable(format!("HTTP status {}", status.as_u16()))
            }
        };
        match serde_json::from_slice(&body).map_err(|error| invalid(error.to_string()))? {
            RpcResponse { error: Some(RpcError { code, message }), .. } => {
                Err(DelegationError::Agent { code, message })
            }
            RpcResponse { result: Some(result), error: None } => {
                let json = result.as_str().as_bytes();
                let task = Dialect::V0_1.read_task(json).or_else(|error| or_tolerantly(error, json));
                task.map_err(|error| DelegationError::Unreadable(error.to_string()))
            }
            RpcResponse { result: None, error: None } => {
                Err(invalid("the response has neither a result nor an error".to_owned()))
            }
        }
    }
}
