//! Which readers see reports.
//!
//! The log has the events of all readers. Metadata in the namespace `attache` belongs to an extension, so readers that have not
//! activated it get the events without it. This is the only place that decides about it: streams and webhooks use it.

use std::sync::Arc;

use attache_protocol::{JsonObject, TaskId, TaskState, TaskStatusUpdateEvent};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

use super::Namespace;
use crate::{TaskEvent, new_id};

/// The members of metadata, without parsing their values.
type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

fn members(metadata: &JsonObject) -> Option<Members<'_>> {
    serde_json::from_str(metadata.as_str()).ok()
}

/// The event for a reader that has not activated the extension. `None` if the event has nothing for that reader.
pub(crate) fn hide_reports(event: &TaskEvent) -> Option<Cow<'_, TaskEvent>> {
    let TaskEvent::Status(update) = event else { return Some(Cow::Borrowed(event)) };
    let name = Namespace::Attache.name();
    // Most updates have no metadata at all.
    let Some(metadata) = update.metadata.as_ref().filter(|metadata| metadata.as_str().contains(name)) else {
        return Some(Cow::Borrowed(event));
    };
    let Some(mut all) = members(metadata).filter(|all| all.contains_key(name)) else {
        return Some(Cow::Borrowed(event));
    };
    all.remove(name);
    if all.is_empty() && is_silent(update) {
        return None;
    }
    let metadata = if all.is_empty() { None } else { JsonObject::new(&all).ok() };
    let update = TaskStatusUpdateEvent { metadata, ..TaskStatusUpdateEvent::clone(update) };
    Some(Cow::Owned(TaskEvent::Status(Arc::new(update))))
}

/// Whether an update is only a report: it has neither a message nor another state than `working`.
pub(crate) fn is_report_only(update: &TaskStatusUpdateEvent) -> bool {
    let names = [Namespace::Attache, Namespace::IacCode].map(Namespace::name);
    let is_report = |all: Members<'_>| !all.is_empty() && all.keys().all(|name| names.contains(&&**name));
    is_silent(update) && update.metadata.as_ref().and_then(members).is_some_and(is_report)
}

/// What comes between the id of the task and the rest in the ids of messages that arrive in pieces.
const PIECES: &str = "-message-";

/// A new id for a message that arrives in pieces.
pub(crate) fn pieces_id(task: &TaskId) -> String {
    format!("{task}{PIECES}{}", new_id::<String>())
}

/// Whether an update is a piece of a message. Webhooks for states do not get one request for each piece.
pub(crate) fn is_piece(update: &TaskStatusUpdateEvent) -> bool {
    let is_piece =
        |id: &str| id.strip_prefix(update.task_id.as_str()).is_some_and(|rest| rest.starts_with(PIECES));
    update.status.state == TaskState::Working
        && update.status.message.as_ref().is_some_and(|message| is_piece(&message.message_id))
}

fn is_silent(update: &TaskStatusUpdateEvent) -> bool {
    update.status.state == TaskState::Working && update.status.message.is_none()
}

#[cfg(test)]
mod tests {
    use attache_protocol::{Message, TaskStatus};
    use serde_json::{Value, json};

    use super::*;

    fn event(metadata: Value, text: Option<&str>) -> TaskEvent {
        let message = text.map(|text| Box::new(Message::user("m", text)));
        TaskEvent::Status(Arc::new(TaskStatusUpdateEvent {
            status: TaskStatus { state: TaskState::Working, message, timestamp: None },
            metadata: (!metadata.is_null()).then(|| JsonObject::new(&metadata).unwrap()),
            ..TaskStatusUpdateEvent::default()
        }))
    }

    #[test]
    fn readers_without_the_extension_get_everything_but_reports() {
        let hidden = |event: TaskEvent| hide_reports(&event).map(Cow::into_owned);
        let report = json!({"attache": {"tool": {"status": "started"}}});
        assert_eq!(hidden(event(report.clone(), None)), None);
        assert_eq!(hidden(event(report, Some("edit"))), Some(event(Value::Null, Some("edit"))));
        let both = json!({"attache": {"usage": {}}, "mine": {"a": 1}});
        assert_eq!(hidden(event(both, None)), Some(event(json!({"mine": {"a": 1}}), None)));
        for other in [Value::Null, json!({"mine": "attache"}), json!({"iac_code": {"tool": {}}})] {
            assert_eq!(hidden(event(other.clone(), None)), Some(event(other, None)));
        }
    }

    #[test]
    fn an_update_with_a_text_is_more_than_a_report() {
        let only = |metadata: Value, text: Option<&str>| match event(metadata, text) {
            TaskEvent::Status(update) => is_report_only(&update),
            TaskEvent::Created(_) | TaskEvent::Message(_) | TaskEvent::Artifact(_) => unreachable!(),
        };
        assert!(only(json!({"attache": {"usage": {}}}), None));
        assert!(only(json!({"iac_code": {"tool": {}}}), None));
        assert!(!only(json!({"attache": {"usage": {}}}), Some("text")));
        assert!(!only(json!({"mine": 1}), None));
        assert!(!only(Value::Null, None));
    }
}
