//! A client of protocol 0.3 over HTTP+JSON: our server reads its requests, and it reads our server's responses.

use std::borrow::Cow;

use attache_protocol::dialect::v0_3::proto_json::{FileEncoding, request, response};
use attache_protocol::dialect::{HttpDialect, HttpPath, HttpRequest, Response};
use attache_protocol::{
    ListTaskPushNotificationConfigsResponse, Operation, Request, Role, SendMessageResponse, StreamResponse,
    TaskState,
};
use proptest::prelude::*;
use serde_json::json;

use crate::arbitrary;
use crate::carried::carried_part;
use crate::http_carried::{carried, carried_message};
use crate::support::{rich_task, status_of, task, webhook};

/// The request that a server reads from a body.
fn read(operation: Operation, task: Option<&str>, body: &str) -> Request {
    let request = HttpRequest {
        operation,
        path: HttpPath::Own,
        task,
        config: None,
        query: &[],
        own_media_type: false,
        user_agent: None,
        body: body.as_bytes(),
    };
    HttpDialect::stated(&request).expect("a dialect").read(&request).expect("a request")
}

#[test]
fn a_server_reads_what_a_client_writes() {
    let sends = arbitrary::send_message_request().prop_filter("a client says something", |send| {
        !send.message.message_id.is_empty() && !send.message.parts.is_empty()
    });
    arbitrary::check(sends, |mut send| {
        send.tenant = None;
        send.message.role = Role::User;
        let configuration = send.configuration.get_or_insert_default();
        configuration.task_push_notification_config = None;
        configuration.if_generation_match = None;
        configuration.history_length = configuration.history_length.filter(|length| *length > 0);
        let body = request::body(&Request::SendMessage(Box::new(send.clone())), FileEncoding::Once)
            .expect("words for it");
        let read = read(Operation::SendMessage, None, body.expect("a body").as_str());
        carried_message(&mut send.message);
        prop_assert_eq!(read, Request::SendMessage(Box::new(send)));
        Ok(())
    });
    let create = Request::CreateTaskPushNotificationConfig(webhook());
    let body = request::body(&create, FileEncoding::Once).unwrap().unwrap();
    let id = webhook().task_id.unwrap();
    assert_eq!(read(Operation::CreateTaskPushNotificationConfig, Some(id.as_str()), body.as_str()), create);
    let cancel = Operation::CancelTask.parse(br#"{"id": "t"}"#).unwrap();
    let body = request::body(&cancel, FileEncoding::Once).unwrap().unwrap();
    assert_eq!(read(Operation::CancelTask, Some("t"), body.as_str()), cancel);
}

#[test]
fn fields_that_0_3_does_not_have_are_errors() {
    for (operation, arguments) in [
        (Operation::GetTask, json!({"id": "t", "tenant": "acme"})),
        (Operation::ListTasks, json!({})),
        (
            Operation::SendMessage,
            json!({"message": {"messageId": "m"}, "configuration": {"ifGenerationMatch": 3}}),
        ),
    ] {
        let request = operation.parse(arguments.to_string().as_bytes()).unwrap();
        assert!(request::body(&request, FileEncoding::Once).is_err(), "{operation:?}");
    }
}

fn response_bytes(dialect: HttpDialect, response: &Response<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    dialect.write(response, &mut out);
    out
}

#[test]
fn a_client_reads_the_responses_of_a_server_in_both_formats() {
    let (task, message) = (carried(task()), carried(rich_task()).history[0].clone());
    for dialect in [HttpDialect::Proto, HttpDialect::Kinds] {
        assert_eq!(
            response::task(&response_bytes(dialect, &Response::Task(Cow::Borrowed(&task)))).unwrap(),
            task
        );
        let reply = response::reply(&response_bytes(dialect, &Response::Sent(Cow::Borrowed(&task)))).unwrap();
        assert_eq!(reply, SendMessageResponse::Task(task.clone()), "{dialect:?}");
        let reply = response::reply(&response_bytes(dialect, &Response::Message(&message))).unwrap();
        assert_eq!(reply, SendMessageResponse::Message(message.clone()), "{dialect:?}");
        let read = response::webhook(&response_bytes(dialect, &Response::Push(&webhook()))).unwrap();
        assert_eq!(read, webhook(), "{dialect:?}");
    }
    let pushes = ListTaskPushNotificationConfigsResponse {
        configs: vec![webhook()],
        next_page_token: "more".to_owned(),
    };
    assert_eq!(
        response::webhooks(&response_bytes(HttpDialect::Proto, &Response::Pushes(&pushes))).unwrap(),
        pushes
    );
}

#[test]
fn a_client_reads_the_events_of_a_server() {
    arbitrary::check(arbitrary::stream_response(), |event| {
        let named = match &event {
            StreamResponse::Task(task) => !task.id.is_empty(),
            StreamResponse::Message(_)
            | StreamResponse::StatusUpdate(_)
            | StreamResponse::ArtifactUpdate(_) => true,
        };
        prop_assume!(named);
        let mut out = Vec::new();
        HttpDialect::Proto.write_event(&event, &mut out);
        let read = response::event(&out).expect("an event").expect("of a known kind");
        let expected = match event {
            StreamResponse::Task(task) => StreamResponse::Task(carried(task)),
            StreamResponse::Message(mut message) => {
                carried_message(&mut message);
                StreamResponse::Message(message)
            }
            StreamResponse::StatusUpdate(mut update) => {
                update.generation = None;
                update.status.message.iter_mut().for_each(|message| carried_message(message));
                StreamResponse::StatusUpdate(update)
            }
            StreamResponse::ArtifactUpdate(mut update) => {
                update.generation = None;
                update.artifact.parts.iter_mut().for_each(carried_part);
                StreamResponse::ArtifactUpdate(update)
            }
        };
        prop_assert_eq!(read.response, expected);
        Ok(())
    });
}

#[test]
fn the_last_event_of_a_stream_is_recognized() {
    for (event, is_last) in [(status_of(TaskState::Working), false), (status_of(TaskState::Canceled), true)] {
        let mut out = Vec::new();
        HttpDialect::Proto.write_event(&event, &mut out);
        assert_eq!(response::event(&out).unwrap().unwrap().is_last, is_last);
    }
    assert_eq!(response::event(br#"{"later": {}}"#).unwrap(), None);
}

#[test]
fn invalid_responses_are_rejected() {
    for json in ["", "[]", "{}", r#"{"task": {}}"#, r#"{"task": 7}"#, r#"{"statusUpdate": {}}"#] {
        assert!(response::reply(json.as_bytes()).is_err(), "{json}");
    }
    for json in [r#"{"name": "elsewhere/w"}"#, r#"{"name": "tasks"}"#, "[]"] {
        assert!(response::webhook(json.as_bytes()).is_err(), "{json}");
    }
    assert!(response::task(br#"{"id": "t", "status": {"state": "TASK_STATE_ODD"}}"#).is_err());
}
