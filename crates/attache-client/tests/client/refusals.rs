//! Errors of agents, by kind.

use attache_client::{ClientError, Outgoing};
use attache_protocol::{ErrorKind, ListTasksRequest, Part, TaskState};
use attache_server::Server;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
async fn a_body_that_is_too_large_is_refused_with_the_limit() {
    let server = Server::new(Player).options(|options| options.max_body = 100_000);
    let agent = connect(&format!("http://{}", serve(server).await)).await;
    let large = || Outgoing::new("x".repeat(20_000_000));
    for error in [agent.send(large()).await.unwrap_err(), agent.stream(large()).await.unwrap_err()] {
        assert_eq!(error.kind(), Some(ErrorKind::PayloadTooLarge), "{error}");
        assert!(error.to_string().contains("100000"), "{error}");
    }
}

/// A server that closes the connection in the middle of a body, before its response can be read.
#[tokio::test]
async fn a_refusal_that_was_lost_with_the_connection_is_asked_for_again() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let interface = json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
    let card = json!({"name": "Small", "supportedInterfaces": [interface]}).to_string();
    let respond = |status: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
    };
    let answers = [respond("200 OK", &card), String::new(), respond("413 X", "at most 5 bytes")];
    let serving = tokio::spawn(async move {
        for answer in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.unwrap());
            }
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let error = soon(connect(&url).await.send("x".repeat(20_000_000))).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::Http { status: 413, body, .. } if body == "at most 5 bytes"),
        "{error}"
    );
    serving.await.unwrap();
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
