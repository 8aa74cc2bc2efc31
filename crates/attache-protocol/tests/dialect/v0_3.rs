//! Protocol 0.3 over JSON-RPC.

use std::borrow::Cow;

use attache_protocol::dialect::Response;
use attache_protocol::{
    AgentCard, Dialect, ListTaskPushNotificationConfigsResponse, Message, Request, StreamResponse, TaskState,
};
use serde_json::{Value, json};

use crate::support::{
    self, artifact_event, page, read_all, rich_task, status_event, status_of, task, webhook,
};

fn read(method: &str, params: &Value) -> Request {
    support::read(Dialect::V0_3, method, params)
}

fn written(response: &Response) -> Value {
    support::written(Dialect::V0_3, response)
}

fn sent(params: &Value) -> attache_protocol::SendMessageRequest {
    let Request::SendMessage(request) = read("message/send", params) else { panic!("{params}") };
    *request
}

fn saying(parts: Value) -> Value {
    json!({"message": {"kind": "message", "messageId": "m1", "role": "user", "parts": parts}})
}

#[test]
fn a_kind_distinguishes_0_3_from_iii() {
    let of = |method: &str, params: Value| Dialect::of(method, params.to_string().as_bytes());
    for method in ["message/send", "message/stream"] {
        for (params, dialect) in [
            (json!({"message": {"kind": "message", "parts": []}}), Dialect::V0_3),
            (json!({"message": {"parts": [{"kind": "text", "text": "hi"}]}}), Dialect::V0_3),
            (json!({"message": {"parts": [{"text": "hi"}, null, {"kind": "text"}]}}), Dialect::V0_3),
            (json!({"message": {"parts": [{"text": "hi"}]}}), Dialect::Iii),
            (json!({"message": {"parts": [{"type": "text", "text": "hi"}]}}), Dialect::Iii),
            (
                json!({"message": {"kind": null, "parts": [{"text": "hi", "metadata": {"kind": 1}}]}}),
                Dialect::Iii,
            ),
            (json!({"message": {"parts": "kind"}}), Dialect::Iii),
            (json!({"message": ["kind"]}), Dialect::Iii),
            (json!({"kind": "message"}), Dialect::Iii),
            (json!({}), Dialect::Iii),
        ] {
            assert_eq!(of(method, params.clone()), Some(dialect), "{params}");
        }
    }
    for method in ["SendMessage", "message/sends", "", "tasks", "tasks/pushNotificationConfig"] {
        assert_eq!(of(method, saying(json!([]))), None, "{method}");
    }
}

#[test]
fn a_send_is_read() {
    let request = sent(&json!({
        "message": {
            "kind": "message", "messageId": "m1", "role": "user", "taskId": "t", "contextId": "c",
            "metadata": {"a": 1}, "extensions": ["urn:x"], "referenceTaskIds": ["t0"],
            "parts": [
                {"kind": "text", "text": "x", "metadata": {"lang": "en"}},
                {"kind": "file", "file": {"bytes": "aGk", "name": "a.txt", "mimeType": "text/plain"}},
                {"kind": "file", "file": {"uri": "https://example.com/b"}, "metadata": {}},
                {"kind": "data", "data": {"big": 12_345_678_901_234_567_890_u64}},
                {"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": true, "k": 1.50}},
                {"kind": "data", "data": {"value": null}, "metadata": {"data_part_compat": true}},
                {"kind": "data", "data": {"value": 1, "other": 2}, "metadata": {"data_part_compat": true}},
            ],
        },
        "configuration": {
            "blocking": false, "historyLength": 3, "acceptedOutputModes": ["text/plain"],
            "pushNotificationConfig": {
                "id": "w", "url": "https://example.com", "token": "s",
                "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "k"},
            },
        },
        "metadata": {"priority": "high"},
    }));
    insta::assert_json_snapshot!(request);
}

#[test]
fn a_send_blocks_by_default_and_a_history_length_of_zero_is_none() {
    for (configuration, immediately, history) in [
        (json!({}), false, None),
        (json!({"blocking": null, "historyLength": null}), false, None),
        (json!({"blocking": true, "historyLength": 0}), false, None),
        (json!({"blocking": false, "historyLength": 1}), true, Some(1)),
    ] {
        let mut params = saying(json!([{"kind": "text", "text": "hi"}]));
        params["configuration"] = configuration.clone();
        let read = sent(&params).configuration.expect("a configuration");
        assert_eq!((read.return_immediately, read.history_length), (immediately, history), "{configuration}");
    }
}

#[test]
fn an_empty_authentication_of_a_webhook_is_none() {
    for authentication in [json!({}), json!(null), json!({"schemes": []}), json!({"schemes": null})] {
        let webhook = json!({"url": "https://e.com", "authentication": authentication});
        let mut params = saying(json!([{"kind": "text", "text": "hi"}]));
        params["configuration"] = json!({"pushNotificationConfig": webhook});
        let sent = sent(&params).configuration.and_then(|it| it.task_push_notification_config);
        assert_eq!(sent.expect("a webhook").authentication, None, "{authentication}");
        let set = read(
            "tasks/pushNotificationConfig/set",
            &json!({"taskId": "t", "pushNotificationConfig": webhook}),
        );
        let Request::CreateTaskPushNotificationConfig(set) = set else { panic!("{set:?}") };
        assert_eq!(set.authentication, None, "{authentication}");
    }
}

#[test]
fn a_stream_is_the_same_request_with_another_response() {
    let params = saying(json!([{"kind": "text", "text": "hi"}]));
    let Request::SendStreamingMessage(request) = read("message/stream", &params) else { panic!("a stream") };
    assert_eq!(*request, sent(&params));
}

#[test]
fn everything_else_is_read() {
    let push = json!({"taskId": "t", "pushNotificationConfig": {"url": "https://e.com"}});
    let named = json!({"taskId": "t", "pushNotificationConfig": {"id": "w", "url": "https://e.com"}});
    insta::assert_snapshot!(read_all(
        Dialect::V0_3,
        &[
            ("tasks/get", json!({"id": "t", "historyLength": 2, "metadata": {"a": 1}})),
            ("tasks/get", json!({"id": "t", "historyLength": 0})),
            ("tasks/cancel", json!({"id": "t", "metadata": {"a": 1}})),
            ("tasks/list", json!({})),
            ("tasks/list", json!({"contextId": "c", "status": "canceled", "pageSize": 5, "pageToken": "p"})),
            ("tasks/resubscribe", json!({"id": "t"})),
            ("tasks/pushNotificationConfig/set", push),
            ("tasks/pushNotificationConfig/set", named),
            ("tasks/pushNotificationConfig/get", json!({"id": "t"})),
            ("tasks/pushNotificationConfig/get", json!({"id": "t", "pushNotificationConfigId": "w"})),
            ("tasks/pushNotificationConfig/list", json!({"id": "t"})),
            ("tasks/pushNotificationConfig/delete", json!({"id": "t", "pushNotificationConfigId": "w"})),
            ("agent/getAuthenticatedExtendedCard", json!({})),
            ("agent/authenticatedExtendedCard", json!({})),
        ],
    ));
}

#[test]
fn responses_are_written() {
    insta::assert_json_snapshot!("task", written(&Response::Sent(Cow::Owned(task()))));
    insta::assert_json_snapshot!("rich_task", written(&Response::Task(Cow::Owned(rich_task()))));
    insta::assert_json_snapshot!("tasks", written(&Response::Tasks(page())));
    insta::assert_json_snapshot!("message", written(&Response::Message(&(Message::agent("m", "hi")))));
    insta::assert_json_snapshot!("webhook", written(&Response::Push(&(webhook()))));
    let webhooks = ListTaskPushNotificationConfigsResponse { configs: vec![webhook()], ..Default::default() };
    assert_eq!(written(&Response::Pushes(&webhooks)), json!([written(&Response::Push(&(webhook())))]));
    assert_eq!(written(&Response::Done), Value::Null);
    assert_eq!(written(&Response::Card(&(AgentCard::new("n", "d"))))["protocolVersion"], Value::Null);
}

#[test]
fn events_are_written() {
    let events = [
        StreamResponse::Task(task()),
        status_event(),
        artifact_event(),
        StreamResponse::Message(Message::agent("m", "hi")),
    ];
    insta::assert_json_snapshot!(support::events(Dialect::V0_3, &events));
}

#[test]
fn a_stream_is_final_where_it_ends_or_waits_for_a_message() {
    let last = [
        TaskState::Completed,
        TaskState::Failed,
        TaskState::Canceled,
        TaskState::Rejected,
        TaskState::InputRequired,
    ];
    for state in support::STATES {
        for dialect in [Dialect::V0_3, Dialect::Either, Dialect::V0_1] {
            let event = support::events(dialect, &[status_of(*state)]).remove(0);
            assert_eq!(event["final"], last.contains(state), "{event}");
        }
    }
}

#[test]
fn numbers_keep_their_digits() {
    let text = r#"{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data",
        "data":{"n":[1.50,12345678901234567890123,1e400]},"metadata":{"n":0.10}},
        {"kind":"data","data":{"value":1.50},"metadata":{"data_part_compat":true,"n":2.0}}]}}"#;
    let Request::SendMessage(request) = Dialect::V0_3.read("message/send", text.as_bytes()).unwrap() else {
        panic!("a send")
    };
    let mut task = task();
    task.history = vec![request.message];
    for dialect in support::DIALECTS {
        let mut out = Vec::new();
        dialect.write(&Response::Task(Cow::Borrowed(&task)), &mut out);
        let text = String::from_utf8(out).unwrap();
        for digits in ["[1.50,12345678901234567890123,1e400]", "\"n\":0.10", "\"n\":2.0", ":1.50"] {
            assert!(text.contains(digits), "{dialect:?}: {digits} in {text}");
        }
    }
}
