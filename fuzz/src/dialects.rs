//! The ways of speaking that came before 1.0: whatever is read in one of them can be written in all, and read again as the same.

use std::borrow::Cow;

use attache_protocol::dialect::{HttpDialect, HttpPath, HttpRequest, Response, v0_3};
use attache_protocol::{
    Dialect, Error, ErrorKind, Operation, Request, SendMessageResponse, StreamResponse, Task,
};
use serde_json::value::RawValue;

use crate::choice;

const DIALECTS: [Dialect; 4] = [Dialect::Iii, Dialect::V0_3, Dialect::Either, Dialect::V0_1];
const HTTP: [HttpDialect; 4] =
    [HttpDialect::Proto, HttpDialect::PythonProto, HttpDialect::Kinds, HttpDialect::Either];
const METHODS: [&str; 16] = [
    "message/send",
    "message/stream",
    "tasks/send",
    "tasks/sendSubscribe",
    "tasks/pushNotification/set",
    "tasks/pushNotification/get",
    "tasks/get",
    "tasks/cancel",
    "tasks/list",
    "tasks/resubscribe",
    "tasks/pushNotificationConfig/set",
    "tasks/pushNotificationConfig/get",
    "tasks/pushNotificationConfig/list",
    "tasks/pushNotificationConfig/delete",
    "agent/getAuthenticatedExtendedCard",
    "agent/authenticatedExtendedCard",
];

/// The first byte chooses a method; the rest are its arguments, and is a task, an answer and an event as well.
pub fn dialects(data: &[u8]) {
    let (choice, json) = choice(data);
    requests(METHODS[choice % METHODS.len()], json);
    requests_over_http(choice, json);
    tasks(json);
    answers(json);
}

fn requests(method: &str, json: &[u8]) {
    let dialect = Dialect::of(method, json).expect("it is a method of theirs");
    assert!(Dialect::of_v0_1(method, json).is_some());
    match dialect.read(method, json) {
        Ok(request) => {
            // As a client writes it, which says more than some do. Not everything can be said in these words.
            let Some(first) = written_in_0_3(&request) else { return };
            assert_eq!(
                written_in_0_3(&first).as_ref(),
                Some(&first),
                "a request changes each time it is written"
            );
        }
        Err(error) => is_theirs(&error),
    }
}

fn written_in_0_3(request: &Request) -> Option<Request> {
    let v0_3::request::MethodCall { method, params } = v0_3::request::write(request).ok()?;
    let again = Dialect::V0_3.read(method, params.as_str().as_bytes());
    Some(
        again.unwrap_or_else(|error| panic!("what was written cannot be read: {error}: {}", params.as_str())),
    )
}

fn requests_over_http(choice: usize, body: &[u8]) {
    let operation = Operation::ALL[choice % Operation::ALL.len()];
    let query = [("historyLength".to_owned(), String::from_utf8_lossy(body).into_owned())];
    let request = HttpRequest {
        operation,
        path: HttpPath::Own,
        task: Some("t"),
        config: Some("c"),
        query: if choice < 128 { &[] } else { &query },
        own_media_type: false,
        user_agent: None,
        body,
    };
    for dialect in HttpDialect::of(&request).into_iter().chain(HttpDialect::stated(&request)) {
        match dialect.read(&request) {
            Ok(read) => assert_eq!(read.operation(), operation),
            Err(error) => is_theirs(&error),
        }
    }
}

fn tasks(json: &[u8]) {
    for dialect in DIALECTS {
        let task = match dialect.read_task(json) {
            Ok(task) => task,
            Err(error) => {
                is_theirs(&error);
                continue;
            }
        };
        let again = |task: &Task| {
            let text = written(|out| dialect.write_task(task, out));
            dialect
                .read_task(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(&text)))
        };
        // What a dialect has no words for is lost when it is written for the first time, and nothing after that.
        let first = again(&task);
        assert_eq!(again(&first), first, "a task of {} changes each time it is written", dialect.name());
        told_everywhere(&task);
    }
}

fn answers(json: &[u8]) {
    let older = [v0_3::response::reply(json), v0_3::proto_json::response::reply(json)];
    let current = serde_json::from_slice::<SendMessageResponse>(json).ok();
    for reply in older.into_iter().filter_map(Result::ok).chain(current) {
        match reply {
            SendMessageResponse::Task(task) => told_everywhere(&task),
            SendMessageResponse::Message(message) => {
                for dialect in DIALECTS {
                    written(|out| dialect.write(&Response::Message(&message), out));
                }
            }
        }
    }
    let older = v0_3::response::event(json).ok().map(|event| event.response);
    let proto = v0_3::proto_json::response::event(json).ok().flatten().map(|event| event.response);
    let current = serde_json::from_slice::<StreamResponse>(json).ok();
    for event in older.into_iter().chain(proto).chain(current) {
        for dialect in DIALECTS {
            written(|out| dialect.write_event(&event, out));
        }
        for dialect in HTTP {
            written(|out| dialect.write_event(&event, out));
        }
    }
    for error in [v0_3::response::webhook(json).err(), v0_3::proto_json::response::webhooks(json).err()] {
        error.iter().for_each(is_theirs);
    }
}

/// Writes a task as the answer of every dialect.
fn told_everywhere(task: &Task) {
    for dialect in DIALECTS {
        written(|out| dialect.write(&Response::Sent(Cow::Borrowed(task)), out));
        written(|out| dialect.write(&Response::Task(Cow::Borrowed(task)), out));
    }
    for dialect in HTTP {
        written(|out| dialect.write(&Response::Task(Cow::Borrowed(task)), out));
    }
}

/// What is written is JSON.
fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    let json = serde_json::from_slice::<&RawValue>(&out);
    assert!(json.is_ok(), "{json:?}: {}", String::from_utf8_lossy(&out));
    out
}

fn is_theirs(error: &Error) {
    assert!(!matches!(error.kind(), ErrorKind::Internal | ErrorKind::InvalidAgentResponse), "{error}");
}
