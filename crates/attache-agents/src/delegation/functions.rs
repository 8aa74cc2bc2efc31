//! The functions `a2a::*`.

use std::sync::Arc;

use attache_core::{ServedAgent, TraceParent};
use attache_iii::{CallError, FunctionInfo};
use attache_protocol::Json;
use http::Method;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::input::Input;
use super::{Delegation, DelegationError};
use crate::{FunctionGuard, FunctionHandler, FunctionHost};

/// An operation of delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Discover,
    Send,
    Get,
    Cancel,
    Card,
    Cards,
}

impl Action {
    pub(super) const ALL: [Self; 6] =
        [Self::Discover, Self::Send, Self::Get, Self::Cancel, Self::Card, Self::Cards];

    fn function(self) -> &'static str {
        match self {
            Self::Discover => "a2a::discover",
            Self::Send => "a2a::send_task",
            Self::Get => "a2a::get_task",
            Self::Cancel => "a2a::cancel_task",
            Self::Card => "a2a::agent_card",
            Self::Cards => "a2a::list_cards",
        }
    }

    /// The route in the HTTP API.
    pub(super) fn route(self) -> Option<(Method, &'static str)> {
        match self {
            Self::Discover => Some((Method::POST, "/api/a2a/discover")),
            Self::Send => Some((Method::POST, "/api/a2a/send")),
            Self::Get => Some((Method::GET, "/api/a2a/task")),
            Self::Cancel => Some((Method::POST, "/api/a2a/cancel")),
            Self::Cards => Some((Method::GET, "/api/a2a/cards")),
            Self::Card => None,
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Discover => "Finds the card of an A2A agent and stores it",
            Self::Send => "Sends a task to another A2A agent, or continues a task, and keeps a record of it",
            Self::Get => "Gets the current state of a task that was sent to another agent",
            Self::Cancel => "Cancels a task that was sent to another agent",
            Self::Card => "Sets the name, the description and the skills in the card of this agent",
            Self::Cards => "Lists the card of this agent and the discovered cards",
        }
    }

    /// The JSON Schema of the input.
    fn input_schema(self) -> Value {
        let text = |description: &str| json!({"type": "string", "description": description});
        let wait = json!({
            "type": ["number", "string"], "default": 20,
            "description": "How many seconds to wait until the task has ended or needs input; 0 for not to wait",
        });
        let (properties, required): (Value, &[&str]) = match self {
            Self::Discover => (json!({"url": text("The address of the agent")}), &["url"]),
            Self::Send => (
                json!({
                    "agentUrl": text("The address of the agent or of its endpoint; not needed with `taskId`"),
                    "taskId": text("The task to continue, such as a task that requires input; without it, a task is created"),
                    "message": {"description": "A text, or an object with `parts`", "type": ["string", "object"]},
                    "sessionId": text("The conversation that the message belongs to"),
                    "metadata": {"type": "object"},
                    "wait": wait,
                }),
                &["message"],
            ),
            Self::Get => (
                json!({"taskId": text("The task"), "agentUrl": text("The address of the agent that has the task"), "wait": wait}),
                &["taskId"],
            ),
            Self::Cancel => (
                json!({"taskId": text("The task"), "agentUrl": text("The address of the agent that has the task")}),
                &["taskId"],
            ),
            Self::Card => (
                json!({
                    "baseUrl": text("The address of this agent"), "name": text("The name of this agent"),
                    "description": text("The description of this agent"), "skills": {"type": "array", "items": {"type": "object"}},
                }),
                &["baseUrl"],
            ),
            Self::Cards => (json!({}), &[]),
        };
        let mut schema = json!({"type": "object", "properties": properties, "required": required});
        if self == Self::Send {
            schema["anyOf"] = json!([{"required": ["agentUrl"]}, {"required": ["taskId"]}]);
        }
        schema
    }
}

impl Delegation {
    pub(super) async fn act(&self, action: Action, input: &Input) -> Result<Json, DelegationError> {
        match action {
            Action::Discover => self.discover(input).await,
            Action::Send => self.send(input).await,
            Action::Get => self.get(input).await,
            Action::Cancel => self.cancel(input).await,
            Action::Card => self.card(input).await,
            Action::Cards => self.list_cards().await,
        }
    }

    /// Registers the functions `a2a::discover`, `a2a::send_task`, `a2a::get_task`, `a2a::cancel_task`, `a2a::agent_card` and
    /// `a2a::list_cards`. Registers also `a2a::handle_task`, which passes JSON-RPC requests to `server`, the server of this agent.
    pub fn register_functions(
        &self,
        host: &impl FunctionHost,
        server: impl ServedAgent,
    ) -> Vec<FunctionGuard> {
        let server = Arc::new(server);
        let own = server.clone();
        self.set_served_card(Box::new(move || serde_json::from_slice(&own.v0_1_card()?).ok()));
        let mut guards: Vec<_> = Action::ALL
            .into_iter()
            .map(|action| {
                let this = self.clone();
                let handler: FunctionHandler = Arc::new(move |payload, trace_parent| {
                    let this = this.clone();
                    Box::pin(async move {
                        let input = Input::from_payload(payload.get())?.with_trace_parent(trace_parent);
                        Ok(this.act(action, &input).await?.as_raw().to_owned())
                    })
                });
                let mut info = function(action.function(), action.description());
                info.request_format = Some(action.input_schema());
                host.register_function(info, handler)
            })
            .collect();
        let handler: FunctionHandler = Arc::new(move |payload, trace_parent| {
            let server = server.clone();
            Box::pin(async move { handle(&*server, &payload, trace_parent).await })
        });
        let about = "Handles a JSON-RPC request to this agent, such as `tasks/send`";
        guards.push(host.register_function(function("a2a::handle_task", about), handler));
        guards
    }
}

fn function(id: &str, description: &str) -> FunctionInfo {
    FunctionInfo {
        description: Some(description.to_owned()),
        metadata: Some(json!({"internal": true})),
        ..FunctionInfo::new(id)
    }
}

/// Passes a JSON-RPC request to the server. The payload is the request, or an HTTP request with it as body.
async fn handle(
    server: &impl ServedAgent,
    payload: &RawValue,
    trace_parent: Option<TraceParent>,
) -> Result<Box<RawValue>, CallError> {
    #[derive(serde::Deserialize)]
    struct Payload<'a> {
        #[serde(borrow)]
        jsonrpc: Option<&'a RawValue>,
        #[serde(borrow)]
        body: Option<&'a RawValue>,
    }
    let request = match serde_json::from_str(payload.get()) {
        Ok(Payload { jsonrpc: None, body: Some(body) }) => body,
        Ok(Payload { .. }) | Err(_) => payload,
    };
    let failed = |error: &dyn std::fmt::Display| CallError::remote("broken_answer", error.to_string());
    let response = server.answer(request.get().as_bytes(), trace_parent).await;
    let response = response.map_err(|error| failed(&error))?;
    let response = response.ok_or_else(|| failed(&"a request without an `id` has no response"))?;
    serde_json::from_slice(&response).map_err(|error| failed(&error))
}
