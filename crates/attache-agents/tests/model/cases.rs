//! What every kind of agent is tried with: a cancel in the middle, a flood, many contexts at once.

use std::sync::Arc;
use std::time::Duration;

use attache_agents::model::ModelOptions;
use attache_client::Outgoing;
use attache_protocol::{StreamResponse, TaskState};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::IntoResponse;
use axum::routing::post;
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{Step, chunk, end, failure, serve, serve_endpoint, task, text, text_event};

/// Serves an endpoint that does this with each request. Returns the URL of its API.
async fn endpoint(reply: impl Fn(Value) -> Body + Clone + Send + Sync + 'static) -> String {
    let app = Router::new().route(
        "/v1/chat/completions",
        post(move |body: Bytes| {
            let reply = reply(serde_json::from_slice(&body).unwrap());
            async move { ([("content-type", "text/event-stream")], reply).into_response() }
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// Reports when it is dropped.
struct OnDrop(mpsc::UnboundedSender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn a_cancel_closes_the_request_to_the_endpoint_and_keeps_what_arrived() {
    let (closed, mut is_closed) = mpsc::unbounded_channel();
    let url = endpoint(move |_| {
        let closed = OnDrop(closed.clone());
        let first = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(text_event("half")))]);
        let hang = futures::stream::once(async move {
            let _closed = closed;
            std::future::pending().await
        });
        Body::from_stream(futures::StreamExt::chain(first, hang))
    })
    .await;
    let agent = serve_endpoint(url, |_| {}, Vec::new(), |_| {}, Arc::default()).await;
    let mut events = agent.stream("hello").await.unwrap();
    let id = loop {
        if let StreamResponse::ArtifactUpdate(update) = events.next().await.unwrap().unwrap() {
            break update.task_id;
        }
    };
    let canceled = agent.cancel(id).await.unwrap();
    assert_eq!((canceled.status.state, text(&canceled).as_str()), (TaskState::Canceled, "half"));
    let closed = tokio::time::timeout(std::time::Duration::from_secs(30), is_closed.recv()).await;
    closed.expect("the request is closed");
}

#[tokio::test]
async fn a_flood_of_tokens_fails_the_task() {
    let url = endpoint(|_| {
        let token = Bytes::from(text_event(&"x".repeat(64 * 1024)));
        Body::from_stream(futures::stream::repeat_with(move || Ok::<_, std::io::Error>(token.clone())))
    })
    .await;
    let agent = serve_endpoint(url, |_| {}, Vec::new(), |_| {}, Arc::default()).await;
    let failed = task(agent.send("hello").await.unwrap());
    assert_eq!(failure(&failed), "the model wrote more than 8388608 bytes");
}

#[tokio::test]
async fn a_flood_of_thoughts_fails_the_task() {
    let url = endpoint(|_| {
        let thought = Bytes::from(chunk(&json!({"reasoning_content": "x".repeat(64 * 1024)}), None));
        Body::from_stream(futures::stream::repeat_with(move || Ok::<_, std::io::Error>(thought.clone())))
    })
    .await;
    let agent = serve_endpoint(url, |_| {}, Vec::new(), |_| {}, Arc::default()).await;
    let failed = task(agent.send("hello").await.unwrap());
    assert_eq!(failure(&failed), "the model wrote more than 8388608 bytes");
}

#[tokio::test]
async fn comments_and_empty_events_do_not_hide_that_a_model_is_silent() {
    for nothing in [": still here\n\n".to_owned(), text_event("")] {
        let url = endpoint(move |_| {
            let nothing = Bytes::from(nothing.clone());
            Body::from_stream(futures::stream::repeat_with(move || Ok::<_, std::io::Error>(nothing.clone())))
        })
        .await;
        let change = |options: &mut ModelOptions| options.silence = Duration::from_millis(300);
        let agent = serve_endpoint(url, change, Vec::new(), |_| {}, Arc::default()).await;
        let failed = task(agent.send("hello").await.unwrap());
        assert_eq!(failure(&failed), "the model stopped replying");
    }
}

#[tokio::test]
async fn an_endpoint_that_is_gone_fails_the_task_with_a_clear_message() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let once = |options: &mut ModelOptions| options.max_retries = 0;
    let agent = serve_endpoint(url, once, Vec::new(), |_| {}, Arc::default()).await;
    let failed = task(agent.send("hello").await.unwrap());
    assert_eq!(failure(&failed), "the model cannot be reached: try again later");
}

#[tokio::test]
async fn a_hundred_contexts_at_once_get_their_own_replies_and_keep_them_apart() {
    let url = endpoint(|request| {
        let messages = request["messages"].as_array().unwrap();
        let words: Vec<_> = messages.iter().filter_map(|message| message["content"].as_str()).collect();
        Body::from(format!("{}{}", text_event(&words.join("|")), end("stop")))
    })
    .await;
    let many = |options: &mut ModelOptions| options.conversation.contexts.max = 100;
    let agent = serve_endpoint(url, many, Vec::new(), |_| {}, Arc::default()).await;
    let turns = (0..100).map(|number| {
        let agent = &agent;
        async move {
            let context = format!("context {number}");
            let say = async |text: String| {
                let message = Outgoing::new(text).context(context.as_str());
                text_of(task(agent.send(message).await.unwrap()))
            };
            let first = say(format!("a{number}")).await;
            assert_eq!(first, format!("a{number}"));
            assert_eq!(say(format!("b{number}")).await, format!("a{number}|a{number}|b{number}"));
        }
    });
    join_all(turns).await;
}

fn text_of(task: attache_protocol::Task) -> String {
    assert_eq!(task.status.state, TaskState::Completed, "{task:?}");
    text(&task)
}

#[tokio::test]
async fn a_message_after_a_failure_continues_the_conversation() {
    let steps = [Step::Events(vec![text_event("half")]), Step::Say(&["whole"])];
    let (agent, script) = serve(steps, |_| {}, Vec::new()).await;
    let failed = task(agent.send(Outgoing::new("hello").context("c")).await.unwrap());
    assert_eq!(failed.status.state, TaskState::Failed);
    assert_eq!(text_of(task(agent.send(Outgoing::new("again").context("c")).await.unwrap())), "whole");
    let messages = script.requests.lock()[1]["messages"].clone();
    let words: Vec<_> = messages.as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(words.first().unwrap().as_str(), Some("hello"), "{messages}");
    assert_eq!(words.last().unwrap().as_str(), Some("again"), "{messages}");
}
