//! Questions of the server to the caller.

use std::time::Duration;

use attache_protocol::{Content, Part, TaskState};
use serde_json::{Value, json};

use crate::support::{agent, connect, failure, json, question, run, serve, start, task};

fn two_fields() -> Value {
    json!({"type": "object", "required": ["city", "days"],
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}}})
}

#[tokio::test]
async fn a_question_goes_to_the_caller_and_the_same_call_goes_on() {
    let agent = agent(|_| {}).await;
    let asked = run(&agent, "ask", json!({"schema": two_fields()})).await;
    assert_eq!(question(&asked), "What is it? (1)");
    let message = asked.status.message.as_ref().unwrap();
    let Content::Data(data) = &message.parts[1].content else { panic!("{message:?}") };
    let shown = data.read::<Value>().unwrap();
    assert_eq!(shown["requestedSchema"]["required"], json!(["city", "days"]));
    let answer = Part::data(&json!({"city": "Oslo", "days": 2})).unwrap();
    let answer =
        attache_protocol::Message { parts: vec![answer], ..attache_protocol::Message::user("a1", "") };
    let done = task(agent.answer(&asked, answer).await.unwrap());
    assert_eq!(json(&done), json!([{"action": "accept", "content": {"city": "Oslo", "days": 2}}]));
    assert_eq!(done.id, asked.id);
}

#[tokio::test]
async fn plain_text_answers_one_field_and_several_questions_can_follow() {
    let agent = agent(|_| {}).await;
    let asked = run(&agent, "ask", json!({"times": 2})).await;
    assert_eq!(question(&asked), "What is it? (2)");
    let again = task(agent.answer(&asked, "first").await.unwrap());
    assert_eq!(question(&again), "What is it? (1)");
    let done = task(agent.answer(&again, "second").await.unwrap());
    let accepted = |text: &str| json!({"action": "accept", "content": {"text": text}});
    assert_eq!(json(&done), json!([accepted("first"), accepted("second")]));
}

#[tokio::test]
async fn decline_and_cancel_are_answers() {
    let agent = agent(|_| {}).await;
    for word in ["decline", "cancel"] {
        let asked = run(&agent, "ask", json!({"schema": two_fields()})).await;
        let done = task(agent.answer(&asked, word).await.unwrap());
        assert_eq!(json(&done), json!([{"action": word}]));
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_again() {
    let agent = agent(|_| {}).await;
    let asked = run(&agent, "ask", json!({"schema": two_fields()})).await;
    let again = task(agent.answer(&asked, "{\"city\": \"Oslo\", \"days\": 0}").await.unwrap());
    assert!(question(&again).starts_with("The answer does not match the schema: `answer.days`"), "{again:?}");
    let done = task(agent.answer(&again, "{\"city\": \"Oslo\", \"days\": 1}").await.unwrap());
    assert_eq!(json(&done)[0]["action"], "accept");
}

#[tokio::test]
async fn a_question_that_is_not_answered_in_time_cancels_the_call() {
    let mcp = connect(|options| options.question_timeout = Duration::from_millis(50)).await;
    let agent = serve(&mcp).await;
    let asked = run(&agent, "ask", json!({})).await;
    question(&asked);
    // This call returns when the server has read the cancellation.
    mcp.call("cancelled", json!({"count": 1})).await.unwrap();
    let late = failure(&task(agent.answer(&asked, "Oslo").await.unwrap()));
    assert!(late.starts_with("The call that asked the question has ended"), "{late}");
}

#[tokio::test]
async fn a_cancel_ends_a_call_that_waits_for_an_answer() {
    let mcp = connect(|_| {}).await;
    let agent = serve(&mcp).await;
    let asked = run(&agent, "ask", json!({})).await;
    agent.cancel(asked.id).await.unwrap();
    mcp.call("cancelled", json!({"count": 1})).await.unwrap();
}

#[tokio::test]
async fn a_call_that_waits_for_an_answer_does_not_keep_others_from_running() {
    let agent = agent(|options| options.max_calls = 1).await;
    let asked = run(&agent, "ask", json!({})).await;
    question(&asked);
    assert_eq!(run(&agent, "echo", json!({"text": "x"})).await.status.state, TaskState::Completed);
    let done = task(agent.answer(&asked, "Oslo").await.unwrap());
    assert_eq!(json(&done)[0]["content"], json!({"text": "Oslo"}));
}

#[tokio::test]
async fn a_question_is_never_shown_to_a_caller_who_may_not_be_meant() {
    let agent = agent(|_| {}).await;
    let (hanging, _events) = start(&agent, "hang").await;
    let declined = run(&agent, "ask", json!({})).await;
    assert_eq!(json(&declined), json!([{"action": "decline"}]));
    assert_eq!(agent.get(hanging.id).await.unwrap().status.state, TaskState::Working);
}

#[tokio::test]
async fn a_question_without_a_caller_is_declined() {
    let output = connect(|_| {}).await.call("ask", json!({})).await.unwrap();
    assert_eq!(output.text(), "[{\"action\": \"decline\"}]");
}

#[tokio::test]
async fn an_answer_to_a_server_that_has_ended_fails_the_task() {
    let mcp = connect(|_| {}).await;
    let agent = serve(&mcp).await;
    let asked = run(&agent, "ask", json!({})).await;
    assert!(mcp.call("die", json!({})).await.is_err());
    let failed = failure(&task(agent.answer(&asked, "Oslo").await.unwrap()));
    assert_eq!(failed, "The MCP server ended before the tool 'ask' returned a result");
}
