//! What was said in a conversation before a message, for a process that does not know it.

use attache_core::{AgentError, Turn};
use attache_protocol::{Message, Role, Task};
use serde_json::{Value, json};

/// How many earlier tasks are looked at.
const MAX_TASKS: usize = 100;

/// How many bytes of messages of earlier tasks a program gets.
const MAX_EARLIER: usize = 256 * 1024;

/// The messages and answers of the earlier tasks of the conversation, the latest that fit, and then the messages of the same task.
pub(super) async fn before(turn: &Turn) -> Result<Vec<Value>, AgentError> {
    let tasks = turn.earlier_tasks(MAX_TASKS).await?;
    let mut history = latest(tasks.iter().flat_map(messages_of).collect(), MAX_EARLIER);
    let own = turn.task().map(|task| task.history).unwrap_or_default();
    let earlier = own.iter().filter(|earlier| earlier.message_id != turn.message().message_id);
    history.extend(earlier.map(|message| json!(message)));
    Ok(history)
}

/// The last messages, of at most so many bytes in all.
fn latest(mut messages: Vec<Value>, limit: usize) -> Vec<Value> {
    let mut size = 0;
    let fits = messages.iter().rev().take_while(|message| {
        size += message.to_string().len();
        size <= limit
    });
    let count = fits.count();
    messages.split_off(messages.len() - count)
}

/// What was said in a task, and the texts that the agent made.
fn messages_of(task: &Task) -> Vec<Value> {
    let said = task.history.iter().chain(task.status.message.as_deref());
    let mut messages: Vec<Value> = said.map(|message| json!(message)).collect();
    for artifact in task.artifacts.iter().filter(|artifact| !artifact.text().is_empty()) {
        messages.push(json!(Message {
            message_id: artifact.artifact_id.clone(),
            context_id: task.context_id.clone(),
            task_id: Some(task.id.clone()),
            role: Role::Agent,
            parts: vec![artifact.text().into()],
            ..Message::default()
        }));
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_messages_that_fit_are_kept() {
        let messages = || vec![json!("aaaa"), json!("bbbb"), json!("cccc")];
        assert_eq!(latest(messages(), 18), messages());
        assert_eq!(latest(messages(), 17), messages()[1..]);
        assert_eq!(latest(messages(), 5), Vec::<Value>::new());
    }
}
