//! Continuing a task, such as a task that requires input.

use std::sync::Arc;
use std::time::Duration;

use attache_agents::delegation::{Access, Api, DelegationOptions};
use attache_core::MemoryStore;
use serde_json::{Value, json};

use crate::http::{post, send};
use crate::support::{Delegator, TestAgent, in_time, local_options};
use crate::{ENDED, status_text};

fn texts(task: &Value) -> Vec<&str> {
    let messages = task["history"].as_array().unwrap().iter();
    messages.map(|message| message["parts"][0]["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_message_continues_the_task_in_each_protocol_version() {
    let (mut agent, delegator) = (TestAgent::start("Office").await, Delegator::new());
    for url in [agent.url(), agent.v0_1_url()] {
        let message = json!({"agentUrl": url, "message": "ask Which colour?", "sessionId": "s-1", "metadata": {"n": 1}});
        let sent = delegator.call("a2a::send_task", message).await;
        let asked = delegator.until(&sent, &["input-required"]).await;
        assert_eq!(status_text(&asked), "Which colour?");
        let answered = delegator
            .call("a2a::send_task", json!({"taskId": asked["id"], "message": "blue", "metadata": {"n": 2}}))
            .await;
        let done = delegator.until(&answered, &ENDED).await;
        assert_eq!((&done["id"], status_text(&done)), (&asked["id"], "echo: blue"));
        assert_eq!(done["metadata"], asked["metadata"], "the record is the same");
        assert_eq!(done["createdAt"], asked["createdAt"]);
        assert_eq!(done["sessionId"], "s-1");
        assert_eq!(texts(&done), ["ask Which colour?", "Which colour?", "blue"]);
        assert_eq!(in_time(agent.received.recv()).await.unwrap(), "s-1: ask Which colour?");
        assert_eq!(in_time(agent.received.recv()).await.unwrap(), "s-1: blue");
    }
}

#[tokio::test]
async fn the_next_task_can_use_the_session_of_the_last_task() {
    let (mut agent, delegator) = (TestAgent::start("Office").await, Delegator::new());
    let first = delegator.call("a2a::send_task", json!({"agentUrl": agent.url(), "message": "one"})).await;
    let session = first["sessionId"].as_str().unwrap();
    assert!(!session.is_empty(), "the agent has chosen the session");
    delegator
        .call("a2a::send_task", json!({"agentUrl": agent.url(), "message": "two", "sessionId": session}))
        .await;
    for text in ["one", "two"] {
        assert_eq!(in_time(agent.received.recv()).await.unwrap(), format!("{session}: {text}"));
    }
}

#[tokio::test]
async fn a_task_that_cannot_be_continued_stays_as_it_is() {
    let (agent, delegator) = (TestAgent::start("Office").await, Delegator::new());
    let api = Api::new(delegator.delegation.clone(), Access::ThisMachine);
    let send = async |body: Value| {
        let (status, body) = send(&api, post("/api/a2a/send", &body)).await;
        (status.as_u16(), body)
    };
    let error =
        |(status, body): (u16, Value)| (status, body["error"]["message"].as_str().unwrap().to_owned());
    let asked = delegator
        .call("a2a::send_task", json!({"agentUrl": agent.url(), "message": "ask Who?", "sessionId": "s-1"}))
        .await;
    let asked = delegator.until(&asked, &["input-required"]).await;
    let id = asked["id"].as_str().unwrap();
    assert_eq!(
        error(send(json!({"taskId": "nope", "message": "x"})).await),
        (404, "Task not found: nope".to_owned())
    );
    assert_eq!(error(send(json!({"taskId": id})).await), (400, "message is required".to_owned()));
    assert_eq!(
        error(
            send(json!({"taskId": id, "message": "x", "agentUrl": "https://other.example/?k=s3cret"})).await
        ),
        (
            400,
            format!(
                "the task `{id}` belongs to the agent at `{}/`, not to the agent at `https://other.example/`",
                agent.url()
            )
        )
    );
    assert_eq!(
        error(send(json!({"taskId": id, "message": "x", "sessionId": "s-2"})).await),
        (400, format!("the task `{id}` is in the session `s-1`, not in `s-2`"))
    );
    assert_eq!(delegator.call("a2a::get_task", json!({"taskId": id})).await, asked);
    let (status, done) = send(
        json!({"taskId": id, "message": "me", "agentUrl": format!("{}/", agent.url()), "sessionId": "s-1"}),
    )
    .await;
    assert_eq!((status, status_text(&done)), (200, "echo: me"), "{done}");
    assert_eq!(
        error(send(json!({"taskId": id, "message": "x"})).await),
        (409, "Cannot continue task in state: completed".to_owned())
    );
}

#[tokio::test]
async fn a_message_that_cannot_be_sent_leaves_the_task_as_it_is() {
    let (agent, store) = (TestAgent::start("Office").await, Arc::new(MemoryStore::new()));
    let delegator = Delegator::with(store.clone(), local_options());
    let sent =
        delegator.call("a2a::send_task", json!({"agentUrl": agent.url(), "message": "ask Who?"})).await;
    let asked = delegator.until(&sent, &["input-required"]).await;
    let elsewhere = Delegator::with(store, DelegationOptions::default());
    let answer = json!({"taskId": asked["id"], "message": "me"});
    let (code, _) = elsewhere.error("a2a::send_task", answer.clone()).await;
    assert_eq!(code, "blocked");
    assert_eq!(delegator.call("a2a::get_task", json!({"taskId": asked["id"]})).await, asked);
    assert_eq!(status_text(&delegator.call("a2a::send_task", answer).await), "echo: me");
}

#[tokio::test]
async fn a_slow_response_does_not_block_the_caller() {
    let agent = TestAgent::start("Office").await;
    let options = local_options().with(|options| options.max_wait = Duration::from_millis(50));
    let delegator = Delegator::with(Arc::new(MemoryStore::new()), options);
    let sent =
        delegator.call("a2a::send_task", json!({"agentUrl": agent.url(), "message": "ask Who?"})).await;
    let asked = delegator.until(&sent, &["input-required"]).await;
    let answered = delegator.call("a2a::send_task", json!({"taskId": asked["id"], "message": "wait"})).await;
    assert_eq!(answered["status"]["state"], "working");
    assert_eq!(texts(&answered), ["ask Who?", "Who?", "wait"]);
    delegator.call("a2a::cancel_task", json!({"taskId": asked["id"]})).await;
}
