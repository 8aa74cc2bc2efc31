//! Results of functions that are more than data: a question, text, parts, a failure. A function returns
//! `{"a2a": {"ask": "Which size?"}}` or raises an error with this text.

use attache_core::{AgentResult, Turn};
use attache_protocol::{Json, Part};
use serde::Deserialize;

use crate::outcome::RUST_PREFIX;
use crate::{CallError, FunctionInfo};

/// What a function wants to happen with its task.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FunctionReply {
    /// Asks the caller. The answer starts the next call.
    Ask(String),
    /// Completes the task with text.
    Text(String),
    /// Completes the task with parts of protocol 1.0.
    Parts(Vec<Part>),
    /// Fails the task with these words.
    Fail(String),
    /// Rejects the task with these words.
    Reject(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped<T> {
    a2a: T,
}

/// What a streaming function reports beside its output.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Progress {
    progress: String,
}

impl FunctionReply {
    /// Reads a result. `None` if it is data.
    pub(crate) fn read(function: &FunctionInfo, value: &Json) -> Option<Self> {
        let wrapped = value.read::<Wrapped<Json>>().ok()?;
        match wrapped.a2a.read() {
            Ok(reply) => Some(reply),
            Err(error) => {
                let (function, error) = (&*function.id, error.to_string());
                tracing::warn!(function, error, "the member `a2a` of a result is passed on as data");
                None
            }
        }
    }

    /// Reads the text of an error. `None` if it is an ordinary error.
    pub(crate) fn read_error(function: &FunctionInfo, error: &CallError) -> Option<Self> {
        let CallError::Remote { message, .. } = error else { return None };
        let text = message.strip_prefix(RUST_PREFIX).unwrap_or(message);
        Self::read(function, &Json::parse(text).ok()?)
    }

    /// Does it. `name` is the name of an artifact.
    pub(crate) async fn apply(self, turn: &Turn, name: &str) -> AgentResult {
        match self {
            Self::Ask(text) => turn.ask(text).await,
            Self::Fail(text) => turn.fail(text).await,
            Self::Reject(text) => turn.reject(text).await,
            Self::Text(text) => {
                turn.artifact(name).part(Part::text(text).media_type("text/plain")).await?;
                turn.complete().await
            }
            Self::Parts(parts) => {
                if !parts.is_empty() {
                    turn.artifact(name).parts(parts).await?;
                }
                turn.complete().await
            }
        }
    }
}

/// The progress that a streaming function reports with the text `{"a2a": {"progress": "half done"}}`. `None` for other text.
pub(crate) fn progress(text: &str) -> Option<String> {
    if !text.starts_with('{') {
        return None;
    }
    let wrapped: Wrapped<Progress> = serde_json::from_str(text).ok()?;
    Some(wrapped.a2a.progress)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: &Value) -> Option<FunctionReply> {
        FunctionReply::read(&FunctionInfo::new("a::b"), &Json::new(value).unwrap())
    }

    #[test]
    fn only_the_documented_form_is_more_than_data() {
        assert_eq!(read(&json!({"a2a": {"ask": "which?"}})), Some(FunctionReply::Ask("which?".to_owned())));
        assert_eq!(
            read(&json!({"a2a": {"parts": [{"text": "a"}]}})),
            Some(FunctionReply::Parts(vec![Part::text("a")]))
        );
        for data in [
            json!({"a2a": {"ask": "which?"}, "more": 1}),
            json!({"a2a": {"aks": "which?"}}),
            json!({"a2a": "ask"}),
            json!({"ask": "which?"}),
            json!("a2a"),
            json!(null),
        ] {
            assert_eq!(read(&data), None, "{data}");
        }
    }

    #[test]
    fn an_error_can_carry_a_reply() {
        let function = FunctionInfo::new("a::b");
        let reply = |message: &str| {
            FunctionReply::read_error(&function, &CallError::remote("invocation_failed", message))
        };
        let fail = Some(FunctionReply::Fail("sold out".to_owned()));
        assert_eq!(reply(r#"{"a2a": {"fail": "sold out"}}"#), fail);
        assert_eq!(reply(r#"handler error: {"a2a": {"fail": "sold out"}}"#), fail);
        assert_eq!(reply("disk on fire"), None);
        assert_eq!(FunctionReply::read_error(&function, &CallError::TimedOut), None);
    }

    #[test]
    fn progress_is_told_from_output() {
        assert_eq!(progress(r#"{"a2a": {"progress": "half"}}"#).as_deref(), Some("half"));
        assert_eq!(progress(r#"{"progress": "half"}"#), None);
        assert_eq!(progress("half"), None);
    }
}
