//! gRPC, from both sides: any body of a call gets a status, and any answer is read or refused.

use attache_client::parsing;
use attache_grpc::v0_3::FileForm;
use attache_grpc::{DecodeResponse, Event, Frames, Package};
use attache_protocol::{ListTasksResponse, SendMessageResponse, Task};
use bytes::Bytes;
use http::{Method, Request, StatusCode};

use crate::choice;
use crate::test_server::{CallerKind, ask};

const CALLS: [&str; 22] = [
    "lf.a2a.v1.A2AService/SendMessage",
    "lf.a2a.v1.A2AService/SendStreamingMessage",
    "lf.a2a.v1.A2AService/GetTask",
    "lf.a2a.v1.A2AService/ListTasks",
    "lf.a2a.v1.A2AService/CancelTask",
    "lf.a2a.v1.A2AService/SubscribeToTask",
    "lf.a2a.v1.A2AService/CreateTaskPushNotificationConfig",
    "lf.a2a.v1.A2AService/GetTaskPushNotificationConfig",
    "lf.a2a.v1.A2AService/ListTaskPushNotificationConfigs",
    "lf.a2a.v1.A2AService/DeleteTaskPushNotificationConfig",
    "lf.a2a.v1.A2AService/GetExtendedAgentCard",
    "a2a.v1.A2AService/SendMessage",
    "a2a.v1.A2AService/SendStreamingMessage",
    "a2a.v1.A2AService/GetTask",
    "a2a.v1.A2AService/CancelTask",
    "a2a.v1.A2AService/TaskSubscription",
    "a2a.v1.A2AService/CreateTaskPushNotificationConfig",
    "a2a.v1.A2AService/GetTaskPushNotificationConfig",
    "a2a.v1.A2AService/ListTaskPushNotificationConfig",
    "a2a.v1.A2AService/GetAgentCard",
    "iac_code.a2a.transports.proto.A2AJsonRpc/Send",
    "iac_code.a2a.transports.proto.A2AJsonRpc/Stream",
];

/// The statuses that blame the server: `UNKNOWN`, `INTERNAL` and `DATA_LOSS`.
const OURS: [&str; 3] = ["2", "13", "15"];

const DETAILS: &str = "grpc-status-details-bin";

/// The first byte chooses the call, and whether the rest is framed already.
pub fn grpc(data: &[u8]) {
    let (choice, rest) = choice(data);
    let body = if choice < 128 { framed(rest) } else { rest.to_vec() };
    serve(CALLS[choice % CALLS.len()], body);
    read(rest);
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], message].concat()
}

fn serve(call: &str, body: Vec<u8>) {
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("/{call}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Bytes::from(body.clone()))
        .expect("it is made of constants");
    let answer = ask(CallerKind::Alice, request);
    assert_eq!(answer.status, StatusCode::OK);
    assert!(!answer.leaks_secret(&body), "somebody else's task: {}", answer.text());
    let status = answer.trailers.get("grpc-status").or(answer.headers.get("grpc-status"));
    // What goes on for ever is not read to its end, where its status would be.
    let Some(status) = status.and_then(|status| status.to_str().ok()) else {
        assert!(!answer.body.is_empty(), "neither a message nor a status: {:?}", answer.headers);
        return;
    };
    // gRPC itself says `INTERNAL` of a frame it cannot read. What we refuse comes with details.
    let ours = answer.trailers.contains_key(DETAILS) || answer.headers.contains_key(DETAILS);
    let blamed = OURS.contains(&status) && (ours || status != "13");
    assert!(!blamed, "we are to blame: {:?} {:?}", answer.headers, answer.trailers);
}

fn read(body: &[u8]) {
    parsing::answers(body);
    let whole = cut(body, body.len().max(1));
    assert_eq!(cut(body, 1), whole, "it matters where the network cuts");
    for message in whole.iter().flatten().map(|message| &message[..]).chain([body]) {
        for package in Package::ALL {
            for files in [FileForm::Base64, FileForm::Plain] {
                // Whatever it is, reading it comes to an end.
                let _ = SendMessageResponse::decode(package, files, message);
                let _ = Task::decode(package, files, message);
                let _ = ListTasksResponse::decode(package, files, message);
                let _ = Event::read(package, files, message);
            }
        }
    }
}

/// The messages in a body that comes in pieces of this size; nothing if it cannot be read.
fn cut(body: &[u8], size: usize) -> Option<Vec<Bytes>> {
    let (mut frames, mut messages) = (Frames::new(1 << 20), Vec::new());
    for piece in body.chunks(size) {
        frames.feed(piece);
        while let Some(message) = frames.next_message().ok()? {
            messages.push(message);
        }
    }
    Some(messages)
}
