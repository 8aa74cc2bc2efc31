//! Where a subject keeps its tasks, and files that were filled with tasks before it starts.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use attache::core::{Clock, Created, NewTask, Owner, Store, StoreError, SystemClock, TaskEvent};
use attache::prelude::{Artifact, Message, Part, Task, TaskState};
use attache::protocol::{ContextId, TaskArtifactUpdateEvent, TaskId, TaskStatus, TaskStatusUpdateEvent};
use attache::store::{KeyringSource, StoreOptions, StoreRegistry, StoreUrl};
use futures::{StreamExt, TryStreamExt, stream};
use tempfile::TempDir;
use uuid::Uuid;

use crate::machine::{self, Cores};
use crate::report::grouped;

/// Files are made here, because a directory for temporary files may be in memory.
const DIRECTORY: &str = "target/bench";

/// How many tasks are on their way into a file at once: they share its commits.
const AT_ONCE: usize = 4_096;

/// How many of a file's tasks are remembered by id.
const REMEMBERED: u64 = 100_000;

/// Opens a store. The secrets of webhooks, of which no work has any, are lost with the process.
pub(crate) async fn open(at: &StoreUrl) -> Result<Arc<dyn Store>> {
    Ok(StoreRegistry::built_in().open(at, &StoreOptions::new(KeyringSource::Ephemeral)).await?)
}

/// A SQLite file on disk. It is removed, and what is beside it, when this is dropped.
pub(crate) struct File {
    directory: TempDir,
}

impl File {
    pub(crate) fn new() -> Result<Self> {
        fs::create_dir_all(DIRECTORY).with_context(|| format!("making `{DIRECTORY}`"))?;
        if machine::is_in_memory(Path::new(DIRECTORY)) {
            eprintln!("note: `{DIRECTORY}` is in memory; what is written there says nothing about a disk");
        }
        let directory = tempfile::Builder::new()
            .prefix("sqlite-")
            .tempdir_in(DIRECTORY)
            .with_context(|| format!("making a directory in `{DIRECTORY}`"))?;
        Ok(Self { directory })
    }

    /// The store in it.
    pub(crate) fn store(&self) -> StoreUrl {
        StoreUrl::sqlite(self.directory.path().join("tasks.db"))
    }
}

/// A file full of tasks.
pub(crate) struct Filled {
    file: File,
    pub(crate) count: u64,
    /// The ids of some of them, from all over the file.
    pub(crate) ids: Vec<String>,
}

impl Filled {
    /// Makes a file with `count` finished tasks, as the bench agent would leave them.
    pub(crate) async fn new(count: u64, cores: Cores) -> Result<Self> {
        let file = File::new()?;
        // The threads of the store on one core, what they are given is made on the other.
        let store = machine::on_the_server_core(cores, open(&file.store())).await??;
        let begun = Instant::now();
        let (mut ids, mut kept) = (Vec::new(), 0);
        let mut keeping = stream::iter((0..count).map(|nth| keep(&*store, nth))).buffer_unordered(AT_ONCE);
        while let Some(id) = keeping.try_next().await? {
            if is_remembered(kept, count) {
                ids.push(id.to_string());
            }
            kept += 1;
            if kept.is_multiple_of(100_000) {
                let (kept, count) = (grouped(&kept.to_string()), grouped(&count.to_string()));
                eprintln!("{kept} of {count} tasks stored after {:.0} s", begun.elapsed().as_secs_f64());
            }
        }
        Ok(Self { file, count, ids })
    }

    /// The store in it.
    pub(crate) fn store(&self) -> StoreUrl {
        self.file.store()
    }
}

/// Whether the id of a file's `nth` task is one of those remembered: at even distances, all of them if there are few.
fn is_remembered(nth: u64, count: u64) -> bool {
    nth.is_multiple_of((count / REMEMBERED).max(1))
}

async fn keep(store: &dyn Store, nth: u64) -> Result<TaskId> {
    let (id, task) = finished(nth);
    match store.create(task).await.map_err(|StoreError(why)| anyhow::anyhow!("storing a task: {why}"))? {
        Created::New { .. } => Ok(id),
        Created::KeyUsed(_) | Created::Taken => bail!("a new task was already known"),
    }
}

/// A task that was asked for, answered with an artifact and completed.
fn finished(nth: u64) -> (TaskId, NewTask) {
    let (id, context) = (TaskId::from(new_id()), ContextId::from(new_id()));
    let now = SystemClock.now();
    let status = |state| TaskStatus { state, message: None, timestamp: Some(now) };
    let parts = vec![Part::text(crate::works::SMALL)];
    let message = Message {
        context_id: Some(context.clone()),
        task_id: Some(id.clone()),
        ..Message::user(format!("bench-{nth:016x}"), crate::works::SMALL)
    };
    let created = Task {
        id: id.clone(),
        context_id: Some(context.clone()),
        status: status(TaskState::Submitted),
        history: vec![message],
        ..Task::default()
    };
    let artifact = TaskArtifactUpdateEvent {
        task_id: id.clone(),
        context_id: context.clone(),
        artifact: Artifact {
            artifact_id: "echo".into(),
            name: Some("echo".into()),
            parts,
            ..Artifact::default()
        },
        last_chunk: true,
        ..TaskArtifactUpdateEvent::default()
    };
    let completed = TaskStatusUpdateEvent {
        task_id: id.clone(),
        context_id: context,
        status: status(TaskState::Completed),
        ..TaskStatusUpdateEvent::default()
    };
    let task = NewTask {
        owner: Owner::default(),
        events: vec![
            TaskEvent::Created(Arc::new(created)),
            TaskEvent::Artifact(Arc::new(artifact)),
            TaskEvent::Status(Arc::new(completed)),
        ],
        now,
        followed: false,
        lease_until: now,
        idempotency: None,
        push: None,
    };
    (id, task)
}

fn new_id() -> String {
    Uuid::now_v7().to_string()
}

#[cfg(test)]
mod tests {
    use attache::core::MemoryStore;

    use super::*;

    #[test]
    fn the_ids_remembered_are_from_all_over_the_file() {
        let remembered = |count| (0..count).filter(|nth| is_remembered(*nth, count)).collect::<Vec<_>>();
        assert_eq!(remembered(10_000).len(), 10_000);
        let of_many = remembered(1_000_000);
        assert_eq!((of_many.len(), of_many.first(), of_many.last()), (100_000, Some(&0), Some(&999_990)));
    }

    #[tokio::test]
    async fn tasks_are_stored_finished() {
        let store = MemoryStore::new();
        let id = keep(&store, 7).await.unwrap();
        let task = store.load(&Owner::default(), &id).await.unwrap().expect("it was stored");
        assert_eq!(task.task().status.state, TaskState::Completed);
    }
}
