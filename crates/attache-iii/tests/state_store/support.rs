//! An engine in this process, stores on it, and a link between them that can be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use attache_core::{
    Append, AppendError, Appended, BoxFuture, Created, Lease, ListQuery, MemoryStore, NewTask, Owner,
    Principal, Seq, Snapshot, Store, TaskEvent, View,
};
use attache_iii::engine::{Engine, EngineOptions};
use attache_iii::{CallError, Channel, FunctionCall, Functions, StateStore, Updates};
use attache_protocol::{
    Artifact, ContextId, Message, Part, Task, TaskArtifactUpdateEvent, TaskId, TaskState, TaskStatus,
    TaskStatusUpdateEvent, Timestamp,
};
use parking_lot::Mutex;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// A time in 2026, plus this many seconds.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_767_300_000_000 + seconds * 1000)
}

pub(crate) fn id(text: &str) -> TaskId {
    TaskId::from(text)
}

pub(crate) fn anonymous() -> Owner {
    Owner::default()
}

pub(crate) fn ann() -> Owner {
    Owner { tenant: Some("acme".into()), principal: Principal::named("ann"), ..Owner::default() }
}

/// An engine with its own state.
#[derive(Clone)]
pub(crate) struct Setup(pub(crate) Engine);

impl Setup {
    pub(crate) fn new() -> Self {
        Self(Engine::new(Arc::new(MemoryStore::default()), EngineOptions::default()))
    }

    /// A store of a new process.
    pub(crate) fn store(&self) -> StateStore {
        StateStore::new(self.0.clone())
    }

    pub(crate) async fn call(&self, function: &str, payload: Value) -> Box<RawValue> {
        let payload = to_raw_value(&payload).unwrap();
        let call =
            FunctionCall { function, payload: &payload, timeout: Duration::from_secs(5), trace_parent: None };
        self.0.call(call).await.unwrap()
    }

    /// The value in the state for a task.
    pub(crate) async fn stored(&self, task: &str) -> Value {
        serde_json::from_str(&self.stored_text(task).await).unwrap()
    }

    pub(crate) async fn stored_text(&self, task: &str) -> String {
        self.call("state::get", json!({ "scope": "a2a:tasks", "key": task })).await.get().to_owned()
    }

    /// Writes a value into the state as the older worker does.
    pub(crate) async fn put(&self, task: &str, value: Value) {
        self.call("state::set", json!({ "scope": "a2a:tasks", "key": task, "data": value })).await;
    }
}

/// What happens to calls of the state.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LinkState {
    Open,
    /// The engine is not reachable.
    Cut,
    /// Writes are rejected.
    Refused,
    /// Writes of this task are delayed.
    Slow(&'static str, Duration),
}

/// The link to an engine.
#[derive(Clone)]
pub(crate) struct Link {
    engine: Engine,
    state: Arc<Mutex<LinkState>>,
    writes: Arc<AtomicUsize>,
}

impl Link {
    pub(crate) fn to(setup: &Setup) -> Self {
        Self { engine: setup.0.clone(), state: Arc::new(Mutex::new(LinkState::Open)), writes: Arc::default() }
    }

    pub(crate) fn store(&self) -> StateStore {
        StateStore::new(self.clone())
    }

    pub(crate) fn is(&self, state: LinkState) {
        *self.state.lock() = state;
    }

    /// The number of writes.
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }
}

impl Functions for Link {
    fn call<'a>(&'a self, call: FunctionCall<'a>) -> BoxFuture<'a, Result<Box<RawValue>, CallError>> {
        assert_eq!(call.timeout, Duration::from_secs(5));
        Box::pin(async move {
            let writes = call.function == "state::set";
            let state = self.state.lock().clone();
            match state {
                LinkState::Cut => return Err(CallError::Disconnected),
                LinkState::Refused if writes => {
                    return Err(CallError::remote("VALUE_TOO_LARGE", "too large"));
                }
                LinkState::Slow(task, by) if writes && call.payload.get().contains(&format!("{task:?}")) => {
                    tokio::time::sleep(by).await;
                }
                LinkState::Open | LinkState::Refused | LinkState::Slow(..) => {}
            }
            self.writes.fetch_add(usize::from(writes), Ordering::SeqCst);
            self.engine.call(call).await
        })
    }

    fn open_channel(&self) -> BoxFuture<'_, Result<Channel, CallError>> {
        self.engine.open_channel()
    }

    fn updates(&self) -> Updates {
        self.engine.updates()
    }
}

/// A working task of an anonymous owner, with a lease of 30 seconds.
pub(crate) fn task(name: &str) -> NewTask {
    let task = Task {
        id: id(name),
        context_id: Some(ContextId::from("c")),
        status: TaskStatus { state: TaskState::Working, message: None, timestamp: Some(at(0)) },
        history: vec![Message::user("m-1", "hi")],
        ..Task::default()
    };
    NewTask {
        owner: anonymous(),
        events: vec![TaskEvent::Created(Arc::new(task))],
        now: at(0),
        followed: true,
        lease_until: at(30),
        idempotency: None,
        push: None,
    }
}

pub(crate) fn status(task: &str, state: TaskState, seconds: i64) -> TaskEvent {
    let message = Message::agent(format!("s-{seconds}"), format!("at {seconds}"));
    TaskEvent::Status(Arc::new(TaskStatusUpdateEvent {
        task_id: id(task),
        context_id: ContextId::from("c"),
        status: TaskStatus { state, message: Some(Box::new(message)), timestamp: Some(at(seconds)) },
        ..TaskStatusUpdateEvent::default()
    }))
}

pub(crate) fn artifact(task: &str, name: &str, part: impl Into<Part>) -> TaskEvent {
    let artifact = Artifact { artifact_id: name.to_owned(), parts: vec![part.into()], ..Artifact::default() };
    TaskEvent::Artifact(Arc::new(TaskArtifactUpdateEvent {
        task_id: id(task),
        context_id: ContextId::from("c"),
        artifact,
        ..TaskArtifactUpdateEvent::default()
    }))
}

/// Shorter calls of a store, for tests.
pub(crate) trait StoreExt: Store {
    async fn created(&self, new: NewTask) -> (Seq, Lease) {
        match self.create(new).await.unwrap() {
            Created::New { seq, lease, .. } => (seq, lease),
            other @ (Created::KeyUsed(_) | Created::Taken) => panic!("{other:?}"),
        }
    }

    /// Appends at the end of the log.
    async fn add(&self, task: &str, after: Seq, events: Vec<TaskEvent>) -> Result<Appended, AppendError> {
        let append = Append { after, lease: None, idempotency: None, push: None, events, now: at(1) };
        self.append(&id(task), append).await
    }

    async fn found(&self, task: &str) -> Snapshot {
        self.load(&anonymous(), &id(task)).await.unwrap().expect("a task")
    }

    async fn listed(&self, owner: &Owner) -> Vec<String> {
        let query = ListQuery { limit: 100, view: View::FULL, ..ListQuery::default() };
        let page = self.list(owner, &query).await.unwrap();
        page.tasks.iter().map(|task| task.task().id.to_string()).collect()
    }

    async fn left_behind(&self, seconds: i64) -> Vec<String> {
        let abandoned = self.abandoned(None, at(seconds), 100).await.unwrap();
        abandoned.iter().map(|abandoned| abandoned.task.task().id.to_string()).collect()
    }
}

impl StoreExt for StateStore {}

/// A task as the older worker writes it.
pub(crate) fn older(name: &str, state: &str, seconds: i64) -> Value {
    json!({
        "id": name,
        "status": {
            "state": state,
            "timestamp": at(seconds),
            "message": { "messageId": "p", "role": "agent", "parts": [{ "text": "Processing..." }] },
        },
        "history": [{
            "messageId": "m-1",
            "role": "user",
            "parts": [{ "data": { "function_id": "pricing::quote", "payload": { "sku": "A" } } }],
        }],
    })
}

/// A completed task as the older worker writes it.
pub(crate) fn older_completed(name: &str, seconds: i64) -> Value {
    let mut task = older(name, "completed", seconds);
    task["status"].as_object_mut().unwrap().remove("message");
    task["artifacts"] = json!([{
        "artifactId": "a-1",
        "name": "pricing::quote",
        "parts": [{ "mediaType": "application/json", "text": "{\n  \"price\": 42\n}" }],
    }]);
    task
}
