//! The reply of the model, put together from the events of a stream.

use attache_core::AgentError;

use super::wire::{CallDelta, Chunk};

/// How many tools the model may call at once.
const MAX_CALLS: usize = 64;

/// How many bytes a reply may have: text, thoughts and tool calls together.
const MAX_SIZE: usize = 8 * 1024 * 1024;

/// How many bytes the name or the id of a tool call may have.
const MAX_NAME: usize = 1024;

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
    /// The index that the endpoint gives each call, if any.
    indices: Vec<Option<usize>>,
    size: usize,
}

/// What an event adds to the reply.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Added {
    pub(super) text: String,
    pub(super) thought: String,
}

impl Reply {
    /// Adds an event.
    pub(super) fn add(&mut self, chunk: Chunk) -> Result<Added, AgentError> {
        let thought = chunk.thought().unwrap_or_default().to_owned();
        if let Some(error) = chunk.error {
            return Err(AgentError::from(format!("the model endpoint reported an error: {error}")));
        }
        // The usage comes in an event without choices.
        let Some(choice) = chunk.choices.into_iter().next() else { return Ok(Added::default()) };
        let text = choice.delta.content.unwrap_or_default();
        self.grow(text.len() + thought.len())?;
        self.text.push_str(&text);
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
        Ok(Added { text, thought })
    }

    /// How many bytes have arrived: text, thoughts and tool calls.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    fn grow(&mut self, bytes: usize) -> Result<(), AgentError> {
        self.size += bytes;
        match self.size > MAX_SIZE {
            true => Err(AgentError::public(format!("the model wrote more than {MAX_SIZE} bytes"))),
            false => Ok(()),
        }
    }

    fn add_call(&mut self, delta: CallDelta) -> Result<(), AgentError> {
        let number = match self.continued(&delta) {
            Some(number) => number,
            None if self.calls.len() >= MAX_CALLS => {
                let text = format!("the model called more than {MAX_CALLS} tools at once");
                return Err(AgentError::public(text));
            }
            None => {
                self.calls.push(ToolCall::default());
                self.indices.push(delta.index);
                self.calls.len() - 1
            }
        };
        let [id, name, arguments] =
            [delta.id, delta.function.name, delta.function.arguments].map(Option::unwrap_or_default);
        self.grow(id.len() + name.len() + arguments.len())?;
        let call = &mut self.calls[number];
        if call.id.is_empty() {
            call.id = id;
        }
        // Some endpoints repeat the name in each piece.
        if call.name != name {
            call.name.push_str(&name);
        }
        call.arguments.push_str(&arguments);
        if call.id.len() > MAX_NAME || call.name.len() > MAX_NAME {
            let text = format!("the model called a tool with a name or an id of more than {MAX_NAME} bytes");
            return Err(AgentError::public(text));
        }
        if call.arguments.len() > MAX_ARGUMENTS {
            return Err(AgentError::public("the model called a tool with too many arguments"));
        }
        Ok(())
    }

    /// The call that a piece belongs to. `None` if it begins another one.
    fn continued(&self, delta: &CallDelta) -> Option<usize> {
        let id = delta.id.as_deref().filter(|id| !id.is_empty());
        let has_name = delta.function.name.as_ref().is_some_and(|name| !name.is_empty());
        // Calls with the same index, or all calls if there is none.
        let mut candidates =
            (0..self.calls.len()).rev().filter(|&number| self.indices[number] == delta.index);
        match (id, delta.index) {
            // Another id is another call, also under the same index.
            (Some(id), _) => candidates.find(|&number| {
                let known = &self.calls[number].id;
                known == id || known.is_empty() && !has_name
            }),
            (None, Some(_)) => candidates.next(),
            (None, None) if has_name => None,
            (None, None) => candidates.next(),
        }
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
        reply.add(serde_json::from_str(json).unwrap()).map(|added| added.text)
    }

    /// Adds pieces of tool calls, one in each event.
    fn add_calls(pieces: &[&str]) -> Result<Vec<(String, String, String)>, AgentError> {
        let mut reply = Reply::default();
        for piece in pieces {
            add(&mut reply, &format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{piece}]}}}}]}}"#))?;
        }
        Ok(reply.calls.into_iter().map(|call| (call.id, call.name, call.arguments)).collect())
    }

    fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.to_owned(), name.to_owned(), arguments.to_owned())
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
    fn parallel_calls_are_kept_apart_also_without_an_index_of_their_own() {
        let expected = [call("c1", "add", r#"{"a":1}"#), call("c2", "now", "{}")];
        let with_ids = [
            r#"{"id":"c1","function":{"name":"add","arguments":"{\"a\""}}"#,
            r#"{"function":{"arguments":":1}"}}"#,
            r#"{"id":"c2","function":{"name":"now","arguments":"{}"}}"#,
        ];
        assert_eq!(add_calls(&with_ids).unwrap(), expected);
        let repeated_ids = [
            r#"{"index":0,"id":"c1","function":{"name":"add","arguments":"{\"a\""}}"#,
            r#"{"index":0,"id":"c2","function":{"name":"now","arguments":"{}"}}"#,
            r#"{"index":0,"id":"c1","function":{"arguments":":1}"}}"#,
        ];
        assert_eq!(add_calls(&repeated_ids).unwrap(), expected);
        let without_ids = [
            r#"{"function":{"name":"add","arguments":"{\"a\""}}"#,
            r#"{"index":null,"id":"","function":{"arguments":":1}"}}"#,
            r#"{"function":{"name":"now","arguments":"{}"}}"#,
        ];
        assert_eq!(
            add_calls(&without_ids).unwrap(),
            expected.clone().map(|(_, name, arguments)| call("", &name, &arguments))
        );
        let repeated_names = [
            r#"{"index":0,"id":"c1","function":{"name":"add","arguments":"{\"a\""}}"#,
            r#"{"index":0,"id":"c1","function":{"name":"add","arguments":":1}"}}"#,
            r#"{"index":1,"function":{"name":"now"}}"#,
            r#"{"index":1,"id":"c2","function":{"arguments":"{}"}}"#,
        ];
        assert_eq!(add_calls(&repeated_names).unwrap(), expected);
        let from_one = [
            r#"{"index":1,"id":"c1","function":{"name":"add","arguments":"{\"a\""}}"#,
            r#"{"index":2,"id":"c2","function":{"name":"now","arguments":"{}"}}"#,
            r#"{"index":1,"function":{"arguments":":1}"}}"#,
        ];
        assert_eq!(add_calls(&from_one).unwrap(), expected);
    }

    #[test]
    fn what_a_model_can_make_us_keep_is_bounded() {
        let long = |length: usize| "x".repeat(length);
        let fails = |member: &str, piece: &str, allowed: usize| {
            let event = format!(r#"{{"choices":[{{"delta":{{"{member}":{piece}}}}}]}}"#);
            let mut reply = Reply::default();
            let count = (0..1000).take_while(|_| add(&mut reply, &event).is_ok()).count();
            assert_eq!(count, allowed, "{member}");
        };
        let half = format!("\"{}\"", long(MAX_SIZE / 2));
        fails("content", &half, 2);
        fails("reasoning_content", &half, 2);
        fails("reasoning", &half, 2);
        fails("tool_calls", r#"[{"function":{"name":"add"}}]"#, MAX_CALLS);
        let name = format!(r#"[{{"function":{{"name":"{}"}}}}]"#, long(MAX_NAME + 1));
        fails("tool_calls", &name, 0);
        let half_arguments =
            format!(r#"[{{"index":0,"function":{{"arguments":"{}"}}}}]"#, long(MAX_ARGUMENTS / 2));
        fails("tool_calls", &half_arguments, 2);
        assert!(add_calls(&[&format!(r#"{{"id":"{}"}}"#, long(MAX_NAME + 1))]).is_err());
        assert!(add_calls(&[r#"{"index":99999999999}"#]).is_ok(), "an index takes no memory");
    }
}
