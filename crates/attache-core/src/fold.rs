//! The state machine of a task, as a pure function.
//!
//! A terminal state is final. An artifact is replaced or grows. A status message moves into the history when the next status replaces
//! it, so that no message is lost.

use std::sync::Arc;

use attache_protocol::{Task, TaskArtifactUpdateEvent, TaskState};

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
            task.history.extend(old.message.map(|message| *message));
        }
        TaskEvent::Artifact(update) => artifact(task, Arc::unwrap_or_clone(update)),
    }
    Ok(())
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
