//! Rules of the operator for the tools of an MCP server.

use std::time::Duration;

use attache_client::Client;
use attache_core::{Options, PermissionAction, PermissionPolicy, PermissionRule};
use attache_protocol::{Task, TaskState};
use serde_json::json;

use crate::support::{connect, question, run, serve_with, task, text};

/// Serves the scripted server with one rule for its tool `echo`.
async fn agent(action: PermissionAction, timeout: Option<Duration>) -> Client {
    let mut options = Options::default();
    options.permissions =
        PermissionPolicy::default().rule(PermissionRule::new("echo".parse().unwrap(), action));
    options.permissions.timeout = timeout;
    serve_with(&connect(|_| {}).await, options).await
}

fn rejection(task: &Task) -> String {
    assert_eq!(task.status.state, TaskState::Rejected, "{task:?}");
    task.status.message.as_ref().unwrap().text()
}

#[tokio::test]
async fn a_tool_that_a_rule_denies_is_not_called() {
    let agent = agent(PermissionAction::Deny, None).await;
    let denied = run(&agent, "echo", json!({"text": "hi"})).await;
    assert_eq!(rejection(&denied), "The tool `echo` was not called: it is not permitted.");
    let other = run(&agent, "ask", json!({})).await;
    assert_eq!(other.status.state, TaskState::InputRequired, "no rule is about it: {other:?}");
}

#[tokio::test]
async fn the_caller_decides_about_a_tool_that_a_rule_asks_about() {
    let agent = agent(PermissionAction::Ask, None).await;
    let ask = async || run(&agent, "echo", json!({"text": "hi"})).await;
    let asked = ask().await;
    assert!(question(&asked).contains("call echo"), "{asked:?}");
    let unclear = task(agent.answer(&asked, "what?").await.unwrap());
    assert!(question(&unclear).contains("call echo"), "{unclear:?}");
    let done = task(agent.answer(&asked, "yes").await.unwrap());
    assert!(text(&done).contains("hi") && done.id == asked.id, "{done:?}");
    let denied = task(agent.answer(&ask().await, "no").await.unwrap());
    assert_eq!(rejection(&denied), "The tool `echo` was not called: it is not permitted.");
}

#[tokio::test]
async fn an_answer_that_comes_too_late_permits_nothing() {
    let agent = agent(PermissionAction::Ask, Some(Duration::from_millis(1))).await;
    let asked = run(&agent, "echo", json!({"text": "hi"})).await;
    let mut open = agent.subscribe(asked.id.clone()).await.ok();
    // The stream ends with the task.
    while let Some(events) = &mut open
        && events.next().await.is_some()
    {}
    let end = agent.get(asked.id.clone()).await.unwrap();
    assert_eq!(rejection(&end), "The tool `echo` was not called: it is not permitted.");
    let late = agent.answer(&asked, "yes").await.unwrap_err();
    assert!(late.to_string().contains("has ended"), "{late}");
}
