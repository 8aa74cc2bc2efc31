//! The history of a conversation, for functions that take plain language.

use attache_core::{AgentError, Turn};
use attache_protocol::{Dialect, Message, Role, Task};
use serde::Deserialize;
use serde_json::value::RawValue;

/// How many earlier tasks of the conversation are included.
const MAX_TASKS: usize = 20;

/// The largest history, in bytes. The oldest messages are dropped first.
const MAX_BYTES: usize = 256 * 1024;

/// The messages of the earlier tasks of a conversation, oldest first. Each has its `role` and `parts` in the format of protocol
/// 0.1. Artifacts count as messages of the agent.
pub(crate) async fn history(turn: &Turn) -> Result<Box<RawValue>, AgentError> {
    let earlier = turn.earlier_tasks(MAX_TASKS).await?;
    // The earlier messages of this task come last. The current message is not included.
    let current = turn.task().map(|mut task| {
        let own = &turn.message().message_id;
        task.history.retain(|message| message.message_id != *own);
        task
    });
    let mut messages: Vec<Message> = earlier.into_iter().chain(current).flat_map(messages_of).collect();
    loop {
        let written = write(&messages);
        if written.get().len() <= MAX_BYTES || messages.is_empty() {
            return Ok(written);
        }
        messages.drain(..messages.len().div_ceil(2));
    }
}

/// The messages of a task, followed by its artifacts and its status message.
fn messages_of(task: Task) -> Vec<Message> {
    let mut messages = task.history;
    let parts: Vec<_> = task.artifacts.into_iter().flat_map(|artifact| artifact.parts).collect();
    if !parts.is_empty() {
        messages.push(Message { role: Role::Agent, parts, ..Message::default() });
    }
    if let Some(last) = task.status.message
        && !messages.iter().any(|message| message.message_id == last.message_id)
    {
        messages.push(*last);
    }
    messages
}

fn write(messages: &[Message]) -> Box<RawValue> {
    #[derive(Deserialize)]
    struct Written {
        history: Box<RawValue>,
    }
    let task = Task { history: messages.to_vec(), ..Task::default() };
    let mut text = Vec::new();
    Dialect::V0_1.write_task(&task, &mut text);
    // An encoded task can always be parsed, and has a history.
    serde_json::from_slice(&text).map_or_else(|_| RawValue::NULL.to_owned(), |Written { history }| history)
}
