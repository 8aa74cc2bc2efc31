//! Agents of the server as the tools of a language model: a call that is given up, and a question of an agent.
#![cfg(unix)]

use serde_json::{Value, json};

use crate::home::Home;
use crate::model;
use crate::support::{Program, until};

/// A program that never ends, one that asks, and a model that can call both.
async fn serve(home: &Home, extra: &str) -> Program {
    let settings = format!(
        r#"
listen: 127.0.0.1:0
store: memory
agent: echo
agents:
  slow: {{ program: {{ command: [/bin/sh, -c, 'echo begun; sleep 1000'] }} }}
  clerk:
    program:
      protocol: json
      command: [/bin/sh, -c, 'read m; echo "{{\"type\":\"ask\",\"text\":\"which day?\"}}"; read a; echo "{{\"type\":\"complete\",\"text\":\"booked\"}}"']
  chat: {{ model: {{ url: {url}, name: small, key: {key}, tools: [agent:slow, agent:clerk]{extra} }} }}
"#,
        url = model::start().await,
        key = model::KEY
    );
    let file = home.file("attache.yml", &settings);
    Program::command(&["serve", "--config", &file]).await.0
}

/// Calls a method of a named agent.
async fn call(server: &Program, agent: &str, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let url = format!("{}/agents/{agent}/a2a", server.url);
    let request = reqwest::Client::new().post(url).header("A2A-Version", "1.0").json(&body);
    let response: Value = request.send().await.expect("the server answers").json().await.expect("JSON");
    assert!(response.get("error").is_none(), "{method}: {response}");
    response["result"].clone()
}

fn message(text: &str) -> Value {
    json!({"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}], "contextId": "c"})
}

/// The only task of an agent, once there is one that is in this state.
async fn only_task(server: &Program, agent: &str, state: &str) -> Value {
    let mut task = Value::Null;
    until(&format!("the task of {agent} is in {state}"), async || {
        let listed = call(server, agent, "ListTasks", json!({"includeArtifacts": true})).await;
        let tasks = listed["tasks"].as_array().cloned().unwrap_or_default();
        assert!(tasks.len() < 2, "{tasks:?}");
        task = tasks.into_iter().next().unwrap_or_default();
        task["status"]["state"] == state
    })
    .await;
    task
}

#[tokio::test]
async fn a_cancel_of_a_model_cancels_the_task_of_the_agent_that_it_has_called() {
    let home = Home::new();
    let server = serve(&home, "").await;
    let asking = message(r#"call ask_slow {"message": "hi"}"#);
    let params = json!({"message": asking, "configuration": {"returnImmediately": true}});
    let task = call(&server, "chat", "SendMessage", params).await["task"]["id"].clone();
    until("the program has begun", async || {
        call(&server, "slow", "ListTasks", json!({"includeArtifacts": true}))
            .await
            .to_string()
            .contains("begun")
    })
    .await;
    let canceled = call(&server, "chat", "CancelTask", json!({"id": task})).await;
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    only_task(&server, "slow", "TASK_STATE_CANCELED").await;
}

#[tokio::test]
async fn an_agent_that_takes_longer_than_the_tool_timeout_is_canceled_and_the_model_goes_on() {
    let home = Home::new();
    let server = serve(&home, ", tool-timeout: 1s").await;
    let asking = message(r#"call ask_slow {"message": "hi"}"#);
    let answered = call(&server, "chat", "SendMessage", json!({"message": asking})).await;
    let reply = model::reply(&answered["task"]);
    assert!(reply.ends_with("tool: error: the tool did not finish within 1 s"), "{answered}");
    only_task(&server, "slow", "TASK_STATE_CANCELED").await;
}

#[tokio::test]
async fn a_model_can_answer_the_question_of_an_agent() {
    let home = Home::new();
    let server = serve(&home, "").await;
    let send = async |text: &str| {
        let answered = call(&server, "chat", "SendMessage", json!({"message": message(text)})).await;
        let reply = model::reply(&answered["task"]);
        reply.split_once("tool: ").unwrap_or_else(|| panic!("{answered}")).1.to_owned()
    };
    let asked: Value = serde_json::from_str(&send(r#"call ask_clerk {"message": "a table"}"#).await).unwrap();
    assert_eq!(asked["question"], "which day?");
    let task = only_task(&server, "clerk", "TASK_STATE_INPUT_REQUIRED").await;
    assert_eq!(asked["taskId"], task["id"]);
    let answer = json!({"message": "monday", "taskId": asked["taskId"]});
    assert_eq!(send(&format!("call ask_clerk {answer}")).await, "booked");
    only_task(&server, "clerk", "TASK_STATE_COMPLETED").await;
}

#[tokio::test]
async fn the_trace_of_a_message_reaches_the_agents_and_functions_that_the_model_calls() {
    const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let home = Home::new();
    let settings = format!(
        r#"
listen: 127.0.0.1:0
store: memory
log: {{ format: json }}
agents:
  clerk: {{ echo: true, card: {{ name: Clerk, description: Repeats }} }}
  chat: {{ model: {{ url: {url}, name: small, key: {key}, tools: [agent:clerk, functions] }} }}
"#,
        url = model::start().await,
        key = model::KEY
    );
    let file = home.file("attache.yml", &settings);
    let arguments = ["serve", "--demo", "--engine-listen", "127.0.0.1:0", "--config", &file];
    let (server, _, mut log) = Program::watched(&arguments, &[]).await;
    let send = async |text: &str| {
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message(text)}});
        let request = reqwest::Client::new().post(format!("{}/agents/chat/a2a", server.url)).json(&body);
        let request = request.header("traceparent", format!("00-{TRACE_ID}-00f067aa0ba902b7-01"));
        request.header("A2A-Version", "1.0").send().await.expect("the server answers");
    };
    send(r#"call pricing__quote {"sku": "A-1"}"#).await;
    let line = log.line_with("function call").await;
    assert!(line.contains(TRACE_ID), "{line}");
    send(r#"call ask_clerk {"message": "hi"}"#).await;
    let line = log.line_with(r#""agent":"Clerk""#).await;
    assert!(line.contains(TRACE_ID), "{line}");
}
