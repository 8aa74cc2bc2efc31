//! Rows of the reference that need a server of their own: a task that waits, a provider without credentials, a callback that is not
//! allowed any more, remote keys, gRPC, and the command of the example.

use std::path::Path;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use reqwest::Client;
use serde_json::{Value, json};

use super::push::Receiver;
use super::{Server, contains, message, settings_with, start, start_with, state, status};
use crate::home::Home;
use crate::programs::has_python;
use crate::support::{Program, until};

#[tokio::test]
async fn a_task_is_submitted_until_its_turn_begins() {
    if !has_python("iac_code::rows::a_task_is_submitted_until_its_turn_begins") {
        return;
    }
    let home = Home::new();
    let server = start_with(&home, &[], "contexts: { busy: queue }\n").await;
    let running = server.begin("sleep 60", "c").await;
    // The turn of the first task has the context.
    until("it works", async || {
        server.rpc("GetTask", json!({"id": running})).await["result"]["status"]["state"]
            == "TASK_STATE_WORKING"
    })
    .await;
    let params = json!({"message": message("hello", json!({"contextId": "c"}))});
    let mut events = server.open("SendStreamingMessage", params).await;
    let first = events.next().await.unwrap();
    assert_eq!(first["task"]["status"]["state"], "TASK_STATE_SUBMITTED", "{first}");
    let waiting = &first["task"]["id"];
    let read = server.rpc("GetTask", json!({"id": waiting})).await;
    assert_eq!(read["result"]["status"]["state"], "TASK_STATE_SUBMITTED", "{read}");
    let listed = server.rpc("ListTasks", json!({"status": "TASK_STATE_SUBMITTED"})).await;
    assert_eq!((&listed["result"]["totalSize"], &listed["result"]["tasks"][0]["id"]), (&json!(1), waiting));
    server.rpc("CancelTask", json!({"id": running})).await;
    let events = events.rest().await;
    let states: Vec<_> =
        events.iter().filter_map(|event| event["statusUpdate"]["status"]["state"].as_str()).collect();
    assert_eq!(
        (states.first(), states.last()),
        (Some(&"TASK_STATE_WORKING"), Some(&"TASK_STATE_INPUT_REQUIRED"))
    );
}

#[tokio::test]
async fn missing_credentials_of_the_provider_are_a_sanitized_error() {
    let said = r#"{"error": {"message": "Incorrect API key provided: sk-of-the-operator. See http://10.1.2.3/keys"}}"#;
    let answer = post(async move || (StatusCode::UNAUTHORIZED, said));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let app = Router::new().route("/v1/chat/completions", answer);
    tokio::spawn(async move { axum::serve(listener, app).await });
    let home = Home::new();
    let file = settings_with(&home, &format!("model: {{ url: \"{url}\", name: small }}\n"));
    // A model in the place of the scripted agent.
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, program) = text.split_once("program:\n").unwrap();
    let after = program.split_once("\n\n").unwrap().1;
    std::fs::write(&file, format!("{before}{after}")).unwrap();
    let (program, _, mut log) =
        Program::watched(&["serve", "--config", &file, "--listen", "127.0.0.1:0"], &[]).await;
    let server = Server { program, http: Client::new() };
    let failed = server.send(message("hello", json!({}))).await;
    let words = "the model endpoint did not accept the credentials of this server";
    assert_eq!((state(&failed), status(&failed)), ("TASK_STATE_FAILED", words), "{failed}");
    for secret in ["sk-of-the-operator", "10.1.2.3", "Incorrect", &url] {
        assert!(!failed.to_string().contains(secret), "{secret}: {failed}");
    }
    // The operator learns what the provider said.
    log.line_with("Incorrect API key provided").await;
}

#[tokio::test]
async fn a_callback_url_is_checked_again_before_it_is_called() {
    if !has_python("iac_code::rows::a_callback_url_is_checked_again_before_it_is_called") {
        return;
    }
    let home = Home::new();
    let mut receiver = Receiver::start().await;
    let store = format!("sqlite:{}", home.path("tasks.db").display());
    let keyring = home.path("keyring.json").display().to_string();
    let begin = async |more: &str| {
        let file = settings_with(&home, &format!("push-notifications: true\n{more}"));
        let arguments = ["serve", "--config", &file, "--listen", "127.0.0.1:0", "--store", &store];
        let arguments = [&arguments[..], &["--keyring", &keyring]].concat();
        let (program, _) = Program::command_with(&arguments, &[]).await;
        Server { program, http: Client::new() }
    };
    // The URL is allowed when it is stored.
    let server = begin("push: { allow-loopback: true }\n").await;
    let sent = server.send(message("hello", json!({"contextId": "c"}))).await;
    let task = &sent["result"]["task"]["id"];
    let config = json!({"taskId": task, "id": "webhook-1", "url": receiver.url});
    let created = server.rpc("CreateTaskPushNotificationConfig", config).await;
    assert_eq!(created["result"]["id"], "webhook-1", "{created}");
    assert!(server.program.stop().await.success());
    // It is not when it would be called.
    let server = begin("").await;
    let follow_up = json!({"contextId": "c", "taskId": task, "messageId": "m2"});
    let again = server.send(message("hello", follow_up)).await;
    assert_eq!(state(&again), "TASK_STATE_INPUT_REQUIRED", "{again}");
    let pushed = async |what: &[&str]| -> Value {
        let ran = home.run(&[&["push"], what, &["--store", &store, "--json"]].concat()).await;
        assert_eq!(ran.code, Some(0), "{ran}");
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran}"))
    };
    until("no delivery is left", async || pushed(&["pending"]).await["deliveries"] == json!([])).await;
    let dead = pushed(&["dead", "list"]).await;
    let all = dead["deliveries"].as_array().unwrap_or_else(|| panic!("{dead}"));
    assert!(!all.is_empty(), "{dead}");
    assert!(
        all.iter().all(|delivery| delivery["error"].as_str().is_some_and(|it| it.contains("loopback"))),
        "{dead}"
    );
    assert!(receiver.is_untold(), "nothing was sent");
}

#[tokio::test]
async fn the_signature_of_the_card_is_verified_with_keys_of_a_remote_address() {
    if !has_python("iac_code::rows::the_signature_of_the_card_is_verified_with_keys_of_a_remote_address") {
        return;
    }
    let home = Home::new();
    let keys = home.path("keys.json").display().to_string();
    let made = home.run(&["keys", "new", "--alg", "ES256", "--signing-keys", &keys]).await;
    assert_eq!(made.code, Some(0), "{made}");
    let file = settings_with(&home, "");
    let arguments = ["serve", "--config", &file, "--listen", "127.0.0.1:0", "--signing-keys", &keys];
    let (program, _) = Program::command_with(&arguments, &[]).await;
    let server = Server { program, http: Client::new() };
    let header = &server.card().await["signatures"][0];
    assert!(header["protected"].is_string(), "{header}");
    let verify = async |origin: &str| {
        home.run(&["card", &server.program.url, "--verify", "--jwks-origin", origin]).await
    };
    let verified = verify(&server.program.url).await;
    assert_eq!(verified.code, Some(0), "{verified}");
    assert!(verified.stdout.contains("(ES256, "), "{verified}");
    // The keys of an address that is not trusted are not fetched.
    let refused = verify("https://keys.example.com").await;
    assert_ne!(refused.code, Some(0), "{refused}");
    assert_eq!(refused.stdout, "");
}

#[tokio::test]
async fn official_grpc_is_in_the_card_and_answers() {
    if !has_python("iac_code::rows::official_grpc_is_in_the_card_and_answers") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let card = server.card().await;
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    let url = format!("{}/grpc", server.program.url);
    let grpc = json!({"protocolBinding": "GRPC", "protocolVersion": "1.0", "url": url});
    assert!(interfaces.iter().any(|interface| contains(interface, &grpc)), "{card}");
    let run = async |arguments: &[&str]| {
        let all = [&arguments[..2], &[&server.program.url], &arguments[2..], &["--binding", "grpc"]].concat();
        home.run(&all).await
    };
    let running = server.begin("sleep 60", "c").await;
    for (arguments, code) in [
        (vec!["task", "get", &running], 0),
        (vec!["task", "list", "--context", "c"], 0),
        (vec!["task", "cancel", &running], 0),
        (vec!["task", "cancel", &running], 1),
        (vec!["task", "get", "unknown"], 1),
    ] {
        let ran = run(&arguments).await;
        assert_eq!(ran.code, Some(code), "{arguments:?}: {ran}");
        assert!(code == 1 || ran.stdout.contains(&running), "{arguments:?}: {ran}");
    }
}

#[tokio::test]
async fn the_command_of_the_example_starts_it_from_the_root_of_the_repository() {
    if !has_python("iac_code::rows::the_command_of_the_example_starts_it_from_the_root") {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().unwrap().display().to_string();
    let example = std::fs::read_to_string(format!("{root}/examples/iac-code/attache.yml")).unwrap();
    let command =
        example.lines().find_map(|line| line.trim_start_matches('#').trim().strip_prefix("attache "));
    let arguments: Vec<_> = command.expect("a command").split_whitespace().collect();
    assert_eq!(arguments.first(), Some(&"serve"));
    // The port that it has otherwise may be in use on this machine.
    let (program, _) = Program::command_in(&root, &arguments, &[("ATTACHE_LISTEN", "127.0.0.1:0")]).await;
    let server = Server { program, http: Client::new() };
    let sent = server.send(message("where", json!({}))).await;
    assert_eq!(state(&sent), "TASK_STATE_INPUT_REQUIRED", "{sent}");
    assert!(sent.to_string().contains(&root), "the workspace is the directory of the server: {sent}");
    let home = Home::new();
    let mut show = home.command(&["config", "show", "--config", "examples/iac-code/attache.yml"]);
    let shown = crate::home::ran(show.current_dir(&root).output().await.unwrap());
    assert!(shown.stdout.contains("127.0.0.1:41242"), "{shown}");
}
