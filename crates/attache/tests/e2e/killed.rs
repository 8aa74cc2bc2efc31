//! Servers that are killed (`kill -9`) while an agent works: no process is left, the task says what happened, and the next message works.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::post;
use futures::StreamExt;
use serde_json::{Value, json};

use crate::home::Home;
use crate::programs::has_python;
use crate::support::{Program, until};

/// The scripts of the agents that other tests use.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../attache-agents/tests");

/// A server with settings and a store that outlive it.
pub(crate) struct Killable {
    home: Home,
    settings: String,
}

impl Killable {
    pub(crate) fn new(settings: impl FnOnce(&Home) -> String) -> Self {
        let home = Home::new();
        let settings = settings(&home);
        let settings = home.file("attache.yml", &settings);
        Self { home, settings }
    }

    pub(crate) async fn start(&self) -> Program {
        let store = format!("sqlite:{}", self.home.path("tasks.db").display());
        let keyring = self.home.path("keyring.json").display().to_string();
        let listen = ["serve", "--config", &self.settings, "--listen", "127.0.0.1:0"];
        let arguments = [&listen[..], &["--store", &store, "--keyring", &keyring]].concat();
        Program::command_with(&arguments, &[]).await.0
    }
}

fn message(text: &str, context: &str) -> Value {
    let id = format!("{context} {text}");
    json!({"messageId": id, "role": "ROLE_USER", "contextId": context, "parts": [{"text": text}]})
}

/// Sends a text, and waits for the task.
pub(crate) async fn say(server: &Program, context: &str, text: &str) -> Value {
    server.call("SendMessage", json!({"message": message(text, context)})).await["task"].clone()
}

/// Sends a text, and waits until the task has a part of its answer or a progress report. Returns its id.
pub(crate) async fn begin(server: &Program, context: &str, text: &str) -> Value {
    let params = json!({"message": message(text, context), "configuration": {"returnImmediately": true}});
    let id = server.call("SendMessage", params).await["task"]["id"].clone();
    until("the agent works", async || {
        let task = server.call("GetTask", json!({"id": id})).await;
        assert_ne!(task["status"]["state"], "TASK_STATE_FAILED", "{task}");
        !answer(&task).is_empty() || task["status"]["message"].is_object()
    })
    .await;
    id
}

/// Waits until a task has ended.
pub(crate) async fn ended(server: &Program, id: &Value) -> Value {
    let mut task = Value::Null;
    until("the task has ended", async || {
        task = server.call("GetTask", json!({"id": id})).await;
        matches!(task["status"]["state"].as_str(), Some("TASK_STATE_FAILED" | "TASK_STATE_COMPLETED"))
    })
    .await;
    task
}

pub(crate) fn answer(task: &Value) -> String {
    let artifacts = task["artifacts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let parts = artifacts.iter().flat_map(|artifact| artifact["parts"].as_array().into_iter().flatten());
    parts.filter_map(|part| part["text"].as_str()).collect()
}

pub(crate) fn reason(task: &Value) -> &str {
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{task}");
    task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

/// What a caller reads if the agent may have done something already.
pub(crate) const INTERRUPTED: &str = "the server stopped while the agent was at work";

pub(crate) async fn gone(pid: &str) {
    let path = format!("/proc/{}", pid.trim());
    until("the process of the agent is gone", async || !Path::new(&path).exists()).await;
}

#[tokio::test]
async fn a_program_fails_its_task_and_the_next_message_starts_it_again() {
    let killable = Killable::new(|_| {
        "program: { command: [/bin/sh, -c, 'read word; echo $$; [ \"$word\" = hang ] && sleep 1000; exit 0'] }\n"
            .to_owned()
    });
    let server = killable.start().await;
    let id = begin(&server, "c", "hang").await;
    let pid = answer(&server.call("GetTask", json!({"id": id})).await);
    server.kill().await;
    gone(&pid).await;
    let server = killable.start().await;
    let task = ended(&server, &id).await;
    assert!(reason(&task).contains(INTERRUPTED), "{task}");
    assert_eq!(answer(&task), pid, "what arrived is kept");
    assert_eq!(say(&server, "c", "go on").await["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_program_with_the_json_protocol_fails_its_task_and_the_next_message_starts_it_again() {
    let killable = Killable::new(|home| {
        // The second process has left the group of the first.
        let script = r#"
            read -r message
            setsid sleep 1000 &
            echo "{\"type\":\"chunk\",\"text\":\"$$ $!\"}"
            case "$message" in *'"text":"hang","type"'*) sleep 1000 ;; esac
            case "$message" in *'"text":"ask","type"'*) echo '{"type":"ask","text":"what?"}'; read -r answer ;; esac
            echo '{"type":"complete"}'
        "#;
        let script = home.file("agent.sh", script);
        format!("program: {{ protocol: json, command: [/bin/sh, {script}] }}\n")
    });
    let server = killable.start().await;
    let asked = say(&server, "other", "ask").await;
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    let id = begin(&server, "c", "hang").await;
    let pids = answer(&server.call("GetTask", json!({"id": id})).await);
    let all = format!("{pids} {}", answer(&asked));
    server.kill().await;
    for pid in all.split_whitespace() {
        gone(pid).await;
    }
    let server = killable.start().await;
    let task = ended(&server, &id).await;
    assert!(reason(&task).contains(INTERRUPTED), "{task}");
    assert_eq!(answer(&task), pids, "what arrived is kept");
    assert_eq!(say(&server, "c", "go on").await["status"]["state"], "TASK_STATE_COMPLETED");
    // The answer to the question starts the program again.
    let answered =
        json!({"messageId": "a", "role": "ROLE_USER", "taskId": asked["id"], "parts": [{"text": "this"}]});
    let task = server.call("SendMessage", json!({"message": answered})).await["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
}

#[tokio::test]
async fn a_model_is_asked_again() {
    let requests = Arc::new(AtomicUsize::new(0));
    let reply = move || {
        let event = |delta: Value, finish: Value| {
            format!(
                "data: {}\n\n",
                json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
            )
        };
        let (text, hangs) = match requests.fetch_add(1, Ordering::SeqCst) {
            0 => (event(json!({"content": "half"}), Value::Null), true),
            _ => (event(json!({"content": "whole"}), json!("stop")), false),
        };
        let rest = futures::stream::once(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok::<_, std::io::Error>(Bytes::new())
        });
        let first = futures::stream::iter([Ok(Bytes::from(text))]);
        async move { ([("content-type", "text/event-stream")], Body::from_stream(first.chain(rest))) }
    };
    let app = Router::new().route("/v1/chat/completions", post(reply));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/v1", listener.local_addr().expect("it has an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let killable = Killable::new(|_| format!("model: {{ url: {url}, name: small }}\n"));
    let server = killable.start().await;
    let id = begin(&server, "c", "hello").await;
    server.kill().await;
    let server = killable.start().await;
    let task = ended(&server, &id).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    assert_eq!(answer(&task), "whole", "what arrived first is replaced");
}

#[tokio::test]
async fn a_coding_agent_fails_its_task_and_goes_on_with_its_session() {
    if !has_python("killed::a_coding_agent_fails_its_task_and_goes_on_with_its_session") {
        return;
    }
    let killable = Killable::new(|home| {
        let (script, data) = (format!("{SCRIPTS}/acp/agent.py"), home.path("data"));
        format!("acp: {{ command: [python3, {script}, --load], data-directory: {} }}\n", data.display())
    });
    let server = killable.start().await;
    let pid = answer(&say(&server, "other", "pid").await);
    let session = answer(&say(&server, "c", "session").await);
    let id = begin(&server, "c", "hang").await;
    server.kill().await;
    gone(&pid).await;
    let server = killable.start().await;
    let task = ended(&server, &id).await;
    assert!(reason(&task).contains(INTERRUPTED), "{task}");
    assert_eq!(answer(&task), "hanging", "what arrived is kept");
    // The same session in the same directory, in a new process of the agent. A session that was loaded counts from 100.
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (before, after) = (words(&session), words(&answer(&say(&server, "c", "session").await)));
    assert_eq!((&after[0], after[1].as_str(), &after[2]), (&before[0], "101", &before[2]));
    assert_ne!(answer(&say(&server, "other", "pid").await), pid);
}

#[tokio::test]
async fn a_function_fails_its_task_and_can_be_called_again() {
    let settings = "engine: { listen: \"127.0.0.1:0\" }\nfunctions: { demo: true }\n";
    let killable = Killable::new(|_| settings.to_owned());
    let server = killable.start().await;
    let call = json!({"message": message("demo::wait {\"seconds\": 600}", "c"), "configuration": {"returnImmediately": true}});
    let id = server.call("SendMessage", call).await["task"]["id"].clone();
    until("the function runs", async || {
        server.call("GetTask", json!({"id": id})).await["status"]["state"] == "TASK_STATE_WORKING"
    })
    .await;
    server.kill().await;
    let server = killable.start().await;
    let task = ended(&server, &id).await;
    assert!(reason(&task).contains(INTERRUPTED), "{task}");
    let task = say(&server, "c", "demo::wait {\"seconds\": 0}").await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
}

#[tokio::test]
async fn an_mcp_server_fails_its_call_and_is_started_again() {
    if !has_python("killed::an_mcp_server_fails_its_call_and_is_started_again") {
        return;
    }
    let killable = Killable::new(|_| format!("mcp: {{ command: [python3, {SCRIPTS}/mcp/server.py] }}\n"));
    let server = killable.start().await;
    let process = |task: &Value| -> Value {
        serde_json::from_str::<Value>(&answer(task)).expect("the tool reports its process")["pid"].clone()
    };
    let pid = process(&say(&server, "c", "process {}").await).to_string();
    let id = begin(&server, "c", "hang {}").await;
    server.kill().await;
    gone(&pid).await;
    let server = killable.start().await;
    let task = ended(&server, &id).await;
    assert!(reason(&task).contains(INTERRUPTED), "{task}");
    assert_ne!(process(&say(&server, "c", "process {}").await).to_string(), pid);
}

#[tokio::test]
async fn a_question_of_an_mcp_server_cannot_be_answered_any_more() {
    if !has_python("killed::a_question_of_an_mcp_server_cannot_be_answered_any_more") {
        return;
    }
    let killable = Killable::new(|_| format!("mcp: {{ command: [python3, {SCRIPTS}/mcp/server.py] }}\n"));
    let server = killable.start().await;
    let asked = say(&server, "c", "ask {}").await;
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    server.kill().await;
    let server = killable.start().await;
    let answered =
        json!({"messageId": "a", "role": "ROLE_USER", "taskId": asked["id"], "parts": [{"text": "blue"}]});
    let task = server.call("SendMessage", json!({"message": answered})).await["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{task}");
    assert!(!reason(&task).is_empty(), "{task}");
}
