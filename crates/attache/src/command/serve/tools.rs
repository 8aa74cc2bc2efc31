//! The tools of a language model: MCP servers, functions, and other agents of the server.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use attache::core::{Identity, Reply, StreamItem};
use attache::prelude::*;
use attache::protocol::{
    AgentCard, CancelTaskRequest, GetTaskRequest, Message, Part, Request, SendMessageConfiguration,
    SendMessageRequest, SubscribeToTaskRequest, Task, TaskId,
};
use attache::server::{HttpService, InProcessCaller, InProcessReply};
use attache_agents::mcp::Mcp;
use attache_agents::model::{Model, Tool};
use attache_iii::{Gateway, SCHEMAS_EXTENSION};
use axum::http::{HeaderName, HeaderValue};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::config::ModelTool;

/// The longest name of a tool that endpoints accept.
const MAX_NAME: usize = 64;

/// How long to wait before a task is read again whose events cannot be read.
const POLL: Duration = Duration::from_secs(1);

/// Where the tools of models come from. Cheap to clone: all clones are one.
#[derive(Clone, Default)]
pub(super) struct ToolSources {
    /// The MCP servers among the named agents. A reload changes them.
    pub(super) mcp: Arc<ArcSwap<BTreeMap<String, Mcp>>>,
    /// The functions at the root, if they are.
    pub(super) functions: Option<Gateway>,
    /// The server, once it listens.
    pub(super) server: Arc<OnceLock<HttpService>>,
}

impl ToolSources {
    /// Gives a model its tools. They are looked up for each turn.
    pub(super) fn give(&self, model: Model, tools: &[ModelTool]) -> Model {
        tools.iter().cloned().fold(model, |model, tool| {
            let sources = self.clone();
            model.tools_from(move |turn| match &tool {
                ModelTool::Mcp(name) => {
                    sources.mcp.load().get(name).map(Mcp::as_model_tools).unwrap_or_default()
                }
                ModelTool::Agent(name) => sources.agent(name, turn).into_iter().collect(),
                ModelTool::Functions => sources.functions(turn),
            })
        })
    }

    /// A tool that sends a message to a named agent, in the name of the caller.
    fn agent(&self, name: &str, turn: &Turn) -> Option<Tool> {
        let server = self.server.get()?;
        let card = server.agents()?.card(name)?;
        let peer = Peer::new(server, turn, Some(name));
        let schema = json!({
            "type": "object",
            "properties": {
                "message": {"type": "string", "description": "What to tell the agent"},
                "taskId": {
                    "type": "string",
                    "description": "If the message answers a question of the agent: the `taskId` that came with the question",
                },
            },
            "required": ["message"],
        });
        Some(Tool::new(tool_name(&format!("ask_{name}"), &[]), describe(&card), schema, move |arguments| {
            let peer = peer.clone();
            async move {
                let text = arguments["message"].as_str().ok_or("`message` is missing")?;
                let task = arguments["taskId"].as_str().filter(|id| !id.is_empty());
                peer.ask(Part::text(text), task.map(Into::into)).await
            }
        }))
    }

    /// A tool for each function that the caller may call.
    fn functions(&self, turn: &Turn) -> Vec<Tool> {
        let (Some(gateway), Some(server)) = (&self.functions, self.server.get()) else { return Vec::new() };
        let card = gateway.card_for(&turn.caller().rights);
        let schemas = request_schemas(&card);
        let (mut names, mut tools) = (Vec::new(), Vec::new());
        for skill in &card.skills {
            let name = tool_name(&skill.id, &names);
            names.push(name.clone());
            let schema = schemas.get(&skill.id).cloned().unwrap_or_else(|| json!({"type": "object"}));
            let peer = Peer::new(server, turn, None);
            let function = skill.id.clone();
            tools.push(Tool::new(name, &skill.description, schema, move |payload| {
                let (peer, call) = (peer.clone(), json!({"function_id": function, "payload": payload}));
                async move {
                    let part = Part::data(&call).map_err(|error| error.to_string())?;
                    peer.ask(part, None).await
                }
            }));
        }
        tools
    }
}

/// The caller of the model: other agents see the same caller.
fn identity(turn: &Turn) -> Identity {
    let caller = turn.caller();
    let mut identity = Identity::from(caller.principal().clone());
    identity.rights = caller.rights.clone();
    identity.metadata = caller.metadata.clone();
    identity
}

/// What an agent can do, for a model.
fn describe(card: &AgentCard) -> String {
    let skills: Vec<_> = card.skills.iter().map(|skill| skill.name.as_str()).collect();
    format!("Asks the agent {}: {}. Its skills: {}", card.name, card.description, skills.join(", "))
}

/// A name that endpoints accept and that no other tool has.
fn tool_name(wanted: &str, taken: &[String]) -> String {
    let valid = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = wanted.chars().map(valid).take(MAX_NAME).collect();
    let mut unique = name.clone();
    let mut number = 2;
    while taken.contains(&unique) {
        let suffix = format!("_{number}");
        unique = format!("{}{suffix}", &name[..name.len().min(MAX_NAME - suffix.len())]);
        number += 1;
    }
    unique
}

/// The schemas of the payloads of functions, which a card has in an extension.
fn request_schemas(card: &AgentCard) -> Map<String, Value> {
    #[derive(Deserialize)]
    struct Schemas {
        request: Option<Value>,
    }
    let extension = card.capabilities.extensions.iter().find(|extension| extension.uri == SCHEMAS_EXTENSION);
    let params = extension.and_then(|extension| extension.params.as_ref());
    let all: BTreeMap<String, Schemas> =
        params.and_then(|params| serde_json::from_str(params.as_str()).ok()).unwrap_or_default();
    all.into_iter().filter_map(|(id, schemas)| Some((id, schemas.request?))).collect()
}

/// An agent of this server, called for the caller of a turn.
#[derive(Clone)]
struct Peer(InProcessCaller);

impl Peer {
    /// A named agent, or the one at the root.
    fn new(server: &HttpService, turn: &Turn, agent: Option<&str>) -> Self {
        let version = (HeaderName::from_static("a2a-version"), HeaderValue::from_static("1.0"));
        let mut caller = server.in_process(identity(turn)).header(version.0, version.1);
        if let Some(name) = agent {
            caller = caller.agent(name);
        }
        if let Some(trace_parent) = turn.trace_parent() {
            caller = caller.trace_parent(&trace_parent);
        }
        Self(caller)
    }

    /// Sends a message, and returns what the agent answered. If this is dropped before, the task of the agent is canceled.
    async fn ask(&self, part: Part, task: Option<TaskId>) -> Result<Value, String> {
        let given_up = CancellationToken::new();
        let _guard = given_up.clone().drop_guard();
        let (peer, given_up) = (self.clone(), given_up);
        // In a task of its own: the id of the agent's task is needed for its cancel, and arrives with the response.
        let asked = tokio::spawn(async move { peer.send(part, task, given_up).await });
        asked.await.unwrap_or_else(|error| Err(format!("the call failed: {error}")))
    }

    async fn send(
        &self,
        part: Part,
        task: Option<TaskId>,
        given_up: CancellationToken,
    ) -> Result<Value, String> {
        let id = uuid::Uuid::new_v4().to_string();
        let message = Message { parts: vec![part], task_id: task, ..Message::user(id, "") };
        let configuration = SendMessageConfiguration { return_immediately: true, ..Default::default() };
        let request =
            SendMessageRequest { message, configuration: Some(configuration), ..Default::default() };
        let reply = self.call(Request::SendMessage(Box::new(request))).await?.reply;
        if let Reply::Message(message) = &reply {
            return Ok(content(&message.parts));
        }
        let task = task_of(&reply)?;
        let id = task.id.clone();
        tokio::select! {
            settled = self.settle(task) => result(&settled?),
            () = given_up.cancelled() => {
                let cancel = CancelTaskRequest { id: id.clone(), ..Default::default() };
                if let Err(error) = self.call(Request::CancelTask(cancel)).await {
                    // It may have ended in the meantime.
                    tracing::debug!(target: "attache::model", task = %id, error, "the task of a tool was not canceled");
                }
                Err("the call was canceled".to_owned())
            }
        }
    }

    /// Waits until a task has ended or asks something.
    async fn settle(&self, mut task: Task) -> Result<Task, String> {
        while !task.status.state.is_settled() {
            if !self.follow(&task.id).await {
                tokio::time::sleep(POLL).await;
            }
            let request = GetTaskRequest { id: task.id, ..Default::default() };
            task = task_of(&self.call(Request::GetTask(request)).await?.reply)?;
        }
        Ok(task)
    }

    /// Reads the events of a task until it has ended or asks something. Returns whether there were events.
    async fn follow(&self, id: &TaskId) -> bool {
        let request = SubscribeToTaskRequest { id: id.clone(), ..Default::default() };
        let Ok(mut answer) = self.call(Request::SubscribeToTask(request)).await else { return false };
        let Reply::Events(events, _) = &mut answer.reply else { return false };
        let mut has_events = false;
        while let Some(Ok(batch)) = events.next().await {
            has_events |= !batch.is_empty();
            if batch.iter().filter_map(StreamItem::state).any(TaskState::is_settled) {
                break;
            }
        }
        has_events
    }

    async fn call(&self, request: Request) -> Result<InProcessReply, String> {
        self.0.call(request).await.map_err(|error| error.message().to_owned())
    }
}

/// The task in a reply.
fn task_of(reply: &Reply) -> Result<Task, String> {
    match reply {
        Reply::Sent(snapshot, view) | Reply::Task(snapshot, view) => Ok(snapshot.viewed(*view).into_owned()),
        Reply::Message(_)
        | Reply::Tasks(_)
        | Reply::Events(..)
        | Reply::Push(_)
        | Reply::Pushes(_)
        | Reply::Done
        | Reply::Card(_) => Err("the agent gave no valid answer".to_owned()),
    }
}

/// The result of a task, for a model.
fn result(task: &Task) -> Result<Value, String> {
    let said = task.status.message.as_ref().map(|message| message.text()).unwrap_or_default();
    match task.status.state {
        TaskState::Completed => {
            let parts: Vec<Part> =
                task.artifacts.iter().flat_map(|artifact| artifact.parts.iter().cloned()).collect();
            Ok(if parts.is_empty() { said.into() } else { content(&parts) })
        }
        TaskState::InputRequired | TaskState::AuthRequired => {
            Ok(json!({"question": said, "taskId": task.id}))
        }
        TaskState::Failed
        | TaskState::Rejected
        | TaskState::Canceled
        | TaskState::Unspecified
        | TaskState::Submitted
        | TaskState::Working => {
            Err(if said.is_empty() { "the agent did not answer".to_owned() } else { said })
        }
    }
}

/// Parts for a model: text if there is only text, otherwise a list.
fn content(parts: &[Part]) -> Value {
    match parts.iter().map(Part::as_text).collect::<Option<Vec<_>>>() {
        Some(texts) => texts.concat().into(),
        None => match parts {
            [part] if part.as_data().is_some() => {
                part.as_data().and_then(|data| data.read().ok()).unwrap_or_default()
            }
            parts => json!(parts),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tools_are_valid_and_unique() {
        assert_eq!(tool_name("pricing::quote", &[]), "pricing__quote");
        let taken = ["a_b".to_owned(), "a_b_2".to_owned()];
        assert_eq!(tool_name("a.b", &taken), "a_b_3");
        let long = "x".repeat(80);
        let first = tool_name(&long, &[]);
        assert_eq!(first.len(), MAX_NAME);
        assert_eq!(tool_name(&long, &[first]).len(), MAX_NAME);
    }
}
