//! Values survive a round trip through 0.3 over HTTP+JSON, and it uses no names of another version.

use std::borrow::Cow;

use attache_protocol::dialect::{HttpDialect, Response};
use attache_protocol::{
    Content, Dialect, ErrorKind, Json, JsonObject, Message, Operation, Part, Request, Role, Task, TaskState,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::arbitrary;
use crate::carried::carried_part;
use crate::http::{ALL, dialect_of, event, http_request, written};
use crate::support::{page, task};

/// A reader of the proto's JSON that shares no code with ours. It rejects unknown members, as the SDKs of 0.3 do.
mod reader {
    use super::*;
    use attache_protocol::{Artifact, TaskStatus};

    fn members<'a>(value: &'a Value, known: &[&str]) -> &'a Value {
        let unknown = value.as_object().expect("an object").keys().find(|key| !known.contains(&key.as_str()));
        assert_eq!(unknown, None, "{value}");
        value
    }

    fn text(value: &Value) -> Option<String> {
        value.as_str().map(str::to_owned)
    }

    fn metadata(value: &Value) -> Option<JsonObject> {
        value.is_object().then(|| JsonObject::new(value).expect("an object"))
    }

    fn list<T>(value: &Value, read: impl Fn(&Value) -> T) -> Vec<T> {
        value.as_array().into_iter().flatten().map(read).collect()
    }

    fn part(value: &Value) -> Part {
        members(value, &["text", "file", "data", "metadata"]);
        let file = &value["file"];
        let mut part = Part::new(match (&value["text"], file, &value["data"]) {
            (Value::String(text), Value::Null, Value::Null) => Content::Text(text.clone()),
            (Value::Null, Value::Object(_), Value::Null) => {
                members(file, &["fileWithUri", "fileWithBytes", "mimeType", "name"]);
                match (&file["fileWithUri"], &file["fileWithBytes"]) {
                    (Value::String(uri), Value::Null) => Content::Url(uri.clone()),
                    (Value::Null, bytes) => {
                        serde_json::from_value::<Part>(json!({"raw": bytes})).expect("base64").content
                    }
                    both => panic!("{both:?}"),
                }
            }
            (Value::Null, Value::Null, data) => {
                assert!(members(data, &["data"])["data"].is_object(), "{value}");
                Content::Data(Json::new(&data["data"]).expect("data"))
            }
            several => panic!("{several:?}"),
        });
        part.filename = text(&file["name"]);
        part.media_type = text(&file["mimeType"]);
        part.metadata = metadata(&value["metadata"]);
        if value["metadata"]["data_part_compat"] == json!(true) && part.as_data().is_some() {
            let mut rest = value["metadata"].clone();
            rest.as_object_mut().expect("metadata").remove("data_part_compat");
            part.metadata = Some(rest).filter(|rest| rest != &json!({})).as_ref().and_then(metadata);
            part.content = Content::Data(Json::new(&value["data"]["data"]["value"]).expect("data"));
        }
        part
    }

    pub(super) fn message(value: &Value) -> Message {
        let known = ["messageId", "contextId", "taskId", "role", "content", "metadata", "extensions"];
        members(value, &known);
        Message {
            message_id: text(&value["messageId"]).expect("messageId"),
            context_id: text(&value["contextId"]).map(Into::into),
            task_id: text(&value["taskId"]).map(Into::into),
            role: value["role"].as_str().expect("a role").parse().expect("a role"),
            parts: list(&value["content"], part),
            metadata: metadata(&value["metadata"]),
            extensions: list(&value["extensions"], |uri| text(uri).expect("a URI")),
            reference_task_ids: Vec::new(),
        }
    }

    fn artifact(value: &Value) -> Artifact {
        members(value, &["artifactId", "name", "description", "parts", "metadata", "extensions"]);
        Artifact {
            artifact_id: text(&value["artifactId"]).expect("artifactId"),
            name: text(&value["name"]),
            description: text(&value["description"]),
            parts: list(&value["parts"], part),
            metadata: metadata(&value["metadata"]),
            extensions: list(&value["extensions"], |uri| text(uri).expect("a URI")),
        }
    }

    pub(super) fn task(value: &Value) -> Task {
        members(value, &["id", "contextId", "status", "artifacts", "history", "metadata"]);
        let status = members(&value["status"], &["state", "message", "timestamp"]);
        Task {
            id: text(&value["id"]).expect("id").into(),
            context_id: text(&value["contextId"]).map(Into::into),
            status: TaskStatus {
                state: match status["state"].as_str().expect("a state") {
                    "TASK_STATE_CANCELLED" => TaskState::Canceled,
                    "TASK_STATE_CANCELED" => panic!("a word of 1.0"),
                    state => state.parse().expect("a state"),
                },
                message: status.get("message").map(|value| Box::new(message(value))),
                timestamp: text(&status["timestamp"]).map(|text| text.parse().expect("a time")),
            },
            metadata: metadata(&value["metadata"]),
            generation: None,
            artifacts: list(&value["artifacts"], artifact),
            history: list(&value["history"], message),
        }
    }
}

/// Removes the members that 0.3 does not have, and the references to other tasks, which the proto does not have.
pub(crate) fn carried_message(message: &mut Message) {
    message.parts.iter_mut().for_each(carried_part);
    message.reference_task_ids.clear();
}

pub(crate) fn carried(mut task: Task) -> Task {
    task.generation = None;
    task.history.iter_mut().for_each(carried_message);
    task.status.message.iter_mut().for_each(|message| carried_message(message));
    task.artifacts.iter_mut().flat_map(|artifact| &mut artifact.parts).for_each(carried_part);
    task
}

#[test]
fn a_task_over_http_in_0_3_comes_back_unchanged() {
    arbitrary::check(arbitrary::task(), |task| {
        let response = written(HttpDialect::Proto, &Response::Task(Cow::Borrowed(&task)));
        prop_assert_eq!(reader::task(&response), carried(task));
        Ok(())
    });
}

#[test]
fn a_message_over_http_in_0_3_comes_back_unchanged() {
    let messages = arbitrary::message().prop_filter("from a client and not empty", |message| {
        !message.message_id.is_empty() && !message.parts.is_empty()
    });
    arbitrary::check(messages, |mut message| {
        message.role = Role::User;
        let response = written(HttpDialect::Proto, &Response::Message(&message));
        carried_message(&mut message);
        prop_assert_eq!(reader::message(&response["message"]), message.clone());
        let body = response.to_string();
        prop_assert_eq!(dialect_of(Operation::SendMessage, &body), Some(HttpDialect::Proto));
        let request =
            HttpDialect::Proto.read(&http_request(Operation::SendMessage, body.as_bytes())).expect("read");
        let Request::SendMessage(request) = request else { panic!("{request:?}") };
        prop_assert_eq!(request.message, message);
        Ok(())
    });
}

#[test]
fn any_body_is_read_or_rejected() {
    let operations = prop::sample::select(Operation::ALL.to_vec());
    arbitrary::check((arbitrary::object(), operations), |(body, operation)| {
        for body in
            [body.to_string(), json!({"message": body}).to_string(), json!({"config": body}).to_string()]
        {
            let request = http_request(operation, body.as_bytes());
            prop_assert_eq!(HttpDialect::of(&request), HttpDialect::of(&request));
            for dialect in ALL {
                prop_assert_eq!(dialect.read(&request), dialect.read(&request));
            }
        }
        Ok(())
    });
}

/// The names of members and the enum values that belong to the protocol. Those in data and metadata do not.
fn protocol_names(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                found.push(name.clone());
                match name.as_str() {
                    "metadata" | "data" | "text" => {}
                    "state" | "role" | "kind" => found.extend(value.as_str().map(str::to_owned)),
                    _ => protocol_names(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| protocol_names(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn no_version_uses_names_of_another() {
    let current = ["raw", "url", "filename", "mediaType", "generation", "TASK_STATE_CANCELED"];
    let proto = ["content", "fileWithUri", "fileWithBytes", "TASK_STATE_CANCELLED"];
    let tagged = ["kind", "bytes", "uri", "canceled", "working", "user", "agent"];
    let shared = ["file", "mimeType", "final"];
    arbitrary::check((arbitrary::task(), arbitrary::stream_response()), |(task, update)| {
        let words_of = |values: [Value; 2]| {
            let mut found = Vec::new();
            values.iter().for_each(|value| protocol_names(value, &mut found));
            found
        };
        let mut rpc = (Vec::new(), Vec::new());
        Dialect::V0_3.write(&Response::Task(Cow::Borrowed(&task)), &mut rpc.0);
        Dialect::V0_3.write_event(&update, &mut rpc.1);
        let json = |text: &[u8]| serde_json::from_slice(text).expect("JSON");
        let spoken = [
            (words_of([json(&rpc.0), json(&rpc.1)]), [&current[..], &proto].concat()),
            (
                words_of([
                    written(HttpDialect::Proto, &Response::Task(Cow::Borrowed(&task))),
                    event(HttpDialect::Proto, &update),
                ]),
                [&current[..], &tagged].concat(),
            ),
            (
                words_of([serde_json::to_value(&task).unwrap(), serde_json::to_value(&update).unwrap()]),
                [&proto[..], &tagged, &shared].concat(),
            ),
        ];
        for (words, foreign) in spoken {
            let strange = words.iter().find(|word| foreign.contains(&word.as_str()));
            prop_assert_eq!(strange, None);
        }
        Ok(())
    });
}

#[test]
fn only_operations_of_0_3_are_read() {
    let error = HttpDialect::Proto.read(&http_request(Operation::ListTasks, b"")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MethodNotFound);
    let tasks = written(HttpDialect::Proto, &Response::Tasks(page()));
    assert_eq!(reader::task(&tasks["tasks"][0]), carried(task()));
}
