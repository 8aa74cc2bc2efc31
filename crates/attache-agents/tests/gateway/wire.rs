//! What is sent to a remote agent, and what becomes of its answers.

use attache_client::{Client, ClientOptions, Outgoing, Reply, SchemeCredentials};
use attache_protocol::{StreamResponse, TaskState};
use attache_server::Server;
use attache_server::auth::KnownCallers;
use axum::body::{Body, Bytes};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::handmade::*;
use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_callers_credentials_reaches_the_remote() {
    let mut remote = Remote::start(false, |_, _, id| {
        result(&id, json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "ok"}]}}))
    })
    .await;
    let store = new_store();
    let options = quick_options(&remote.url, store.clone());
    let gateway = TestServer::start(move || async move {
        let gateway = attache_agents::gateway::Gateway::connect(options).await.unwrap();
        Server::new(gateway)
            .card(remote_card())
            .shared_store(store)
            .authenticate(KnownCallers::new().bearer("alice", "t0p-s3cret"))
            .bind("127.0.0.1:0")
    })
    .await;
    let options = ClientOptions::default().with_credentials(SchemeCredentials::new().token("t0p-s3cret"));
    let client = Client::connect_with(&gateway.url(), options).await.unwrap();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    in_time(client.send(Outgoing::new("hi").trace_parent(trace))).await.unwrap();
    let request = remote.request().await;
    assert!(!request.headers.contains_key("authorization"));
    let all = format!("{:?} {}", request.headers, request.body);
    assert!(!all.contains("t0p-s3cret") && !all.contains("alice"), "{all}");
    let parent = request.headers["traceparent"].to_str().unwrap();
    assert_eq!(parent.split('-').nth(1), trace.split('-').nth(1), "the same trace");
    assert_eq!(
        request.headers["idempotency-key"],
        request.body["params"]["message"]["messageId"].as_str().unwrap()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_direct_reply_stays_one_and_keeps_its_context() {
    for streaming in [false, true] {
        let mut remote = Remote::start(streaming, move |_, _, id| {
            let message = json!({"message": {"messageId": "m", "contextId": "theirs", "role": "ROLE_AGENT",
                "parts": [{"text": "hello"}, {"data": 1}]}});
            if streaming { events(&id, vec![message], false) } else { result(&id, message) }
        })
        .await;
        let (_gateway, client) = client_of(&remote, MIB).await;
        for expected in [Value::Null, json!("theirs")] {
            match in_time(client.send(Outgoing::new("hi").context("ours"))).await.unwrap() {
                Reply::Message(message) => {
                    assert_eq!((message.text().as_str(), message.parts.len()), ("hello", 2));
                    assert_eq!(message.context_id, Some("ours".into()));
                }
                Reply::Task(task) => panic!("not a message: {task:?}"),
            }
            assert_eq!(remote.request().await.body["params"]["message"]["contextId"], expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_with_the_same_name_stay_apart() {
    let named = |id: &str, text: &str| {
        json!({"artifactUpdate": {"taskId": "t1", "contextId": "c1", "lastChunk": true,
            "artifact": {"artifactId": id, "name": "page", "parts": [{"text": text}]}}})
    };
    let remote = Remote::start(true, move |_, _, id| {
        let all = vec![
            task("TASK_STATE_WORKING"),
            named("1", "first"),
            named("2", "second"),
            named("1", "changed"),
            status("TASK_STATE_COMPLETED"),
        ];
        events(&id, all, false)
    })
    .await;
    let (_gateway, client) = client_of(&remote, MIB).await;
    let task = send(&client, "hi").await;
    assert_eq!(
        (texts(&task, "1"), texts(&task, "2")),
        (vec!["changed".to_owned()], vec!["second".to_owned()])
    );
    assert!(task.artifacts.iter().all(|artifact| artifact.name.as_deref() == Some("page")), "{task:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_with_a_form_loses_nothing() {
    let remote = Remote::start(true, |_, _, id| {
        let message = json!({"messageId": "q", "role": "ROLE_AGENT", "parts": [
            {"text": "fill in"}, {"data": {"form": ["name"]}}, {"text": "please"}]});
        let asked = json!({"statusUpdate": {"taskId": "t1", "contextId": "c1",
            "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": message}}});
        events(&id, vec![task("TASK_STATE_WORKING"), asked], false)
    })
    .await;
    let (_gateway, client) = client_of(&remote, MIB).await;
    let task = send(&client, "hi").await;
    assert_eq!((task.status.state, words(&task).as_str()), (TaskState::InputRequired, "fill in\nplease"));
    let parts = &task.status.message.as_ref().unwrap().parts;
    assert_eq!(parts[1].as_data().unwrap().as_str(), r#"{"form":["name"]}"#);
    assert!(parts.len() == 3 && task.artifacts.is_empty(), "{task:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_that_is_in_the_task_only_is_not_lost() {
    let remote = Remote::start(true, |method, _, id| match method {
        "GetTask" => result(
            &id,
            json!({"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_COMPLETED"},
                "artifacts": [{"artifactId": "a", "parts": [{"text": "kept"}]}]}),
        ),
        _ => events(&id, vec![task("TASK_STATE_WORKING"), status("TASK_STATE_COMPLETED")], false),
    })
    .await;
    let (_gateway, client) = client_of(&remote, MIB).await;
    let task = send(&client, "hi").await;
    assert_eq!((task.status.state, texts(&task, "a").concat().as_str()), (TaskState::Completed, "kept"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completed_task_that_cannot_be_read_is_completed() {
    let remote = Remote::start(true, |method, _, id| match method {
        "GetTask" => {
            let error = json!({"code": -32601, "message": "Method not found"});
            axum::Json(json!({"jsonrpc": "2.0", "id": id, "error": error})).into_response()
        }
        _ => events(&id, vec![task("TASK_STATE_WORKING"), status("TASK_STATE_COMPLETED")], false),
    })
    .await;
    let (_gateway, client) = client_of(&remote, MIB).await;
    assert_eq!(send(&client, "hi").await.status.state, TaskState::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_status_updates_and_their_messages_goes_along() {
    let remote = Remote::start(true, |_, _, id| {
        let message = json!({"messageId": "s", "role": "ROLE_AGENT", "taskId": "t1", "contextId": "c1",
            "parts": [{"text": "half"}, {"data": {"done": 5}}], "metadata": {"lang": "en"},
            "extensions": ["https://a.example/ext"], "referenceTaskIds": ["theirs"]});
        let progress = json!({"statusUpdate": {"taskId": "t1", "contextId": "c1", "metadata": {"step": 1},
            "status": {"state": "TASK_STATE_WORKING", "message": message}}});
        let again = json!({"statusUpdate": {"taskId": "t1", "contextId": "c1", "metadata": {"step": 2},
            "status": {"state": "TASK_STATE_WORKING"}}});
        events(
            &id,
            vec![
                task("TASK_STATE_WORKING"),
                progress,
                again.clone(),
                again,
                piece("done", false),
                status("TASK_STATE_COMPLETED"),
            ],
            false,
        )
    })
    .await;
    let (_gateway, client) = client_of(&remote, MIB).await;
    let updates: Vec<_> = stream(&client, "hi")
        .await
        .into_iter()
        .filter_map(|event| {
            let StreamResponse::StatusUpdate(update) = event else { return None };
            Some(update)
        })
        .filter(|update| update.metadata.is_some())
        .collect();
    let steps: Vec<_> =
        updates.iter().map(|update| update.metadata.as_ref().unwrap().get::<u32>("step").unwrap()).collect();
    assert_eq!(steps, [1, 2, 2]);
    let message = updates[0].status.message.as_ref().unwrap();
    assert_eq!(message.parts[1].as_data().unwrap().as_str(), r#"{"done":5}"#);
    assert_eq!(message.metadata.as_ref().unwrap().get::<String>("lang").unwrap(), "en");
    assert_eq!(message.extensions, ["https://a.example/ext"]);
    // The ids are ours, and the remote agent's ids of other tasks are not shown.
    assert_eq!(message.task_id.as_ref(), Some(&updates[0].task_id));
    assert_ne!(message.task_id, Some("t1".into()));
    assert!(message.reference_task_ids.is_empty(), "{message:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_the_remote_agent_cancels_is_canceled_here() {
    let reason = json!({"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_CANCELED",
        "message": {"messageId": "s", "role": "ROLE_AGENT", "parts": [{"text": "closing time"}]}}}});
    for (event, expected) in
        [(reason, "closing time"), (status("TASK_STATE_CANCELED"), "the remote agent canceled the task")]
    {
        let remote = Remote::start(true, move |_, _, id| {
            events(&id, vec![task("TASK_STATE_WORKING"), event.clone()], false)
        })
        .await;
        let (_gateway, client) = client_of(&remote, MIB).await;
        let task = send(&client, "hi").await;
        assert_eq!((task.status.state, words(&task).as_str()), (TaskState::Canceled, expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_are_the_callers_fault_have_the_words_and_the_reason() {
    let remote = Remote::start(false, |_, _, id| {
        let error = json!({"code": -32005, "message": "no\r\npictures"});
        axum::Json(json!({"jsonrpc": "2.0", "id": id, "error": error})).into_response()
    })
    .await;
    let (_gateway, client) = client_of(&remote, MIB).await;
    let task = send(&client, "hi").await;
    assert_eq!(task.status.state, TaskState::Rejected);
    assert_eq!(
        words(&task),
        "the remote agent rejected the message: no  pictures (CONTENT_TYPE_NOT_SUPPORTED)"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_the_remote_does_not_accept_can_be_given_again() {
    let mut remote = Remote::start(true, |_, number, id| match number {
        0 => events(&id, vec![task("TASK_STATE_WORKING"), status("TASK_STATE_INPUT_REQUIRED")], false),
        1 => {
            let error = json!({"code": -32602, "message": "a number, please"});
            axum::Json(json!({"jsonrpc": "2.0", "id": id, "error": error})).into_response()
        }
        _ => events(&id, vec![task("TASK_STATE_WORKING"), status("TASK_STATE_COMPLETED")], false),
    })
    .await;
    let (_gateway, client) = client_of(&remote, MIB).await;
    let asked = send(&client, "hi").await;
    assert_eq!(
        (asked.status.state, words(&asked).as_str()),
        (TaskState::InputRequired, "the remote agent needs input")
    );
    let again = send(&client, Outgoing::new("seven").answering(&asked)).await;
    assert_eq!(again.status.state, TaskState::InputRequired);
    assert_eq!(words(&again), "the remote agent rejected the message: a number, please (INVALID_PARAMS)");
    let task = send(&client, Outgoing::new("7").answering(&again)).await;
    assert_eq!(task.status.state, TaskState::Completed);
    let ids = [remote.request().await, remote.request().await, remote.request().await]
        .map(|request| request.body["params"]["message"]["taskId"].clone());
    assert_eq!(ids, [Value::Null, json!("t1"), json!("t1")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_may_not_have_arrived_is_sent_again_under_the_same_id() {
    let mut remote = Remote::start(true, |_, number, id| match number {
        // The gateway dies before it hears anything.
        0 => events(&id, Vec::new(), true),
        _ => events(&id, vec![task("TASK_STATE_WORKING"), status("TASK_STATE_COMPLETED")], false),
    })
    .await;
    let store = new_store();
    let gateway = start_gateway(quick_options(&remote.url, store.clone())).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    let task = send(&client, immediately("hi")).await;
    let first = remote.request().await;
    gateway.kill().await;
    let gateway = start_gateway(quick_options(&remote.url, store)).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    reaches(&client, &task, TaskState::Completed).await;
    let second = remote.request().await;
    assert_eq!(first.body["params"]["message"], second.body["params"]["message"]);
    assert_eq!(first.headers["idempotency-key"], second.headers["idempotency-key"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_are_found_again_after_a_restart_whatever_their_ids_are() {
    let page = |id: &str, parts: Value| json!({"artifactId": id, "name": "page", "parts": parts});
    let update = move |id: &str, text: &str| json!({"artifactUpdate": {"taskId": "t1", "contextId": "c1", "artifact": page(id, json!([{"text": text}]))}});
    let remote = Remote::start(true, move |method, _, id| match method {
        "GetTask" => {
            let artifacts = json!([
                page("x1", json!([{"text": "one "}, {"text": "two"}])),
                page("x2", json!([{"text": "other"}])),
            ]);
            let status = json!({"state": "TASK_STATE_COMPLETED"});
            result(&id, json!({"id": "t1", "contextId": "c1", "status": status, "artifacts": artifacts}))
        }
        _ => events(&id, vec![task("TASK_STATE_WORKING"), update("x1", "one "), update("x2", "other")], true),
    })
    .await;
    let store = new_store();
    let gateway = start_gateway(quick_options(&remote.url, store.clone())).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    let task = send(&client, immediately("hi")).await;
    in_time(client.wait_until(task.id.clone(), |task| task.artifacts.len() == 2)).await.unwrap();
    gateway.kill().await;
    let gateway = start_gateway(quick_options(&remote.url, store)).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    let task = reaches(&client, &task, TaskState::Completed).await;
    assert_eq!(task.artifacts.len(), 2, "{task:?}");
    assert_eq!(
        (texts(&task, "x1").concat(), texts(&task, "x2").concat()),
        ("one two".to_owned(), "other".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_before_the_remote_task_is_known_reaches_it_later() {
    let (release, gate) = tokio::sync::watch::channel(false);
    let mut remote = Remote::start(true, move |method, _, id| match method {
        "CancelTask" => result(&id, task("TASK_STATE_CANCELED")["task"].clone()),
        _ => {
            let mut gate = gate.clone();
            let late = async move {
                let _ = gate.wait_for(|open| *open).await;
                let event = json!({"jsonrpc": "2.0", "id": id, "result": task("TASK_STATE_WORKING")});
                Ok::<_, std::io::Error>(Bytes::from(format!("data: {event}\n\n")))
            };
            ([("content-type", "text/event-stream")], Body::from_stream(futures::stream::once(late)))
                .into_response()
        }
    })
    .await;
    let (_gateway, client) = client_of(&remote, MIB).await;
    let sent = send(&client, immediately("hi")).await;
    remote.request().await;
    in_time(client.cancel(sent.id)).await.unwrap();
    release.send(true).unwrap();
    remote.request_of("CancelTask").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_read_to_its_end_so_that_its_connection_can_be_used_again() {
    let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let held = gate.clone();
    let remote = Remote::start(true, move |_, _, id| {
        let last = json!({"jsonrpc": "2.0", "id": id, "result": task("TASK_STATE_COMPLETED")});
        let (ended, held) = (ended.clone(), held.clone());
        let event = futures::stream::once(async move { Ok(Bytes::from(format!("data: {last}\n\n"))) });
        let end = futures::stream::once(async move {
            held.notified().await;
            ended.send(()).unwrap();
            Ok::<_, std::io::Error>(Bytes::from(": end\n\n"))
        });
        let body = Body::from_stream(futures::StreamExt::chain(event, end));
        ([("content-type", "text/event-stream")], body).into_response()
    })
    .await;
    let (_gateway, client) = client_of(&remote, MIB).await;
    assert_eq!(send(&client, "hi").await.status.state, TaskState::Completed);
    gate.notify_one();
    in_time(ends.recv()).await.unwrap();
}
