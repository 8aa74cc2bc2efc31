//! The functions `a2a::*`.

use std::convert::Infallible;
use std::sync::Arc;

use attache_iii::{CallError, FunctionInfo};
use attache_protocol::Json;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::cards::OLDEST_RPC;
use super::input::Input;
use super::{Delegation, DelegationError};
use crate::{FunctionHost, Handler, Offer};

/// What can be asked for.
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

    /// Where the HTTP API has it.
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
            Self::Discover => "Finds the card of an A2A agent and keeps it",
            Self::Send => "Sends a task to another A2A agent, or goes on with one, and keeps a record of it",
            Self::Get => "Gets a task that was sent to another agent, as it is now",
            Self::Cancel => "Cancels a task that was sent to another agent",
            Self::Card => "Makes a card of this agent",
            Self::Cards => "Lists the card of this agent and those that were found",
        }
    }

    /// The JSON Schema of the input.
    fn takes(self) -> Value {
        let text = |what: &str| json!({"type": "string", "description": what});
        let (properties, required): (Value, &[&str]) = match self {
            Self::Discover => (json!({"url": text("Where the agent is")}), &["url"]),
            Self::Send => (
                json!({
                    "agentUrl": text("Where the agent is, or where it answers; not needed with `taskId`"),
                    "taskId": text("The task to go on with, such as one that asked for input; without it, a new one"),
                    "message": {"description": "A text, or an object with `parts`", "type": ["string", "object"]},
                    "sessionId": text("The conversation that the message belongs to"),
                    "metadata": {"type": "object"},
                }),
                &["message"],
            ),
            Self::Get | Self::Cancel => {
                (json!({"taskId": text("The task"), "agentUrl": text("The agent that has it")}), &["taskId"])
            }
            Self::Card => (
                json!({
                    "baseUrl": text("Where this agent is"), "name": text("Its name"),
                    "description": text("What it does"), "skills": {"type": "array", "items": {"type": "object"}},
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

    /// Offers the functions `a2a::discover`, `a2a::send_task`, `a2a::get_task`, `a2a::cancel_task`, `a2a::agent_card` and
    /// `a2a::list_cards`, and `a2a::handle_task`, which answers JSON-RPC requests to this agent by the surface given.
    pub fn offer<S, B>(&self, host: &impl FunctionHost, surface: S) -> Vec<Offer>
    where
        S: tower_service::Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display + Send,
    {
        let mut offers: Vec<Offer> = Action::ALL
            .into_iter()
            .map(|action| {
                let this = self.clone();
                let handler: Handler = Arc::new(move |payload| {
                    let this = this.clone();
                    Box::pin(async move {
                        let input = Input::of_call(payload.get())?;
                        Ok(this.act(action, &input).await?.as_raw().to_owned())
                    })
                });
                let mut info = function(action.function(), action.description());
                info.request_format = Some(action.takes());
                host.offer(info, handler)
            })
            .collect();
        let handler: Handler = Arc::new(move |payload| {
            let surface = surface.clone();
            Box::pin(async move { handle(surface, &payload).await })
        });
        let about = "Answers a JSON-RPC request to this agent, such as `tasks/send`";
        offers.push(host.offer(function("a2a::handle_task", about), handler));
        offers
    }
}

fn function(id: &str, description: &str) -> FunctionInfo {
    FunctionInfo {
        description: Some(description.to_owned()),
        metadata: Some(json!({"internal": true})),
        ..FunctionInfo::new(id)
    }
}

/// Answers a JSON-RPC request, bare or as the body of an HTTP request.
async fn handle<S, B>(mut surface: S, payload: &RawValue) -> Result<Box<RawValue>, CallError>
where
    S: tower_service::Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    #[derive(serde::Deserialize)]
    struct Asked<'a> {
        #[serde(borrow)]
        jsonrpc: Option<&'a RawValue>,
        #[serde(borrow)]
        body: Option<&'a RawValue>,
    }
    let request = match serde_json::from_str(payload.get()) {
        Ok(Asked { jsonrpc: None, body: Some(body) }) => body,
        Ok(Asked { .. }) | Err(_) => payload,
    };
    let broken = |error: &dyn std::fmt::Display| CallError::remote("broken_answer", error.to_string());
    let request = Request::post(OLDEST_RPC)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(request.get().to_owned()))
        .map_err(|error| broken(&error))?;
    let Ok(answer) = surface.call(request).await;
    let body = answer.into_body().collect().await.map_err(|error| broken(&error))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| broken(&error))
}
