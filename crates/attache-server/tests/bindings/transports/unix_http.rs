//! The bindings of HTTP over a Unix socket, each with a client of its own kind.

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{Everywhere, WebSocketWire, ask, everywhere, exchange, request};
use crate::support::{Client, Sse, fetch, player, send};

/// A request to the socket. The host is what clients send that have no other name for it.
fn http(server: &Everywhere, method: Method, path: &str) -> RequestBuilder {
    server.http_over_unix().request(method, format!("http://localhost{path}")).header("A2A-Version", "1.0")
}

fn post(server: &Everywhere, path: &str, body: &Value) -> RequestBuilder {
    http(server, Method::POST, path).header("Content-Type", "application/json").body(body.to_string())
}

/// A gRPC client that connects to the socket.
async fn grpc(server: &Everywhere) -> Client {
    Client { inner: A2aServiceClient::new(server.grpc_over_unix().await) }
}

fn metadata() -> Vec<(String, String)> {
    vec![("A2A-Version".to_owned(), "1.0".to_owned())]
}

/// Reads a stream until an event has a text, and gives that event.
async fn until(stream: &mut Sse, text: &str) -> Value {
    loop {
        let frame = stream.frame().await.expect("the stream goes on");
        let event: Value = serde_json::from_str(&frame.data.concat()).unwrap_or_default();
        if event.to_string().contains(text) {
            return event;
        }
    }
}

#[tokio::test]
async fn http_json_is_answered_over_a_unix_socket() {
    let server = everywhere(player()).await;
    let sent = fetch(post(&server, "/v1/message:send", &send("hello"))).await.json();
    let task = &sent["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
    let path = format!("/v1/tasks/{}", task["id"].as_str().unwrap());
    let found = fetch(http(&server, Method::GET, &path)).await.json();
    assert_eq!(found["id"], task["id"], "{found}");
    assert_eq!(fetch(http(&server, Method::GET, "/v1/tasks")).await.json()["totalSize"], 1);
    assert_eq!(fetch(http(&server, Method::GET, "/v1/tasks/none")).await.status, 404);
}

#[tokio::test]
async fn server_sent_events_arrive_over_a_unix_socket_while_other_requests_run() {
    let server = everywhere(player()).await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": send("wait")});
    let mut turn = Sse::open(post(&server, "/a2a", &call)).await;
    let task = until(&mut turn, "TASK_STATE_SUBMITTED").await["result"]["task"]["id"].clone();
    until(&mut turn, "TASK_STATE_WORKING").await;
    let path = |action: &str| format!("/v1/tasks/{}:{action}", task.as_str().unwrap());
    let mut subscribed = Sse::open(http(&server, Method::POST, &path("subscribe"))).await;
    until(&mut subscribed, "TASK_STATE_WORKING").await;
    assert_eq!(fetch(http(&server, Method::POST, &path("cancel"))).await.status, 200);
    for stream in [&mut turn, &mut subscribed] {
        until(stream, "TASK_STATE_CANCELED").await;
        while stream.frame().await.is_some() {}
    }
}

#[tokio::test]
async fn a_websocket_connection_is_opened_over_a_unix_socket() {
    let server = everywhere(player()).await;
    for path in ["/ws", "/a2a"] {
        let mut wire = WebSocketWire(server.websocket_over_unix(path).await);
        let answer = ask(&mut wire, request("1", "SendMessage", send("hello"))).await;
        assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{path}: {answer}");
        let events = exchange(&mut wire, request("2", "SendStreamingMessage", send("chunks"))).await;
        assert!(events.len() > 3, "{path}: {events:?}");
    }
}

#[tokio::test]
async fn grpc_is_answered_over_a_unix_socket() {
    let server = everywhere(player()).await;
    let mut client = grpc(&server).await;
    let (sent, _) = client.call("SendMessage", send("hello"), &metadata()).await.unwrap();
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
    let (found, _) = client.call("GetTask", json!({"id": sent["task"]["id"]}), &metadata()).await.unwrap();
    assert_eq!(found["id"], sent["task"]["id"]);
    let (events, _) = client.call("SendStreamingMessage", send("chunks"), &metadata()).await.unwrap();
    assert!(events.as_array().unwrap().len() > 3, "{events}");
    let missing = client.call("GetTask", json!({"id": "none"}), &metadata()).await.unwrap_err();
    assert_eq!(missing.code(), tonic::Code::NotFound, "{missing}");
}

#[tokio::test]
async fn a_grpc_stream_over_a_unix_socket_ends_when_its_task_is_canceled_over_http_json() {
    let server = everywhere(player()).await;
    let mut client = grpc(&server).await;
    let (mut stream, _) = client.stream("SendStreamingMessage", send("wait"), &metadata()).await.unwrap();
    let task = stream.next().await.unwrap().expect("a task")["task"]["id"].clone();
    let path = format!("/v1/tasks/{}:cancel", task.as_str().unwrap());
    let canceled = fetch(http(&server, Method::POST, &path)).await.json();
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    let mut last = Value::Null;
    while let Some(event) = stream.next().await.unwrap() {
        last = event;
    }
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED", "{last}");
}
