//! Every operation in every generation of the protocol, with and without authentication, over any transport: the responses are those that
//! HTTP has.
//!
//! A transport needs a [`Wire`], a function that calls [`compare`], and a line in [`matrix`].

mod player;
mod wire;

use attache_server::Server;
use attache_server::auth::KnownCallers;
use serde_json::{Value, json};

pub(crate) use self::player::{Player, card, player};
pub(crate) use self::wire::{Calls, Got, HttpWire, Wire, denied, exchange, split_headers};

const TOKEN: &str = "t0ken-of-ann-for-the-tests";

/// A generation of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    Current,
    V0_3,
    Oldest,
}

/// What is known from earlier responses.
#[derive(Default)]
struct Known {
    /// A task that has ended.
    task: Value,
    /// A task that goes on until it is canceled.
    waiting: Value,
}

/// How exact a response is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// All of it.
    Whole,
    /// The names of the members of the result, since the task may have gone on.
    Members,
}

/// One step of the conversation: its name, its request, and what is compared.
struct Step(&'static str, fn(&Known) -> (&'static str, Value), Compared);

/// What the suite does in a generation.
fn steps(generation: Generation) -> Vec<Step> {
    use Compared::{Members, Whole};
    match generation {
        Generation::Current => vec![
            Step("send", |_| ("SendMessage", current("hello")), Whole),
            Step("direct message", |_| ("SendMessage", current("message back")), Whole),
            Step("get", |known| ("GetTask", json!({"id": known.task})), Whole),
            Step("stream", |_| ("SendStreamingMessage", current("chunks")), Whole),
            Step("failing stream", |_| ("SendStreamingMessage", current("fail")), Whole),
            Step("list", |_| ("ListTasks", json!({})), Whole),
            Step(
                "start",
                |_| {
                    let mut params = current("wait");
                    params["configuration"] = json!({"returnImmediately": true});
                    ("SendMessage", params)
                },
                Members,
            ),
            Step(
                "create webhook",
                |known| {
                    let config =
                        json!({"taskId": known.waiting, "id": "w", "url": "https://hooks.example.com/a"});
                    ("CreateTaskPushNotificationConfig", config)
                },
                Whole,
            ),
            Step(
                "get webhook",
                |known| ("GetTaskPushNotificationConfig", json!({"taskId": known.waiting, "id": "w"})),
                Whole,
            ),
            Step(
                "list webhooks",
                |known| ("ListTaskPushNotificationConfigs", json!({"taskId": known.waiting})),
                Whole,
            ),
            Step(
                "delete webhook",
                |known| ("DeleteTaskPushNotificationConfig", json!({"taskId": known.waiting, "id": "w"})),
                Whole,
            ),
            Step("cancel", |known| ("CancelTask", json!({"id": known.waiting})), Members),
            Step("cancel again", |known| ("CancelTask", json!({"id": known.waiting})), Whole),
            Step("subscribe too late", |known| ("SubscribeToTask", json!({"id": known.task})), Whole),
            Step("subscribe to nothing", |_| ("SubscribeToTask", json!({"id": "none"})), Whole),
            Step("extended card", |_| ("GetExtendedAgentCard", json!({})), Whole),
            Step("unknown method", |_| ("Nonsense", json!({})), Whole),
            Step("wrong arguments", |_| ("GetTask", json!({"id": 7})), Whole),
        ],
        Generation::V0_3 => vec![
            Step("send", |_| ("message/send", older("hello")), Whole),
            Step("get", |known| ("tasks/get", json!({"id": known.task, "historyLength": 1})), Whole),
            Step("stream", |_| ("message/stream", older("chunks")), Whole),
            Step(
                "start",
                |_| {
                    let mut params = older("wait");
                    params["configuration"] = json!({"blocking": false});
                    ("message/send", params)
                },
                Members,
            ),
            Step(
                "create webhook",
                |known| {
                    let config = json!({"id": "w", "url": "https://hooks.example.com/a"});
                    let params = json!({"taskId": known.waiting, "pushNotificationConfig": config});
                    ("tasks/pushNotificationConfig/set", params)
                },
                Whole,
            ),
            Step(
                "get webhook",
                |known| {
                    let params = json!({"id": known.waiting, "pushNotificationConfigId": "w"});
                    ("tasks/pushNotificationConfig/get", params)
                },
                Whole,
            ),
            Step(
                "list webhooks",
                |known| ("tasks/pushNotificationConfig/list", json!({"id": known.waiting})),
                Whole,
            ),
            Step(
                "delete webhook",
                |known| {
                    let params = json!({"id": known.waiting, "pushNotificationConfigId": "w"});
                    ("tasks/pushNotificationConfig/delete", params)
                },
                Whole,
            ),
            Step("cancel", |known| ("tasks/cancel", json!({"id": known.waiting})), Members),
            Step("subscribe too late", |known| ("tasks/resubscribe", json!({"id": known.task})), Whole),
            Step("extended card", |_| ("agent/getAuthenticatedExtendedCard", json!({})), Whole),
            Step("unknown method", |_| ("message/nonsense", json!({})), Whole),
        ],
        Generation::Oldest => vec![
            Step("send", |_| ("tasks/send", oldest("one", "hello")), Whole),
            Step("stream", |_| ("tasks/sendSubscribe", oldest("two", "chunks")), Whole),
            Step("get", |known| ("tasks/get", json!({"id": known.task})), Whole),
            Step("cancel an ended one", |known| ("tasks/cancel", json!({"id": known.task})), Whole),
        ],
    }
}

fn current(text: &str) -> Value {
    json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}})
}

fn older(text: &str) -> Value {
    let parts = json!([{"kind": "text", "text": text}]);
    json!({"message": {"kind": "message", "messageId": "m", "role": "user", "parts": parts}})
}

fn oldest(id: &str, text: &str) -> Value {
    json!({"id": id, "message": {"role": "user", "parts": [{"type": "text", "text": text}]}})
}

/// The server of the suite, for known callers only or for all.
pub(crate) fn server(guarded: bool) -> Server<Player> {
    match guarded {
        true => player().authenticate(KnownCallers::new().bearer("ann", TOKEN)),
        false => player(),
    }
}

fn headers(generation: Generation, guarded: bool) -> Value {
    let mut headers = json!({});
    if generation == Generation::Current {
        headers["A2A-Version"] = json!("1.0");
    }
    if guarded {
        headers["Authorization"] = json!(format!("Bearer {TOKEN}"));
    }
    headers
}

/// Does all steps, and gives the responses by the names of the steps.
async fn play(
    wire: &mut dyn Wire,
    server: &str,
    generation: Generation,
    guarded: bool,
) -> Vec<(&'static str, Vec<Value>)> {
    let mut known = Known::default();
    let mut responses = Vec::new();
    for (number, Step(name, request, compared)) in steps(generation).into_iter().enumerate() {
        let (method, params) = request(&known);
        let request = json!({"jsonrpc": "2.0", "id": format!("request-{number}"), "method": method,
            "params": params, "headers": headers(generation, guarded)});
        let frames = exchange(wire, request).await;
        let result = &frames[0]["result"];
        let task = if result["task"]["id"].is_null() { &result["id"] } else { &result["task"]["id"] };
        match name {
            "send" => known.task = task.clone(),
            "start" => known.waiting = task.clone(),
            _ => {}
        }
        let shown = frames.into_iter().map(|frame| match compared {
            Compared::Whole => plain(frame, server),
            Compared::Members => {
                let members = frame["result"].as_object().map(|members| members.keys().cloned().collect());
                json!({"error": frame["error"], "members": members.unwrap_or_else(Vec::<String>::new)})
            }
        });
        responses.push((name, shown.collect()));
    }
    responses
}

/// A response without what depends on the server that gave it.
fn plain(frame: Value, server: &str) -> Value {
    let text = without_ids(frame).to_string().replace(server, "SERVER");
    let mut frame = serde_json::from_str(&text).unwrap();
    hide_sessions(&mut frame);
    frame
}

/// Replaces the ids of conversations, which protocol 0.1 calls sessions.
fn hide_sessions(json: &mut Value) {
    match json {
        Value::Object(members) => {
            for (name, value) in members {
                match name.as_str() {
                    "sessionId" => *value = json!("[sessionId]"),
                    _ => hide_sessions(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_sessions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The document with every id and every time of the server's making replaced by a name, for snapshots.
pub(crate) fn without_ids(mut json: Value) -> Value {
    scrub(&mut json);
    json
}

fn scrub(json: &mut Value) {
    match json {
        Value::Object(members) => {
            for (name, value) in members {
                match (name.as_str(), &value) {
                    ("id" | "taskId" | "contextId" | "messageId" | "timestamp", Value::String(_)) => {
                        *value = json!(format!("[{name}]"));
                    }
                    _ => scrub(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(scrub),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A connection, and the address of its server, which differs between servers.
pub(crate) struct Side<'a> {
    pub(crate) wire: &'a mut dyn Wire,
    pub(crate) server: String,
}

/// What HTTP answers is what the transport answers. Both sides have a server of their own.
pub(crate) async fn compare(http: Side<'_>, other: Side<'_>, generation: Generation, guarded: bool) {
    let expected = play(http.wire, &http.server, generation, guarded).await;
    let answered = play(other.wire, &other.server, generation, guarded).await;
    for ((name, expected), (_, answered)) in expected.into_iter().zip(answered) {
        assert_eq!(answered, expected, "{name}");
    }
    if guarded {
        refuse(other.wire, generation).await;
    }
}

/// Without credentials, and with wrong ones, no operation is answered.
async fn refuse(wire: &mut dyn Wire, generation: Generation) {
    for Step(name, request, _) in steps(generation) {
        let (method, params) = request(&Known { task: json!("none"), waiting: json!("none") });
        for wrong in [None, Some("Bearer a-token-that-is-not-anns")] {
            let mut headers = headers(generation, false);
            if let Some(wrong) = wrong {
                headers["Authorization"] = json!(wrong);
            }
            let request =
                json!({"jsonrpc": "2.0", "id": name, "method": method, "params": params, "headers": headers});
            let frames = exchange(wire, request).await;
            assert_eq!(frames.len(), 1, "{name}: {frames:?}");
            assert_eq!(frames[0]["error"]["code"], -32050, "{name}: {frames:?}");
        }
    }
}

/// The tests of a transport, by a function whose last two arguments are the generation and whether the server is guarded.
macro_rules! matrix {
    ($($module:ident: $compare:ident($($argument:expr),*)),* $(,)?) => {$(
        mod $module {
            use super::*;
            use $crate::conformance::Generation;

            #[tokio::test]
            async fn answers_1_0_as_http_does() {
                $compare($($argument,)* Generation::Current, false).await;
            }

            #[tokio::test]
            async fn answers_1_0_as_http_does_to_known_callers_only() {
                $compare($($argument,)* Generation::Current, true).await;
            }

            #[tokio::test]
            async fn answers_0_3_as_http_does() {
                $compare($($argument,)* Generation::V0_3, false).await;
            }

            #[tokio::test]
            async fn answers_0_3_as_http_does_to_known_callers_only() {
                $compare($($argument,)* Generation::V0_3, true).await;
            }

            #[tokio::test]
            async fn answers_0_1_as_http_does() {
                $compare($($argument,)* Generation::Oldest, false).await;
            }

            #[tokio::test]
            async fn answers_0_1_as_http_does_to_known_callers_only() {
                $compare($($argument,)* Generation::Oldest, true).await;
            }
        }
    )*};
}

pub(crate) use matrix;
