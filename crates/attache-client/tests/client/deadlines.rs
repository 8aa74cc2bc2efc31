//! Deadlines of whole operations, and what is repeated meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use attache_client::{Client, ClientError, Outgoing};
use attache_protocol::ListTasksRequest;
use serde_json::json;

use crate::support::{Fake, Reaction, connect, json as respond, playing, quick, rpc_result, soon, sse};

const SOON: Duration = Duration::from_millis(80);

#[tokio::test]
async fn a_deadline_holds_for_all_attempts_together() {
    let busy = Fake::agent(|_| respond(503, &json!({}))).await;
    let backoff = quick().backoff.attempts(u32::MAX);
    let options = quick().deadline(SOON).backoff(backoff);
    let agent = Client::connect_with(&busy.url, options).await.unwrap();
    let error = soon(agent.send(Outgoing::new("hi").idempotency_key("k"))).await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { limit: SOON }), "{error}");
    assert!(busy.calls().len() > 1);
}

#[tokio::test]
async fn a_deadline_ends_a_stream_that_never_stops() {
    let fake = Fake::agent(|asked| {
        let event = json!({"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}});
        Reaction::Endless(sse(asked, &[event]), b": still here\n\n".to_vec())
    })
    .await;
    let agent = connect(&fake.url).await;
    let mut events = agent.stream(Outgoing::new("hi").deadline(SOON)).await.unwrap();
    soon(events.next()).await.unwrap().unwrap();
    let error = soon(events.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Timeout { limit: SOON }), "{error}");
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_message_may_have_a_deadline_of_its_own() {
    let agent = playing().await;
    let error = soon(agent.send(Outgoing::new("wait").deadline(SOON))).await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { limit: SOON }), "{error}");
    let page = agent.list(ListTasksRequest::default()).await.unwrap();
    assert!(!page.tasks[0].status.state.is_terminal(), "the task goes on");
    agent.send(Outgoing::new("hi").deadline(Duration::MAX)).await.unwrap();
}

#[tokio::test]
async fn requests_that_only_read_are_repeated_and_others_are_not() {
    let count = AtomicUsize::new(0);
    let fake = Fake::agent(move |asked| match (asked.method(), count.fetch_add(1, Ordering::SeqCst) % 3) {
        ("CancelTask" | "CreateTaskPushNotificationConfig", _) | (_, 0) => Reaction::Bytes(Vec::new()),
        (_, 1) => respond(503, &json!({})),
        _ => rpc_result(asked, &json!({"id": "t", "tasks": []})),
    })
    .await;
    let agent = connect(&fake.url).await;
    soon(agent.get("t")).await.unwrap();
    soon(agent.list(ListTasksRequest::default())).await.unwrap();
    soon(agent.delete_webhook("t", "w")).await.unwrap();
    assert_eq!(fake.calls().len(), 9);
    assert!(matches!(soon(agent.cancel("t")).await.unwrap_err(), ClientError::Broken(_)));
    assert!(matches!(
        soon(agent.create_webhook("t", Default::default())).await.unwrap_err(),
        ClientError::Broken(_)
    ));
    assert_eq!(fake.calls().len(), 11);
}
