//! HTTP triggers of the embedded engine, at the real command: who may use them, and what they get to see.

use attache_iii::wire::RegisterFunction;
use attache_iii::worker::{Invocation, Worker, WorkerOptions};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::{Program, until};

const TOKEN: &str = "the token of somebody";
const KEY: &str = "the key of somebody else";

/// A server with two functions that answer with what they get, at `/private` and at `/public`.
struct Served {
    program: Program,
    _worker: Worker,
    client: reqwest::Client,
}

impl Served {
    async fn new(auth: &str) -> Self {
        let home = Home::new();
        let settings = "listen: 127.0.0.1:0\nstore: \"memory:\"\nengine: { listen: 127.0.0.1:0 }\n";
        let file = home.file("some.yml", &format!("{settings}{auth}"));
        let (program, said) = Program::command_with(&["serve", "--config", &file], &[]).await;
        let engine = said.lines().find_map(|line| line.trim().strip_prefix("workers "));
        let engine = engine.expect("workers can join").trim().to_owned();
        let worker = Worker::connect(WorkerOptions::new(engine)).expect("a worker");
        for (name, metadata) in [("private", json!({})), ("public", json!({"a2a.public": true}))] {
            let function = RegisterFunction {
                id: format!("echo::{name}"),
                metadata: Some(metadata),
                ..RegisterFunction::default()
            };
            let answer = |call: Invocation| async move {
                let mut seen: Value = call.read()?;
                let seen = json!({"headers": seen["headers"].take(), "query": seen["query_params"].take()});
                Ok(to_raw_value(&json!({"body": seen})).expect("JSON"))
            };
            drop(worker.register(function, answer));
            let config = json!({"api_path": name, "http_method": "GET"});
            drop(worker.register_trigger("http", format!("echo::{name}"), config));
        }
        let served = Self { program, _worker: worker, client: reqwest::Client::new() };
        for name in ["private", "public"] {
            until("the triggers are there", async || {
                served.get(name).send().await.expect("an answer").status() != StatusCode::NOT_FOUND
            })
            .await;
        }
        served
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}/{path}", self.program.url))
    }
}

async fn status(request: RequestBuilder) -> StatusCode {
    request.send().await.expect("an answer").status()
}

async fn seen(request: RequestBuilder) -> Value {
    request.send().await.expect("an answer").json().await.expect("JSON")
}

fn auth() -> String {
    let keys = ["in: header, header: X-API-Key", "in: query, query: key", "in: cookie, cookie: session"];
    let key = |(number, place)| format!("    - {{ name: ci{number}, key: \"{KEY}{number}\", {place} }}\n");
    let keys: String = keys.iter().enumerate().map(key).collect();
    format!("auth:\n  bearer:\n    - {{ name: ann, token: \"{TOKEN}\" }}\n  api-key:\n{keys}")
}

#[tokio::test]
async fn triggers_ask_for_the_credentials_of_the_bindings_unless_they_are_public() {
    let served = Served::new(&auth()).await;
    let refused = served.get("private").send().await.expect("an answer");
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert!(refused.headers().contains_key("www-authenticate"));
    assert_eq!(
        status(served.get("private").bearer_auth("the token of nobody")).await,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(status(served.get("private").bearer_auth(TOKEN)).await, StatusCode::OK);
    assert_eq!(status(served.get("private").header("x-api-key", format!("{KEY}0"))).await, StatusCode::OK);
    assert_eq!(status(served.get("public")).await, StatusCode::OK);
    assert_eq!(status(served.get("nothing")).await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn no_trigger_sees_a_credential() {
    let served = Served::new(&auth()).await;
    let (header, cookie) = (format!("{KEY}0"), format!("theme=dark; session={KEY}2"));
    let key = format!("{KEY}1").replace(' ', "%20");
    for path in ["private", "public"] {
        let request = served.get(&format!("{path}?key={key}&a=1")).bearer_auth(TOKEN).header("x-other", "1");
        let request = request.header("x-api-key", &header).header("cookie", &cookie);
        let seen = seen(request).await;
        let text = seen.to_string();
        assert!(!text.contains("somebody"), "{text}");
        assert_eq!(
            (&seen["headers"]["x-other"], &seen["headers"]["cookie"]),
            (&json!("1"), &json!("theme=dark"))
        );
        assert_eq!(seen["query"], json!({"a": "1"}));
    }
}

#[tokio::test]
async fn without_auth_triggers_are_for_everyone_and_see_everything() {
    let served = Served::new("").await;
    let seen = seen(served.get("private").bearer_auth(TOKEN)).await;
    assert_eq!(seen["headers"]["authorization"], format!("Bearer {TOKEN}"));
}

#[tokio::test]
async fn the_api_of_delegation_is_not_for_this_machine_where_callers_are_asked_who_they_are() {
    let served = Served::new(&auth()).await;
    for request in [served.get("api/a2a/cards"), served.get("api/a2a/cards").bearer_auth(TOKEN)] {
        assert_eq!(status(request).await, StatusCode::FORBIDDEN);
    }
    let open = Served::new("").await;
    assert_eq!(status(open.get("api/a2a/cards")).await, StatusCode::OK);
}

/// Registers a trigger at a path that the server may need for itself. It is rejected, and the log names both; or else it is called.
async fn registers_at(path: &str, reserved: Option<&str>, more: &str) {
    let home = Home::new();
    let settings = "listen: 127.0.0.1:0\nstore: \"memory:\"\nengine: { listen: 127.0.0.1:0 }\n";
    let file = home.file("some.yml", &format!("{settings}{more}"));
    let (program, said, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
    let engine = said.lines().find_map(|line| line.trim().strip_prefix("workers "));
    let worker = Worker::connect(WorkerOptions::new(engine.expect("workers can join").trim().to_owned()))
        .expect("a worker");
    let function = RegisterFunction { id: "shop::file".to_owned(), ..RegisterFunction::default() };
    drop(worker.register(function, |_: Invocation| async move {
        Ok(to_raw_value(&json!({"body": "of the worker"})).expect("JSON"))
    }));
    let config = json!({"api_path": path, "http_method": "GET"});
    drop(worker.register_trigger("http", "shop::file".to_owned(), config));
    match reserved {
        None => {
            let url = format!("{}/{path}", program.url);
            until("the trigger is there", async || {
                let response = reqwest::get(&url).await.expect("an answer");
                response.text().await.expect("a text").contains("of the worker")
            })
            .await;
        }
        Some(reserved) => {
            let line = log.line_with("has a path of the A2A server and was rejected").await;
            assert!(line.contains(path) && line.contains(reserved) && line.contains("shop::file"), "{line}");
        }
    }
}

#[tokio::test]
async fn a_trigger_where_artifacts_are_is_rejected_and_the_log_names_both() {
    registers_at("artifacts/mine", Some("/artifacts"), "").await;
    registers_at("artifacts/mine", None, "artifacts: { stored: false }\n").await;
}

#[tokio::test]
async fn a_trigger_where_named_agents_are_is_rejected_and_the_log_names_both() {
    for path in ["agents", "agents/mine"] {
        registers_at(path, Some("/agents"), "agents: { one: { echo: true } }\n").await;
        registers_at(path, None, "").await;
    }
}
