//! A remote that does not follow the protocol, or follows it in the worst way.

use std::time::Duration;

use attache_client::Client;
use attache_protocol::TaskState;
use axum::response::IntoResponse;
use serde_json::json;

use crate::handmade::*;
use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn garbage_fails_the_task_and_nothing_else() {
    for (name, streaming, body) in [
        ("no JSON", false, "<html>it works</html>"),
        ("no result", false, r#"{"jsonrpc": "2.0", "id": 1}"#),
        ("an array", false, "[[[[]]]]"),
        (
            "a task without an id",
            false,
            r#"{"jsonrpc":"2.0","id":1,"result":{"task":{"status":{"state":7}}}}"#,
        ),
        ("no stream", true, "nothing"),
        ("a stream of garbage", true, "data: {\n\ndata: \u{1}\n\n"),
        ("an empty stream", true, ""),
    ] {
        let remote = Remote::start(streaming, move |_, _, _| {
            let kind = if streaming { "text/event-stream" } else { "application/json" };
            ([("content-type", kind)], body).into_response()
        })
        .await;
        let (_gateway, client) = client_of(&remote, MIB).await;
        let task = send(&client, "hi").await;
        assert_eq!(task.status.state, TaskState::Failed, "{name}");
        assert!(!words(&task).contains("html"), "{name}: {}", words(&task));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_other_tasks_and_strange_events_are_ignored() {
    let remote = Remote::start(true, |_, _, id| {
        let foreign = json!({"artifactUpdate": {"taskId": "other", "contextId": "c1",
            "artifact": {"artifactId": "x", "parts": [{"text": "not yours"}]}}});
        let empty = json!({"artifactUpdate": {"taskId": "t1", "contextId": "c1",
            "artifact": {"artifactId": "e", "parts": []}}});
        let all = vec![
            task("TASK_STATE_WORKING"),
            foreign,
            empty,
            piece("one ", false),
            piece("two", true),
            status("TASK_STATE_COMPLETED"),
        ];
        events(&id, all, false)
    })
    .await;
    let (_gateway, client) = client_of(&remote, MIB).await;
    let task = send(&client, "hi").await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.artifacts.len(), 1);
    assert_eq!(texts(&task, "a"), ["one ", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_ends_at_the_limit_and_the_remote_task_is_canceled() {
    let mut remote = Remote::start(true, |method, _, id| match method {
        "CancelTask" => result(&id, task("TASK_STATE_CANCELED")["task"].clone()),
        _ => {
            let pieces = (0..10_000).map(|_| piece(&"x".repeat(1000), true));
            events(&id, [task("TASK_STATE_WORKING")].into_iter().chain(pieces).collect(), true)
        }
    })
    .await;
    let (_gateway, client) = client_of(&remote, MIB).await;
    let task = send(&client, "hi").await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(
        words(&task),
        format!("the answer of the remote agent is larger than the limit of {MIB} bytes")
    );
    let request = remote.request_of("CancelTask").await;
    assert_eq!(request.body["params"]["id"], "t1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_empty_events_ends_at_the_limit_too() {
    let remote = Remote::start(true, |method, _, id| match method {
        "CancelTask" => result(&id, task("TASK_STATE_CANCELED")["task"].clone()),
        _ => events(&id, vec![status("TASK_STATE_WORKING"); 5000], true),
    })
    .await;
    let (_gateway, client) = client_of(&remote, MIB).await;
    assert!(words(&send(&client, "hi").await).contains("larger than the limit"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_that_hangs_ends_at_the_timeout() {
    let remote = Remote::start(true, |_, _, id| events(&id, Vec::new(), true)).await;
    let options =
        quick_options(&remote.url, new_store()).with(|options| options.timeout = Duration::from_millis(500));
    let gateway = start_gateway(options).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    assert_eq!(words(&send(&client, "hi").await), "the remote agent did not finish within 0.5 s");
}
