//! What was said before in a conversation, for functions that answer in plain language.

use attache_core::{AgentError, Turn};
use attache_protocol::{Dialect, Message, Role, Task};
use serde::Deserialize;
use serde_json::value::RawValue;

/// How many earlier tasks of the conversation are told of.
const TASKS: usize = 20;

/// The largest history, in bytes: what was said first is left out.
const LARGEST: usize = 256 * 1024;

/// The messages of the earlier tasks of a conversation, oldest first, each with its `role` and `parts` in the words of
/// protocol 0.1. What an agent produced counts as said by it.
pub(crate) async fn history(turn: &Turn) -> Result<Box<RawValue>, AgentError> {
    let earlier = turn.earlier_tasks(TASKS).await?;
    // What was said in this task before comes last; this message is not part of it.
    let current = turn.task().map(|mut task| {
        let own = &turn.message().message_id;
        task.history.retain(|message| message.message_id != *own);
        task
    });
    let mut messages: Vec<Message> = earlier.into_iter().chain(current).flat_map(said).collect();
    loop {
        let written = write(&messages);
        if written.get().len() <= LARGEST || messages.is_empty() {
            return Ok(written);
        }
        messages.drain(..messages.len().div_ceil(2));
    }
}

/// What was said in a task, with what came of it as the last word.
fn said(task: Task) -> Vec<Message> {
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
    // A task can always be read back, and has a history.
    serde_json::from_slice(&text).map_or_else(|_| RawValue::NULL.to_owned(), |Written { history }| history)
}
