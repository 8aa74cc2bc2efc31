//! The functions of an engine as skills: the documents' smoke path, on the sample functions of `serve --demo`.

use attache_iii::FunctionCall;
use attache_iii::wire::RegisterFunction;
use attache_iii::worker::{Invocation, Worker, WorkerOptions};
use futures::SinkExt;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::support::{Program, until};

const DEMO: [&str; 6] = ["serve", "--demo", "--listen", "127.0.0.1:0", "--engine-listen", "127.0.0.1:0"];

async fn demo(more: &[&str]) -> Program {
    Program::command(&[&DEMO[..], more].concat()).await.0
}

async fn rpc(program: &Program, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": "t1", "method": method, "params": params});
    let response = reqwest::Client::new().post(format!("{}/a2a", program.url)).json(&body).send().await;
    response.expect("an answer").json().await.expect("JSON")
}

fn data(function: &str, payload: Value) -> Value {
    json!({"message": {"messageId": "m1", "role": "user",
        "parts": [{"data": {"function_id": function, "payload": payload}}]}})
}

fn text(text: &str) -> Value {
    json!({"message": {"messageId": "m2", "role": "user", "parts": [{"text": text}]}})
}

/// What a task says about its state.
fn said(answer: &Value) -> &str {
    let status = &answer["result"]["task"]["status"];
    assert_eq!(status["state"], "failed", "{answer}");
    status["message"]["parts"][0]["text"].as_str().expect("words")
}

#[tokio::test]
async fn the_demo_says_what_to_try() {
    let (program, said) = Program::command(&DEMO).await;
    let long: Vec<_> = said.lines().filter(|line| line.chars().count() > 80).collect();
    assert_eq!(long, Vec::<&str>::new());
    let address = program.url.trim_start_matches("http://").to_owned();
    let workers =
        said.lines().find_map(|line| line.trim().strip_prefix("workers    ws://")).expect("workers");
    insta::assert_snapshot!("demo", said.replace(&address, "ADDR").replace(workers, "WORKERS"));
}

#[tokio::test]
async fn without_functions_it_says_how_to_get_some() {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--engine-listen", "127.0.0.1:0"];
    let (program, said) = Program::command(&arguments).await;
    let address = program.url.trim_start_matches("http://").to_owned();
    let workers =
        said.lines().find_map(|line| line.trim().strip_prefix("workers    ws://")).expect("workers");
    insta::assert_snapshot!("no_functions", said.replace(&address, "ADDR").replace(workers, "WORKERS"));
    let answer = rpc(&program, "message/send", text("hello")).await;
    assert!(self::said(&answer).starts_with("No function_id found."), "{answer}");
}

/// The ids of the skills in the card.
async fn skills(program: &Program) -> Vec<String> {
    let card = reqwest::get(format!("{}/.well-known/agent-card.json", program.url)).await.expect("a card");
    let card: Value = card.json().await.expect("JSON");
    let skills = card["skills"].as_array().cloned().unwrap_or_default();
    skills.iter().map(|skill| skill["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn the_card_shows_what_is_exposed_and_nothing_else() {
    let exposed = ["demo::chat", "demo::count", "demo::wait", "pricing::quote"];
    assert_eq!(skills(&demo(&[]).await).await, exposed);
    let all = ["demo::chat", "demo::count", "demo::hidden", "demo::wait", "pricing::quote"];
    assert_eq!(skills(&demo(&["--expose-all"]).await).await, all);
    assert_eq!(skills(&demo(&["--tier", "partner"]).await).await, exposed, "the samples are for every tier");
    assert_eq!(skills(&demo(&["--tiers", "public,partner"]).await).await, exposed);
}

#[tokio::test]
async fn the_documents_smoke_path_holds() {
    let program = demo(&[]).await;
    let answer = rpc(&program, "message/send", data("pricing::quote", json!({"sku": "A-1"}))).await;
    let task = &answer["result"]["task"];
    assert_eq!(task["status"]["state"], "completed", "{answer}");
    let result = task["artifacts"][0]["parts"][0]["text"].as_str().expect("text");
    assert!(result.starts_with("{\n  \"currency\": \"EUR\",\n"), "{result}");
    let shorthand = rpc(&program, "message/send", text("pricing::quote {\"sku\": \"A-1\"}")).await;
    assert_eq!(shorthand["result"]["task"]["status"]["state"], "completed");
    // The lines of the documents, unchanged.
    for params in [data("pricing::quote", json!({})), text("pricing::quote {}")] {
        let answer = rpc(&program, "message/send", params).await;
        assert_eq!(answer["result"]["task"]["status"]["state"], "completed", "{answer}");
    }
    let stored = rpc(&program, "tasks/get", json!({"id": task["id"]})).await;
    assert_eq!(&stored["result"]["task"], task);
    let hidden = rpc(&program, "message/send", data("demo::hidden", json!({}))).await;
    assert_eq!(
        said(&hidden),
        "There is no function 'demo::hidden'. You can call: demo::chat, demo::count, demo::wait, pricing::quote."
    );
    let internal = rpc(&program, "message/send", data("state::set", json!({}))).await;
    assert!(said(&internal).contains("in the iii-engine internal namespace"), "{internal}");
}

#[tokio::test]
async fn the_log_tells_about_calls_workers_and_hidden_functions_but_not_about_payloads() {
    let (program, said, mut log) =
        Program::watched(&DEMO, &[("ATTACHE_STORE", "memory:"), ("NO_COLOR", "1")]).await;
    let engine = said.lines().find_map(|line| line.trim().strip_prefix("workers ")).expect("workers").trim();
    let answer = rpc(&program, "message/send", text("pricing::quote {\"sku\": \"top-secret\"}")).await;
    let line = log.line_with("function call").await;
    let task = answer["result"]["task"]["id"].as_str().expect("an id");
    for field in
        ["INFO", "function=\"pricing::quote\"", "caller=anonymous", task, "outcome=\"completed\"", "ms="]
    {
        assert!(line.contains(field), "{field}: {line}");
    }
    assert!(!line.contains("top-secret"), "{line}");
    rpc(&program, "message/send", text("pricing::qoute {}")).await;
    let line = log.line_with("cannot call this function").await;
    assert!(line.contains("no worker has registered it; `pricing::quote` is similar"), "{line}");

    let (mut socket, _) = tokio_tungstenite::connect_async(engine).await.expect("the engine is there");
    let profile = json!({"runtime": "python", "version": "0.11.3", "name": "shop"});
    for message in [
        json!({"type": "registerfunction", "id": "shop::buy", "metadata": {"a2a.expose": "true"}}),
        json!({"type": "invokefunction", "function_id": "engine::workers::register", "action": {"type": "void"}, "data": profile}),
    ] {
        socket.send(message.to_string().into()).await.expect("it is sent");
    }
    let line = log.line_with("worker joined").await;
    for field in ["name=\"shop\"", "runtime=\"python\"", "functions=1"] {
        assert!(line.contains(field), "{field}: {line}");
    }
    // As after `kill -9`: the connection ends without a word.
    drop(socket);
    let line = log.line_with("worker left").await;
    assert!(line.contains("name=\"shop\"") && line.contains("the connection is lost"), "{line}");
}

#[tokio::test]
async fn a_function_that_streams_is_followed_piece_by_piece() {
    let program = demo(&[]).await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": text("demo::count {\"to\": 2}")});
    let response =
        reqwest::Client::new().post(format!("{}/a2a", program.url)).json(&body).send().await.unwrap();
    let events: Vec<Value> = response
        .text()
        .await
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str::<Value>(data).expect("JSON")["result"].take())
        .collect();
    let pieces: Vec<_> = events
        .iter()
        .filter(|event| event["kind"] == "artifact-update")
        .map(|event| event["artifact"]["parts"][0]["text"].clone())
        .collect();
    assert_eq!(pieces, ["1\n", "2\n"].map(Value::from));
    assert_eq!(events.last().unwrap()["status"]["state"], "completed");
}

#[tokio::test]
async fn what_is_switched_off_is_refused_with_the_documented_codes() {
    let program = demo(&["--no-streaming", "--no-push"]).await;
    let streaming = rpc(&program, "message/stream", text("pricing::quote {}")).await;
    assert_eq!(streaming["error"]["code"], -32004, "{streaming}");
    let push = json!({"taskId": "t", "pushNotificationConfig": {"url": "https://example.com"}});
    let push = rpc(&program, "tasks/pushNotificationConfig/set", push).await;
    assert_eq!(push["error"]["code"], -32003, "{push}");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_and_nobody_else_disturbed() {
    let program = demo(&[]).await;
    let client = reqwest::Client::new();
    let huge = client.post(format!("{}/a2a", program.url)).header("content-type", "application/json");
    let refused = huge.body("x".repeat(20 * 1024 * 1024)).send().await;
    // The server may hang up before all of it is sent.
    if let Ok(refused) = refused {
        assert_eq!(refused.status(), 413);
    }
    let answer = rpc(&program, "message/send", text("pricing::quote {\"sku\": \"A-1\"}")).await;
    assert_eq!(answer["result"]["task"]["status"]["state"], "completed");
}

/// A call that reports progress.
fn progress(report: &serde_json::value::RawValue) -> FunctionCall<'_> {
    let timeout = std::time::Duration::from_secs(10);
    FunctionCall { function: "a2a::progress", payload: report, timeout, trace_parent: None }
}

#[tokio::test]
async fn a_function_reports_progress_while_it_runs() {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--engine-listen", "127.0.0.1:0"];
    let arguments = [&arguments[..], &["--default-function", "work::do"]].concat();
    let (program, said) = Program::command(&arguments).await;
    let engine =
        said.lines().find_map(|line| line.trim().strip_prefix("workers ")).expect("workers can join");
    let worker = Worker::connect(WorkerOptions::new(engine.trim().to_owned())).expect("a worker");
    let (calling, go_on) = (worker.clone(), std::sync::Arc::new(tokio::sync::Notify::new()));
    let gate = go_on.clone();
    let function = RegisterFunction {
        id: "work::do".to_owned(),
        metadata: Some(json!({"a2a.expose": true})),
        ..RegisterFunction::default()
    };
    drop(worker.register(function, move |call: Invocation| {
        let (worker, gate) = (calling.clone(), gate.clone());
        async move {
            let request: Value = call.read()?;
            let report =
                to_raw_value(&json!({"taskId": request["taskId"], "text": "half done"})).expect("JSON");
            worker.call(progress(&report)).await?;
            gate.notified().await;
            Ok(to_raw_value(&json!("all done")).expect("JSON"))
        }
    }));
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    let mut task = Value::Null;
    until("the function is there", async || {
        task = program.call("SendMessage", params.clone()).await["task"].clone();
        task["status"]["state"] != "TASK_STATE_FAILED"
    })
    .await;
    until("the progress is seen", async || {
        let now = program.call("GetTask", json!({"id": task["id"]})).await;
        now["status"]["message"]["parts"][0]["text"] == "half done"
    })
    .await;
    go_on.notify_one();
    until("the task has ended", async || {
        let now = program.call("GetTask", json!({"id": task["id"]})).await;
        now["status"]["state"] == "TASK_STATE_COMPLETED"
    })
    .await;
    // A report for a task that has ended is an error of the function that reports.
    let report = to_raw_value(&json!({"taskId": task["id"], "text": "late"})).expect("JSON");
    let late = worker.call(progress(&report)).await;
    assert!(late.unwrap_err().to_string().contains("no function of this agent runs for the task"));
}
