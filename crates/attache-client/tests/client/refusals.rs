//! Errors of agents, by kind.

use attache_client::{ClientError, Outgoing};
use attache_protocol::{ErrorKind, ListTasksRequest, Part, TaskState};
use attache_server::Server;
use serde_json::json;

use crate::support::{Fake, Player, connect, json as respond, playing, rest, serve, soon, sse};

#[tokio::test]
async fn a_refusal_has_its_kind_and_its_facts() {
    let agent = playing().await;
    let error = agent.get("unknown").await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TaskNotFound));
    let remote = error.remote().unwrap();
    assert_eq!((remote.code, remote.metadata["taskId"].as_str()), (-32001, "unknown"));

    let query = ListTasksRequest { page_size: Some(1000), ..ListTasksRequest::default() };
    let error = agent.list(query).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::InvalidParams));
    assert_eq!(error.remote().unwrap().field_violations[0].field, "pageSize");

    let part = Part::raw(*b"\x89PNG").media_type("image/png");
    assert_eq!(agent.send(part).await.unwrap_err().kind(), Some(ErrorKind::ContentTypeNotSupported));
    let error = agent.send(Outgoing::new("hi").task("unknown")).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TaskNotFound));
    let error = agent.stream(Outgoing::new("hi").task("unknown")).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TaskNotFound), "before the stream begins");
    assert_eq!(agent.subscribe("unknown").await.unwrap_err().kind(), Some(ErrorKind::TaskNotFound));
}

#[tokio::test]
async fn a_task_that_has_ended_cannot_be_canceled() {
    let agent = playing().await;
    let attache_client::Reply::Task(task) = agent.send("hi").await.unwrap() else { panic!("a task") };
    assert_eq!(task.status.state, TaskState::Completed);
    let error = agent.cancel(task.id).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TaskNotCancelable));
    assert!(error.to_string().contains("TASK_NOT_CANCELABLE"), "{error}");
}

#[tokio::test]
async fn a_refusal_with_a_status_of_its_own_is_still_a_refusal() {
    let server = Server::new(Player).options(|options| options.max_body = 200);
    let agent = connect(&format!("http://{}", serve(server).await)).await;
    let error = agent.send("x".repeat(500)).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::PayloadTooLarge), "{error}");
}

#[tokio::test]
async fn an_error_status_without_a_protocol_error_is_reported_with_its_body() {
    let fake = Fake::agent(|_| respond(401, &json!({"detail": "who are you?"}))).await;
    let agent = connect(&fake.url).await;
    for error in [agent.send("hi").await.unwrap_err(), agent.stream("hi").await.unwrap_err()] {
        let ClientError::Http { status, body, .. } = &error else { panic!("{error}") };
        assert_eq!((*status, body.as_str()), (401, r#"{"detail":"who are you?"}"#));
    }
}

#[tokio::test]
async fn a_refusal_in_the_middle_of_a_stream_is_its_end() {
    let fake = Fake::agent(|asked| {
        let mut bytes =
            sse(asked, &[json!({"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}})]);
        let error =
            json!({"jsonrpc": "2.0", "id": asked.body["id"], "error": {"code": -32603, "message": "oh"}});
        bytes.extend_from_slice(format!("event: error\ndata: {error}\n\n").as_bytes());
        crate::support::Reaction::Bytes(bytes)
    })
    .await;
    let mut events = connect(&fake.url).await.stream("hi").await.unwrap();
    assert!(soon(events.next()).await.unwrap().is_ok());
    assert_eq!(rest(&mut events).await.unwrap_err().kind(), Some(ErrorKind::Internal));
    assert!(events.next().await.is_none());
    assert_eq!(fake.calls().len(), 1, "what was refused is not asked again");
}
