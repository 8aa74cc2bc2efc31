//! Questions of the server to the caller.

use std::time::Duration;

use attache_protocol::{Content, Part, Task, TaskState};
use serde_json::{Value, json};

use crate::support::{agent, connect, failure, json, question, run, runs, start, task, until};

fn two_fields() -> Value {
    json!({"type": "object", "required": ["city", "days"],
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_question_goes_to_the_caller_and_the_same_call_goes_on() {
    let agent = agent(|_| {}).await;
    let asked = run(&agent, "ask", json!({"schema": two_fields()})).await;
    assert!(question(&asked).starts_with("What is it? (1 of "), "{asked:?}");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn plain_text_answers_one_field_and_several_questions_can_follow() {
    let agent = agent(|_| {}).await;
    let asked = run(&agent, "ask", json!({"times": 2})).await;
    assert!(question(&asked).starts_with("What is it? (2 of "), "{asked:?}");
    let again = task(agent.answer(&asked, "first").await.unwrap());
    assert!(question(&again).starts_with("What is it? (1 of "), "{again:?}");
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

/// The process that asked.
fn pid(asked: &Task) -> i64 {
    let digits = question(asked).rsplit_once(' ').unwrap().1.trim_end_matches(')').to_owned();
    digits.parse().unwrap()
}

#[tokio::test]
async fn a_question_that_is_not_answered_in_time_cancels_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("cancelled");
    let agent = agent(|options| {
        options.question_timeout = Duration::from_millis(50);
        options.environment.insert("CANCELLED".into(), note.to_str().unwrap().into());
    })
    .await;
    let asked = run(&agent, "ask", json!({})).await;
    until("the server has read the cancellation", || note.exists()).await;
    let late = failure(&task(agent.answer(&asked, "Oslo").await.unwrap()));
    assert!(late.starts_with("The call that asked the question has ended"), "{late}");
}

#[tokio::test]
async fn a_cancel_ends_a_call_that_waits_for_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("cancelled");
    let path = note.to_str().unwrap().to_owned();
    let agent = agent(|options| drop(options.environment.insert("CANCELLED".into(), path))).await;
    let asked = run(&agent, "ask", json!({})).await;
    agent.cancel(asked.id).await.unwrap();
    until("the server has read the cancellation", || note.exists()).await;
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
    // Now it is known that the server asks, and the next call has a process for itself.
    let asked = run(&agent, "ask", json!({})).await;
    let done = task(agent.answer(&asked, "Oslo").await.unwrap());
    assert_eq!(json(&done)[0]["action"], "accept");
}

#[tokio::test]
async fn with_a_process_for_each_call_every_question_reaches_its_caller() {
    let agent = agent(|options| options.exclusive = true).await;
    let (_hanging, _events) = start(&agent, "hang").await;
    let asked = futures::future::join_all((0..3).map(|_| run(&agent, "ask", json!({})))).await;
    let mut pids: Vec<i64> = asked.iter().map(pid).collect();
    for (number, asked) in asked.iter().enumerate() {
        let done = task(agent.answer(asked, number.to_string()).await.unwrap());
        assert_eq!(json(&done)[0]["content"], json!({"text": number.to_string()}));
    }
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 3);
    // Processes that are not needed any more end with the next call.
    run(&agent, "echo", json!({"text": "x"})).await;
    until("one idle process is left", || pids.iter().filter(|pid| runs(**pid)).count() <= 1).await;
}

#[tokio::test]
async fn a_question_without_a_caller_is_declined() {
    let output = connect(|_| {}).await.call("ask", json!({})).await.unwrap();
    assert_eq!(output.text(), "[{\"action\": \"decline\"}]");
}

#[tokio::test]
async fn an_answer_to_a_server_that_has_ended_fails_the_task() {
    let agent = agent(|_| {}).await;
    let asked = run(&agent, "ask", json!({})).await;
    let pid = pid(&asked);
    assert!(std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    until("the process is gone", || !runs(pid)).await;
    let failed = failure(&task(agent.answer(&asked, "Oslo").await.unwrap()));
    assert_eq!(failed, "The MCP server ended before the tool 'ask' returned a result");
}

#[tokio::test]
async fn of_too_many_waiting_calls_the_oldest_is_canceled() {
    let agent = agent(|options| options.max_calls = 1).await;
    let first = run(&agent, "ask", json!({})).await;
    let second = run(&agent, "ask", json!({})).await;
    assert_ne!(pid(&first), pid(&second));
    let done = task(agent.answer(&second, "Oslo").await.unwrap());
    assert_eq!(json(&done)[0]["action"], "accept");
    let late = failure(&task(agent.answer(&first, "Oslo").await.unwrap()));
    assert!(late.starts_with("The call that asked the question has ended"), "{late}");
}
