//! The `attache` command with the example: it finds the card, takes the first interface that it can use, and prints text.

use serde_json::{Value, json};

use super::{Server, message, settings_with, sha256, start, start_with};
use crate::home::Home;
use crate::programs::has_python;
use crate::support::{attache, until};

/// What the agent answers to `hello`.
const ANSWER: &str = "Here is the ROS template for: hello\n";

/// Sends, chats and reads tasks.
async fn works(home: &Home, address: &str) {
    let card = home.run(&["card", address]).await;
    assert_eq!(card.code, Some(0), "{address}: {card}");
    for text in ["iac-code 0.13.1\n", "iac_generation", "Generate Alibaba Cloud ROS and Terraform templates"]
    {
        assert!(card.stdout.contains(text), "{address}: {card}");
    }
    for how in ["--stream", "--no-stream"] {
        // A turn ends with `input-required`, which is the exit code 5.
        let sent = home.run(&["send", address, "hello", how]).await;
        assert_eq!((sent.code, sent.stdout.as_str()), (Some(5), ANSWER), "{address} {how}: {sent}");
        assert!(sent.stderr.contains("answer with `attache send "), "{address}: {sent}");
    }
    let sent = home.run(&["send", address, "hello", "--json"]).await;
    let sent: Value = serde_json::from_str(&sent.stdout).unwrap_or_else(|_| panic!("{address}: {sent}"));
    let id = sent["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}"));
    let got = home.run(&["task", "get", address, id]).await;
    assert!(got.code == Some(0) && got.stdout.contains(ANSWER.trim_end()), "{address}: {got}");
    let listed = home.run(&["task", "list", address, "--state", "input-required"]).await;
    assert!(listed.stdout.contains(id), "{address}: {listed}");
    // The second line goes on with the task of the first.
    let chat = home.run_with_input(&["chat", address], "hello\nrecall\n").await;
    assert_eq!(chat.stdout, format!("{ANSWER}You said: hello\n"), "{address}: {chat}");
    let running = home.run(&["send", address, "sleep 60", "--no-wait"]).await;
    let running = running.stdout.trim();
    let canceled = home.run(&["task", "cancel", address, running]).await;
    assert_eq!(canceled.code, Some(0), "{address}: {canceled}");
    let again = home.run(&["task", "cancel", address, running]).await;
    assert_eq!(again.code, Some(1), "{address}: {again}");
}

#[tokio::test]
async fn every_command_works_over_every_transport_of_the_reference() {
    if !has_python("iac_code::command::every_command_works_over_every_transport_of_the_reference") {
        return;
    }
    let home = Home::new();
    for (transport, scheme, path) in [
        ("http", "http", ""),
        ("websocket", "ws", "/a2a"),
        ("grpc", "http", ""),
        ("grpc-jsonrpc", "grpc-jsonrpc", ""),
    ] {
        let server = start_with(&Home::new(), &[], &format!("transport: {transport}\n")).await;
        let address = format!("{}{path}", server.program.url.replace("http://", &format!("{scheme}://")));
        works(&home, &address).await;
    }
}

#[tokio::test]
async fn every_command_works_over_the_socket_of_the_reference() {
    if !has_python("iac_code::command::every_command_works_over_the_socket_of_the_reference") {
        return;
    }
    let home = Home::new();
    let socket = home.path("iac.sock");
    let file = settings_with(&home, &format!("transport: unix\nsocket-path: {}\n", socket.display()));
    let mut command = attache();
    command.args(["serve", "--config", &file]).stderr(std::process::Stdio::null());
    let _child = command.kill_on_drop(true).spawn().unwrap();
    until("the socket is there", async || tokio::net::UnixStream::connect(&socket).await.is_ok()).await;
    works(&home, &format!("unix:{}", socket.display())).await;
}

#[tokio::test]
async fn a_command_starts_the_server_and_speaks_through_its_standard_streams() {
    if !has_python("iac_code::command::a_command_starts_the_server") {
        return;
    }
    let home = Home::new();
    let file = settings_with(&home, "transport: stdio\n");
    let address = format!("stdio:'{}' serve --config '{file}'", env!("CARGO_BIN_EXE_attache"));
    let sent = home.run(&["send", &address, "hello"]).await;
    assert_eq!((sent.code, sent.stdout.as_str()), (Some(5), ANSWER), "{sent}");
}

#[tokio::test]
async fn every_binding_of_the_card_can_be_chosen() {
    if !has_python("iac_code::command::every_binding_of_the_card_can_be_chosen") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    for binding in ["jsonrpc", "http-json", "grpc"] {
        for how in ["--stream", "--no-stream"] {
            let sent = home.run(&["send", &server.program.url, "hello", "--binding", binding, how]).await;
            assert_eq!((sent.code, sent.stdout.as_str()), (Some(5), ANSWER), "{binding} {how}: {sent}");
        }
    }
}

#[tokio::test]
async fn the_answer_of_each_turn_is_printed_once() {
    if !has_python("iac_code::command::the_answer_of_each_turn_is_printed_once") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let chat = home.run_with_input(&["chat", &server.program.url], "generate\nhello\nhello\n").await;
    assert_eq!(chat.stdout.matches(ANSWER.trim_end()).count(), 2, "{chat}");
    assert_eq!(chat.stdout.matches("[file vpc.yml").count(), 1, "{chat}");
    assert_eq!(chat.stdout.matches("Here is the ROS template...").count(), 1, "{chat}");
}

/// A server with a task that has a file, and the id of the task.
async fn server_with_a_file(home: &Home, more: &str) -> (Server, String) {
    let server = start_with(home, &[], more).await;
    let sent = server.send(message("generate", json!({}))).await;
    let id = sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned();
    (server, id)
}

#[tokio::test]
async fn files_with_a_local_url_are_downloaded_from_the_server() {
    if !has_python("iac_code::command::files_with_a_local_url_are_downloaded_from_the_server") {
        return;
    }
    let home = Home::new();
    let (server, task) = server_with_a_file(&home, "").await;
    let output = home.path("vpc.yml").display().to_string();
    let download = ["task", "download", &server.program.url, &task, "--output", &output, "--json"];
    let ran = home.run(&download).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    let content = std::fs::read(&output).unwrap();
    assert_eq!(content, b"ROSTemplateFormatVersion: '2015-09-01'\nResources: {}\n");
    let files: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(files["files"][0]["sha256"], sha256(&content), "{files}");
}

#[tokio::test]
async fn files_of_an_agent_on_a_socket_are_copied_if_they_have_the_hash_that_it_says() {
    if !has_python("iac_code::command::files_of_an_agent_on_a_socket_are_copied") {
        return;
    }
    let home = Home::new();
    let socket = home.path("iac.sock");
    let file = settings_with(&home, &format!("transport: unix\nsocket-path: {}\n", socket.display()));
    let mut command = attache();
    command.args(["serve", "--config", &file]).stderr(std::process::Stdio::null());
    let _child = command.kill_on_drop(true).spawn().unwrap();
    until("the socket is there", async || tokio::net::UnixStream::connect(&socket).await.is_ok()).await;
    let address = format!("unix:{}", socket.display());
    let sent = home.run(&["send", &address, "generate", "--json"]).await;
    let sent: Value = serde_json::from_str(&sent.stdout).unwrap_or_else(|_| panic!("{sent}"));
    let task = sent["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}"));
    let output = home.path("vpc.yml").display().to_string();
    let download = ["task", "download", &address, task, "--output", &output];
    let ran = home.run(&download).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    let content = std::fs::read(&output).unwrap();
    assert_eq!(content, b"ROSTemplateFormatVersion: '2015-09-01'\nResources: {}\n");
    // Another program has changed the file.
    std::fs::remove_file(&output).unwrap();
    let stored = sent["task"]["artifacts"][0]["parts"][0]["url"].as_str().unwrap();
    let stored = stored.strip_prefix("file://").unwrap();
    std::fs::remove_file(stored).unwrap();
    std::fs::write(stored, "something else").unwrap();
    let ran = home.run(&download).await;
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("is not what the agent says"), "{ran}");
    let left: Vec<_> = std::fs::read_dir(home.path("")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("vpc.yml")), "{left:?}");
}

#[tokio::test]
async fn a_server_that_was_not_used_for_a_while_ends_by_itself() {
    if !has_python("iac_code::command::a_server_that_was_not_used_for_a_while_ends_by_itself") {
        return;
    }
    let home = Home::new();
    let server = start_with(&home, &[], "idle-shutdown-seconds: 0.5\n").await;
    // A turn that takes longer keeps it alive.
    let sent = server.send(message("sleep 1", json!({}))).await;
    assert_eq!(super::state(&sent), "TASK_STATE_INPUT_REQUIRED", "{sent}");
    assert!(server.program.end().await.success());
}

#[tokio::test]
async fn a_permission_is_shown_and_answered_in_a_chat_in_the_form_of_both_namespaces() {
    if !has_python("iac_code::command::a_permission_is_shown_and_answered_in_a_chat") {
        return;
    }
    let home = Home::new();
    for namespace in ["attache", "iac_code"] {
        let more = format!("permission-default: ask\nmetadata-namespace: {namespace}\n");
        let server = start_with(&Home::new(), &[], &more).await;
        let url = &server.program.url;
        for (answer, expected) in [
            ("yes", "The stack is created."),
            ("1", "The stack is created."),
            ("no", "The stack is not created."),
            ("2", "The stack is not created."),
            ("deny", "The stack is not created."),
        ] {
            let chat = home.run_with_input(&["chat", url], &format!("apply\n{answer}\n")).await;
            for text in
                ["permission: Create the stack\n", "aliyun_ros\n", "vpc.yml", "\n  1. ", "\n  2. ", expected]
            {
                assert!(chat.stdout.contains(text), "{namespace} {answer}: {chat}");
            }
            assert!(!chat.stdout.contains("schemaVersion"), "{namespace}: {chat}");
        }
        // What is no answer changes nothing.
        let chat = home.run_with_input(&["chat", url], "apply\nperhaps\nyes\n").await;
        assert!(chat.stdout.contains("The stack is created."), "{namespace}: {chat}");
    }
}

#[tokio::test]
async fn a_message_to_a_task_that_asks_for_a_permission_says_how_to_answer() {
    if !has_python("iac_code::command::a_message_to_a_task_that_asks_for_a_permission") {
        return;
    }
    let home = Home::new();
    for how in ["--stream", "--no-stream"] {
        let server = start_with(&Home::new(), &[], "permission-default: ask\n").await;
        let url = &server.program.url;
        let asked = home.run(&["send", url, "apply", how]).await;
        assert_eq!(asked.code, Some(5), "{asked}");
        let task = asked.stderr.split("--task ").nth(1).and_then(|rest| rest.split(' ').next());
        let task = task.unwrap_or_else(|| panic!("{asked}"));
        let refused = home.run(&["send", url, "yes", "--task", task, how]).await;
        assert_eq!(refused.code, Some(1), "{refused}");
        for ran in [&asked, &refused] {
            assert!(ran.stderr.contains("--data '{"), "{how}: {ran}");
        }
        // The answer that the hint names.
        let data = refused.stderr.split("--data '").nth(1).and_then(|rest| rest.split('\'').next());
        let answered = home
            .run(&["send", url, "--task", task, "--data", data.unwrap_or_else(|| panic!("{refused}")), how])
            .await;
        assert!(answered.stdout.contains("The stack is created."), "{how}: {answered}");
    }
}
