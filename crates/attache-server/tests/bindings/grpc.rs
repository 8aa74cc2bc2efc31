//! gRPC as it goes over the wire: what is no call, and what protobuf can say that JSON cannot.

use a2a_pb::proto;
use bytes::Bytes;
use prost::Message as _;
use serde_json::json;
use tonic::Code;

use crate::support::{Binding, Refusal, Reply, Running, fetch, over_http2, player, playing, send, serve};

/// Posts bytes to a path of the binding, as gRPC but without a client that would see to it that they make sense.
async fn post(server: &Running, path: &str, content_type: &str, body: impl Into<Bytes>) -> Reply {
    let request = over_http2().post(format!("{}{path}", server.base)).header("content-type", content_type);
    fetch(request.header("te", "trailers").body(body.into())).await
}

/// A message in the frame that gRPC puts around it.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

fn code(reply: &Reply) -> i32 {
    assert_eq!((reply.status.as_u16(), reply.header("content-type")), (200, "application/grpc"), "{reply:?}");
    reply.header("grpc-status").parse().unwrap()
}

/// The code of a refusal. `None` if there is a message instead.
fn refused_with(reply: &Reply) -> Option<i32> {
    reply.body.is_empty().then(|| code(reply))
}

#[tokio::test]
async fn a_call_that_does_not_exist_is_unimplemented() {
    let server = playing().await;
    for (package, others) in [("lf.a2a.v1", "TaskSubscription"), ("a2a.v1", "ListTasks")] {
        for call in ["Explode", "getTask", "", "GetTask/more", others] {
            let path = format!("/{package}.A2AService/{call}");
            let reply = post(&server, &path, "application/grpc", framed(b"")).await;
            assert_eq!(code(&reply), Code::Unimplemented as i32, "{path}");
        }
    }
    for service in ["/a2a.v2.A2AService/GetTask", "/grpc.health.v1.Health/Check"] {
        assert_eq!(post(&server, service, "application/grpc", framed(b"")).await.status, 404, "{service}");
    }
}

#[tokio::test]
async fn what_is_not_grpc_is_told_so_in_json() {
    let server = playing().await;
    for content_type in ["application/json", "text/plain", "application/proto"] {
        let reply = post(&server, "/lf.a2a.v1.A2AService/ListTasks", content_type, "{}").await;
        assert_eq!(
            (reply.status.as_u16(), &reply.json()["error"]["code"]),
            (415, &json!(415)),
            "{content_type}"
        );
    }
    let fine = post(&server, "/lf.a2a.v1.A2AService/ListTasks", "application/grpc+proto", framed(b"")).await;
    assert_eq!(fine.status, 200);
}

#[tokio::test]
async fn bytes_that_are_no_message_do_no_harm() {
    let server = playing().await;
    for body in [
        b"".to_vec(),
        framed(b"\xff\xff\xff"),
        b"\x00\x00\x00\x00\x09x".to_vec(),
        b"\x01\x00\x00\x00\x00".to_vec(),
    ] {
        let reply = post(&server, "/lf.a2a.v1.A2AService/GetTask", "application/grpc", body.clone()).await;
        assert_ne!(code(&reply), Code::Ok as i32, "{body:?}");
    }
    assert!(server.ask("ListTasks", json!({})).over(Binding::Grpc).await.result.is_ok());
}

fn message(parts: Vec<proto::Part>) -> proto::Message {
    proto::Message {
        message_id: "m".into(),
        role: proto::Role::User.into(),
        parts,
        ..proto::Message::default()
    }
}

fn part(content: proto::part::Content) -> proto::Part {
    proto::Part { content: Some(content), ..proto::Part::default() }
}

async fn refused(server: &Running, message: proto::Message) -> Refusal {
    let request =
        proto::SendMessageRequest { message: Some(message), ..proto::SendMessageRequest::default() };
    let status = server.grpc().await.inner.send_message(request).await.unwrap_err();
    Refusal::from_status(&status)
}

#[tokio::test]
async fn what_no_name_exists_for_is_refused_with_the_field_named() {
    let server = playing().await;
    let text = || part(proto::part::Content::Text("hi".into()));
    let nan = prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(f64::NAN)) };
    for (message, field) in [
        (proto::Message { role: 99, ..message(vec![text()]) }, "message.role"),
        (proto::Message { role: -1, ..message(vec![text()]) }, "message.role"),
        (message(vec![text(), proto::Part::default()]), "message.parts[1]"),
        (message(vec![part(proto::part::Content::Data(nan))]), "message.parts[0].data"),
        (message(vec![]), "message.parts"),
    ] {
        let refusal = refused(&server, message).await;
        assert_eq!((refusal.code, refusal.reason.as_str()), (Code::InvalidArgument as i64, "INVALID_PARAMS"));
        assert_eq!(refusal.fields, [field]);
    }
    let mut client = server.grpc().await.inner;
    let request = proto::ListTasksRequest { status: 42, ..proto::ListTasksRequest::default() };
    let refusal = Refusal::from_status(&client.list_tasks(request).await.unwrap_err());
    assert_eq!(refusal.fields, ["status"]);
    let time = prost_types::Timestamp { seconds: i64::MAX, nanos: -5 };
    let request =
        proto::ListTasksRequest { status_timestamp_after: Some(time), ..proto::ListTasksRequest::default() };
    let refusal = Refusal::from_status(&client.list_tasks(request).await.unwrap_err());
    assert_eq!(refusal.fields, ["statusTimestampAfter"]);
    let refusal =
        Refusal::from_status(&client.send_message(proto::SendMessageRequest::default()).await.unwrap_err());
    assert_eq!(refusal.fields, ["message.messageId", "message.role", "message.parts"]);
}

#[tokio::test]
async fn a_task_is_the_same_over_every_binding() {
    let server = playing().await;
    let mut params = send("ask");
    params["message"]["metadata"] =
        json!({"urn:x": {"list": [1, 2.5, "three", null, true], "text": "\u{1F980}"}});
    params["message"]["parts"] = json!([
        {"text": "ask", "mediaType": "text/plain", "metadata": {"n": 1}},
        {"raw": "AJ//", "filename": "a.bin"},
        {"url": "https://example.com/"},
        {"data": {"nested": [{"a": null}]}},
    ]);
    let id = server.sent(params).await["task"]["id"].clone();
    let theirs = |task: &serde_json::Value| crate::support::canonical::<a2a_pb::protojson::Task>(task);
    let ask = server.ask("GetTask", json!({"id": id}));
    let over_rpc = theirs(&ask.clone().ok(Binding::JsonRpc).await);
    assert_eq!(over_rpc, theirs(&ask.clone().ok(Binding::HttpJson).await));
    assert_eq!(over_rpc, theirs(&ask.ok(Binding::Grpc).await));
    assert_eq!(over_rpc["history"][0]["parts"][1]["raw"], "AJ//");
}

#[tokio::test]
async fn nesting_has_a_limit_here_too() {
    let server = playing().await;
    let nested = |depth: usize| {
        let null = prost_types::Value { kind: Some(prost_types::value::Kind::NullValue(0)) };
        (0..depth).fold(null, |inner, _| {
            let list = prost_types::ListValue { values: vec![inner] };
            prost_types::Value { kind: Some(prost_types::value::Kind::ListValue(list)) }
        })
    };
    let request = |depth| proto::SendMessageRequest {
        message: Some(message(vec![part(proto::part::Content::Data(nested(depth)))])),
        ..proto::SendMessageRequest::default()
    };
    assert!(server.grpc().await.inner.send_message(request(20)).await.is_ok());
    // A value in `data` is up to 100 messages deep, and an array has two of them.
    for (depth, expected) in
        [(50, None), (51, Some(Code::InvalidArgument)), (2_000, Some(Code::InvalidArgument))]
    {
        let body = framed(&request(depth).encode_to_vec());
        let reply = post(&server, "/lf.a2a.v1.A2AService/SendMessage", "application/grpc", body).await;
        assert_eq!(refused_with(&reply), expected.map(|code| code as i32), "{depth}");
    }
}

#[tokio::test]
async fn a_call_of_exactly_the_limit_is_taken() {
    let server = serve(player().options(|options| options.max_body = 1000)).await;
    let call = |text: usize| {
        let text = proto::part::Content::Text("x".repeat(text));
        let message = Some(message(vec![part(text)]));
        let request = proto::SendMessageRequest { message, ..proto::SendMessageRequest::default() };
        framed(&request.encode_to_vec())
    };
    for (length, expected) in [(1000, None), (1001, Some(Code::ResourceExhausted as i32))] {
        let body = (0..1000).map(call).find(|body| body.len() == length).unwrap();
        let reply = post(&server, "/lf.a2a.v1.A2AService/SendMessage", "application/grpc", body).await;
        assert_eq!(refused_with(&reply), expected, "{length}");
    }
}
