//! Requests for permission.

use std::time::Duration;

use attache_agents::acp::Permissions;
use attache_client::Outgoing;
use attache_core::Busy;
use attache_protocol::TaskState;
use serde_json::{Value, json};

use crate::support::{answer, serve, skip, text, until};

#[tokio::test]
async fn permissions_are_allowed_or_denied_without_a_question() {
    if skip("permissions_are_allowed_or_denied_without_a_question") {
        return;
    }
    for (permissions, option) in [(Permissions::Allow, "yes-1"), (Permissions::Deny, "no-1")] {
        let agent = serve(&[], |options| options.permissions = permissions).await;
        let outcome = json!({"outcome": "selected", "optionId": option});
        let said = answer(&agent.send("ask").await);
        assert_eq!(serde_json::from_str::<Value>(said.strip_prefix("before ").unwrap()).unwrap(), outcome);
    }
}

#[tokio::test]
async fn the_caller_is_asked_and_the_same_prompt_goes_on() {
    if skip("the_caller_is_asked_and_the_same_prompt_goes_on") {
        return;
    }
    for (said, option) in [("yes", "yes-1"), ("no-1", "no-1"), ("Reject once", "no-1")] {
        let agent = serve(&[], |_| {}).await;
        let asked = agent.send("ask Remove the disk").await;
        assert_eq!(asked.status.state, TaskState::InputRequired);
        assert_eq!(text(&asked), "before ");
        let question = asked.status.message.as_ref().unwrap();
        assert!(question.text().contains("asks for permission: Remove the disk"), "{question:?}");
        let data: Value = question.parts[1].as_data().unwrap().read().unwrap();
        let permission = &data["permission"];
        assert_eq!(
            (&permission["tool"], &permission["title"]),
            (&json!("delete"), &json!("Remove the disk"))
        );
        assert_eq!(
            permission["options"][0],
            json!({"optionId": "yes-1", "name": "Allow once", "kind": "allow_once"})
        );
        let again = agent.answer(&asked, "perhaps").await;
        assert_eq!(again.status.state, TaskState::InputRequired);
        assert!(again.status.message.as_ref().unwrap().text().starts_with("The answer was not understood."));
        let done = agent.answer(&again, said).await;
        let outcome = format!(r#"before {{"optionId": "{option}", "outcome": "selected"}}"#);
        assert_eq!(answer(&done), outcome);
        assert_eq!(agent.count("session/prompt"), 1);
    }
}

#[tokio::test]
async fn two_requests_of_one_prompt_are_two_questions() {
    if skip("two_requests_of_one_prompt_are_two_questions") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    let first = agent.send("twice").await;
    let second = agent.answer(&first, "yes").await;
    assert_eq!(second.status.state, TaskState::InputRequired);
    assert_eq!(answer(&agent.answer(&second, "no").await), r#"["yes-1", "no-1"]"#);
}

#[tokio::test]
async fn a_request_without_an_answer_is_denied_after_the_time_limit() {
    if skip("a_request_without_an_answer_is_denied_after_the_time_limit") {
        return;
    }
    let agent = serve(&[], |options| options.permission_timeout = Duration::from_millis(50)).await;
    let asked = agent.say("c", "ask").await;
    assert_eq!(asked.status.state, TaskState::InputRequired);
    // Another task of the context waits until the prompt has gone on with the denial.
    assert_eq!(answer(&agent.say("c", "hello").await), "you said: hello");
    assert_eq!(agent.outcomes(), [json!({"outcome": "selected", "optionId": "no-1"})]);
    let end = agent.client.get(asked.id.clone()).await.unwrap();
    assert_eq!(answer(&end), r#"before {"optionId": "no-1", "outcome": "selected"}"#);
    let told = "The request `Delete everything` was denied: no answer within 0.05 s";
    assert!(end.history.iter().any(|message| message.text() == told), "{end:?}");
    // A late answer permits nothing.
    let late = agent.client.answer(&asked, "yes").await.unwrap_err();
    assert!(late.to_string().contains("has ended"), "{late}");
    assert_eq!((agent.count("session/new"), agent.count("session/prompt")), (1, 2));
}

#[tokio::test]
async fn a_cancel_cancels_the_prompt_and_its_open_request() {
    if skip("a_cancel_cancels_the_prompt_and_its_open_request") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    let asked = agent.send("ask").await;
    agent.client.cancel(asked.id.clone()).await.unwrap();
    until("the request is canceled", || agent.outcomes() == [json!({"outcome": "cancelled"})]).await;
    assert_eq!(agent.count("session/cancel"), 1);
    let context = asked.context_id.unwrap();
    assert_eq!(answer(&agent.say(context.as_str(), "hello").await), "you said: hello");
}

#[tokio::test]
async fn an_answer_after_a_restart_is_a_new_prompt() {
    if skip("an_answer_after_a_restart_is_a_new_prompt") {
        return;
    }
    let agent = serve(&["--load"], |_| {}).await;
    let asked = agent.send("ask").await;
    let agent = agent.restart(&["--load"]).await;
    let done = agent.answer(&asked, "blocks").await;
    assert!(answer(&done).contains("The request for permission `Delete everything` was denied"), "{done:?}");
}

#[tokio::test]
async fn an_answer_after_a_crash_is_a_new_prompt() {
    if skip("an_answer_after_a_crash_is_a_new_prompt") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    let asked = agent.send("ask").await;
    agent.say("other", "crash").await;
    // The context does not wait for a program that is gone.
    let context = asked.context_id.as_ref().unwrap();
    assert_eq!(answer(&agent.say(context.as_str(), "hello").await), "you said: hello");
    let said = answer(&agent.answer(&asked, "blocks").await);
    assert!(said.contains("The request for permission `Delete everything` was denied"), "{said}");
}

#[tokio::test]
async fn a_context_is_kept_for_the_prompt_that_waits() {
    if skip("a_context_is_kept_for_the_prompt_that_waits") {
        return;
    }
    // A context that is not in use is put away at once.
    let agent = serve(&[], |options| options.idle = Duration::ZERO).await;
    let asked = agent.say("c", "ask").await;
    let other = agent.say("c", "hello");
    tokio::pin!(other);
    tokio::select! {
        _ = &mut other => panic!("the other task did not wait"),
        elsewhere = agent.say("d", "hello") => assert_eq!(answer(&elsewhere), "you said: hello"),
    }
    assert_eq!(agent.count("session/prompt"), 2);
    let done = agent.answer(&asked, "yes").await;
    assert_eq!(answer(&done), r#"before {"optionId": "yes-1", "outcome": "selected"}"#);
    assert_eq!(answer(&other.await), "you said: hello");
}

#[tokio::test]
async fn a_busy_context_refuses_other_tasks_and_a_cancel_frees_it() {
    if skip("a_busy_context_refuses_other_tasks_and_a_cancel_frees_it") {
        return;
    }
    let agent = serve(&[], |options| options.conversation.contexts.busy = Busy::Reject).await;
    let asked = agent.say("c", "ask").await;
    let refused = agent.client.send(Outgoing::from("hello").context("c")).await.unwrap_err();
    assert!(refused.to_string().contains("Task is already working."), "{refused}");
    let again = agent.answer(&asked, "perhaps").await;
    assert_eq!(again.status.state, TaskState::InputRequired);
    assert!(agent.client.send(Outgoing::from("hello").context("c")).await.is_err());
    agent.client.cancel(asked.id).await.unwrap();
    assert_eq!(answer(&agent.say("c", "hello").await), "you said: hello");
}
