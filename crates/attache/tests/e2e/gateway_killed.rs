//! A gateway whose server is killed (`kill -9`) while the remote agent works: the next one goes on with the remote task.
#![cfg(unix)]

use serde_json::{Value, json};

use crate::home::Home;
use crate::support::{Program, until};

fn texts(task: &Value) -> String {
    let artifacts = task["artifacts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let parts = artifacts.iter().flat_map(|artifact| artifact["parts"].as_array().into_iter().flatten());
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// Waits until a task is as wanted.
async fn task_when(server: &Program, id: &Value, what: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
    let mut task = Value::Null;
    until(what, async || {
        task = server.call("GetTask", json!({"id": id})).await;
        is_so(&task)
    })
    .await;
    task
}

#[tokio::test]
async fn a_gateway_that_is_killed_goes_on_with_the_remote_task_and_does_not_send_the_message_again() {
    let home = Home::new();
    let gate = home.path("gate");
    let program = format!(
        "program: {{ command: [/bin/sh, -c, 'echo one; while [ ! -e {} ]; do sleep 0.1; done; echo two'] }}\n",
        gate.display()
    );
    let remote = home.file("remote.yml", &program);
    let arguments = ["serve", "--config", &remote, "--listen", "127.0.0.1:0", "--store", "memory"];
    let (remote, _) = Program::command(&arguments).await;
    let store = format!("sqlite:{}", home.path("tasks.db").display());
    let keyring = home.path("keyring.json").display().to_string();
    let gateway = ["serve", "--remote", &remote.url, "--listen", "127.0.0.1:0"];
    let gateway = [&gateway[..], &["--store", &store, "--keyring", &keyring]].concat();
    let (server, _) = Program::command_with(&gateway, &[]).await;

    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    let id = server.call("SendMessage", params).await["task"]["id"].clone();
    task_when(&server, &id, "the first part has come through", |task| texts(task) == "one\n").await;
    server.kill().await;
    std::fs::write(&gate, "").expect("the gate opens");

    let (server, _) = Program::command_with(&gateway, &[]).await;
    let ended = |task: &Value| task["status"]["state"] != "TASK_STATE_WORKING";
    let task = task_when(&server, &id, "the task has ended", ended).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    assert_eq!(texts(&task), "one\ntwo\n");
    let tasks = remote.call("ListTasks", json!({})).await;
    assert_eq!(tasks["tasks"].as_array().map(Vec::len), Some(1), "the message was sent once: {tasks}");
}
