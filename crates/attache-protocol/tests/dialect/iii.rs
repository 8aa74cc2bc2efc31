//! The dialect of iii: snapshots of requests and responses.

use std::borrow::Cow;

use attache_protocol::dialect::Response;
use attache_protocol::{Dialect, Message, Request, StreamResponse, TaskStatusUpdateEvent};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{self, ROLES, STATES, artifact_event, page, status_event, task, webhook};

fn read(method: &str, params: &Value) -> Request {
    support::read(Dialect::Iii, method, params)
}

fn written(response: &Response) -> Value {
    support::written(Dialect::Iii, response)
}

fn event(event: &StreamResponse) -> Value {
    support::events(Dialect::Iii, std::slice::from_ref(event)).remove(0)
}

#[test]
fn a_send_is_read() {
    let request = read(
        "message/send",
        &json!({
            "message": {
                "messageId": "m1", "role": "user", "taskId": "t", "contextId": "c", "metadata": {"a": 1},
                "parts": [{"data": {"function_id": "a::b"}}, {"text": "x", "mediaType": "text/plain"}],
            },
            "configuration": {
                "blocking": false, "historyLength": 3, "acceptedOutputModes": ["text/plain"],
                "pushNotificationConfig": {
                    "id": "w", "url": "https://example.com", "token": "s",
                    "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "k"},
                },
            },
            "metadata": {"priority": "high"},
        }),
    );
    let Request::SendMessage(request) = request else { panic!("{request:?}") };
    insta::assert_json_snapshot!(request);
}

/// As fasta2a 2.1 writes it: a method of 0.3 with the parts and the webhook of 1.0.
#[test]
fn a_send_of_fasta2a_is_read() {
    let params = json!({
        "configuration": {"acceptedOutputModes": ["text/plain"], "blocking": true, "taskPushNotificationConfig":
            {"url": "https://example.com", "authentication": {"scheme": "Bearer", "credentials": "k"}}},
        "message": {"role": "user", "parts": [{"text": "hi"}, {"raw": "aGk=", "mediaType": "text/plain"}],
            "messageId": "m1"},
    });
    assert_eq!(Dialect::of("message/send", params.to_string().as_bytes()), Some(Dialect::Iii));
    let Request::SendMessage(request) = read("message/send", &params) else { panic!("a send") };
    assert_eq!(request.message.parts.len(), 2);
    let webhook = request.configuration.unwrap().task_push_notification_config.unwrap();
    assert_eq!(webhook.authentication.unwrap().scheme, "Bearer");
}

#[test]
fn an_event_is_both_wrapped_and_not() {
    for (response, name) in [
        (StreamResponse::Task(task()), "task"),
        (StreamResponse::Message(Message::agent("m", "hi")), "message"),
        (status_event(), "statusUpdate"),
        (artifact_event(), "artifactUpdate"),
    ] {
        let mut event = event(&response);
        let wrapped = event.as_object_mut().unwrap().remove(name).unwrap();
        assert_eq!(event, wrapped);
    }
}

#[test]
fn everything_else_is_read() {
    let requests: Vec<String> = [
        ("tasks/get", json!({"id": "t", "historyLength": 2})),
        ("tasks/cancel", json!({"id": "t"})),
        ("tasks/list", json!({})),
        ("tasks/list", json!({"contextId": "c", "status": "input-required", "pageSize": 5})),
        ("tasks/resubscribe", json!({"id": "t"})),
        (
            "tasks/pushNotificationConfig/set",
            json!({"taskId": "t", "pushNotificationConfig": {"url": "https://e.com"}}),
        ),
        ("tasks/pushNotificationConfig/get", json!({"id": "t", "pushNotificationConfigId": "w"})),
        ("tasks/pushNotificationConfig/list", json!({"id": "t"})),
        ("tasks/pushNotificationConfig/delete", json!({"id": "t", "pushNotificationConfigId": "w"})),
    ]
    .iter()
    .map(|(method, params)| format!("{method} {params}\n  {:?}", read(method, params)))
    .collect();
    insta::assert_snapshot!(requests.join("\n"));
}

#[test]
fn responses_are_written() {
    insta::assert_json_snapshot!("task", written(&Response::Sent(Cow::Owned(task()))));
    assert_eq!(written(&Response::Task(Cow::Owned(task()))), written(&Response::Sent(Cow::Owned(task()))));
    insta::assert_json_snapshot!("tasks", written(&Response::Tasks(page())));
    insta::assert_json_snapshot!("message", written(&Response::Message(&(Message::user("m", "hi")))));
    insta::assert_json_snapshot!("webhook", written(&Response::Push(&(webhook()))));
    assert_eq!(written(&Response::Done), Value::Null);
}

#[test]
fn events_are_written() {
    insta::assert_json_snapshot!("event_task", event(&StreamResponse::Task(task())));
    insta::assert_json_snapshot!("event_status", event(&status_event()));
    insta::assert_json_snapshot!("event_artifact", event(&artifact_event()));
}

proptest! {
    #[test]
    fn no_name_of_1_0_gets_into_an_older_response(
        state in prop::sample::select(STATES),
        roles in prop::collection::vec(prop::sample::select(ROLES), 0..4),
    ) {
        let mut task = task();
        task.status.state = state;
        task.history = roles.into_iter().map(|role| Message { role, ..Message::user("m", "x") }).collect();
        let update = TaskStatusUpdateEvent { status: task.status.clone(), ..TaskStatusUpdateEvent::default() };
        for json in [
            written(&Response::Task(Cow::Borrowed(&task))),
            event(&StreamResponse::Task(task)),
            event(&StreamResponse::StatusUpdate(update)),
        ] {
            let text = json.to_string();
            prop_assert!(!text.contains("TASK_STATE") && !text.contains("ROLE_"), "{}", text);
        }
    }
}
