//! A program at work: its reports, and its requests for permission.

use std::time::Duration;

use attache_agents::program::Protocol;
use attache_client::{Client, Outgoing};
use attache_core::{
    Exposure, Namespace, Options, PermissionAction, PermissionPolicy, PermissionRule, REPORTS_EXTENSION,
};
use attache_protocol::{StreamResponse, TaskState};
use serde_json::{Value, json};

use crate::support::{runs, serve_with, task, until};

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

fn said(task: &attache_protocol::Task) -> String {
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
async fn a_program_without_a_decision_in_time_is_stopped() {
    let agent = serve(EDITING, |options| {
        options.permissions = PermissionPolicy::default().timeout(Duration::from_millis(50));
    })
    .await;
    let asked = task(agent.send("a").await.unwrap());
    let data: Value = asked.status.message.as_ref().unwrap().parts[1].as_data().unwrap().read().unwrap();
    let pid = data["permission"]["toolUseId"].as_str().unwrap()[1..].to_owned();
    until("the process is gone", || !runs(&pid)).await;
    // A late answer starts a new process, which asks again.
    let again = task(agent.answer(&asked, "yes").await.unwrap());
    assert_eq!(again.status.state, TaskState::InputRequired);
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
