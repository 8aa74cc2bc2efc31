//! Callers within the process: no transport, no HTTP request and no credentials, but the same admission.

use std::num::NonZeroU32;

use attache_core::{Echo, Identity, Reply, ServedAgent};
use attache_protocol::{AgentCard, ErrorKind, ListTasksRequest, Message, Request, SendMessageRequest};
use attache_server::auth::KnownCallers;
use attache_server::{HttpService, InProcessCaller, JsonRpcReply, NamedAgent, Server};
use futures::StreamExt;
use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::support::card;

fn server() -> Server<Echo> {
    let callers = KnownCallers::new().bearer("alice", "t0ken-of-alice");
    Server::new(Echo).card(card()).authenticate(callers)
}

fn service(server: Server<Echo>) -> HttpService {
    server.into_http_service("http://localhost").unwrap()
}

fn called_by(service: &HttpService, name: &str) -> InProcessCaller {
    let version = (HeaderName::from_static("a2a-version"), HeaderValue::from_static("1.0"));
    service.in_process(Identity::named(name)).header(version.0, version.1)
}

fn request(method: &str, params: Value) -> Vec<u8> {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string().into_bytes()
}

fn hi() -> Value {
    json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}})
}

async fn one(caller: &InProcessCaller, request: &[u8]) -> Value {
    match caller.answer(request).await {
        JsonRpcReply::One(json) => serde_json::from_slice(&json).unwrap(),
        other @ (JsonRpcReply::None | JsonRpcReply::Stream(_)) => panic!("expected one response: {other:?}"),
    }
}

#[tokio::test]
async fn a_caller_in_the_process_needs_no_credentials_and_sees_its_own_tasks_only() {
    let service = service(server());
    let (ann, bob) = (called_by(&service, "ann"), called_by(&service, "bob"));
    let sent = one(&ann, &request("SendMessage", hi())).await;
    assert_eq!(sent["id"], 7);
    assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
    for (caller, tasks) in [(&ann, 1), (&bob, 0)] {
        let listed = caller.call(Request::ListTasks(ListTasksRequest::default())).await.unwrap();
        assert!(matches!(&listed.reply, Reply::Tasks(page) if page.tasks.len() == tasks));
    }
}

#[tokio::test]
async fn a_stream_has_its_events_and_a_notification_no_response() {
    let service = service(server());
    let ann = called_by(&service, "ann");
    let JsonRpcReply::Stream(frames) = ann.answer(&request("SendStreamingMessage", hi())).await else {
        panic!("expected a stream");
    };
    let frames: Vec<_> = frames.map(Result::unwrap).collect().await;
    let events: Vec<Value> =
        frames.iter().map(|frame| serde_json::from_slice(&frame.json).unwrap()).collect();
    assert!(events[0]["result"]["task"].is_object(), "{events:?}");
    assert!(events.iter().all(|event| event["id"] == 7));
    let notification = json!({"jsonrpc": "2.0", "method": "SendMessage", "params": hi()}).to_string();
    assert!(matches!(ann.answer(notification.as_bytes()).await, JsonRpcReply::None));
}

#[tokio::test]
async fn a_caller_in_the_process_is_limited_like_every_other_one() {
    let service = service(server().options(|options| {
        options.limits.requests_per_second = NonZeroU32::new(1);
        options.limits.burst = NonZeroU32::new(1).unwrap();
        options.max_body = 500;
    }));
    let ann = called_by(&service, "ann");
    assert!(one(&ann, &request("ListTasks", json!({}))).await["result"].is_object());
    let refused = one(&ann, &request("ListTasks", json!({}))).await;
    assert_eq!(refused["error"]["data"][0]["reason"], "RESOURCE_EXHAUSTED", "{refused}");
    let request_of_ann = Request::ListTasks(ListTasksRequest::default());
    assert_eq!(ann.call(request_of_ann).await.err().unwrap().kind(), ErrorKind::ResourceExhausted);
    let large = request("ListTasks", json!({"pageToken": "x".repeat(500)}));
    let refused = one(&called_by(&service, "bob"), &large).await;
    assert_eq!(refused["error"]["data"][0]["reason"], "PAYLOAD_TOO_LARGE", "{refused}");
}

#[tokio::test]
async fn a_named_agent_is_called_by_its_name() {
    let named = NamedAgent::new(Echo).card(AgentCard::new("Helper", "Helps"));
    let service = service(server().agent("helper", named).unwrap());
    let send = || {
        let message = Message::user("m", "hi");
        Request::SendMessage(Box::new(SendMessageRequest { message, ..SendMessageRequest::default() }))
    };
    let helper = called_by(&service, "ann").agent("helper");
    assert!(matches!(helper.call(send()).await.unwrap().reply, Reply::Sent(..)));
    let missing = called_by(&service, "ann").agent("nobody").call(send()).await.err().unwrap();
    assert!(missing.message().contains("there is no agent `nobody`"), "{missing}");
    let own = called_by(&service, "ann").call(Request::ListTasks(ListTasksRequest::default())).await.unwrap();
    assert!(matches!(&own.reply, Reply::Tasks(page) if page.tasks.is_empty()));
}

#[tokio::test]
async fn a_served_agent_speaks_protocol_0_1() {
    let service = service(server());
    let caller = service.in_process(Identity::default());
    let card: Value = serde_json::from_slice(&caller.v0_1_card().unwrap()).unwrap();
    assert_eq!(card["url"], "http://localhost/a2a/rpc");
    let params = json!({"id": "t-1", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}});
    let answer = ServedAgent::answer(&caller, &request("tasks/send", params.clone()), None).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer.unwrap()).unwrap();
    assert_eq!(answer["result"]["id"], "t-1", "{answer}");
    let stream = ServedAgent::answer(&caller, &request("tasks/sendSubscribe", params), None).await;
    assert_eq!(stream.unwrap_err().kind(), ErrorKind::UnsupportedOperation);
}
