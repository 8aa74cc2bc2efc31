//! The result of a call, from the reply of the agent.

use attache_client::{ClientError, Reply};
use attache_iii::CallError;
use attache_protocol::{Artifact, Message, Part, Task, TaskState};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

type CallResult = Result<Box<RawValue>, CallError>;

/// The result of a call, from the reply of the agent.
pub(super) fn from_reply(reply: Reply) -> CallResult {
    match reply {
        Reply::Message(message) => from_message(&message),
        Reply::Task(task) => from_task(&task),
    }
}

fn from_task(task: &Task) -> CallResult {
    let code = match task.status.state {
        TaskState::Completed => return from_completed(task),
        TaskState::Failed => "task_failed",
        TaskState::Rejected => "task_rejected",
        TaskState::Canceled => "task_canceled",
        TaskState::InputRequired => return Err(interrupted("input_required", task)),
        TaskState::AuthRequired => return Err(interrupted("auth_required", task)),
        TaskState::Unspecified | TaskState::Submitted | TaskState::Working => "task_unfinished",
    };
    let text = match status_text(task) {
        text if text.is_empty() => format!("the task `{}` ended without a message", task.id),
        text => text,
    };
    Err(CallError::remote(code, text))
}

/// An error with the question of the agent, and with the task and the context that the next call needs.
fn interrupted(code: &str, task: &Task) -> CallError {
    let context = task.context_id.as_ref().map(|id| format!(", context `{id}`")).unwrap_or_default();
    CallError::remote(code, format!("{} (task `{}`{context})", status_text(task), task.id))
}

fn status_text(task: &Task) -> String {
    task.status.message.as_ref().map(|message| message.text()).unwrap_or_default()
}

fn from_completed(task: &Task) -> CallResult {
    match (&*task.artifacts, &task.status.message) {
        ([], Some(message)) => from_message(message),
        ([], None) => Ok(RawValue::NULL.to_owned()),
        ([artifact], _) if let Some(value) = single_value(&artifact.parts, || artifact.text()) => value,
        (artifacts, _) => {
            #[derive(Serialize)]
            struct Artifacts<'a> {
                artifacts: &'a [Artifact],
            }
            encode(&Artifacts { artifacts })
        }
    }
}

fn from_message(message: &Message) -> CallResult {
    #[derive(Serialize)]
    struct Parts<'a> {
        parts: &'a [Part],
    }
    let parts = &*message.parts;
    single_value(parts, || message.text()).unwrap_or_else(|| encode(&Parts { parts }))
}

/// The value of a single data part, or of parts that are all text. `None` for other parts.
fn single_value(parts: &[Part], text: impl FnOnce() -> String) -> Option<CallResult> {
    #[derive(Serialize)]
    struct Text {
        text: String,
    }
    match parts {
        [] => Some(Ok(RawValue::NULL.to_owned())),
        [part] if let Some(data) = part.as_data() => Some(Ok(data.as_raw().to_owned())),
        parts if parts.iter().all(|part| part.as_text().is_some()) => Some(encode(&Text { text: text() })),
        _ => None,
    }
}

fn encode<T: Serialize>(value: &T) -> CallResult {
    to_raw_value(value).map_err(|error| CallError::remote("serialization_error", error.to_string()))
}

/// The error of a call without a reply.
pub(super) fn from_error(error: &ClientError) -> CallError {
    let code = if error.remote().is_some() { "agent_refused" } else { "agent_unreachable" };
    CallError::remote(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use attache_protocol::TaskStatus;
    use serde_json::{Value, json};

    use super::*;

    fn task(state: TaskState, artifacts: Value, text: Option<&str>) -> Task {
        let message = text.map(|text| Box::new(Message::agent("m", text)));
        Task {
            id: "t1".into(),
            context_id: Some("c1".into()),
            status: TaskStatus { state, message, timestamp: None },
            artifacts: serde_json::from_value(artifacts).unwrap(),
            ..Task::default()
        }
    }

    fn value(reply: Reply) -> Value {
        serde_json::from_str(from_reply(reply).unwrap().get()).unwrap()
    }

    #[test]
    fn the_artifacts_of_a_task_are_the_result() {
        let several = json!([{"artifactId": "a", "parts": [{"text": "x"}]}, {"artifactId": "b", "parts": [{"data": 1}]}]);
        let mixed = json!([{"artifactId": "a", "parts": [{"text": "x"}, {"data": 1}]}]);
        for (artifacts, text, result) in [
            (json!([{"artifactId": "a", "parts": [{"data": {"price": 42}}]}]), None, json!({"price": 42})),
            (
                json!([{"artifactId": "a", "parts": [{"text": "1 "}, {"text": "2"}]}]),
                Some("done"),
                json!({"text": "1 2"}),
            ),
            (several.clone(), None, json!({ "artifacts": several })),
            (mixed.clone(), None, json!({ "artifacts": mixed })),
            (json!([]), Some("done"), json!({"text": "done"})),
            (json!([]), None, json!(null)),
        ] {
            assert_eq!(value(Reply::Task(task(TaskState::Completed, artifacts, text))), result);
        }
    }

    #[test]
    fn a_message_is_the_result() {
        let message =
            |parts: Value| Reply::Message(serde_json::from_value(json!({ "parts": parts })).unwrap());
        assert_eq!(value(message(json!([{"text": "a"}, {"text": "b"}]))), json!({"text": "a\nb"}));
        assert_eq!(value(message(json!([{"data": [1]}]))), json!([1]));
        let mixed = json!([{"text": "a"}, {"data": 1}]);
        assert_eq!(value(message(mixed.clone())), json!({ "parts": mixed }));
    }

    #[test]
    fn a_task_that_does_not_complete_is_an_error_with_its_message() {
        for (state, code) in [
            (TaskState::Failed, "task_failed"),
            (TaskState::Rejected, "task_rejected"),
            (TaskState::Canceled, "task_canceled"),
        ] {
            let error = from_reply(Reply::Task(task(state, json!([]), Some("no leeks")))).unwrap_err();
            assert_eq!(error, CallError::remote(code, "no leeks"));
        }
        let interrupted =
            from_reply(Reply::Task(task(TaskState::InputRequired, json!([]), Some("which one?"))))
                .unwrap_err();
        assert_eq!(interrupted, CallError::remote("input_required", "which one? (task `t1`, context `c1`)"));
    }
}
