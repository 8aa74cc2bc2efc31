//! Values survive a round trip through a dialect, and a dialect uses no names of another version.

use std::borrow::Cow;

use attache_protocol::dialect::Response;
use attache_protocol::{
    Artifact, Content, Dialect, Json, JsonObject, Message, Part, Request, Role, StreamResponse, Task,
    TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::arbitrary;
use crate::support::{self, DIALECTS, ROLES, STATES, rich_task};

/// A reader of 0.3 that shares no code with ours.
mod reader {
    use super::*;

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
        let file = &value["file"];
        let mut part = Part::new(match value["kind"].as_str() {
            Some("text") => Content::Text(text(&value["text"]).expect("text")),
            Some("file") => match (&file["uri"], &file["bytes"]) {
                (Value::String(uri), Value::Null) => Content::Url(uri.clone()),
                (Value::Null, Value::String(bytes)) => {
                    let raw: Part = serde_json::from_value(json!({"raw": bytes})).expect("base64");
                    raw.content
                }
                neither => panic!("{neither:?}"),
            },
            Some("data") => {
                assert!(value["data"].is_object(), "{value}");
                Content::Data(Json::new(&value["data"]).expect("data"))
            }
            other => panic!("{other:?}"),
        });
        part.filename = text(&file["name"]);
        part.media_type = text(&file["mimeType"]);
        part.metadata = metadata(&value["metadata"]);
        if value["metadata"]["data_part_compat"] == json!(true) && part.as_data().is_some() {
            let mut rest = value["metadata"].clone();
            rest.as_object_mut().expect("metadata").remove("data_part_compat");
            part.metadata = Some(rest).filter(|rest| rest != &json!({})).as_ref().and_then(metadata);
            part.content = Content::Data(Json::new(&value["data"]["value"]).expect("data"));
        }
        part
    }

    pub(super) fn message(value: &Value) -> Message {
        assert_eq!(value["kind"], "message");
        Message {
            message_id: text(&value["messageId"]).expect("messageId"),
            context_id: text(&value["contextId"]).map(Into::into),
            task_id: text(&value["taskId"]).map(Into::into),
            role: match value["role"].as_str() {
                Some("user") => Role::User,
                Some("agent") => Role::Agent,
                other => panic!("{other:?}"),
            },
            parts: list(&value["parts"], part),
            metadata: metadata(&value["metadata"]),
            extensions: list(&value["extensions"], |uri| text(uri).expect("a URI")),
            reference_task_ids: list(&value["referenceTaskIds"], |id| text(id).expect("an id").into()),
        }
    }

    fn artifact(value: &Value) -> Artifact {
        Artifact {
            artifact_id: text(&value["artifactId"]).expect("artifactId"),
            name: text(&value["name"]),
            description: text(&value["description"]),
            parts: list(&value["parts"], part),
            metadata: metadata(&value["metadata"]),
            extensions: list(&value["extensions"], |uri| text(uri).expect("a URI")),
        }
    }

    fn state(value: &Value) -> TaskState {
        match value.as_str() {
            Some("unknown") => TaskState::Unspecified,
            Some("submitted") => TaskState::Submitted,
            Some("working") => TaskState::Working,
            Some("completed") => TaskState::Completed,
            Some("failed") => TaskState::Failed,
            Some("canceled") => TaskState::Canceled,
            Some("input-required") => TaskState::InputRequired,
            Some("rejected") => TaskState::Rejected,
            Some("auth-required") => TaskState::AuthRequired,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn task(value: &Value) -> Task {
        assert_eq!(value["kind"], "task");
        let status = &value["status"];
        Task {
            id: text(&value["id"]).expect("id").into(),
            context_id: text(&value["contextId"]).filter(|id| !id.is_empty()).map(Into::into),
            status: TaskStatus {
                state: state(&status["state"]),
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

/// Removes the members that 0.3 does not have: file names and media types of parts that are not files, and the members of 1.1.
pub(crate) fn carried_part(part: &mut Part) {
    match &part.content {
        Content::Raw(_) | Content::Url(_) => {}
        Content::Text(_) => (part.filename, part.media_type) = (None, None),
        Content::Data(data) => {
            (part.filename, part.media_type) = (None, None);
            // If the metadata gets a mark, empty metadata cannot be distinguished from absent metadata.
            let bare = part.metadata.as_ref().is_some_and(|metadata| metadata.as_str() == "{}");
            if bare && !data.as_str().starts_with('{') {
                part.metadata = None;
            }
        }
    }
}

pub(crate) fn carried_message(message: &mut Message) {
    message.parts.iter_mut().for_each(carried_part);
    if message.role == Role::Unspecified {
        message.role = Role::User;
    }
}

pub(crate) fn carried(mut task: Task) -> Task {
    task.generation = None;
    task.history.iter_mut().for_each(carried_message);
    task.status.message.iter_mut().for_each(|message| carried_message(message));
    task.artifacts.iter_mut().flat_map(|artifact| &mut artifact.parts).for_each(carried_part);
    task
}

#[test]
fn a_task_in_0_3_comes_back_unchanged() {
    arbitrary::check(arbitrary::task(), |task| {
        let written = support::written(Dialect::V0_3, &Response::Task(Cow::Borrowed(&task)));
        prop_assert_eq!(reader::task(&written), carried(task.clone()));
        let merged = support::written(Dialect::Either, &Response::Task(Cow::Borrowed(&task)));
        prop_assert_eq!(reader::task(&merged), carried(task));
        Ok(())
    });
}

#[test]
fn a_stored_task_comes_back_unchanged() {
    let named = arbitrary::task().prop_filter("a task has an id", |task| !task.id.is_empty());
    arbitrary::check(named, |task| {
        let mut out = Vec::new();
        Dialect::V0_3.write_task(&task, &mut out);
        prop_assert_eq!(Dialect::V0_3.read_task(&out).expect("a task"), carried(task));
        Ok(())
    });
}

#[test]
fn a_message_in_0_3_comes_back_unchanged() {
    let messages = arbitrary::message().prop_filter("from a client and not empty", |message| {
        !message.message_id.is_empty() && !message.parts.is_empty()
    });
    arbitrary::check(messages, |mut message| {
        message.role = Role::User;
        let written = support::written(Dialect::V0_3, &Response::Message(&message));
        prop_assert_eq!(reader::message(&written), {
            let mut message = message.clone();
            carried_message(&mut message);
            message
        });
        let params = json!({"message": written}).to_string();
        prop_assert_eq!(Dialect::of("message/send", params.as_bytes()), Some(Dialect::V0_3));
        let request = Dialect::V0_3.read("message/send", params.as_bytes()).expect("a request");
        let Request::SendMessage(request) = request else { panic!("{request:?}") };
        prop_assert_eq!(request.message, reader::message(&written));
        Ok(())
    });
}

#[test]
fn any_request_is_recognized_and_read_or_rejected_the_same_way_twice() {
    let methods =
        ["message/send", "tasks/send", "tasks/get", "tasks/list", "tasks/pushNotificationConfig/set"];
    arbitrary::check((arbitrary::object(), prop::sample::select(methods.to_vec())), |(params, method)| {
        let params = json!({"message": params, "id": "t"}).to_string();
        for dialect in DIALECTS {
            let read = || dialect.read(method, params.as_bytes());
            prop_assert_eq!(read(), read());
        }
        Ok(())
    });
}

proptest! {
    #[test]
    fn no_name_of_1_0_gets_into_an_older_response(
        state in prop::sample::select(STATES),
        roles in prop::collection::vec(prop::sample::select(ROLES), 0..4),
    ) {
        let mut task = rich_task();
        task.status.state = state;
        task.history = roles.into_iter().map(|role| Message { role, ..Message::user("m", "x") }).collect();
        let update = TaskStatusUpdateEvent { status: task.status.clone(), ..Default::default() };
        let events = [StreamResponse::Task(task.clone()), StreamResponse::StatusUpdate(update)];
        for dialect in DIALECTS {
            let written = (
                support::written(dialect, &Response::Task(Cow::Borrowed(&task))),
                support::events(dialect, &events),
            );
            let text = json!([written.0, written.1]).to_string();
            prop_assert!(!text.contains("TASK_STATE") && !text.contains("ROLE_"), "{}", text);
        }
        let current = serde_json::to_string(&events[0]).expect("JSON");
        prop_assert!(!current.contains("\"kind\"") && !current.contains("\"type\""), "{}", current);
    }
}
