//! From tasks to events: a log for a task that comes without one, and what happened between two looks at a task.

use std::sync::Arc;

use attache_core::{Seq, TaskEvent};
use attache_protocol::{
    Artifact, Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
};

/// The longest log that is made up. A task that has come further begins anew.
const MAX_LOG: u64 = 100_000;

/// A log that leads to `task` and ends at `seq`, or later if that is too soon for all that the task has.
///
/// Its last events bring the artifacts and the status, so that someone who has read a part of the true log gets what is missing.
pub(super) fn log(task: Task, seq: Seq) -> Vec<TaskEvent> {
    if seq.0 <= 1 && task.artifacts.is_empty() && !task.status.state.is_terminal() {
        return vec![TaskEvent::Created(Arc::new(task))];
    }
    let brought: Vec<TaskEvent> =
        task.artifacts.iter().map(|artifact| brings(&task, artifact.clone())).collect();
    let status = becomes(&task, task.status.clone());
    let begun = TaskStatus { state: TaskState::Submitted, message: None, timestamp: task.status.timestamp };
    let pause = becomes(&task, begun.clone());
    let length = if seq.0 <= MAX_LOG { seq.0 as usize } else { 0 };
    let pauses = length.saturating_sub(brought.len() + 2);
    let created = Task { status: begun, artifacts: Vec::new(), ..task };
    let pauses = std::iter::repeat_n(pause, pauses);
    let created = [TaskEvent::Created(Arc::new(created))];
    created.into_iter().chain(pauses).chain(brought).chain([status]).collect()
}

/// The events that lead from a task as it was to what it is: what was said, artifacts, then the status.
pub(super) fn changes(was: &Task, is: &Task) -> Vec<TaskEvent> {
    let known = |message: &Message| {
        let mut said = was.history.iter().chain(was.status.message.as_deref());
        said.any(|said| said.message_id == message.message_id)
    };
    let said = is.history.iter().filter(|message| !known(message));
    let said = said.map(|message| TaskEvent::Message(Arc::new(message.clone())));
    let new = is.artifacts.iter().filter(|artifact| was.artifact(&artifact.artifact_id) != Some(artifact));
    let brought = new.map(|artifact| brings(is, artifact.clone()));
    let status = (was.status != is.status).then(|| becomes(is, is.status.clone()));
    said.chain(brought).chain(status).collect()
}

fn brings(task: &Task, artifact: Artifact) -> TaskEvent {
    TaskEvent::Artifact(Arc::new(TaskArtifactUpdateEvent {
        task_id: task.id.clone(),
        context_id: task.context_id.clone().unwrap_or_default(),
        artifact,
        last_chunk: true,
        ..TaskArtifactUpdateEvent::default()
    }))
}

fn becomes(task: &Task, status: TaskStatus) -> TaskEvent {
    TaskEvent::Status(Arc::new(TaskStatusUpdateEvent {
        task_id: task.id.clone(),
        context_id: task.context_id.clone().unwrap_or_default(),
        status,
        ..TaskStatusUpdateEvent::default()
    }))
}
