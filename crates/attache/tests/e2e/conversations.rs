//! Conversations with the command: contexts, workspaces and input as the settings say.
#![cfg(unix)]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::home::Home;
use crate::programs::has_python;
use crate::support::{Program, attache};

/// Serves the scripted agent of the example in our own mode, with these settings.
async fn serve(home: &Home, settings: &str) -> Program {
    let agent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/iac-code/agent.py");
    let program = format!("program: {{ command: [python3, {}], protocol: json }}\n", agent.display());
    let file = home.file("attache.yml", &format!("store: \"memory:\"\n{program}{settings}"));
    Program::command(&["serve", "--config", &file, "--listen", "127.0.0.1:0"]).await.0
}

/// Calls a JSON-RPC method. The result has the error, if there is one.
async fn rpc(server: &Program, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": "1", "method": method, "params": params});
    let request = reqwest::Client::new().post(format!("{}/a2a", server.url)).header("A2A-Version", "1.0");
    request.json(&body).send().await.unwrap().json().await.unwrap()
}

async fn send(server: &Program, message: Value) -> Value {
    let mut message = message;
    message["messageId"] = json!("m");
    message["role"] = json!("ROLE_USER");
    rpc(server, "SendMessage", json!({"message": message})).await
}

fn text(text: &str, context: &str) -> Value {
    json!({"parts": [{"text": text}], "contextId": context})
}

/// Where the scripted agent works in a context.
async fn directory(server: &Program, context: &str) -> PathBuf {
    let answer = send(server, text("where", context)).await;
    let history = answer["result"]["task"]["history"].as_array().unwrap_or_else(|| panic!("{answer}"));
    PathBuf::from(history.last().unwrap()["parts"][0]["text"].as_str().unwrap())
}

#[tokio::test]
async fn each_context_of_a_program_has_a_private_directory_unless_the_operator_names_one() {
    if !has_python("conversations::each_context_of_a_program_has_a_private_directory") {
        return;
    }
    let home = Home::new();
    let settings = |more: &str| {
        let agent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/iac-code/agent.py");
        let agent = agent.display();
        let text = format!("program: {{ command: [python3, {agent}], protocol: json{more} }}\n");
        home.file("attache.yml", &text)
    };
    let data = home.path("data");
    let file = settings(&format!(", data-directory: {}", data.display()));
    let start = ["serve", "--config", &file, "--listen", "127.0.0.1:0"];
    let (server, _) = Program::command(&start).await;
    let first = directory(&server, "a").await;
    assert!(first.starts_with(data.canonicalize().unwrap()) && first.is_dir(), "{}", first.display());
    assert_eq!(directory(&server, "a").await, first);
    assert_ne!(directory(&server, "b").await, first);
    drop(server);
    // The directory of the server.
    let folder = home.path("shared");
    std::fs::create_dir(&folder).unwrap();
    settings("");
    let arguments = [&start[..], &["--workspace", "."]].concat();
    let environment = [("ATTACHE_STORE", "memory:")];
    let (server, _) = Program::command_in(folder.to_str().unwrap(), &arguments, &environment).await;
    for context in ["a", "b"] {
        assert_eq!(directory(&server, context).await, folder.canonicalize().unwrap());
    }
    let wrong = home.file("wrong.yml", "program: { command: cat, workspace: . }\n");
    let refused = home.run(&["serve", "--config", &wrong]).await;
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(refused.stderr.contains("need `protocol: json`"), "{refused}");
}

#[tokio::test]
async fn a_busy_context_refuses_if_the_settings_say_so() {
    if !has_python("conversations::a_busy_context_refuses_if_the_settings_say_so") {
        return;
    }
    let home = Home::new();
    let server = serve(&home, "contexts: { busy: reject, end-state: completed }\n").await;
    let mut long = text("sleep 30", "c");
    (long["messageId"], long["role"]) = (json!("m"), json!("ROLE_USER"));
    let params = json!({"message": long, "configuration": {"returnImmediately": true}});
    let running = rpc(&server, "SendMessage", params).await;
    let refused = send(&server, text("hello", "c")).await;
    assert_eq!(refused["error"]["code"], -32004, "{refused}");
    assert!(
        refused["error"]["message"].as_str().unwrap().starts_with("Task is already working."),
        "{refused}"
    );
    let id = running["result"]["task"]["id"].clone();
    let still = rpc(&server, "GetTask", json!({"id": id})).await;
    assert_ne!(still["result"]["status"]["state"], "TASK_STATE_FAILED", "{still}");
    let canceled = rpc(&server, "CancelTask", json!({"id": id})).await;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
}

#[tokio::test]
async fn workspaces_and_media_types_are_those_of_the_settings() {
    if !has_python("conversations::workspaces_and_media_types_are_those_of_the_settings") {
        return;
    }
    let home = Home::new();
    let projects = home.path("projects");
    std::fs::create_dir_all(projects.join("shop")).unwrap();
    let settings = format!("workspaces: [{}]\ninput: {{ media-types: [image/png] }}\n", projects.display());
    let server = serve(&home, &settings).await;
    let with = |path: &Path| {
        let mut message = text("where", "c");
        message["metadata"] = json!({"attache": {"workspace": path}});
        message
    };
    let done = send(&server, with(&projects.join("shop"))).await;
    assert_eq!(done["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    assert!(
        done.to_string().contains(projects.join("shop").canonicalize().unwrap().to_str().unwrap()),
        "{done}"
    );
    for path in [projects.clone(), home.path("elsewhere"), "/etc".into()] {
        let refused = send(&server, with(&path)).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    let video = json!({"parts": [{"raw": "AQI=", "mediaType": "video/mp4"}]});
    assert_eq!(send(&server, video).await["error"]["code"], -32005);
    let remote = json!({"parts": [{"url": "https://example.org/a.png", "mediaType": "image/png"}]});
    assert_eq!(send(&server, remote).await["error"]["code"], -32602);
}

#[tokio::test]
async fn no_caller_can_work_in_the_data_of_the_server() {
    if !has_python("conversations::no_caller_can_work_in_the_data_of_the_server") {
        return;
    }
    let home = Home::new();
    let data = home.path("data");
    for name in ["projects", "content/tasks"] {
        std::fs::create_dir_all(data.join(name)).unwrap();
    }
    let agent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/iac-code/agent.py");
    let settings = format!(
        "store: \"sqlite:{0}/tasks.db\"\nartifacts: {{ directory: {0}/content }}\nworkspaces: [{0}]\n\
         program: {{ command: [python3, {1}], protocol: json }}\n",
        data.display(),
        agent.display()
    );
    let file = home.file("attache.yml", &settings);
    let server = Program::command(&["serve", "--config", &file, "--listen", "127.0.0.1:0"]).await.0;
    let with = |name: &str| {
        let mut message = json!({"parts": [{"text": "where"}]});
        message["metadata"] = json!({"attache": {"workspace": data.join(name)}});
        message
    };
    let done = send(&server, with("projects")).await;
    assert_eq!(done["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    for (name, rule) in [
        ("content", "it must be inside"),
        ("content/tasks", "it must be inside"),
        ("", "it must not contain the data of the server"),
    ] {
        let refused = send(&server, with(name)).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(refused.to_string().contains(rule), "{name}: {refused}");
    }
}

#[tokio::test]
async fn a_workspace_that_is_missing_stops_the_server() {
    let home = Home::new();
    let file = home.file("attache.yml", "agent: echo\nworkspaces: [/does/not/exist]\n");
    let output = attache().args(["config", "check", "--config", &file]).output().await.unwrap();
    assert!(!output.status.success());
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("`/does/not/exist` is not a directory"), "{said}");
}

#[tokio::test]
async fn a_server_that_is_told_to_stops_when_it_is_idle() {
    let home = Home::new();
    let file = home.file("attache.yml", "store: \"memory:\"\nagent: echo\nidle-shutdown: 300ms\n");
    let arguments = ["serve", "--config", &file, "--listen", "127.0.0.1:0"];
    let (server, _, mut log) = Program::watched(&arguments, &[]).await;
    log.line_with("nothing was asked of the server").await;
    tokio::spawn(log.skip());
    assert_eq!(server.end().await.code(), Some(0));
    // 0 switches it off.
    let off = Program::command(&[&arguments[..], &["--idle-shutdown", "0s"]].concat()).await.0;
    let sent = send(&off, text("hello", "c")).await;
    assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
}
