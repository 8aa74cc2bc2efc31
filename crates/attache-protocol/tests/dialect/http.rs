//! Protocol 0.3 over HTTP+JSON: how requests are recognized, and snapshots of requests and responses.

use std::borrow::Cow;

use attache_protocol::dialect::{HttpDialect, HttpPath, HttpRequest, Response, dual_card, v0_3_card};
use attache_protocol::{
    AgentCard, Content, Dialect, Error, ErrorKind, ListTaskPushNotificationConfigsResponse, Message,
    Operation, Request, StreamResponse, Task, TaskState,
};
use serde_json::{Value, json};

use crate::support::{artifact_event, rich_task, status_of, task, webhook};

pub(crate) const ALL: [HttpDialect; 4] =
    [HttpDialect::Proto, HttpDialect::PythonProto, HttpDialect::Kinds, HttpDialect::Either];

/// A request for `operation` on the task `t`.
pub(crate) fn http_request(operation: Operation, body: &[u8]) -> HttpRequest<'_> {
    let (path, query) = (HttpPath::Own, &[][..]);
    HttpRequest {
        operation,
        path,
        task: Some("t"),
        config: None,
        query,
        own_media_type: false,
        user_agent: None,
        body,
    }
}

fn query(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn read(operation: Operation, body: &Value) -> Result<Request, Error> {
    HttpDialect::Proto.read(&http_request(operation, body.to_string().as_bytes()))
}

/// The invalid fields that the error names.
fn invalid_fields(dialect: HttpDialect, operation: Operation, body: &Value) -> Vec<String> {
    let error = dialect.read(&http_request(operation, body.to_string().as_bytes())).expect_err("an error");
    error.field_violations().iter().map(|violation| violation.field.clone()).collect()
}

pub(crate) fn dialect_of(operation: Operation, body: &str) -> Option<HttpDialect> {
    HttpDialect::of(&http_request(operation, body.as_bytes()))
}

pub(crate) fn written(dialect: HttpDialect, response: &Response) -> Value {
    let mut out = Vec::new();
    dialect.write(response, &mut out);
    serde_json::from_slice(&out).expect("JSON")
}

pub(crate) fn event(dialect: HttpDialect, event: &StreamResponse) -> Value {
    let mut out = Vec::new();
    dialect.write_event(event, &mut out);
    serde_json::from_slice(&out).expect("JSON")
}

#[test]
fn a_message_is_read_in_every_format() {
    let proto = json!({"message": {"messageId": "m", "contextId": "c", "taskId": "t-1", "role": "ROLE_USER",
        "content": [{"text": "hi"}, {"file": {"fileWithBytes": "aGk=", "mimeType": "text/plain", "name": "a.txt"}},
            {"file": {"fileWithUri": "https://example.com"}}, {"data": {"data": {"k": 1}}, "metadata": {"x": 1}}],
        "metadata": {"m": 1}, "extensions": ["urn:x"]},
        "configuration": {"blocking": true, "historyLength": 3, "acceptedOutputModes": ["text/plain"],
            "pushNotification": {"id": "w", "url": "https://example.com", "token": "t",
                "authentication": {"schemes": ["Bearer"], "credentials": "s"}}},
        "metadata": {"r": 1}});
    let snake = json!({"request": {"message_id": "m", "context_id": "c", "task_id": "t-1", "role": 1,
        "content": [{"text": "hi"}, {"file": {"file_with_bytes": "aGk=", "mime_type": "text/plain", "name": "a.txt"}},
            {"file": {"file_with_uri": "https://example.com"}}, {"data": {"data": {"k": 1}}, "metadata": {"x": 1}}],
        "metadata": {"m": 1}, "extensions": ["urn:x"]},
        "configuration": {"blocking": true, "history_length": 3, "accepted_output_modes": ["text/plain"],
            "push_notification": {"id": "w", "url": "https://example.com", "token": "t",
                "authentication": {"schemes": ["Bearer"], "credentials": "s"}}},
        "metadata": {"r": 1}});
    let kinds = json!({"message": {"kind": "message", "messageId": "m", "contextId": "c", "taskId": "t-1", "role": "user",
        "parts": [{"kind": "text", "text": "hi"},
            {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "text/plain", "name": "a.txt"}},
            {"kind": "file", "file": {"uri": "https://example.com"}},
            {"kind": "data", "data": {"k": 1}, "metadata": {"x": 1}}],
        "metadata": {"m": 1}, "extensions": ["urn:x"]},
        "configuration": {"blocking": true, "historyLength": 3, "acceptedOutputModes": ["text/plain"],
            "pushNotificationConfig": {"id": "w", "url": "https://example.com", "token": "t",
                "authentication": {"schemes": ["Bearer"], "credentials": "s"}}},
        "metadata": {"r": 1}});
    let operation = Operation::SendMessage;
    let first = read(operation, &proto).unwrap();
    insta::assert_debug_snapshot!("http_send", first);
    assert_eq!(read(operation, &snake).unwrap(), first);
    // A mix of both formats is read as well.
    assert_eq!(read(operation, &kinds).unwrap(), first);
    let kinds = kinds.to_string();
    assert_eq!(HttpDialect::Kinds.read(&http_request(operation, kinds.as_bytes())).unwrap(), first);
    let streamed =
        HttpDialect::Kinds.read(&http_request(Operation::SendStreamingMessage, kinds.as_bytes())).unwrap();
    assert_eq!(read(Operation::SendStreamingMessage, &proto).unwrap(), streamed);
}

#[test]
fn a_request_waits_only_if_blocking_is_true() {
    let immediately = |configuration: Value| {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]});
        let body = json!({"message": message, "configuration": configuration});
        let request = read(Operation::SendMessage, &body).unwrap();
        let Request::SendMessage(request) = request else { panic!("{request:?}") };
        request.configuration.is_some_and(|configuration| configuration.return_immediately)
    };
    assert!(!immediately(json!({"blocking": true})));
    assert!(immediately(json!({"blocking": false})));
    assert!(immediately(json!({})), "what ProtoJSON makes of `false`");
    assert!(!immediately(Value::Null));
}

#[test]
fn files_of_the_python_sdk_are_encoded_twice() {
    // `AP9i` is `\x00\xffb`, and `QVA5aQ==` is `AP9i`.
    let send = |bytes: &str| {
        let content = json!([{"file": {"fileWithBytes": bytes}}]);
        json!({"message": {"messageId": "m", "role": "ROLE_USER", "content": content}}).to_string()
    };
    let agents = ["python-httpx/0.28.1", "node", "curl/8.5.0"];
    for (agent, twice) in agents.into_iter().zip([true, false, false]) {
        let body = send(if twice { "QVA5aQ==" } else { "AP9i" });
        let request = http_request(Operation::SendMessage, body.as_bytes());
        let request = HttpRequest { user_agent: Some(agent), ..request };
        let dialect = HttpDialect::of(&request).unwrap();
        let Ok(Request::SendMessage(read)) = dialect.read(&request) else { panic!("{agent}") };
        assert_eq!(read.message.parts[0].content, Content::Raw(b"\x00\xffb".to_vec()), "{agent}");
        let task = Task { history: vec![read.message.clone()], ..task() };
        let bytes = |value: &Value, at: &str| value.pointer(at).cloned().unwrap_or_else(|| panic!("{value}"));
        let expected = if twice { "QVA5aQ==" } else { "AP9i" };
        let response = written(dialect, &Response::Task(Cow::Borrowed(&task)));
        assert_eq!(bytes(&response, "/history/0/content/0/file/fileWithBytes"), expected, "{agent}");
        let response = written(dialect, &Response::Message(&read.message));
        assert_eq!(bytes(&response, "/message/content/0/file/fileWithBytes"), expected, "{agent}");
        let mut event = Vec::new();
        dialect.write_event(&StreamResponse::Message(read.message), &mut event);
        let event = serde_json::from_slice(&event).unwrap();
        assert_eq!(bytes(&event, "/message/content/0/file/fileWithBytes"), expected, "{agent}");
    }
    // Clients without an SDK may encode once.
    let once = send("AP9i");
    let request =
        HttpRequest { user_agent: Some(agents[0]), ..http_request(Operation::SendMessage, once.as_bytes()) };
    let Ok(Request::SendMessage(read)) = HttpDialect::of(&request).unwrap().read(&request) else { panic!() };
    assert_eq!(read.message.parts[0].content, Content::Raw(b"\x00\xffb".to_vec()));
}

#[test]
fn numbers_in_data_and_metadata_stay_exact() {
    let text = r#"{"message":{"messageId":"m","role":"ROLE_USER","content":[{"data":{"data":{"n":12345678901234567890}}}],"metadata":{"n":-9007199254740993}}}"#;
    let request = HttpDialect::Proto.read(&http_request(Operation::SendMessage, text.as_bytes())).unwrap();
    let Request::SendMessage(request) = request else { panic!("{request:?}") };
    let mut out = Vec::new();
    HttpDialect::Proto.write(&Response::Message(&request.message), &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), text);
}

#[test]
fn arguments_of_the_path_and_the_query_are_read() {
    let ask = |operation, pairs: &[(&str, &str)]| {
        let query = query(pairs);
        let request = HttpRequest { config: Some("w"), query: &query, ..http_request(operation, b"") };
        format!("{:?}", HttpDialect::Either.read(&request))
    };
    insta::assert_snapshot!(
        "http_paths",
        [
            ask(Operation::GetTask, &[]),
            ask(Operation::GetTask, &[("historyLength", "2"), ("A2A-Version", "0.3")]),
            ask(Operation::GetTask, &[("history_length", "0")]),
            ask(Operation::GetTask, &[("historyLength", "-1")]),
            ask(Operation::GetTask, &[("historyLength", "many")]),
            ask(Operation::CancelTask, &[]),
            ask(Operation::SubscribeToTask, &[]),
            ask(Operation::GetTaskPushNotificationConfig, &[]),
            ask(Operation::DeleteTaskPushNotificationConfig, &[]),
            ask(Operation::ListTaskPushNotificationConfigs, &[("pageSize", "0")]),
            ask(Operation::ListTaskPushNotificationConfigs, &[("page_size", "7"), ("pageToken", "p")]),
            ask(Operation::ListTaskPushNotificationConfigs, &[("pageSize", "-7")]),
            ask(Operation::GetExtendedAgentCard, &[]),
        ]
        .join("\n")
    );
}

#[test]
fn a_webhook_is_read_in_every_format() {
    let create = Operation::CreateTaskPushNotificationConfig;
    let webhook = json!({"id": "w", "url": "https://example.com", "authentication": {"schemes": ["Bearer"]}});
    let mut nameless = webhook.clone();
    nameless.as_object_mut().unwrap().remove("id");
    let name = "tasks/t/pushNotificationConfigs/w";
    let same = [
        json!({"parent": "tasks/t", "configId": "w", "config": {"name": name, "pushNotificationConfig": webhook}}),
        json!({"parent": "tasks/t", "config_id": "w", "config": {"push_notification_config": nameless}}),
        json!({"name": name, "pushNotificationConfig": webhook}),
        json!({"name": name, "pushNotificationConfig": nameless}),
        json!({"taskId": "t", "pushNotificationConfig": webhook}),
        webhook.clone(),
    ];
    let first = read(create, &same[0]).unwrap();
    insta::assert_debug_snapshot!("http_webhook", first);
    for body in &same {
        assert_eq!(read(create, body).unwrap(), first, "{body}");
    }
    // A webhook without an id gets the id of its task. Some SDKs write a placeholder instead of no id.
    for name in ["tasks/t/pushNotificationConfigs/None", "tasks/t/pushNotificationConfigs/", "tasks/t"] {
        let body = json!({"name": name, "pushNotificationConfig": nameless});
        let Request::CreateTaskPushNotificationConfig(config) = read(create, &body).unwrap() else {
            panic!("{body}")
        };
        assert_eq!(config.id.as_deref(), Some("t"), "{name}");
    }
}

#[test]
fn an_empty_authentication_of_a_webhook_is_none() {
    let create = Operation::CreateTaskPushNotificationConfig;
    let webhook = json!({"url": "https://e.com", "authentication": {}});
    for body in [
        json!({"parent": "tasks/t", "config": {"pushNotificationConfig": webhook}}),
        json!({"taskId": "t", "pushNotificationConfig": webhook}),
        webhook.clone(),
    ] {
        for dialect in ALL {
            let read = dialect.read(&http_request(create, body.to_string().as_bytes())).unwrap();
            let Request::CreateTaskPushNotificationConfig(config) = read else { panic!("a webhook") };
            assert_eq!(config.authentication, None, "{dialect:?} {body}");
        }
    }
}

#[test]
fn errors_have_the_field_names_of_the_request() {
    let send_part =
        |content: Value| json!({"message": {"messageId": "m", "role": "ROLE_USER", "content": [content]}});
    let configured = |configuration: Value| json!({"message": {"messageId": "m", "role": 1, "content": [{"text": "hi"}]}, "configuration": configuration});
    for (body, fields) in [
        (json!({}), &["message.messageId", "message.role", "message.content"][..]),
        (json!([]), &[""]),
        (json!({"message": 1}), &["message"]),
        (json!({"request": {"role": 7}}), &["request.role"]),
        (json!({"message": {"role": "ROLE_ROBOT"}}), &["message.role"]),
        (json!({"message": {"role": []}}), &["message.role"]),
        (
            json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "content": [{"text": "hi"}]}}),
            &["message.role"],
        ),
        (json!({"message": {"messageId": 1}}), &["message.messageId"]),
        (json!({"message": {"content": {}}}), &["message.content"]),
        (send_part(json!({})), &["message.content[0]"]),
        (send_part(json!("hi")), &["message.content[0]"]),
        (send_part(json!({"text": 1})), &["message.content[0].text"]),
        (send_part(json!({"text": "a", "file": {"fileWithUri": "u"}})), &["message.content[0]"]),
        (send_part(json!({"text": "a", "data": {"data": {}}})), &["message.content[0]"]),
        (send_part(json!({"file": {}})), &["message.content[0].file"]),
        (send_part(json!({"file": {"fileWithUri": "u", "fileWithBytes": ""}})), &["message.content[0].file"]),
        (send_part(json!({"file": {"fileWithBytes": "!"}})), &["message.content[0].file.fileWithBytes"]),
        (send_part(json!({"data": {"k": 1}})), &["message.content[0]"]),
        (send_part(json!({"data": {"data": {}, "k": 1}})), &["message.content[0]"]),
        (send_part(json!({"data": 5})), &["message.content[0]"]),
        (configured(json!({"historyLength": -1})), &["configuration.historyLength"]),
        (configured(json!({"pushNotification": {}})), &["configuration.pushNotification.url"]),
        (
            configured(
                json!({"pushNotification": {"url": "https://x.y", "authentication": {"credentials": "k"}}}),
            ),
            &["configuration.pushNotification.authentication.schemes"],
        ),
    ] {
        assert_eq!(invalid_fields(HttpDialect::Proto, Operation::SendMessage, &body), fields, "{body}");
    }
    let create = Operation::CreateTaskPushNotificationConfig;
    for (body, field) in [
        (json!({}), "url"),
        (json!({"url": "ftp://x"}), "url"),
        (json!({"config": {}}), "config.pushNotificationConfig.url"),
        (json!({"config": {"pushNotificationConfig": {"url": 1}}}), "config.pushNotificationConfig.url"),
        (json!({"name": "tasks/t/pushNotificationConfigs/w"}), "pushNotificationConfig.url"),
        (json!({"parent": "tasks/other", "config": {}}), "parent"),
        (json!({"taskId": "other", "pushNotificationConfig": {}}), "taskId"),
        (json!({"name": "tasks/other/pushNotificationConfigs/w"}), "name"),
        (json!({"config": {"name": "w"}}), "config.name"),
        (
            json!({"pushNotificationConfig": {"url": "https://x.y", "authentication": {"credentials": "k"}}}),
            "pushNotificationConfig.authentication.schemes",
        ),
    ] {
        assert_eq!(invalid_fields(HttpDialect::Proto, create, &body), [field], "{body}");
    }
    let cancel = Operation::CancelTask;
    assert_eq!(invalid_fields(HttpDialect::Proto, cancel, &json!({"name": "tasks/other"})), ["name"]);
    assert_eq!(invalid_fields(HttpDialect::Either, cancel, &json!([])), [""]);
    assert!(read(cancel, &json!({"name": "tasks/t"})).is_ok());
}

#[test]
fn a_member_of_only_one_version_decides_the_version() {
    let (proto, kinds) = (Some(HttpDialect::Proto), Some(HttpDialect::Kinds));
    let either = Some(HttpDialect::Either);
    let create = Operation::CreateTaskPushNotificationConfig;
    for (operation, body, dialect) in [
        (Operation::SendMessage, r#"{"message":{"content":[]}}"#, proto),
        (Operation::SendMessage, r#"{"request":{"parts":[{"text":"hi"}]}}"#, proto),
        (Operation::SendMessage, r#"{"message":{"kind":"message","content":[]}}"#, proto),
        (Operation::SendStreamingMessage, r#"{"message":{"kind":"message"}}"#, kinds),
        (Operation::SendMessage, r#"{"message":{"parts":[{"kind":"text","text":"hi"}]}}"#, kinds),
        (Operation::SendMessage, r#"{"message":{"messageId":"m","parts":[{"text":"hi"}]}}"#, None),
        (Operation::SendMessage, r#"{"message":{"content":null}}"#, None),
        (Operation::SendMessage, "{}", None),
        (Operation::SendMessage, "", None),
        (Operation::SendMessage, "{broken", None),
        (Operation::CancelTask, "", either),
        (Operation::CancelTask, "{}", either),
        (Operation::CancelTask, "{broken", either),
        (Operation::CancelTask, r#"{"name":"tasks/t"}"#, proto),
        (Operation::CancelTask, r#"{"id":"t"}"#, None),
        (Operation::CancelTask, r#"{"metadata":{}}"#, None),
        (create, r#"{"parent":"tasks/t","config":{}}"#, proto),
        (create, r#"{"name":"tasks/t","pushNotificationConfig":{}}"#, proto),
        (create, r#"{"taskId":"t","pushNotificationConfig":{}}"#, kinds),
        (create, r#"{"url":"https://x.y","authentication":{"schemes":["Bearer"]}}"#, proto),
        (create, r#"{"url":"https://x.y","authentication":{"scheme":"Bearer"}}"#, None),
        (create, r#"{"taskId":"t","url":"https://x.y"}"#, None),
        (Operation::GetTask, "", either),
        (Operation::SubscribeToTask, "", either),
        (Operation::GetTaskPushNotificationConfig, "", either),
        (Operation::ListTaskPushNotificationConfigs, "", either),
        (Operation::DeleteTaskPushNotificationConfig, "", either),
        (Operation::ListTasks, "", None),
        (Operation::GetExtendedAgentCard, "", None),
    ] {
        assert_eq!(dialect_of(operation, body), dialect, "{operation:?} {body}");
        let request = http_request(operation, body.as_bytes());
        // A request that states an earlier version has that version, if 0.3 has the operation.
        let stated = match (operation, dialect) {
            (Operation::ListTasks | Operation::GetExtendedAgentCard, _) => None,
            (_, Some(HttpDialect::Kinds)) => kinds,
            (_, Some(HttpDialect::Proto | HttpDialect::PythonProto | HttpDialect::Either) | None) => proto,
        };
        assert_eq!(HttpDialect::stated(&request), stated, "{operation:?} {body}");
        // Only 1.0 has tenants and the media type.
        let tenant = HttpRequest { path: HttpPath::Tenant, ..request };
        assert_eq!((HttpDialect::of(&tenant), HttpDialect::stated(&tenant)), (None, None));
        assert_eq!(HttpDialect::of(&HttpRequest { own_media_type: true, ..request }), None);
        let query = query(&[("tenant", "a")]);
        assert_eq!(HttpDialect::of(&HttpRequest { query: &query, ..request }), None);
    }
    let card = http_request(Operation::GetExtendedAgentCard, b"");
    let card = HttpRequest { path: HttpPath::Card, own_media_type: true, ..card };
    assert_eq!((HttpDialect::of(&card), HttpDialect::stated(&card)), (either, proto));
}

#[test]
fn responses_have_the_format_of_the_proto() {
    let pushes = ListTaskPushNotificationConfigsResponse { configs: vec![webhook()], ..Default::default() };
    let (message, webhook) = (Message::user("m", "hi"), webhook());
    let responses = [
        ("sent", Response::Sent(Cow::Owned(task()))),
        ("message", Response::Message(&message)),
        ("task", Response::Task(Cow::Owned(rich_task()))),
        ("push", Response::Push(&webhook)),
        ("pushes", Response::Pushes(&pushes)),
        ("done", Response::Done),
    ];
    for (name, response) in &responses {
        insta::assert_json_snapshot!(format!("http_{name}"), written(HttpDialect::Proto, response));
        assert_eq!(written(HttpDialect::Either, response), written(HttpDialect::Proto, response), "{name}");
        let mut rpc = Vec::new();
        Dialect::V0_3.write(response, &mut rpc);
        assert_eq!(written(HttpDialect::Kinds, response), serde_json::from_slice::<Value>(&rpc).unwrap());
    }
}

#[test]
fn without_a_stated_version_the_card_is_for_both() {
    let card = AgentCard::new("Echo", "Says it again");
    let stated = written(HttpDialect::Proto, &Response::Card(&card));
    assert_eq!(stated, serde_json::to_value(v0_3_card(&card)).unwrap());
    let merged = written(HttpDialect::Either, &Response::Card(&card));
    assert_eq!(merged, serde_json::to_value(dual_card(&card)).unwrap());
}

#[test]
fn events_are_wrapped_and_mark_the_last_one() {
    let events = [
        StreamResponse::Task(task()),
        StreamResponse::Message(Message::user("m", "hi")),
        status_of(TaskState::Working),
        status_of(TaskState::Canceled),
        artifact_event(),
    ];
    let proto: Vec<Value> = events.iter().map(|it| event(HttpDialect::Proto, it)).collect();
    insta::assert_json_snapshot!("http_events", proto);
    for &state in TaskState::ALL {
        let mut rpc = Vec::new();
        Dialect::V0_3.write_event(&status_of(state), &mut rpc);
        let rpc: Value = serde_json::from_slice(&rpc).unwrap();
        assert_eq!(event(HttpDialect::Proto, &status_of(state))["statusUpdate"]["final"], rpc["final"]);
        assert_eq!(event(HttpDialect::Kinds, &status_of(state)), rpc);
    }
}

#[test]
fn every_error_has_its_status_of_0_3() {
    let line = |kind: &ErrorKind| {
        let (status, body) = HttpDialect::Proto.error_response(&Error::new(*kind, "no"));
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["message"], body.get("error")), (&json!("no"), None));
        format!("{} {status} {} {}", kind.reason(), body["code"], body["type"])
    };
    insta::assert_snapshot!("http_statuses", ErrorKind::ALL.iter().map(line).collect::<Vec<_>>().join("\n"));
}

#[test]
fn an_error_response_for_both_versions_has_the_members_of_both() {
    let error = Error::invalid_params("historyLength", "-1 is negative, expected 0 or more");
    for dialect in ALL {
        let (status, body) = dialect.error_response(&error);
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status, 422);
        match dialect {
            HttpDialect::Either => insta::assert_json_snapshot!("http_error_for_both", body),
            HttpDialect::Proto | HttpDialect::PythonProto | HttpDialect::Kinds => {
                insta::assert_json_snapshot!("http_error", body);
            }
        }
    }
}
