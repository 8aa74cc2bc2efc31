//! What a caller wants sent, for agents of every generation.

use attache_iii::HOPS_EXTENSION;
use attache_protocol::{Dialect, Json, JsonObject, Request, SendMessageRequest, TaskId};
use serde::Serialize;
use serde_json::{Value, json};

use super::DelegationError;

/// Which task a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    /// One that it is to become.
    New,
    /// One that the agent has.
    Known,
}

/// A message on its way, and the task that it is for.
#[derive(Debug, Clone)]
pub(super) struct Errand {
    pub(super) aim: Aim,
    /// What the task is to be called, or what the agent calls it.
    pub(super) id: TaskId,
    pub(super) session: Option<String>,
    /// The message in the words of protocol 0.1.
    message: Value,
    pub(super) metadata: Option<JsonObject>,
}

impl Errand {
    /// `said` is a text, or a message of protocol 0.1: its parts, and what else it has.
    pub(super) fn new(
        aim: Aim,
        id: TaskId,
        session: Option<String>,
        said: &Json,
        metadata: Option<JsonObject>,
    ) -> Result<Self, DelegationError> {
        let mut message = match said.read::<Value>() {
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
        // Calls come through an engine, which does not say through how many agents the request has come before.
        message["metadata"][HOPS_EXTENSION] = json!(1);
        Ok(Self { aim, id, session, message, metadata })
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

    /// The same as a request of protocol 1.0. What is wrong with the message is said in the caller's words.
    pub(super) fn request(&self) -> Result<SendMessageRequest, DelegationError> {
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

    fn errand(said: Value) -> Result<Errand, DelegationError> {
        Errand::new(Aim::New, "t1".into(), None, &Json::new(&said).unwrap(), None)
    }

    #[test]
    fn a_text_and_a_message_can_be_sent() {
        let parts = |said| errand(said).unwrap().request().unwrap().message.parts;
        assert_eq!(parts(json!("hi")), [Part::text("hi")]);
        let message = json!({"parts": [{"type": "text", "text": "hi"}, {"type": "data", "data": {"n": 1}}]});
        assert_eq!(parts(message), [Part::text("hi"), Part::data(&json!({"n": 1})).unwrap()]);
    }

    #[test]
    fn an_invalid_message_is_refused_with_the_reason() {
        assert_eq!(errand(json!("")).unwrap_err().to_string(), "message is required");
        assert!(errand(json!(7)).unwrap_err().to_string().starts_with("`message` must be a text"));
        let empty = errand(json!({"parts": []})).unwrap().request().unwrap_err().to_string();
        assert!(empty.contains("parts"), "{empty}");
    }
}
