//! A program at work: its reports, and its requests for permission.

use std::sync::Arc;
use std::time::Duration;

use attache_agents::program::{ProgramOptions, Protocol};
use attache_client::{Client, Outgoing};
use attache_core::{
    Busy, DefaultWorkspace, Exposure, MemoryStore, Namespace, Options, PeerRules, PermissionAction,
    PermissionPolicy, PermissionRule, REPORTS_EXTENSION, Redaction, Workspaces,
};
use attache_protocol::{JsonObject, StreamResponse, Task, TaskState};
use serde_json::{Value, json};

use crate::support::{runs, serve_on, serve_with, task, until};

async fn serve(script: &str, service: impl FnOnce(&mut Options)) -> Client {
    serve_with(script, |options| options.protocol = Protocol::Json, service).await
}

/// The metadata of all status updates.
async fn reports(agent: &Client, message: Outgoing) -> Vec<Value> {
    let mut events = agent.stream(message).await.unwrap();
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        if let StreamResponse::StatusUpdate(update) = event.unwrap() {
            all.extend(update.metadata.map(|metadata| metadata.read::<Value>().unwrap()));
        }
    }
    all
}

#[tokio::test]
async fn a_program_reports_tools_tokens_plans_and_thoughts() {
    let script = r#"
        read -r message
        echo '{"type":"tool","status":"started","id":"t","name":"search"}'
        echo '{"type":"tool","status":"input_delta","id":"t","length":5}'
        echo '{"type":"tool","status":"input_complete","id":"t","name":"search","input":{"q":"a"}}'
        echo '{"type":"tool","status":"completed","id":"t","name":"search","result":"found"}'
        echo '{"type":"thinking","text":"hm"}'
        echo '{"type":"plan","steps":[{"content":"look","status":"completed"}]}'
        echo '{"type":"diff","path":"a.txt","oldText":null,"newText":"x"}'
        echo '{"type":"usage","inputTokens":3,"outputTokens":4}'
        echo '{"type":"complete"}'
    "#;
    let agent =
        serve(script, |options| options.reports.exposure = Exposure { tool_trace: true, raw_thinking: true })
            .await;
    let all = reports(&agent, Outgoing::from("hello").extension(REPORTS_EXTENSION)).await;
    let all: Vec<Value> = all.into_iter().map(|mut it| it["attache"].take()).collect();
    assert_eq!(
        all,
        [
            json!({"tool": {"status": "started", "toolUseId": "t", "name": "search"}}),
            json!({"tool": {"status": "input_delta", "toolUseId": "t", "partialJsonLength": 5}}),
            json!({"tool": {"status": "input_complete", "toolUseId": "t", "name": "search", "input": {"q": "a"}}}),
            json!({"tool": {"status": "completed", "toolUseId": "t", "name": "search", "result": "found"}}),
            json!({"thinking": {"type": "raw_thinking", "text": "hm"}}),
            json!({"plan": [{"content": "look", "status": "completed", "priority": null}]}),
            json!({"diff": [{"path": "a.txt", "oldText": null, "newText": "x"}]}),
            json!({"usage": {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}}),
        ]
    );
    assert_eq!(reports(&agent, Outgoing::from("hello")).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_file_of_a_tool_does_not_replace_the_answer() {
    let script = r#"
        read -r message
        echo '{"type":"chunk","text":"the answer"}'
        echo '{"type":"tool","status":"completed","id":"t","result":{"artifact":{"filename":"answer","content":"the file"}}}'
        echo '{"type":"complete"}'
    "#;
    let done = task(serve(script, |_| {}).await.send("hello").await.unwrap());
    assert_eq!(done.artifacts.len(), 2, "{done:?}");
    assert_eq!(done.artifacts[0].parts[0].as_text(), Some("the answer"));
    let file = &done.artifacts[1];
    assert_eq!((file.artifact_id.as_str(), file.name.as_deref()), ("file:answer", Some("answer")));
    assert_eq!(file.parts[0].filename.as_deref(), Some("answer"));
}

/// The process that asked, by its request.
fn process(asked: &Task) -> String {
    let data: Value = asked.status.message.as_ref().unwrap().parts[1].as_data().unwrap().read().unwrap();
    data["permission"]["toolUseId"].as_str().unwrap()[1..].to_owned()
}

/// Asks for permission to edit the file that the message names, and tells what was decided.
const EDITING: &str = r#"
    read -r message
    path=$(printf '%s' "$message" | sed 's/.*"text":"\([^"]*\)".*/\1/')
    echo "{\"type\":\"permission\",\"id\":\"c$$\",\"tool\":\"edit\",\"title\":\"Edit $path\",\"why\":\"to fix it\",\"path\":\"$path\"}"
    read -r decision
    case "$decision" in
        *'"decision":"allow"'*) echo "{\"type\":\"complete\",\"text\":\"edited $$\"}" ;;
        *'"decision":"deny"'*) echo "{\"type\":\"complete\",\"text\":\"left alone $$\"}" ;;
        *) echo '{"type":"fail","text":"no decision"}' ;;
    esac
"#;

fn rules(options: &mut Options) {
    let allow =
        PermissionRule::new("edit".parse().unwrap(), PermissionAction::Allow).path("src/**".parse().unwrap());
    let deny =
        PermissionRule::new("edit".parse().unwrap(), PermissionAction::Deny).path("**/.env".parse().unwrap());
    options.permissions = PermissionPolicy::default().rule(allow).rule(deny);
}

fn said(task: &Task) -> String {
    task.status.message.as_ref().unwrap().text()
}

#[tokio::test]
async fn rules_decide_about_a_program() {
    let agent = serve(EDITING, rules).await;
    let allowed = task(agent.send("src/a.rs").await.unwrap());
    assert!(said(&allowed).starts_with("edited"), "{allowed:?}");
    let denied = task(agent.send("src/../.env").await.unwrap());
    assert!(said(&denied).starts_with("left alone"), "{denied:?}");
}

#[tokio::test]
async fn the_paths_of_a_program_with_a_directory_are_about_that_directory() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in ["own/src", "named/src"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::os::unix::fs::symlink(root.join("own"), root.join("link")).unwrap();
    let agent = serve_with(
        EDITING,
        |options| {
            options.protocol = Protocol::Json;
            options.directory = Some(root.join("link"));
            options.conversation.workspaces =
                Workspaces::default().allow([&root]).default_to(DefaultWorkspace::Shared(root.join("named")));
        },
        |options| {
            rules(options);
            let secrets = root.join("own/secrets/**").display().to_string();
            let deny = PermissionRule::new("edit".parse().unwrap(), PermissionAction::Deny)
                .path(secrets.parse().unwrap());
            options.permissions = std::mem::take(&mut options.permissions).rule(deny);
        },
    )
    .await;
    let named = JsonObject::new(&json!({"attache": {"workspace": root.join("named")}})).unwrap();
    for metadata in [None, Some(named)] {
        for (path, expected) in [
            ("src/a", "edited"),
            ("own/src/a", "edited"),
            ("link/src/a", "edited"),
            ("named/src/a", "input-required"),
            ("secrets/a", "left alone"),
            ("link/secrets/a", "left alone"),
        ] {
            let path = match path {
                "src/a" | "secrets/a" => path.to_owned(),
                path => root.join(path).display().to_string(),
            };
            let mut message = Outgoing::new(path.as_str());
            if let Some(metadata) = &metadata {
                message = message.metadata(metadata.clone());
            }
            let decided = task(agent.send(message).await.unwrap());
            let result = match decided.status.state == TaskState::InputRequired {
                true => "input-required".to_owned(),
                false => said(&decided),
            };
            assert!(result.starts_with(expected), "{path}: {result}");
        }
    }
}

#[tokio::test]
async fn the_decision_of_the_caller_goes_to_the_process_that_asked() {
    let agent = serve(EDITING, rules).await;
    for (answer, expected) in [("yes", "edited"), ("no", "left alone")] {
        let asked = task(agent.send("Cargo.toml").await.unwrap());
        assert_eq!(asked.status.state, TaskState::InputRequired);
        let question = asked.status.message.as_ref().unwrap();
        assert!(question.text().contains("Edit Cargo.toml (to fix it)"), "{question:?}");
        let data: Value = question.parts[1].as_data().unwrap().read().unwrap();
        assert_eq!(data["permission"]["why"], "to fix it");
        assert_eq!(data["permission"]["paths"], json!(["Cargo.toml"]));
        let id = data["permission"]["toolUseId"].as_str().unwrap().to_owned();
        let again = task(agent.answer(&asked, "hm").await.unwrap());
        assert_eq!(again.status.state, TaskState::InputRequired);
        let done = task(agent.answer(&asked, answer).await.unwrap());
        assert_eq!(said(&done), format!("{expected} {}", &id[1..]));
    }
}

#[tokio::test]
async fn a_program_without_a_decision_in_time_goes_on_with_a_denial() {
    let agent = serve(EDITING, |options| {
        options.permissions = PermissionPolicy::default().timeout(Duration::from_millis(50));
    })
    .await;
    let asked = task(agent.send(Outgoing::from("a").context("c")).await.unwrap());
    // Another task of the context waits until the same process has gone on.
    let other = task(agent.send(Outgoing::from("b").context("c")).await.unwrap());
    assert_eq!(other.status.state, TaskState::InputRequired);
    let end = agent.get(asked.id.clone()).await.unwrap();
    assert_eq!(said(&end), format!("left alone {}", process(&asked)));
    let late = agent.answer(&asked, "yes").await.unwrap_err();
    assert!(late.to_string().contains("has ended"), "{late}");
}

#[tokio::test]
async fn requests_are_rejected_and_reported_if_the_default_is_to_deny() {
    let agent = serve(EDITING, |options| {
        options.permissions = PermissionPolicy::default().default_action(PermissionAction::Deny);
        options.reports.namespace = Namespace::IacCode;
    })
    .await;
    let all = reports(&agent, Outgoing::from("a")).await;
    assert_eq!(all[0]["iac_code"]["permission"]["autoApproved"], false);
    assert_eq!(all[0]["iac_code"]["permission"]["toolName"], "edit");
}

/// Asks for permission if the text of the message is `edit`, and tells what was decided. Asks a question if it is `ask`.
const CHOOSING: &str = r#"
    read -r message
    case "$message" in
        *'"text":"edit","type"'*)
            echo "{\"type\":\"permission\",\"id\":\"c$$\",\"tool\":\"edit\",\"path\":\"a\"}"
            read -r decision
            echo "{\"type\":\"complete\",\"text\":\"decided $$\"}" ;;
        *'"text":"ask","type"'*)
            echo "{\"type\":\"ask\",\"text\":\"$$\"}"
            read -r answer
            echo "{\"type\":\"complete\",\"text\":\"answered $$\"}" ;;
        *) echo "{\"type\":\"complete\",\"text\":\"other\"}" ;;
    esac
"#;

#[tokio::test]
async fn a_context_is_kept_for_the_process_that_asked() {
    let agent = serve_with(
        CHOOSING,
        |options| {
            options.protocol = Protocol::Json;
            // A context that is not in use is put away at once.
            options.conversation.contexts.idle = Duration::ZERO;
        },
        |_| {},
    )
    .await;
    for first in ["edit", "ask"] {
        let asked = task(agent.send(Outgoing::from(first).context("c")).await.unwrap());
        assert_eq!(asked.status.state, TaskState::InputRequired);
        let pid = if first == "edit" { process(&asked) } else { said(&asked) };
        let other = agent.send(Outgoing::from("hello").context("c").return_immediately());
        let other = task(other.await.unwrap());
        // Another context is not affected.
        let elsewhere = task(agent.send(Outgoing::from("hello").context("d")).await.unwrap());
        assert_eq!(said(&elsewhere), "other");
        assert_eq!(agent.get(other.id.clone()).await.unwrap().status.state, TaskState::Submitted);
        let done = task(agent.answer(&asked, "yes").await.unwrap());
        assert!(said(&done).ends_with(&format!("ed {pid}")), "{done:?}");
        until_ended(&agent, &other).await;
    }
}

/// Waits until a task has ended.
async fn until_ended(agent: &Client, task: &Task) {
    let ended = async {
        while !agent.get(task.id.clone()).await.unwrap().status.state.is_terminal() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the task ends");
}

#[tokio::test]
async fn a_cancel_of_a_waiting_task_stops_the_process_and_frees_the_context() {
    let agent = serve_with(
        CHOOSING,
        |options| {
            options.protocol = Protocol::Json;
            options.conversation.contexts.busy = Busy::Reject;
        },
        |options| options.peer = PeerRules::IacCode,
    )
    .await;
    for first in ["edit", "ask"] {
        let asked = task(agent.send(Outgoing::from(first).context("c")).await.unwrap());
        let pid = if first == "edit" { process(&asked) } else { said(&asked) };
        let refused = task(agent.send(Outgoing::from("hello").context("c")).await.unwrap());
        assert_eq!(said(&refused), "Task is already working.");
        let canceled = agent.cancel(asked.id).await.unwrap();
        assert_eq!(canceled.status.state, TaskState::Canceled);
        until("the process is gone", || !runs(&pid)).await;
        let other = task(agent.send(Outgoing::from("hello").context("c")).await.unwrap());
        assert_eq!(said(&other), "other");
    }
}

#[tokio::test]
async fn a_process_that_ends_while_it_waits_frees_the_context() {
    let script = r#"
        read -r message
        case "$message" in
            *'"text":"ask","type"'*) echo '{"type":"ask","text":"what?"}' ;;
            *) echo '{"type":"complete","text":"other"}' ;;
        esac
    "#;
    let agent = serve(script, |_| {}).await;
    let asked = task(agent.send(Outgoing::from("ask").context("c")).await.unwrap());
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let other = task(agent.send(Outgoing::from("hello").context("c")).await.unwrap());
    assert_eq!(said(&other), "other");
    // The answer starts a new process.
    let done = task(agent.answer(&asked, "hello").await.unwrap());
    assert_eq!(said(&done), "other");
}

#[tokio::test]
async fn the_workspace_of_the_context_is_hidden_in_every_turn() {
    let script = r#"
        read -r message
        echo "{\"type\":\"permission\",\"id\":\"c\",\"tool\":\"edit\",\"title\":\"Edit $PWD/a\"}"
        read -r decision
        echo "{\"type\":\"complete\",\"text\":\"edited $PWD/a\"}"
    "#;
    let folder = tempfile::tempdir().unwrap();
    let agent = serve_with(
        script,
        |options| {
            options.protocol = Protocol::Json;
            options.conversation.workspaces.default = DefaultWorkspace::Private(folder.path().join("data"));
        },
        |options| options.redaction = Some(Redaction::new().path("/nowhere", "<nowhere>")),
    )
    .await;
    let asked = task(agent.send("go").await.unwrap());
    assert!(said(&asked).contains("Edit <workspace>/a"), "{asked:?}");
    let done = task(agent.answer(&asked, "yes").await.unwrap());
    assert_eq!(said(&done), "edited <workspace>/a");
    assert!(!format!("{done:?}").contains(folder.path().to_str().unwrap()), "{done:?}");
}

#[tokio::test]
async fn an_answer_after_a_restart_starts_a_new_process() {
    let store = Arc::<MemoryStore>::default();
    let json = |options: &mut ProgramOptions| options.protocol = Protocol::Json;
    let (agent, server) = serve_on(store.clone(), CHOOSING, json, |_| {}).await;
    let asked = task(agent.send(Outgoing::from("edit").context("c")).await.unwrap());
    server.abort();
    let _ = server.await;
    let (agent, _server) = serve_on(store, CHOOSING, json, |_| {}).await;
    // The context is free, and the answer is a message.
    let other = task(agent.send(Outgoing::from("hello").context("c")).await.unwrap());
    assert_eq!(said(&other), "other");
    assert_eq!(said(&task(agent.answer(&asked, "yes").await.unwrap())), "other");
}
