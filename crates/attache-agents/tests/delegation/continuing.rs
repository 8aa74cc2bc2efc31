//! Going on with a task that an agent has, such as one that asked for input.

use std::sync::Arc;
use std::time::Duration;

use attache_agents::delegation::{Access, Api, DelegationOptions};
use attache_core::MemoryStore;
use serde_json::{Value, json};

use crate::support::{House, Office, near, soon};
use crate::{ENDED, words};

fn texts(task: &Value) -> Vec<&str> {
    let messages = task["history"].as_array().unwrap().iter();
    messages.map(|message| message["parts"][0]["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_message_continues_the_task_in_each_protocol_version() {
    let (mut office, house) = (Office::open("Office").await, House::new());
    for url in [office.url(), office.oldest()] {
        let message = json!({"agentUrl": url, "message": "ask Which colour?", "sessionId": "s-1", "metadata": {"n": 1}});
        let sent = house.call("a2a::send_task", message).await;
        let asked = house.until(&sent, &["input-required"]).await;
        assert_eq!(words(&asked), "Which colour?");
        let answered = house
            .call("a2a::send_task", json!({"taskId": asked["id"], "message": "blue", "metadata": {"n": 2}}))
            .await;
        let done = house.until(&answered, &ENDED).await;
        assert_eq!((&done["id"], words(&done)), (&asked["id"], "echo: blue"));
        assert_eq!(done["metadata"], asked["metadata"], "the record is the same");
        assert_eq!(done["createdAt"], asked["createdAt"]);
        assert_eq!(done["sessionId"], "s-1");
        assert_eq!(texts(&done), ["ask Which colour?", "Which colour?", "blue"]);
        assert_eq!(soon(office.heard.recv()).await.unwrap(), "s-1: ask Which colour?");
        assert_eq!(soon(office.heard.recv()).await.unwrap(), "s-1: blue");
    }
}

#[tokio::test]
async fn the_next_task_can_use_the_session_of_the_last_task() {
    let (mut office, house) = (Office::open("Office").await, House::new());
    let first = house.call("a2a::send_task", json!({"agentUrl": office.url(), "message": "one"})).await;
    let session = first["sessionId"].as_str().unwrap();
    assert!(!session.is_empty(), "the agent has named the conversation");
    house
        .call("a2a::send_task", json!({"agentUrl": office.url(), "message": "two", "sessionId": session}))
        .await;
    for said in ["one", "two"] {
        assert_eq!(soon(office.heard.recv()).await.unwrap(), format!("{session}: {said}"));
    }
}

#[tokio::test]
async fn a_task_that_cannot_be_continued_stays_as_it_is() {
    let (office, house) = (Office::open("Office").await, House::new());
    let api = Api::new(house.delegation.clone(), Access::ThisMachine);
    let send = |body: Value| {
        let api = api.clone();
        async move {
            let request = http::Request::post("/api/a2a/send").header("host", "localhost:3111");
            let response =
                soon(api.handle(request.body(http_body_util::Full::from(body.to_string())).unwrap()));
            let response = response.await.unwrap();
            let status = response.status().as_u16();
            let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
            (status, serde_json::from_slice::<Value>(&body).unwrap())
        }
    };
    let refusal =
        |(status, body): (u16, Value)| (status, body["error"]["message"].as_str().unwrap().to_owned());
    let asked = house
        .call("a2a::send_task", json!({"agentUrl": office.url(), "message": "ask Who?", "sessionId": "s-1"}))
        .await;
    let asked = house.until(&asked, &["input-required"]).await;
    let id = asked["id"].as_str().unwrap();
    assert_eq!(
        refusal(send(json!({"taskId": "nope", "message": "x"})).await),
        (404, "Task not found: nope".to_owned())
    );
    assert_eq!(refusal(send(json!({"taskId": id})).await), (400, "message is required".to_owned()));
    assert_eq!(
        refusal(
            send(json!({"taskId": id, "message": "x", "agentUrl": "https://other.example/?k=s3cret"})).await
        ),
        (
            400,
            format!(
                "the task `{id}` is with the agent at `{}/`, not with the one at `https://other.example/`",
                office.url()
            )
        )
    );
    assert_eq!(
        refusal(send(json!({"taskId": id, "message": "x", "sessionId": "s-2"})).await),
        (400, format!("the task `{id}` is in the session `s-1`, not in `s-2`"))
    );
    assert_eq!(house.call("a2a::get_task", json!({"taskId": id})).await, asked);
    let (status, done) = send(
        json!({"taskId": id, "message": "me", "agentUrl": format!("{}/", office.url()), "sessionId": "s-1"}),
    )
    .await;
    assert_eq!((status, words(&done)), (200, "echo: me"), "{done}");
    assert_eq!(
        refusal(send(json!({"taskId": id, "message": "x"})).await),
        (409, "Cannot continue task in state: completed".to_owned())
    );
}

#[tokio::test]
async fn a_message_that_cannot_be_sent_leaves_the_task_as_it_is() {
    let (office, store) = (Office::open("Office").await, Arc::new(MemoryStore::new()));
    let house = House::with(store.clone(), near());
    let sent = house.call("a2a::send_task", json!({"agentUrl": office.url(), "message": "ask Who?"})).await;
    let asked = house.until(&sent, &["input-required"]).await;
    let elsewhere = House::with(store, DelegationOptions::default());
    let answer = json!({"taskId": asked["id"], "message": "me"});
    let (code, _) = elsewhere.refusal("a2a::send_task", answer.clone()).await;
    assert_eq!(code, "blocked");
    assert_eq!(house.call("a2a::get_task", json!({"taskId": asked["id"]})).await, asked);
    assert_eq!(words(&house.call("a2a::send_task", answer).await), "echo: me");
}

#[tokio::test]
async fn a_slow_response_does_not_block_the_caller() {
    let office = Office::open("Office").await;
    let options = DelegationOptions { patience: Duration::from_millis(50), ..near() };
    let house = House::with(Arc::new(MemoryStore::new()), options);
    let sent = house.call("a2a::send_task", json!({"agentUrl": office.url(), "message": "ask Who?"})).await;
    let asked = house.until(&sent, &["input-required"]).await;
    let answered = house.call("a2a::send_task", json!({"taskId": asked["id"], "message": "wait"})).await;
    assert_eq!(answered["status"]["state"], "working");
    assert_eq!(texts(&answered), ["ask Who?", "Who?", "wait"]);
    house.call("a2a::cancel_task", json!({"taskId": asked["id"]})).await;
}
