//! A client of protocol 0.1: our server reads its requests, and it reads our server's responses.

use std::borrow::Cow;

use attache_protocol::dialect::Response;
use attache_protocol::dialect::v0_1::{request, response};
use attache_protocol::{
    Dialect, ErrorKind, Message, Operation, Request, SendMessageResponse, StreamResponse, TaskState,
};
use serde_json::{Value, json};

use crate::support::{artifact_event, rich_task, status_of, task};

fn write(operation: Operation, arguments: &Value) -> Result<(&'static str, Value), attache_protocol::Error> {
    let request = operation.parse(arguments.to_string().as_bytes()).expect("a request");
    request::write(&request).map(|it| (it.method, it.params.read().expect("JSON")))
}

#[test]
fn our_server_reads_the_messages_of_our_client() {
    let arguments = json!({
        "message": {"messageId": "m1", "role": "ROLE_USER", "contextId": "c", "taskId": "t", "metadata": {"a": 1}, "parts": [
            {"text": "hi"},
            {"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"},
            {"data": [1]},
        ]},
        "configuration": {"acceptedOutputModes": ["text/plain"], "historyLength": 2,
            "taskPushNotificationConfig": {"url": "https://h"}},
        "metadata": {"k": 1},
    });
    for (operation, method) in
        [(Operation::SendMessage, "tasks/send"), (Operation::SendStreamingMessage, "tasks/sendSubscribe")]
    {
        let (written, params) = write(operation, &arguments).unwrap();
        assert_eq!(written, method);
        let read = Dialect::V0_1.read(method, params.to_string().as_bytes()).unwrap();
        let (Request::SendMessage(read) | Request::SendStreamingMessage(read)) = read else {
            panic!("{read:?}")
        };
        let sent = operation.parse(arguments.to_string().as_bytes()).unwrap();
        let (Request::SendMessage(sent) | Request::SendStreamingMessage(sent)) = sent else {
            panic!("{sent:?}")
        };
        // A message of 0.1 has no id.
        let message = Message { message_id: read.message.message_id.clone(), ..sent.message };
        assert_eq!((&read.message, &read.metadata), (&message, &sent.metadata));
        let configuration = read.configuration.unwrap();
        assert_eq!(configuration.accepted_output_modes, ["text/plain"]);
        assert_eq!(configuration.history_length, Some(2));
        assert_eq!(configuration.task_push_notification_config.unwrap().url, "https://h");
    }
}

#[test]
fn a_new_task_has_the_id_of_its_message() {
    let (_, params) = write(Operation::SendMessage, &json!({"message": {"messageId": "m1"}})).unwrap();
    assert_eq!((&params["id"], &params["sessionId"]), (&json!("m1"), &json!("m1")));
    let message = Message { task_id: Some("t".into()), ..Message::user("m1", "hi") };
    assert_eq!(request::task_id(&message).as_str(), "t");
}

#[test]
fn what_0_1_does_not_have_is_an_error() {
    for (operation, arguments) in [
        (Operation::ListTasks, json!({})),
        (Operation::ListTaskPushNotificationConfigs, json!({"taskId": "t"})),
        (Operation::DeleteTaskPushNotificationConfig, json!({"taskId": "t", "id": "w"})),
        (Operation::GetExtendedAgentCard, json!({})),
    ] {
        let error = write(operation, &arguments).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation, "{operation:?}");
    }
    let tenant = json!({"tenant": "acme", "id": "t"});
    assert_eq!(write(Operation::GetTask, &tenant).unwrap_err().kind(), ErrorKind::InvalidParams);
    let (method, params) = write(Operation::GetTask, &json!({"id": "t", "historyLength": 3})).unwrap();
    assert_eq!((method, params), ("tasks/get", json!({"id": "t", "historyLength": 3})));
}

#[test]
fn our_client_reads_the_tasks_of_our_server() {
    let task = rich_task();
    let mut json = Vec::new();
    Dialect::V0_1.write(&Response::Sent(Cow::Borrowed(&task)), &mut json);
    let SendMessageResponse::Task(read) = response::reply(&json).unwrap() else { panic!("no task") };
    assert_eq!((&read.id, &read.context_id), (&task.id, &task.context_id));
    assert_eq!(read.status.state, task.status.state);
    assert_eq!(read.artifacts.len(), task.artifacts.len());
    for (read, written) in read.artifacts.iter().zip(&task.artifacts) {
        assert_eq!((&read.name, read.parts.len()), (&written.name, written.parts.len()));
    }
}

#[test]
fn our_client_reads_the_events_of_our_server() {
    let mut events = Dialect::V0_1.events();
    let mut read = |event: &StreamResponse| {
        let mut json = Vec::new();
        events.write(event, &mut json);
        response::event(&json).unwrap()
    };
    let first = read(&StreamResponse::Task(task()));
    assert!(matches!(first.response, StreamResponse::Task(_)) && first.is_last, "{first:?}");
    let StreamResponse::ArtifactUpdate(update) = read(&artifact_event()).response else {
        panic!("no artifact")
    };
    assert_eq!((update.task_id.as_str(), update.artifact.artifact_id.as_str()), ("t-1", "0"));
    let last = read(&status_of(TaskState::Completed));
    assert!(matches!(last.response, StreamResponse::StatusUpdate(_)) && last.is_last, "{last:?}");
}

#[test]
fn events_as_other_servers_write_them_are_read() {
    let status = json!({"id": "t", "status": {"state": "working", "timestamp": "2026-01-01T00:00:00Z"},
        "final": false, "metadata": null});
    let event = response::event(status.to_string().as_bytes()).unwrap();
    assert!(matches!(event.response, StreamResponse::StatusUpdate(_)) && !event.is_last, "{event:?}");
    let artifact = json!({"id": "t", "artifact": {"parts": [{"type": "text", "text": "a"}], "index": 2,
        "append": null, "lastChunk": true}});
    let StreamResponse::ArtifactUpdate(update) =
        response::event(artifact.to_string().as_bytes()).unwrap().response
    else {
        panic!("no artifact")
    };
    assert_eq!((update.artifact.artifact_id.as_str(), update.append, update.last_chunk), ("2", false, true));
    assert!(response::event(b"{}").is_err());
}
