//! Every operation in every generation of the protocol, with and without authentication, over any transport: the responses are those that
//! HTTP has.
//!
//! A transport needs a [`Wire`], a function that calls [`compare`], and a line in [`matrix`]. The generations and the ways to authenticate
//! are one list, [`cases`]. The operations are those of the protocol: a new one does not compile until each generation has a method for it
//! or has none, and [`coverage`] fails until it is a step.

mod cases;
mod conversation;
mod coverage;
mod masking;
mod player;
mod steps;
mod wire;

use attache_protocol::Operation;
use attache_server::Server;
use attache_server::auth::{KeyPlace, KnownCallers};
use serde_json::{Value, json};

pub(crate) use self::cases::{
    Access, Case, Generation, cases, matrix, matrix_of_access, matrix_of_generations,
};
use self::conversation::Conversation;
use self::masking::plain;
pub(crate) use self::masking::without_ids;
pub(crate) use self::player::{Player, card, player};
use self::steps::{Known, Method, Reading, Task};
pub(crate) use self::wire::{Calls, Got, HttpWire, Wire, denied, exchange, split_headers};

const TOKEN: &str = "t0ken-of-ann-for-the-tests";
const KEY: &str = "k3y-of-ann-for-the-tests";

/// The header of keys.
const KEY_HEADER: &str = "X-API-Key";

/// What the agent says while it waits to be canceled.
const WAITING: &str = "waiting";

/// The server of the suite.
pub(crate) fn server(access: Access) -> Server<Player> {
    let callers = KnownCallers::new();
    match access {
        Access::Open => player(),
        Access::Bearer => player().authenticate(callers.bearer("ann", TOKEN)),
        Access::ApiKey => {
            player().authenticate(callers.api_key("ann", KeyPlace::Header(KEY_HEADER.to_owned()), KEY))
        }
    }
}

/// The service parameters of a generation.
fn parameters(generation: Generation) -> Value {
    match generation {
        Generation::Current => json!({"A2A-Version": "1.0"}),
        Generation::V1_1 => json!({"A2A-Version": "1.1"}),
        Generation::V0_3 | Generation::Iii | Generation::V0_1 => json!({}),
    }
}

/// The headers of a caller that the server knows.
pub(crate) fn credentials(access: Access) -> Value {
    match access {
        Access::Open => json!({}),
        Access::Bearer => json!({"Authorization": format!("Bearer {TOKEN}")}),
        Access::ApiKey => json!({KEY_HEADER: KEY}),
    }
}

/// Objects as one object.
fn merged(objects: &[Value]) -> Value {
    objects.iter().filter_map(Value::as_object).flat_map(|members| members.clone()).collect()
}

/// A response, or a part of one.
struct Played {
    name: String,
    /// The number of the step.
    number: usize,
    /// The operation of the step, if it calls the method that its generation has for one.
    operation: Option<Operation>,
    frames: Vec<Value>,
}

/// Does all steps, and gives the responses in the order of the steps. What streams have after a step that ends them stands behind it.
async fn play(wire: &mut dyn Wire, server: &str, case: Case) -> Vec<Played> {
    let Case { generation, access } = case;
    let mut conversation = Conversation::new(wire);
    let mut known = Known::default();
    let mut open = Vec::new();
    let mut played = Vec::new();
    for (number, step) in generation.steps().into_iter().enumerate() {
        let (method, operation) = called(generation, step.method);
        let headers = merged(&[parameters(generation), credentials(access), (step.headers)(&known)]);
        let id = format!("request-{number}");
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": (step.params)(&known),
            "headers": headers});
        conversation.send(request).await;
        let frames = match step.reading {
            Reading::Whole | Reading::Members | Reading::EndsStreams => conversation.rest(&id).await,
            Reading::StaysOpen => {
                open.push((step.name, number, operation, id.clone()));
                conversation.until(&id, WAITING).await
            }
        };
        remember(&mut known, step.creates, &frames);
        let shown = frames.into_iter().map(|frame| match step.reading {
            Reading::Whole | Reading::EndsStreams | Reading::StaysOpen => {
                plain(frame, server, &known.tasks())
            }
            Reading::Members => members(&frame),
        });
        played.push(Played { name: step.name.to_owned(), number, operation, frames: shown.collect() });
        match step.reading {
            Reading::EndsStreams => {
                for (name, number, operation, id) in open.drain(..) {
                    let rest = conversation.rest(&id).await;
                    let frames = rest.into_iter().map(|frame| plain(frame, server, &known.tasks())).collect();
                    let name = format!("{name}, after {}", step.name);
                    played.push(Played { name, number, operation, frames });
                }
            }
            Reading::Whole | Reading::Members | Reading::StaysOpen => {}
        }
    }
    assert!(open.is_empty(), "a step must end the streams that are open");
    played
}

/// The method of a step, and its operation.
fn called(generation: Generation, method: Method) -> (&'static str, Option<Operation>) {
    match method {
        Method::Of(operation) => {
            (generation.method(operation).expect("the generation has the operation"), Some(operation))
        }
        Method::Named(method) => (method, None),
    }
}

/// Takes the ids that later steps need from the first frame of a response.
fn remember(known: &mut Known, creates: Option<Task>, frames: &[Value]) {
    let Some(task) = creates else { return };
    let result = &frames[0]["result"];
    let id = if result["task"]["id"].is_null() { &result["id"] } else { &result["task"]["id"] };
    assert!(id.is_string(), "a task: {frames:?}");
    match task {
        Task::Ended => known.ended = id.clone(),
        Task::Started => known.started = id.clone(),
        Task::Watched => {
            known.watched = id.clone();
            known.first_event = frames[0]["eventId"].clone();
        }
    }
}

/// The names of the members of a result, or the error.
fn members(frame: &Value) -> Value {
    let members: Option<Vec<String>> =
        frame["result"].as_object().map(|members| members.keys().cloned().collect());
    json!({"error": frame["error"], "members": members.unwrap_or_default()})
}

/// A connection, and the address of its server, which differs between servers.
pub(crate) struct Side<'a> {
    pub(crate) wire: &'a mut dyn Wire,
    pub(crate) server: String,
}

/// What HTTP answers is what the transport answers. Both sides have a server of their own.
pub(crate) async fn compare(http: Side<'_>, other: Side<'_>, case: Case) {
    let expected = play(http.wire, &http.server, case).await;
    let answered = play(other.wire, &other.server, case).await;
    assert_eq!(answered.len(), expected.len());
    for (expected, answered) in expected.into_iter().zip(answered) {
        assert_eq!(answered.frames, expected.frames, "{}", expected.name);
    }
    match case.access {
        Access::Open => {}
        Access::Bearer | Access::ApiKey => refuse(other.wire, case.generation).await,
    }
}

/// Without credentials, and with wrong ones, no operation is answered.
async fn refuse(wire: &mut dyn Wire, generation: Generation) {
    let none = || json!("none");
    let known = Known { ended: none(), started: none(), watched: none(), first_event: json!(1) };
    for step in generation.steps() {
        let (method, _) = called(generation, step.method);
        for wrong in [
            json!({}),
            json!({"Authorization": "Bearer a-token-that-is-not-anns"}),
            json!({KEY_HEADER: "a-key-that-is-not-anns"}),
        ] {
            let headers = merged(&[parameters(generation), (step.headers)(&known), wrong]);
            let request = json!({"jsonrpc": "2.0", "id": step.name, "method": method,
                "params": (step.params)(&known), "headers": headers});
            let frames = exchange(wire, request).await;
            assert_eq!(frames.len(), 1, "{}: {frames:?}", step.name);
            assert_eq!(frames[0]["error"]["code"], -32050, "{}: {frames:?}", step.name);
        }
    }
}
