//! Protocol 0.3 over HTTP+JSON: which requests are in it, and snapshots of what is read and written.

use std::borrow::Cow;

use attache_protocol::dialect::{Answer, HttpDialect, HttpPath, HttpRequest, dual_card, v0_3_card};
use attache_protocol::{
    AgentCard, Content, Dialect, Error, ErrorKind, ListTaskPushNotificationConfigsResponse, Message,
    Operation, Request, StreamResponse, Task, TaskState,
};
use serde_json::{Value, json};

use crate::support::{artifact_event, rich_task, status_of, task, webhook};

pub(crate) const ALL: [HttpDialect; 4] =
    [HttpDialect::Proto, HttpDialect::PythonProto, HttpDialect::Kinds, HttpDialect::Either];

/// A request of the kind that `operation` is, for the task `t`.
pub(crate) fn asked(operation: Operation, body: &[u8]) -> HttpRequest<'_> {
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
    HttpDialect::Proto.read(&asked(operation, body.to_string().as_bytes()))
}

/// The fields that a refusal names.
fn refused(dialect: HttpDialect, operation: Operation, body: &Value) -> Vec<String> {
    let error = dialect.read(&asked(operation, body.to_string().as_bytes())).expect_err("a refusal");
    error.field_violations().iter().map(|violation| violation.field.clone()).collect()
}

pub(crate) fn told(operation: Operation, body: &str) -> Option<HttpDialect> {
    HttpDialect::of(&asked(operation, body.as_bytes()))
}

pub(crate) fn written(dialect: HttpDialect, answer: &Answer) -> Value {
    let mut out = Vec::new();
    dialect.write(answer, &mut out);
    serde_json::from_slice(&out).expect("JSON")
}

pub(crate) fn event(dialect: HttpDialect, event: &StreamResponse) -> Value {
    let mut out = Vec::new();
    dialect.write_event(event, &mut out);
    serde_json::from_slice(&out).expect("JSON")
}

#[test]
fn a_message_is_read_in_every_spelling() {
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
    // Who mixes the two is understood too.
    assert_eq!(read(operation, &kinds).unwrap(), first);
    let kinds = kinds.to_string();
    assert_eq!(HttpDialect::Kinds.read(&asked(operation, kinds.as_bytes())).unwrap(), first);
    let streamed =
        HttpDialect::Kinds.read(&asked(Operation::SendStreamingMessage, kinds.as_bytes())).unwrap();
    assert_eq!(read(Operation::SendStreamingMessage, &proto).unwrap(), streamed);
}

#[test]
fn who_wants_to_wait_for_the_answer_says_so() {
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
        let request = asked(Operation::SendMessage, body.as_bytes());
        let request = HttpRequest { user_agent: Some(agent), ..request };
        let dialect = HttpDialect::of(&request).unwrap();
        let Ok(Request::SendMessage(read)) = dialect.read(&request) else { panic!("{agent}") };
        assert_eq!(read.message.parts[0].content, Content::Raw(b"\x00\xffb".to_vec()), "{agent}");
        let task = Task { history: vec![read.message.clone()], ..task() };
        let bytes = |value: &Value, at: &str| value.pointer(at).cloned().unwrap_or_else(|| panic!("{value}"));
        let expected = if twice { "QVA5aQ==" } else { "AP9i" };
        let answer = written(dialect, &Answer::Task(Cow::Borrowed(&task)));
        assert_eq!(bytes(&answer, "/history/0/content/0/file/fileWithBytes"), expected, "{agent}");
        let answer = written(dialect, &Answer::Message(&read.message));
        assert_eq!(bytes(&answer, "/message/content/0/file/fileWithBytes"), expected, "{agent}");
        let mut event = Vec::new();
        dialect.write_event(&StreamResponse::Message(read.message), &mut event);
        let event = serde_json::from_slice(&event).unwrap();
        assert_eq!(bytes(&event, "/message/content/0/file/fileWithBytes"), expected, "{agent}");
    }
    // Who writes by hand may encode once.
    let once = send("AP9i");
    let request =
        HttpRequest { user_agent: Some(agents[0]), ..asked(Operation::SendMessage, once.as_bytes()) };
    let Ok(Request::SendMessage(read)) = HttpDialect::of(&request).unwrap().read(&request) else { panic!() };
    assert_eq!(read.message.parts[0].content, Content::Raw(b"\x00\xffb".to_vec()));
}

#[test]
fn numbers_in_data_and_metadata_stay_exact() {
    let text = r#"{"message":{"messageId":"m","role":"ROLE_USER","content":[{"data":{"data":{"n":12345678901234567890}}}],"metadata":{"n":-9007199254740993}}}"#;
    let request = HttpDialect::Proto.read(&asked(Operation::SendMessage, text.as_bytes())).unwrap();
    let Request::SendMessage(request) = request else { panic!("{request:?}") };
    let mut out = Vec::new();
    HttpDialect::Proto.write(&Answer::Message(&request.message), &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), text);
}

#[test]
fn what_the_path_and_the_query_say_is_read() {
    let ask = |operation, pairs: &[(&str, &str)]| {
        let query = query(pairs);
        let request = HttpRequest { config: Some("w"), query: &query, ..asked(operation, b"") };
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
fn a_webhook_is_read_in_every_form_that_was_sent() {
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
    // A webhook without a name bears that of its task; some SDKs write one that is none.
    for name in ["tasks/t/pushNotificationConfigs/None", "tasks/t/pushNotificationConfigs/", "tasks/t"] {
        let body = json!({"name": name, "pushNotificationConfig": nameless});
        let Request::CreateTaskPushNotificationConfig(config) = read(create, &body).unwrap() else {
            panic!("{body}")
        };
        assert_eq!(config.id.as_deref(), Some("t"), "{name}");
    }
}

#[test]
fn each_fault_is_named_as_it_was_written() {
    let said =
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
        (said(json!({})), &["message.content[0]"]),
        (said(json!("hi")), &["message.content[0]"]),
        (said(json!({"text": 1})), &["message.content[0].text"]),
        (said(json!({"text": "a", "file": {"fileWithUri": "u"}})), &["message.content[0]"]),
        (said(json!({"text": "a", "data": {"data": {}}})), &["message.content[0]"]),
        (said(json!({"file": {}})), &["message.content[0].file"]),
        (said(json!({"file": {"fileWithUri": "u", "fileWithBytes": ""}})), &["message.content[0].file"]),
        (said(json!({"file": {"fileWithBytes": "!"}})), &["message.content[0].file.fileWithBytes"]),
        (said(json!({"data": {"k": 1}})), &["message.content[0]"]),
        (said(json!({"data": {"data": {}, "k": 1}})), &["message.content[0]"]),
        (said(json!({"data": 5})), &["message.content[0]"]),
        (configured(json!({"historyLength": -1})), &["configuration.historyLength"]),
        (configured(json!({"pushNotification": {}})), &["configuration.pushNotification.url"]),
        (
            configured(json!({"pushNotification": {"url": "https://x.y", "authentication": {}}})),
            &["configuration.pushNotification.authentication.schemes"],
        ),
    ] {
        assert_eq!(refused(HttpDialect::Proto, Operation::SendMessage, &body), fields, "{body}");
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
            json!({"pushNotificationConfig": {"url": "https://x.y", "authentication": {"schemes": []}}}),
            "pushNotificationConfig.authentication.schemes",
        ),
    ] {
        assert_eq!(refused(HttpDialect::Proto, create, &body), [field], "{body}");
    }
    let cancel = Operation::CancelTask;
    assert_eq!(refused(HttpDialect::Proto, cancel, &json!({"name": "tasks/other"})), ["name"]);
    assert_eq!(refused(HttpDialect::Either, cancel, &json!([])), [""]);
    assert!(read(cancel, &json!({"name": "tasks/t"})).is_ok());
}

#[test]
fn what_only_one_generation_has_tells_which_it_is() {
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
        assert_eq!(told(operation, body), dialect, "{operation:?} {body}");
        let request = asked(operation, body.as_bytes());
        // What says that it is older is that, if there was such a thing.
        let stated = match (operation, dialect) {
            (Operation::ListTasks | Operation::GetExtendedAgentCard, _) => None,
            (_, Some(HttpDialect::Kinds)) => kinds,
            (_, Some(HttpDialect::Proto | HttpDialect::PythonProto | HttpDialect::Either) | None) => proto,
        };
        assert_eq!(HttpDialect::stated(&request), stated, "{operation:?} {body}");
        // A tenant and a media type are 1.0's.
        let tenant = HttpRequest { path: HttpPath::Tenant, ..request };
        assert_eq!((HttpDialect::of(&tenant), HttpDialect::stated(&tenant)), (None, None));
        assert_eq!(HttpDialect::of(&HttpRequest { own_media_type: true, ..request }), None);
        let query = query(&[("tenant", "a")]);
        assert_eq!(HttpDialect::of(&HttpRequest { query: &query, ..request }), None);
    }
    let card = asked(Operation::GetExtendedAgentCard, b"");
    let card = HttpRequest { path: HttpPath::Card, own_media_type: true, ..card };
    assert_eq!((HttpDialect::of(&card), HttpDialect::stated(&card)), (either, proto));
}

#[test]
fn answers_have_the_form_of_the_proto() {
    let pushes = ListTaskPushNotificationConfigsResponse { configs: vec![webhook()], ..Default::default() };
    let (message, webhook) = (Message::user("m", "hi"), webhook());
    let answers = [
        ("sent", Answer::Sent(Cow::Owned(task()))),
        ("message", Answer::Message(&message)),
        ("task", Answer::Task(Cow::Owned(rich_task()))),
        ("push", Answer::Push(&webhook)),
        ("pushes", Answer::Pushes(&pushes)),
        ("done", Answer::Done),
    ];
    for (name, answer) in &answers {
        insta::assert_json_snapshot!(format!("http_{name}"), written(HttpDialect::Proto, answer));
        assert_eq!(written(HttpDialect::Either, answer), written(HttpDialect::Proto, answer), "{name}");
        let mut rpc = Vec::new();
        Dialect::V0_3.write(answer, &mut rpc);
        assert_eq!(written(HttpDialect::Kinds, answer), serde_json::from_slice::<Value>(&rpc).unwrap());
    }
}

#[test]
fn the_card_is_for_both_where_nothing_is_stated() {
    let card = AgentCard::new("Echo", "Says it again");
    let stated = written(HttpDialect::Proto, &Answer::Card(&card));
    assert_eq!(stated, serde_json::to_value(v0_3_card(&card)).unwrap());
    let merged = written(HttpDialect::Either, &Answer::Card(&card));
    assert_eq!(merged, serde_json::to_value(dual_card(&card)).unwrap());
}

#[test]
fn events_are_wrapped_and_say_whether_they_are_the_last() {
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
fn every_error_has_the_status_that_0_3_had() {
    let line = |kind: &ErrorKind| {
        let (status, body) = HttpDialect::Proto.refusal(&Error::new(*kind, "no"));
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["message"], body.get("error")), (&json!("no"), None));
        format!("{} {status} {} {}", kind.reason(), body["code"], body["type"])
    };
    insta::assert_snapshot!("http_statuses", ErrorKind::ALL.iter().map(line).collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_refusal_for_both_has_the_words_of_both() {
    let error = Error::invalid_params("historyLength", "-1 is negative, expected 0 or more");
    for dialect in ALL {
        let (status, body) = dialect.refusal(&error);
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status, 422);
        match dialect {
            HttpDialect::Either => insta::assert_json_snapshot!("http_refusal_for_both", body),
            HttpDialect::Proto | HttpDialect::PythonProto | HttpDialect::Kinds => {
                insta::assert_json_snapshot!("http_refusal", body);
            }
        }
    }
}
