//! The tools of a language model: MCP servers, functions, and other agents of the server.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use attache::core::Identity;
use attache::prelude::*;
use attache::protocol::{AgentCard, Message, Part, SendMessageResponse, Task};
use attache::server::{HttpService, HttpServiceFor};
use attache_agents::mcp::Mcp;
use attache_agents::model::{Model, Tool};
use attache_iii::{Gateway, SCHEMAS_EXTENSION};
use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tower_service::Service as _;

use crate::config::ModelTool;

/// The longest name of a tool that endpoints accept.
const MAX_NAME: usize = 64;

/// The largest response of another agent, in bytes. The model gets a part of it only.
const MAX_RESPONSE: usize = 16 * 1024 * 1024;

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
        let caller = server.for_caller(identity(turn));
        let path = format!("/agents/{name}/a2a");
        let schema = json!({
            "type": "object",
            "properties": {"message": {"type": "string", "description": "What to tell the agent"}},
            "required": ["message"],
        });
        Some(Tool::new(tool_name(&format!("ask_{name}"), &[]), describe(&card), schema, move |arguments| {
            let (caller, path) = (caller.clone(), path.clone());
            async move {
                let text = arguments["message"].as_str().ok_or("`message` is missing")?;
                ask(caller, &path, Part::text(text)).await
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
            let (caller, function) = (server.for_caller(identity(turn)), skill.id.clone());
            tools.push(Tool::new(name, &skill.description, schema, move |payload| {
                let (caller, call) = (caller.clone(), json!({"function_id": function, "payload": payload}));
                async move {
                    let part = Part::data(&call).map_err(|error| error.to_string())?;
                    ask(caller, "/a2a", part).await
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

/// Sends a message within this process, and returns what the agent answered.
async fn ask(mut caller: HttpServiceFor, path: &str, part: Part) -> Result<Value, String> {
    #[derive(Deserialize)]
    struct Response {
        result: Option<SendMessageResponse>,
        error: Option<Failed>,
    }
    #[derive(Deserialize)]
    struct Failed {
        message: String,
    }
    let message = Message { parts: vec![part], ..Message::user("tool-call", "") };
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
    let request = Request::post(path)
        .header("content-type", "application/json")
        .header("a2a-version", "1.0")
        .body(Body::from(body.to_string()))
        .map_err(|error| error.to_string())?;
    let Ok(response) = caller.call(request).await;
    let body = to_bytes(Body::new(response.into_body()), MAX_RESPONSE);
    let body = body.await.map_err(|error| format!("the answer cannot be read: {error}"))?;
    let response: Response =
        serde_json::from_slice(&body).map_err(|_| "the agent gave no valid answer".to_owned())?;
    match (response.result, response.error) {
        (Some(SendMessageResponse::Message(message)), _) => Ok(content(&message.parts)),
        (Some(SendMessageResponse::Task(task)), _) => result(&task),
        (None, Some(Failed { message })) => Err(message),
        (None, None) => Err("the agent gave no valid answer".to_owned()),
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
        TaskState::InputRequired | TaskState::AuthRequired => Ok(json!({"question": said})),
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
