//! Errors have the field names and the codes of the dialect.

use attache_protocol::jsonrpc::Call;
use attache_protocol::{Dialect, Error, ErrorKind};
use serde_json::{Value, json};

use crate::support::{DIALECTS, invalid_fields};

/// A request of 0.3 that sends one part.
fn kind(part: Value) -> Value {
    json!({"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [part]}})
}

/// A request of 0.1 that sends one part.
fn tagged(part: Value) -> Value {
    json!({"id": "t", "message": {"role": "user", "parts": [part]}})
}

fn with(mut params: Value, member: &str, value: Value) -> Value {
    let (object, member) = match member.split_once('.') {
        Some((object, member)) => (&mut params[object], member),
        None => (&mut params, member),
    };
    object[member] = value;
    params
}

#[test]
fn each_error_of_a_0_3_request_is_named() {
    let fine = || kind(json!({"kind": "text", "text": "hi"}));
    let webhook = |webhook: Value| with(fine(), "configuration", json!({"pushNotificationConfig": webhook}));
    for (params, fields) in [
        (json!({}), &["message.messageId", "message.role", "message.parts"][..]),
        (json!({"message": 3}), &["message"]),
        (json!({"message": []}), &["message"]),
        (with(fine(), "message.kind", json!("task")), &["message.kind"]),
        (with(fine(), "message.messageId", json!(3)), &["message.messageId"]),
        (with(fine(), "message.role", json!("robot")), &["message.role"]),
        (with(fine(), "message.role", json!("agent")), &["message.role"]),
        (with(fine(), "message.parts", json!([])), &["message.parts"]),
        (with(fine(), "message.parts", json!({})), &["message.parts"]),
        (with(fine(), "message.metadata", json!([])), &["message.metadata"]),
        (with(fine(), "metadata", json!("x")), &["metadata"]),
        (kind(json!({"kind": "image", "text": "hi"})), &["message.parts[0].kind"]),
        (kind(json!({"kind": 1})), &["message.parts[0].kind"]),
        (kind(json!({"text": "hi"})), &["message.parts[0]"]),
        (kind(json!({"type": "text", "text": "hi"})), &["message.parts[0]"]),
        (kind(json!({"kind": "text"})), &["message.parts[0]"]),
        (kind(json!({"kind": "text", "text": null})), &["message.parts[0]"]),
        (kind(json!({"kind": "text", "text": 3})), &["message.parts[0].text"]),
        (kind(json!({"kind": "text", "text": "x", "metadata": 1})), &["message.parts[0].metadata"]),
        (kind(json!({"kind": "file"})), &["message.parts[0]"]),
        (kind(json!({"kind": "file", "file": "x"})), &["message.parts[0].file"]),
        (kind(json!({"kind": "file", "file": {}})), &["message.parts[0].file"]),
        (kind(json!({"kind": "file", "file": {"bytes": "aGk=", "uri": "u"}})), &["message.parts[0].file"]),
        (kind(json!({"kind": "file", "file": {"bytes": "!!"}})), &["message.parts[0].file.bytes"]),
        (kind(json!({"kind": "file", "file": {"uri": 1}})), &["message.parts[0].file.uri"]),
        (kind(json!({"kind": "data"})), &["message.parts[0]"]),
        (kind(json!({"kind": "data", "data": null})), &["message.parts[0]"]),
        (kind(Value::Null), &["message.parts[0]"]),
        (kind(json!(["text", "hi"])), &["message.parts[0]"]),
        (with(fine(), "configuration", json!([])), &["configuration"]),
        (with(fine(), "configuration", json!({"blocking": "no"})), &["configuration.blocking"]),
        (with(fine(), "configuration", json!({"historyLength": -1})), &["configuration.historyLength"]),
        (webhook(json!({})), &["configuration.pushNotificationConfig.url"]),
        (webhook(json!({"url": "ftp://x"})), &["configuration.pushNotificationConfig.url"]),
        (
            webhook(json!({"url": "https://x.y", "authentication": {"credentials": "k"}})),
            &["configuration.pushNotificationConfig.authentication.schemes"],
        ),
    ] {
        for method in ["message/send", "message/stream"] {
            assert_eq!(invalid_fields(Dialect::V0_3, method, &params), fields, "{params}");
        }
    }
}

#[test]
fn each_error_of_the_other_methods_is_named() {
    let push = "tasks/pushNotificationConfig/";
    for dialect in [Dialect::V0_3, Dialect::Either, Dialect::Iii] {
        for (method, params, fields) in [
            ("tasks/get", json!({}), &["id"][..]),
            ("tasks/get", json!({"id": 3}), &["id"]),
            ("tasks/get", json!({"id": "t", "historyLength": -1}), &["historyLength"]),
            ("tasks/cancel", json!({"id": null}), &["id"]),
            ("tasks/cancel", json!({"id": "t", "metadata": 1}), &["metadata"]),
            ("tasks/resubscribe", json!({}), &["id"]),
            ("tasks/list", json!({"status": "TASK_WORKING"}), &["status"]),
            ("tasks/list", json!({"pageSize": 0, "historyLength": -1}), &["pageSize", "historyLength"]),
            (&format!("{push}set"), json!({}), &["taskId", "pushNotificationConfig.url"]),
            (
                &format!("{push}set"),
                json!({"taskId": "t", "pushNotificationConfig": 1}),
                &["pushNotificationConfig"],
            ),
            (
                &format!("{push}set"),
                json!({"taskId": "t", "pushNotificationConfig": {"url": "https://x.y", "id": "\u{0}"}}),
                &["pushNotificationConfig.id"],
            ),
            (&format!("{push}get"), json!({}), &["id"]),
            (
                &format!("{push}get"),
                json!({"id": "t", "pushNotificationConfigId": 1}),
                &["pushNotificationConfigId"],
            ),
            (&format!("{push}list"), json!({}), &["id"]),
            (&format!("{push}delete"), json!({}), &["id"]),
        ] {
            assert_eq!(invalid_fields(dialect, method, &params), fields, "{method} {params}");
        }
    }
}

#[test]
fn each_error_of_a_0_1_request_is_named() {
    let fine = || tagged(json!({"type": "text", "text": "hi"}));
    for (method, params, fields) in [
        ("tasks/send", json!({}), &["message.role", "message.parts"][..]),
        ("tasks/send", with(fine(), "id", json!(1)), &["id"]),
        ("tasks/send", with(fine(), "sessionId", json!(1)), &["sessionId"]),
        ("tasks/send", with(fine(), "message.role", json!("agent")), &["message.role"]),
        ("tasks/send", with(fine(), "message.role", json!("robot")), &["message.role"]),
        ("tasks/send", with(fine(), "message", json!("hi")), &["message"]),
        ("tasks/send", with(fine(), "historyLength", json!(-1)), &["historyLength"]),
        ("tasks/send", with(fine(), "metadata", json!(1)), &["metadata"]),
        ("tasks/send", with(fine(), "pushNotification", json!({"url": "x"})), &["pushNotification.url"]),
        ("tasks/send", tagged(json!({"kind": "text", "text": "hi"})), &["message.parts[0]"]),
        ("tasks/send", tagged(json!({"type": "image"})), &["message.parts[0].type"]),
        ("tasks/sendSubscribe", tagged(json!({"type": "file", "file": {}})), &["message.parts[0].file"]),
        ("tasks/sendSubscribe", tagged(json!({"type": "data"})), &["message.parts[0]"]),
        ("tasks/get", json!({}), &["id"]),
        ("tasks/cancel", json!({}), &["id"]),
        ("tasks/resubscribe", json!({}), &["id"]),
        ("tasks/pushNotification/set", json!({}), &["id", "pushNotificationConfig.url"]),
        ("tasks/pushNotification/get", json!({}), &["id"]),
    ] {
        assert_eq!(invalid_fields(Dialect::V0_1, method, &params), fields, "{method} {params}");
    }
}

#[test]
fn no_dialect_reads_a_method_that_it_does_not_have() {
    for dialect in DIALECTS {
        for method in ["SendMessage", "", "tasks/sends"] {
            let error = dialect.read(method, b"{}").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::MethodNotFound);
        }
    }
    assert!(Dialect::V0_1.read("message/send", b"{}").is_err_and(|e| e.kind() == ErrorKind::MethodNotFound));
    assert!(Dialect::V0_3.read("tasks/send", b"{}").is_err_and(|e| e.kind() == ErrorKind::MethodNotFound));
}

fn response(dialect: Dialect, error: &Error) -> Value {
    let call = Call::parse(br#"{"jsonrpc":"2.0","id":"r1","method":"m"}"#).unwrap();
    serde_json::from_slice(&dialect.error_response(&call.id.unwrap(), error)).expect("JSON")
}

#[test]
fn an_error_response_has_the_details_and_the_id() {
    insta::assert_json_snapshot!(response(Dialect::V0_3, &Error::task_not_found("T9")));
}

#[test]
fn every_error_has_a_code_that_the_dialect_knows() {
    let codes = |dialect: Dialect| {
        let code = |kind: &ErrorKind| response(dialect, &Error::new(*kind, "no"))["error"]["code"].clone();
        let line = |kind: &ErrorKind| format!("{} {}", kind.reason(), code(kind));
        ErrorKind::ALL.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!("codes_0_3", codes(Dialect::V0_3));
    insta::assert_snapshot!("codes_0_1", codes(Dialect::V0_1));
    assert_eq!(codes(Dialect::Either), codes(Dialect::V0_3));
    assert_eq!(codes(Dialect::Iii), codes(Dialect::V0_3));
}
