//! The reply of the model, put together from the events of a stream.

use attache_core::AgentError;

use super::wire::{CallDelta, Chunk};

/// How many tools the model may call at once.
const MAX_CALLS: usize = 64;

/// How many bytes of text a reply may have.
const MAX_TEXT: usize = 8 * 1024 * 1024;

/// How many bytes of arguments a tool call may have.
const MAX_ARGUMENTS: usize = 1024 * 1024;

/// Why the model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Finish {
    /// The reply is complete.
    #[default]
    Stop,
    /// The reply reached the length limit.
    Length,
    /// The provider filtered the reply.
    Filtered,
    /// The model waits for the results of tools.
    ToolCalls,
}

/// A tool that the model calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    /// JSON, as the model wrote it.
    pub(super) arguments: String,
}

/// The reply so far.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) text: String,
    pub(super) calls: Vec<ToolCall>,
    pub(super) finish: Finish,
    is_finished: bool,
}

impl Reply {
    /// Adds an event, and returns its text.
    pub(super) fn add(&mut self, chunk: Chunk) -> Result<String, AgentError> {
        if let Some(error) = chunk.error {
            return Err(AgentError::from(format!("the model endpoint reported an error: {error}")));
        }
        // The usage comes in an event without choices.
        let Some(choice) = chunk.choices.into_iter().next() else { return Ok(String::new()) };
        let text = choice.delta.content.unwrap_or_default();
        self.text.push_str(&text);
        if self.text.len() > MAX_TEXT {
            return Err(AgentError::public(format!("the model wrote more than {MAX_TEXT} bytes")));
        }
        for call in choice.delta.tool_calls.unwrap_or_default() {
            self.add_call(call)?;
        }
        if let Some(reason) = choice.finish_reason {
            self.is_finished = true;
            self.finish = match reason.as_str() {
                // Some endpoints say `stop` after tool calls.
                _ if !self.calls.is_empty() => Finish::ToolCalls,
                "length" => Finish::Length,
                "content_filter" => Finish::Filtered,
                _ => Finish::Stop,
            };
        }
        Ok(text)
    }

    fn add_call(&mut self, delta: CallDelta) -> Result<(), AgentError> {
        if delta.index >= MAX_CALLS {
            return Err(AgentError::public(format!("the model called more than {MAX_CALLS} tools at once")));
        }
        if self.calls.len() <= delta.index {
            self.calls.resize(delta.index + 1, ToolCall::default());
        }
        let call = &mut self.calls[delta.index];
        call.id.push_str(delta.id.as_deref().unwrap_or_default());
        call.name.push_str(delta.function.name.as_deref().unwrap_or_default());
        call.arguments.push_str(delta.function.arguments.as_deref().unwrap_or_default());
        if call.arguments.len() > MAX_ARGUMENTS {
            return Err(AgentError::public("the model called a tool with too many arguments"));
        }
        Ok(())
    }

    /// The id of a call. Some endpoints give none.
    pub(super) fn call_id(&self, number: usize) -> String {
        match self.calls.get(number) {
            Some(call) if !call.id.is_empty() => call.id.clone(),
            Some(_) | None => format!("call-{number}"),
        }
    }

    /// Fails if the stream ended before the model was done.
    pub(super) fn check_complete(&self) -> Result<(), AgentError> {
        match self.is_finished {
            true => Ok(()),
            false => Err(AgentError::public("the reply of the model broke off")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(reply: &mut Reply, json: &str) -> Result<String, AgentError> {
        reply.add(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn tool_calls_are_put_together_from_pieces() {
        let mut reply = Reply::default();
        for piece in [
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"add","arguments":"{\"a\""}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c2","function":{"name":"now","arguments":""}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}"#,
        ] {
            assert_eq!(add(&mut reply, piece).unwrap(), "");
        }
        assert_eq!(reply.finish, Finish::ToolCalls);
        assert_eq!((reply.calls[0].name.as_str(), reply.calls[0].arguments.as_str()), ("add", r#"{"a":1}"#));
        assert_eq!(reply.calls[1].id, "c2");
        assert!(reply.check_complete().is_ok());
    }

    #[test]
    fn a_stream_that_breaks_off_is_an_error() {
        let mut reply = Reply::default();
        assert_eq!(add(&mut reply, r#"{"choices":[{"delta":{"content":"half"}}]}"#).unwrap(), "half");
        assert!(reply.check_complete().is_err());
    }

    #[test]
    fn what_a_model_can_make_us_keep_is_bounded() {
        let mut reply = Reply::default();
        assert!(
            add(&mut reply, r#"{"choices":[{"delta":{"tool_calls":[{"index":99999999999}]}}]}"#).is_err()
        );
        let piece = format!(r#"{{"choices":[{{"delta":{{"content":"{}"}}}}]}}"#, "x".repeat(MAX_TEXT / 2));
        assert!(add(&mut reply, &piece).is_ok() && add(&mut reply, &piece).is_ok());
        assert!(add(&mut reply, &piece).is_err());
    }
}
