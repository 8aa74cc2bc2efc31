//! A remote agent of protocol 0.1, written by hand: `tasks/send`, ids that the client chooses, responses at the end of the task.

use std::collections::BTreeMap;
use std::sync::Arc;

use attache_client::{Binding, Client, ClientOptions, Interface, Outgoing};
use attache_core::Store;
use attache_protocol::{Part, StreamResponse, TaskState, Version};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

use crate::handmade::{events, result};
use crate::support::*;

/// What the agent has, and what the test sees of it.
struct Agent01 {
    tasks: Mutex<BTreeMap<String, Value>>,
    calls: mpsc::UnboundedSender<(String, Value)>,
    /// Lets a task go on.
    gate: Semaphore,
    /// Whether an unknown method is an invalid request, as for the first samples of Google.
    is_vague: bool,
}

struct Remote01 {
    url: String,
    agent: Arc<Agent01>,
    calls: mpsc::UnboundedReceiver<(String, Value)>,
    _serving: AbortOnDropHandle<()>,
}

impl Remote01 {
    async fn start(streaming: bool, is_vague: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let card = json!({
            "name": "Oldest", "description": "Knows tasks/send only", "url": format!("{url}/rpc"), "version": "3",
            "capabilities": {"streaming": streaming, "pushNotifications": false, "stateTransitionHistory": false},
            "authentication": {"schemes": []},
            "defaultInputModes": ["text"], "defaultOutputModes": ["text"],
            "skills": [{"id": "say", "name": "Say", "description": "Says it again", "tags": [], "examples": []}],
        });
        let (sender, calls) = mpsc::unbounded_channel();
        let agent =
            Arc::new(Agent01 { tasks: Mutex::default(), calls: sender, gate: Semaphore::new(0), is_vague });
        let app = Router::new()
            .route("/.well-known/agent.json", get(async move || Json(card)))
            .route("/rpc", post(call))
            .with_state(agent.clone());
        let serving = tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
        Self { url, agent, calls, _serving: AbortOnDropHandle::new(serving) }
    }

    /// Waits for a call of this method.
    async fn call_of(&mut self, method: &str) -> Value {
        loop {
            let (name, params) = in_time(self.calls.recv()).await.unwrap();
            if name == method {
                return params;
            }
        }
    }

    /// The methods that were called since the last look.
    fn methods(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.calls.try_recv().ok()).map(|(method, _)| method).collect()
    }

    async fn gateway(&self, store: Arc<dyn Store>) -> TestServer {
        start_gateway(quick_options(&self.url, store)).await
    }
}

fn failure(status: StatusCode, id: Value, code: i64) -> Response {
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}});
    (status, Json(error)).into_response()
}

async fn call(State(agent): State<Arc<Agent01>>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let (method, params) = (body["method"].as_str().unwrap().to_owned(), body["params"].clone());
    agent.calls.send((method.clone(), params.clone())).unwrap();
    let id = params["id"].as_str().unwrap_or_default().to_owned();
    match method.as_str() {
        "tasks/send" => agent.send(&body["id"], &id, &params).await,
        "tasks/sendSubscribe" => agent.stream(&body["id"], &id),
        "tasks/get" => match agent.tasks.lock().get(&id) {
            Some(task) => result(&body["id"], task.clone()),
            None => failure(StatusCode::OK, body["id"].clone(), -32001),
        },
        "tasks/cancel" => {
            let task = agent.put(&id, &params, "canceled", Value::Null);
            agent.gate.add_permits(1);
            result(&body["id"], task)
        }
        _ if agent.is_vague => failure(StatusCode::BAD_REQUEST, Value::Null, -32600),
        _ => failure(StatusCode::OK, body["id"].clone(), -32601),
    }
}

impl Agent01 {
    /// Changes a task, and returns it.
    fn put(&self, id: &str, params: &Value, state: &str, more: Value) -> Value {
        let mut tasks = self.tasks.lock();
        let task = tasks.entry(id.to_owned()).or_insert_with(|| {
            json!({"id": id, "sessionId": params["sessionId"], "status": {}, "history": [], "metadata": null})
        });
        task["status"] = json!({"state": state, "timestamp": "2026-01-01T00:00:00"});
        if let Some(more) = more.as_object() {
            task.as_object_mut().unwrap().extend(more.clone());
        }
        task.clone()
    }

    async fn send(&self, rpc: &Value, id: &str, params: &Value) -> Response {
        let parts = params["message"]["parts"].clone();
        let text = parts[0]["text"].as_str().unwrap_or_default();
        match text {
            "ask" => {
                let question = json!({"role": "agent", "parts": [{"type": "text", "text": "which color?"}]});
                let mut task = self.put(id, params, "input-required", Value::Null);
                task["status"]["message"] = question;
                self.tasks.lock().insert(id.to_owned(), task.clone());
                return result(rpc, task);
            }
            "gated" | "lost" => {
                self.put(id, params, "working", Value::Null);
                if text == "lost" {
                    // The response ends before it is complete.
                    let body = futures::stream::iter([Ok("{\"json"), Err(std::io::Error::other("cut"))]);
                    return axum::body::Body::from_stream(body).into_response();
                }
                self.gate.acquire().await.unwrap().forget();
            }
            _ => {}
        }
        let artifacts = json!({"artifacts": [{"parts": parts, "index": 0}]});
        result(rpc, self.put(id, params, "completed", artifacts))
    }

    fn stream(&self, rpc: &Value, id: &str) -> Response {
        let piece = |text: &str, append: bool| {
            json!({"id": id, "artifact": {"parts": [{"type": "text", "text": text}], "index": 0,
                "append": append, "lastChunk": append}})
        };
        let status = |state: &str, is_final: bool| json!({"id": id, "status": {"state": state, "timestamp": "2026-01-01T00:00:00"}, "final": is_final});
        let all = vec![
            status("working", false),
            piece("one ", false),
            piece("two", true),
            status("completed", true),
        ];
        events(rpc, all, false)
    }
}

async fn client(gateway: &TestServer, version: Version) -> Client {
    let interfaces = vec![Interface { binding: Binding::JsonRpc, version: Some(version) }];
    let mut options = ClientOptions::default();
    options.interfaces = interfaces;
    Client::connect_with(&gateway.url(), options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_0_1_serves_clients_of_1_0_and_0_3_with_text_files_and_data() {
    for is_vague in [false, true] {
        let mut remote = Remote01::start(false, is_vague).await;
        let gateway = remote.gateway(new_store()).await;
        for version in [Version::V1_0, Version::V0_3] {
            let client = client(&gateway, version).await;
            assert_eq!((client.card().name.as_str(), client.card().skills.len()), ("Oldest", 1));
            let parts = vec![
                Part::text("hi"),
                Part::raw(b"bytes".to_vec()).filename("a.bin"),
                Part::data(&json!({"n": 1})).unwrap(),
            ];
            let task = send(&client, Outgoing::new(parts.clone()).context("dinner")).await;
            assert_eq!(task.status.state, TaskState::Completed);
            assert_eq!(task.artifacts[0].parts, parts, "{version}");
        }
        let first = remote.call_of("tasks/send").await;
        let second = remote.call_of("tasks/send").await;
        assert_eq!(first["sessionId"], second["sessionId"], "one context is one session");
        assert_ne!(first["id"], second["id"]);
        assert_eq!(first["message"]["parts"][0]["type"], "text", "{first}");
        assert!(remote.methods().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_0_3_is_tried_once_only() {
    let mut remote = Remote01::start(false, false).await;
    let gateway = remote.gateway(new_store()).await;
    let client = client(&gateway, Version::V1_0).await;
    for text in ["hi", "ho"] {
        assert_eq!(send(&client, text).await.status.state, TaskState::Completed);
    }
    assert_eq!(remote.methods(), ["message/send", "tasks/send", "tasks/send"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_0_1_passes_piece_by_piece() {
    let mut remote = Remote01::start(true, false).await;
    let gateway = remote.gateway(new_store()).await;
    let client = client(&gateway, Version::V1_0).await;
    let all = stream(&client, Outgoing::new("hi").context("dinner")).await;
    let pieces: Vec<_> = all
        .iter()
        .filter_map(|event| match event {
            StreamResponse::ArtifactUpdate(update) => Some(update.artifact.parts[0].as_text().unwrap()),
            StreamResponse::Task(_) | StreamResponse::StatusUpdate(_) | StreamResponse::Message(_) => None,
        })
        .collect();
    assert_eq!(pieces, ["one ", "two"]);
    stream(&client, Outgoing::new("again").context("dinner")).await;
    let first = remote.call_of("tasks/sendSubscribe").await;
    assert_eq!(first["sessionId"], remote.call_of("tasks/sendSubscribe").await["sessionId"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_continues_the_task_of_0_1() {
    let mut remote = Remote01::start(false, false).await;
    let gateway = remote.gateway(new_store()).await;
    let client = client(&gateway, Version::V1_0).await;
    let asked = send(&client, "ask").await;
    assert_eq!((asked.status.state, words(&asked).as_str()), (TaskState::InputRequired, "which color?"));
    let task = send(&client, Outgoing::new("red").answering(&asked)).await;
    assert_eq!((task.status.state, texts(&task, "0")), (TaskState::Completed, vec!["red".to_owned()]));
    let (first, second) = (remote.call_of("tasks/send").await, remote.call_of("tasks/send").await);
    assert_eq!((&first["id"], &first["sessionId"]), (&second["id"], &second["sessionId"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_reaches_an_agent_of_0_1_that_has_not_responded_yet() {
    let mut remote = Remote01::start(false, false).await;
    let gateway = remote.gateway(new_store()).await;
    let client = client(&gateway, Version::V1_0).await;
    let task = send(&client, immediately("gated")).await;
    let sent = remote.call_of("tasks/send").await;
    in_time(client.cancel(task.id.clone())).await.unwrap();
    assert_eq!(remote.call_of("tasks/cancel").await["id"], sent["id"]);
    reaches(&client, &task, TaskState::Canceled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_killed_polls_the_task_of_0_1_and_does_not_send_the_message_again() {
    let mut remote = Remote01::start(false, false).await;
    let store = new_store();
    let gateway = remote.gateway(store.clone()).await;
    let task = send(&client(&gateway, Version::V1_0).await, immediately("gated")).await;
    let sent = remote.call_of("tasks/send").await;
    gateway.kill().await;

    let gateway = remote.gateway(store).await;
    assert_eq!(remote.call_of("tasks/get").await["id"], sent["id"]);
    let id = sent["id"].as_str().unwrap();
    let artifacts = json!({"artifacts": [{"parts": [{"type": "text", "text": "done"}], "index": 0}]});
    remote.agent.put(id, &sent, "completed", artifacts);
    let client = client(&gateway, Version::V1_0).await;
    let task = reaches(&client, &task, TaskState::Completed).await;
    assert_eq!(texts(&task, "0"), ["done"]);
    assert!(remote.methods().iter().all(|method| method == "tasks/get"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_task_of_a_lost_response_of_0_1_is_found_again() {
    let mut remote = Remote01::start(false, false).await;
    let gateway = remote.gateway(new_store()).await;
    let client = client(&gateway, Version::V1_0).await;
    // From now on it is known which version the agent speaks.
    send(&client, "hi").await;
    let task = send(&client, immediately("lost")).await;
    let sent = loop {
        let sent = remote.call_of("tasks/send").await;
        if sent["message"]["parts"][0]["text"] == "lost" {
            break sent;
        }
    };
    remote.call_of("tasks/get").await;
    remote.agent.put(sent["id"].as_str().unwrap(), &sent, "completed", Value::Null);
    reaches(&client, &task, TaskState::Completed).await;
    assert!(!remote.methods().contains(&"tasks/send".to_owned()), "it was sent once");
}
