//! Tests of the SQLite store beyond the contract of all stores.

mod crash;
mod full;
mod life;
mod maintenance;
mod opening;
mod outbox;
mod values;

use std::path::PathBuf;
use std::sync::Arc;

use attache_core::{
    Append, AppendError, Appended, Created, Entry, Lease, ListQuery, NewTask, Owner, Principal, PushEvents,
    Seq, Snapshot, Store, TailItem, TaskEvent, Webhook,
};
use attache_protocol::{
    Artifact, AuthenticationInfo, Message, Part, Task, TaskArtifactUpdateEvent, TaskId,
    TaskPushNotificationConfig, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};
use futures::StreamExt;
use tempfile::TempDir;

use super::{SqliteOptions, SqliteStore};
use crate::Keyring;

/// A folder with a store that can be closed and opened again.
struct StoreFolder {
    dir: TempDir,
    store: Option<SqliteStore>,
}

impl std::ops::Deref for StoreFolder {
    type Target = SqliteStore;

    fn deref(&self) -> &SqliteStore {
        self.store.as_ref().unwrap()
    }
}

impl StoreFolder {
    fn new() -> Self {
        let mut folder = Self { dir: tempfile::tempdir().unwrap(), store: None };
        folder.reopen();
        folder
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("data/tasks.db")
    }

    fn keyring(&self) -> Keyring {
        Keyring::from_file(self.dir.path().join("keyring.json")).unwrap()
    }

    fn options(&self) -> SqliteOptions {
        SqliteOptions::new(self.keyring())
    }

    fn close(&mut self) {
        self.store = None;
    }

    fn reopen(&mut self) {
        self.reopen_with(self.options());
    }

    fn reopen_with(&mut self, options: SqliteOptions) {
        self.close();
        self.store = Some(SqliteStore::open(self.path(), options).unwrap());
    }

    async fn put(&self, new: NewTask) -> (Seq, Lease) {
        match self.create(new).await.unwrap() {
            Created::New { seq, lease, .. } => (seq, lease),
            Created::KeyUsed(known) => panic!("known as {known:?}"),
            Created::Taken => panic!("the id is taken"),
        }
    }

    async fn add(&self, task: &str, after: Seq, events: Vec<TaskEvent>) -> Result<Appended, AppendError> {
        let append = Append { after, lease: None, idempotency: None, push: None, events, now: at(0) };
        self.append(&task.into(), append).await
    }

    async fn get(&self, task: &str) -> Option<Snapshot> {
        self.load(&owner(), &task.into()).await.unwrap()
    }

    async fn ids(&self, query: ListQuery) -> Vec<String> {
        let page = self.list(&owner(), &query).await.unwrap();
        page.tasks.iter().map(|task| task.task().id.to_string()).collect()
    }

    /// Up to `until` events after a position, or all up to the end of the task.
    async fn events(&self, task: &str, after: u64, until: usize) -> Vec<Arc<Entry>> {
        let mut tail = self.tail(&task.into(), Seq(after));
        let mut events = Vec::new();
        while events.len() < until
            && let Some(item) = tail.next().await
        {
            match item.unwrap() {
                TailItem::Entries(entries) => events.extend(entries),
                TailItem::Reset(snapshot) => panic!("reset to {snapshot:?}"),
            }
        }
        events
    }
}

fn owner() -> Owner {
    Owner { tenant: Some("acme".into()), principal: Principal::named("ann"), ..Owner::default() }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::new(1_790_000_000 + seconds, 0).unwrap()
}

fn all() -> ListQuery {
    ListQuery { limit: 100, ..ListQuery::default() }
}

fn created(id: &str, seconds: i64) -> TaskEvent {
    let status = TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(at(seconds)) };
    let history = vec![Message::user(format!("m-{id}"), "hello")];
    let task = Task { id: id.into(), context_id: Some("c".into()), status, history, ..Task::default() };
    TaskEvent::Created(Arc::new(task))
}

fn status(id: &str, state: TaskState, seconds: i64) -> TaskEvent {
    TaskEvent::Status(Arc::new(TaskStatusUpdateEvent {
        task_id: id.into(),
        context_id: "c".into(),
        status: TaskStatus { state, message: None, timestamp: Some(at(seconds)) },
        ..TaskStatusUpdateEvent::default()
    }))
}

fn chunk(id: &str, text: impl Into<String>) -> TaskEvent {
    TaskEvent::Artifact(Arc::new(TaskArtifactUpdateEvent {
        task_id: id.into(),
        context_id: "c".into(),
        artifact: Artifact {
            artifact_id: "a".to_owned(),
            parts: vec![Part::text(text.into())],
            ..Artifact::default()
        },
        append: true,
        ..TaskArtifactUpdateEvent::default()
    }))
}

fn new_task(events: Vec<TaskEvent>) -> NewTask {
    NewTask {
        owner: owner(),
        events,
        now: at(0),
        followed: false,
        lease_until: at(60),
        idempotency: None,
        push: None,
    }
}

/// A task that has not ended.
fn live(id: &str) -> NewTask {
    new_task(vec![created(id, 0)])
}

/// A task that is created ended.
fn ended(id: &str, seconds: i64) -> NewTask {
    let end = status(id, TaskState::Completed, seconds);
    new_task(vec![created(id, seconds), chunk(id, "result"), end])
}

fn webhook(task: &str, id: &str, host: &str) -> Webhook {
    Webhook {
        config: TaskPushNotificationConfig {
            tenant: None,
            id: Some(id.to_owned()),
            task_id: Some(TaskId::from(task)),
            url: format!("https://{host}/hook"),
            token: Some("t0ken-of-the-hook".to_owned()),
            authentication: Some(AuthenticationInfo {
                scheme: "Bearer".to_owned(),
                credentials: Some("cr3dentials-of-the-hook".to_owned()),
            }),
        },
        events: PushEvents::States,
        dialect: None,
        trace_parent: None,
    }
}
