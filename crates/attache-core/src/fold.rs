//! The state machine of a task, as a pure function.
//!
//! A terminal state is final. An artifact is replaced or grows. A status message moves into the history when the next status replaces
//! it, so that no message is lost. A text can come as several status messages with one id: they are one message in the history.

use std::sync::Arc;

use attache_protocol::{Content, Message, Part, Role, Task, TaskArtifactUpdateEvent, TaskState};

use crate::TaskEvent;

/// Why an event cannot be applied to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// The task has ended. Its state is final.
    #[error("the task has ended in {0}")]
    Ended(TaskState),
    /// The event creates a task that exists already.
    #[error("the task exists already")]
    Exists,
}

/// Applies one event to a task. Data that only this event holds is moved, not copied.
pub fn fold(task: &mut Task, event: TaskEvent) -> Result<(), FoldError> {
    if task.status.state.is_terminal() {
        return Err(FoldError::Ended(task.status.state));
    }
    match event {
        TaskEvent::Created(_) => return Err(FoldError::Exists),
        TaskEvent::Message(message) => task.history.push(Arc::unwrap_or_clone(message)),
        TaskEvent::Status(update) => {
            let old = std::mem::replace(&mut task.status, Arc::unwrap_or_clone(update).status);
            if let Some(message) = old.message {
                add_to_history(&mut task.history, *message);
            }
        }
        TaskEvent::Artifact(update) => artifact(task, Arc::unwrap_or_clone(update)),
    }
    Ok(())
}

/// Adds a status message to the history. The pieces of a message, which have the same id and follow each other, are one message there.
fn add_to_history(history: &mut Vec<Message>, message: Message) {
    let is_piece = |last: &Message| {
        let is_agent = last.role == Role::Agent && message.role == Role::Agent;
        is_agent && !message.message_id.is_empty() && last.message_id == message.message_id
    };
    let Some(last) = history.last_mut().filter(|last| is_piece(last)) else {
        history.push(message);
        return;
    };
    for part in message.parts {
        match (last.parts.last_mut().filter(|last| is_plain(last)), &part.content) {
            (Some(Part { content: Content::Text(known), .. }), Content::Text(text)) if is_plain(&part) => {
                known.push_str(text);
            }
            (Some(_) | None, _) => last.parts.push(part),
        }
    }
    last.metadata = message.metadata.or(last.metadata.take());
}

/// Whether a part has nothing but its content.
fn is_plain(part: &Part) -> bool {
    part.filename.is_none() && part.media_type.is_none() && part.metadata.is_none()
}

fn artifact(task: &mut Task, update: TaskArtifactUpdateEvent) {
    let new = update.artifact;
    // The artifact that grows is nearly always the last one.
    match task.artifacts.iter_mut().rev().find(|known| known.artifact_id == new.artifact_id) {
        None => task.artifacts.push(new),
        Some(known) if !update.append => *known = new,
        Some(known) => {
            known.parts.extend(new.parts);
            known.name = new.name.or(known.name.take());
            known.description = new.description.or(known.description.take());
            known.metadata = new.metadata.or(known.metadata.take());
            for uri in new.extensions {
                if !known.extensions.contains(&uri) {
                    known.extensions.push(uri);
                }
            }
        }
    }
}
