//! The input categories of the reference with their limits, and contexts that are put away.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Client;
use serde_json::{Value, json};

use super::{Server, message, settings_with, start, state};
use crate::home::Home;
use crate::programs::has_python;
use crate::support::Program;

const MIB: usize = 1024 * 1024;

/// What the agent says about the prompt that it got.
fn prompt(answer: &Value) -> String {
    assert_eq!(state(answer), "TASK_STATE_INPUT_REQUIRED", "{answer}");
    answer.to_string()
}

impl Server {
    pub(super) async fn send_part(&self, cwd: &Path, part: Value) -> Value {
        let more = json!({"parts": [part], "metadata": {"iac_code": {"cwd": cwd}}});
        self.send(message("", more)).await
    }
}

#[tokio::test]
async fn every_category_of_input_reaches_the_prompt_up_to_its_limit() {
    if !has_python("iac_code::input::every_category_of_input_reaches_the_prompt_up_to_its_limit") {
        return;
    }
    let home = Home::new();
    let project = home.path("project");
    std::fs::create_dir(&project).unwrap();
    let server = start(&home, &[]).await;
    let send = async |part: Value| server.send_part(&project, part).await;
    let refused = |answer: &Value| assert_eq!(answer["error"]["code"], -32602, "{answer}");
    // Text-like parts.
    for kind in ["text/plain", "application/json", "text/markdown", "text/yaml"] {
        let said = prompt(&send(json!({"text": "a: 1", "mediaType": kind})).await);
        assert!(said.contains("Here is the ROS template for: a: 1"), "{said}");
    }
    // JSON data is compact, and at most 1 MiB.
    let data = |text: String| json!({"data": {"a": [1, {"b": text}]}, "mediaType": "application/json"});
    let said = prompt(&send(data("x".to_owned())).await);
    assert!(said.contains(r#"{\"a\":[1,{\"b\":\"x\"}]}"#), "{said}");
    let around = r#"{"a":[1,{"b":""}]}"#.len();
    prompt(&send(data("x".repeat(MIB - around))).await);
    refused(&send(data("x".repeat(MIB - around + 1))).await);
    // Raw text is UTF-8, and at most 1 MiB.
    let raw = |bytes: &[u8]| json!({"raw": STANDARD.encode(bytes), "mediaType": "text/plain"});
    let said = prompt(&send(raw("é: 1".as_bytes())).await);
    assert!(said.contains("Here is the ROS template for: é: 1"), "{said}");
    prompt(&send(raw(&vec![b'x'; MIB])).await);
    refused(&send(raw(&vec![b'x'; MIB + 1])).await);
    refused(&send(raw(b"\xff")).await);
    // A file of text, at most 1 MiB.
    let file = |size: usize, name: &str, kind: &str| {
        let path = project.join(name);
        std::fs::write(&path, vec![b'x'; size]).unwrap();
        json!({"url": format!("file://{}", path.display()), "mediaType": kind})
    };
    prompt(&send(file(MIB, "main.tf", "text/plain")).await);
    refused(&send(file(MIB + 1, "main.tf", "text/plain")).await);
    refused(&send(json!({"url": format!("file://{}/missing", project.display())})).await);
    // Media are described: 5 MiB inline, 25 MiB in a file.
    let image = |size: usize| {
        let raw = STANDARD.encode(vec![0; size]);
        json!({"raw": raw, "mediaType": "image/png", "filename": "a.png"})
    };
    let said = prompt(&send(image(5 * MIB)).await);
    for words in ["a.png", "image/png", "5242880", "sha256"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    refused(&send(image(5 * MIB + 1)).await);
    let said = prompt(&send(file(25 * MIB, "a.wav", "audio/wav")).await);
    assert!(said.contains("26214400") && said.contains("a.wav"), "{said}");
    refused(&send(file(25 * MIB + 1, "a.wav", "audio/wav")).await);
}

#[tokio::test]
async fn an_idle_context_is_put_away_and_comes_back_with_its_conversation() {
    if !has_python("iac_code::input::an_idle_context_is_put_away_and_comes_back_with_its_conversation") {
        return;
    }
    let home = Home::new();
    let file = settings_with(&home, "contexts: { idle: 100ms }\n");
    let arguments = ["serve", "--config", &file, "--listen", "127.0.0.1:0"];
    let (program, _, mut log) = Program::watched(&arguments, &[]).await;
    let server = Server { program, http: Client::new() };
    let first = server.send(message("one", json!({"contextId": "c"}))).await;
    prompt(&first);
    log.line_with("context started").await;
    let ended = log.line_with("context ended").await;
    assert!(ended.contains("attache::context") && ended.contains("idle"), "{ended}");
    let second = server.send(message("recall", json!({"messageId": "m2", "contextId": "c"}))).await;
    log.line_with("context started").await;
    assert!(prompt(&second).contains("You said: one"), "{second}");
    tokio::spawn(log.skip());
    assert_eq!(second["result"]["task"]["contextId"], "c", "{second}");
    let listed = server.rpc("ListTasks", json!({"contextId": "c"})).await;
    assert_eq!(listed["result"]["tasks"].as_array().map(Vec::len), Some(2), "{listed}");
    // Ids have at most 128 of certain characters.
    for (id, is_valid) in [("a.b:c_d-9".to_owned(), true), ("x".repeat(128), true), ("x".repeat(129), false)]
    {
        let sent = server.send(message("hello", json!({"contextId": id}))).await;
        assert_eq!(sent["error"].is_null(), is_valid, "{sent}");
    }
}
