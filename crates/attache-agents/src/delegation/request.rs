//! The request of a caller to send a message, for agents of all protocol versions.

use attache_core::TraceParent;
use attache_iii::HOPS_EXTENSION;
use attache_protocol::{Dialect, Json, JsonObject, Request, SendMessageRequest, TaskId};
use serde::Serialize;
use serde_json::{Value, json};

use super::DelegationError;

/// The task that a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// The message creates a task.
    NewTask,
    /// The agent already has the task.
    ExistingTask,
}

/// A message to send, and its task.
#[derive(Debug, Clone)]
pub(super) struct DelegationRequest {
    pub(super) target: Target,
    /// The id of the task: ours for a new task, or the id at the agent for an existing task.
    pub(super) id: TaskId,
    pub(super) session: Option<String>,
    /// The message as JSON of protocol 0.1.
    message: Value,
    pub(super) metadata: Option<JsonObject>,
    /// The trace that the request belongs to.
    pub(super) trace_parent: Option<TraceParent>,
}

impl DelegationRequest {
    /// `message` is a text, or an object that is a message of protocol 0.1.
    pub(super) fn new(
        target: Target,
        id: TaskId,
        session: Option<String>,
        message: &Json,
        metadata: Option<JsonObject>,
    ) -> Result<Self, DelegationError> {
        let mut message = match message.read::<Value>() {
            Ok(Value::String(text)) if text.is_empty() => return Err(DelegationError::Required("message")),
            Ok(Value::String(text)) => json!({"role": "user", "parts": [{"type": "text", "text": text}]}),
            Ok(mut message @ Value::Object(_)) => {
                message["role"] = json!("user");
                message
            }
            Ok(_) | Err(_) => {
                let text = r#"`message` must be a text, or an object such as {"parts": [{"type": "text", "text": "…"}]}"#;
                return Err(DelegationError::Invalid(text.to_owned()));
            }
        };
        if !message["metadata"].is_object() {
            message["metadata"] = json!({});
        }
        // The call may come through an engine, which does not pass on how many agents the request has come through.
        message["metadata"][HOPS_EXTENSION] = json!(1);
        Ok(Self { target, id, session, message, metadata, trace_parent: None })
    }

    /// The parameters of `tasks/send`.
    pub(super) fn params(&self) -> impl Serialize {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            id: &'a TaskId,
            #[serde(skip_serializing_if = "Option::is_none")]
            session_id: Option<&'a str>,
            message: &'a Value,
            metadata: Value,
        }
        let metadata = self.metadata.as_ref().and_then(|metadata| metadata.read().ok());
        Params {
            id: &self.id,
            session_id: self.session.as_deref(),
            message: &self.message,
            metadata: metadata.unwrap_or_else(|| json!({})),
        }
    }

    /// The request in protocol 1.0. Errors name the members of protocol 0.1, as in the input of the caller.
    pub(super) fn to_send_message(&self) -> Result<SendMessageRequest, DelegationError> {
        let invalid = |text: String| DelegationError::Invalid(text);
        let params = serde_json::to_vec(&self.params()).map_err(|error| invalid(error.to_string()))?;
        match Dialect::V0_1.read("tasks/send", &params) {
            Ok(Request::SendMessage(request)) => Ok(*request),
            Ok(_) => Err(invalid("`message` cannot be sent".to_owned())),
            Err(error) => Err(invalid(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::Part;

    use super::*;

    fn request(message: Value) -> Result<DelegationRequest, DelegationError> {
        DelegationRequest::new(Target::NewTask, "t1".into(), None, &Json::new(&message).unwrap(), None)
    }

    #[test]
    fn a_text_and_a_message_can_be_sent() {
        let parts = |message| request(message).unwrap().to_send_message().unwrap().message.parts;
        assert_eq!(parts(json!("hi")), [Part::text("hi")]);
        let message = json!({"parts": [{"type": "text", "text": "hi"}, {"type": "data", "data": {"n": 1}}]});
        assert_eq!(parts(message), [Part::text("hi"), Part::data(&json!({"n": 1})).unwrap()]);
    }

    #[test]
    fn an_invalid_message_is_refused_with_the_reason() {
        assert_eq!(request(json!("")).unwrap_err().to_string(), "message is required");
        assert!(request(json!(7)).unwrap_err().to_string().starts_with("`message` must be a text"));
        let empty = request(json!({"parts": []})).unwrap().to_send_message().unwrap_err().to_string();
        assert!(empty.contains("parts"), "{empty}");
    }
}
