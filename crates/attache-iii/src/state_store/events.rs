//! Turns tasks into events: a log for a task without one, and the changes between two versions of a task.

use std::sync::Arc;

use attache_core::{Seq, TaskEvent};
use attache_protocol::{
    Artifact, Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
};

/// The longest log that is generated. A task with more events gets a log that starts again at 1.
const MAX_LOG: u64 = 100_000;

/// Generates a log that results in `task` and ends at `seq`. It ends later if the task needs more events.
///
/// Its last events are the artifacts and the status. So a reader that knows part of the real log gets what is missing.
pub(super) fn log(task: Task, seq: Seq) -> Vec<TaskEvent> {
    if seq.0 <= 1 && task.artifacts.is_empty() && !task.status.state.is_terminal() {
        return vec![TaskEvent::Created(Arc::new(task))];
    }
    let artifacts: Vec<TaskEvent> =
        task.artifacts.iter().map(|artifact| artifact_event(&task, artifact.clone())).collect();
    let status = status_event(&task, task.status.clone());
    let submitted =
        TaskStatus { state: TaskState::Submitted, message: None, timestamp: task.status.timestamp };
    let filler = status_event(&task, submitted.clone());
    let length = if seq.0 <= MAX_LOG { seq.0 as usize } else { 0 };
    let fillers = length.saturating_sub(artifacts.len() + 2);
    let created = Task { status: submitted, artifacts: Vec::new(), ..task };
    let fillers = std::iter::repeat_n(filler, fillers);
    let created = [TaskEvent::Created(Arc::new(created))];
    created.into_iter().chain(fillers).chain(artifacts).chain([status]).collect()
}

/// The events that lead from one version of a task to the next: messages, artifacts, then the status.
pub(super) fn changes(was: &Task, is: &Task) -> Vec<TaskEvent> {
    let known = |message: &Message| {
        let mut earlier = was.history.iter().chain(was.status.message.as_deref());
        earlier.any(|earlier| earlier.message_id == message.message_id)
    };
    let messages = is.history.iter().filter(|message| !known(message));
    let messages = messages.map(|message| TaskEvent::Message(Arc::new(message.clone())));
    let new = is.artifacts.iter().filter(|artifact| was.artifact(&artifact.artifact_id) != Some(artifact));
    let artifacts = new.map(|artifact| artifact_event(is, artifact.clone()));
    let status = (was.status != is.status).then(|| status_event(is, is.status.clone()));
    messages.chain(artifacts).chain(status).collect()
}

fn artifact_event(task: &Task, artifact: Artifact) -> TaskEvent {
    TaskEvent::Artifact(Arc::new(TaskArtifactUpdateEvent {
        task_id: task.id.clone(),
        context_id: task.context_id.clone().unwrap_or_default(),
        artifact,
        last_chunk: true,
        ..TaskArtifactUpdateEvent::default()
    }))
}

fn status_event(task: &Task, status: TaskStatus) -> TaskEvent {
    TaskEvent::Status(Arc::new(TaskStatusUpdateEvent {
        task_id: task.id.clone(),
        context_id: task.context_id.clone().unwrap_or_default(),
        status,
        ..TaskStatusUpdateEvent::default()
    }))
}
