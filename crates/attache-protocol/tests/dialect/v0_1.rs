//! Protocol 0.1, as AgentOS uses it.

use std::borrow::Cow;

use attache_protocol::dialect::Response;
use attache_protocol::{Dialect, Message, Request, StreamResponse, TaskState};
use serde_json::{Value, json};

use crate::support::{self, chunk_of, page, read_all, rich_task, status_of, task, webhook};

fn written(response: &Response) -> Value {
    support::written(Dialect::V0_1, response)
}

fn sent(params: &Value) -> attache_protocol::SendMessageRequest {
    let Request::SendMessage(request) = support::read(Dialect::V0_1, "tasks/send", params) else {
        panic!("{params}")
    };
    *request
}

fn saying(text: &str) -> Value {
    json!({"id": "t", "message": {"role": "user", "parts": [{"type": "text", "text": text}]}})
}

#[test]
fn the_path_decides_where_the_method_does_not() {
    for method in
        ["tasks/send", "tasks/sendSubscribe", "tasks/pushNotification/set", "tasks/pushNotification/get"]
    {
        assert_eq!(Dialect::of(method, b"{}"), Some(Dialect::V0_1), "{method}");
        assert_eq!(Dialect::of_v0_1(method, b"{}"), Some(Dialect::V0_1), "{method}");
    }
    for method in ["tasks/get", "tasks/cancel", "tasks/resubscribe"] {
        assert_eq!(Dialect::of(method, b"{}"), Some(Dialect::Either), "{method}");
        assert_eq!(Dialect::of_v0_1(method, b"{}"), Some(Dialect::V0_1), "{method}");
    }
    assert_eq!(Dialect::of_v0_1("message/send", b"{}"), Some(Dialect::Iii));
    assert_eq!(Dialect::of_v0_1("tasks/list", b"{}"), Some(Dialect::Either));
    assert_eq!(Dialect::of_v0_1("SendMessage", b"{}"), None);
}

#[test]
fn a_send_is_read() {
    let request = sent(&json!({
        "id": "task-abc-456", "sessionId": "session-xyz", "historyLength": 2, "metadata": {"priority": "high"},
        "message": {
            "role": "user", "metadata": {"a": 1},
            "parts": [
                {"type": "text", "text": "Analyze this data..."},
                {"type": "file", "file": {"name": "a.txt", "mimeType": "text/plain", "bytes": "aGk="}},
                {"type": "file", "file": {"uri": "https://example.com/b"}},
                {"type": "data", "data": [1, 2]},
            ],
        },
        "pushNotification": {"url": "https://example.com", "authentication": {"schemes": ["bearer"]}},
    }));
    insta::assert_json_snapshot!(request);
}

#[test]
fn everything_else_is_read() {
    let push = json!({"id": "t", "pushNotificationConfig": {"url": "https://e.com", "token": "s"}});
    insta::assert_snapshot!(read_all(
        Dialect::V0_1,
        &[
            ("tasks/sendSubscribe", saying("hi")),
            ("tasks/get", json!({"id": "t", "historyLength": 2})),
            ("tasks/cancel", json!({"id": "t"})),
            ("tasks/resubscribe", json!({"id": "t"})),
            ("tasks/pushNotification/set", push),
            ("tasks/pushNotification/get", json!({"id": "t"})),
        ],
    ));
}

#[test]
fn the_id_of_a_message_is_computed_from_its_content_and_its_task() {
    let id = |params: &Value| sent(params).message.message_id;
    let first = id(&saying("yes"));
    assert_eq!(first.len(), 32);
    assert_eq!(first, id(&saying("yes")));
    assert_ne!(first, id(&saying("no")));
    let mut elsewhere = saying("yes");
    elsewhere["id"] = json!("t2");
    assert_ne!(first, id(&elsewhere));
    let mut nowhere = saying("yes");
    nowhere["id"] = Value::Null;
    assert_eq!(sent(&nowhere).message.task_id, None);
}

#[test]
fn responses_are_written() {
    insta::assert_json_snapshot!("task", written(&Response::Sent(Cow::Owned(task()))));
    insta::assert_json_snapshot!("rich_task", written(&Response::Task(Cow::Owned(rich_task()))));
    assert_eq!(
        written(&Response::Tasks(page())),
        json!({"tasks": [written(&Response::Task(Cow::Owned(task())))]})
    );
    insta::assert_json_snapshot!("webhook", written(&Response::Push(&(webhook()))));
    let mut message = Message::agent("m", "hi");
    insta::assert_json_snapshot!("message", written(&Response::Message(&message)));
    message.task_id = Some("mine".into());
    assert_eq!(written(&Response::Message(&(message)))["id"], "mine");
}

#[test]
fn events_are_written() {
    let events = [
        StreamResponse::Task(task()),
        status_of(TaskState::Working),
        chunk_of("a-2"),
        chunk_of("a-1"),
        chunk_of("a-2"),
        status_of(TaskState::Canceled),
        StreamResponse::Message(Message::agent("m", "hi")),
    ];
    insta::assert_json_snapshot!(support::events(Dialect::V0_1, &events));
}

#[test]
fn v0_1_has_fewer_states() {
    for (state, name) in [
        (TaskState::Unspecified, "unknown"),
        (TaskState::Submitted, "submitted"),
        (TaskState::Working, "working"),
        (TaskState::Completed, "completed"),
        (TaskState::Failed, "failed"),
        (TaskState::Canceled, "cancelled"),
        (TaskState::InputRequired, "input-required"),
        (TaskState::Rejected, "failed"),
        (TaskState::AuthRequired, "input-required"),
    ] {
        let mut task = task();
        task.status.state = state;
        assert_eq!(written(&Response::Task(Cow::Owned(task)))["status"]["state"], name);
    }
}

#[test]
fn a_stored_task_is_read_with_either_spelling() {
    for state in ["cancelled", "canceled"] {
        let stored = json!({
            "id": "t", "sessionId": "s", "createdAt": 1_709_976_600_000_u64, "metadata": {},
            "status": {
                "state": state, "timestamp": "2026-03-09T10:32:15.123456789+00:00",
                "message": {"role": "agent", "parts": [{"type": "text", "text": "bye"}]},
            },
            "history": [{"role": "user", "parts": [{"type": "text", "text": "hi"}]}],
            "artifacts": [{"name": "a", "parts": [{"type": "data", "data": {"k": 1.50}}]}],
        });
        let task = Dialect::V0_1.read_task(stored.to_string().as_bytes()).unwrap();
        assert_eq!((task.status.state, task.history[0].text()), (TaskState::Canceled, "hi".to_owned()));
        let mut out = Vec::new();
        Dialect::V0_1.write_task(&task, &mut out);
        let again: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(again["status"]["message"], stored["status"]["message"]);
        assert_eq!((&again["history"], &again["sessionId"]), (&stored["history"], &stored["sessionId"]));
    }
    for broken in [
        json!({"id": "", "status": {"state": "working"}}),
        json!({"id": "t"}),
        json!({"id": "t", "status": {}}),
    ] {
        assert!(Dialect::V0_1.read_task(broken.to_string().as_bytes()).is_err(), "{broken}");
    }
}
