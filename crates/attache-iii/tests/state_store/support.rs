//! An engine in this process, stores on it, and a way between them that can be cut.

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

/// So many seconds after some morning in 2026.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_767_300_000_000 + seconds * 1000)
}

pub(crate) fn id(text: &str) -> TaskId {
    TaskId::from(text)
}

pub(crate) fn nobody() -> Owner {
    Owner::default()
}

pub(crate) fn ann() -> Owner {
    Owner { tenant: Some("acme".into()), principal: Principal::named("ann") }
}

/// An engine with a state of its own.
#[derive(Clone)]
pub(crate) struct House(pub(crate) Engine);

impl House {
    pub(crate) fn new() -> Self {
        Self(Engine::new(Arc::new(MemoryStore::default()), EngineOptions::default()))
    }

    /// A store of a process that has just begun.
    pub(crate) fn store(&self) -> StateStore {
        StateStore::new(self.0.clone())
    }

    pub(crate) async fn call(&self, function: &str, payload: Value) -> Box<RawValue> {
        let payload = to_raw_value(&payload).unwrap();
        let call = FunctionCall { function, payload: &payload, timeout: Duration::from_secs(5) };
        self.0.call(call).await.unwrap()
    }

    /// What is in the state under a task's id.
    pub(crate) async fn kept(&self, task: &str) -> Value {
        serde_json::from_str(&self.kept_text(task).await).unwrap()
    }

    pub(crate) async fn kept_text(&self, task: &str) -> String {
        self.call("state::get", json!({ "scope": "a2a:tasks", "key": task })).await.get().to_owned()
    }

    /// Writes into the state as the older worker does.
    pub(crate) async fn keep(&self, task: &str, value: Value) {
        self.call("state::set", json!({ "scope": "a2a:tasks", "key": task, "data": value })).await;
    }
}

/// What becomes of calls to the state.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Way {
    Open,
    /// The engine is away.
    Cut,
    /// What is to be kept is refused.
    Refused,
    /// What is to be kept for this task gets there later.
    Slow(&'static str, Duration),
}

/// The way to an engine.
#[derive(Clone)]
pub(crate) struct Link {
    engine: Engine,
    way: Arc<Mutex<Way>>,
    writes: Arc<AtomicUsize>,
}

impl Link {
    pub(crate) fn to(house: &House) -> Self {
        Self { engine: house.0.clone(), way: Arc::new(Mutex::new(Way::Open)), writes: Arc::default() }
    }

    pub(crate) fn store(&self) -> StateStore {
        StateStore::new(self.clone())
    }

    pub(crate) fn is(&self, way: Way) {
        *self.way.lock() = way;
    }

    /// How often something was written.
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }
}

impl Functions for Link {
    fn call<'a>(&'a self, call: FunctionCall<'a>) -> BoxFuture<'a, Result<Box<RawValue>, CallError>> {
        assert_eq!(call.timeout, Duration::from_secs(5));
        Box::pin(async move {
            let writes = call.function == "state::set";
            let way = self.way.lock().clone();
            match way {
                Way::Cut => return Err(CallError::Disconnected),
                Way::Refused if writes => return Err(CallError::remote("VALUE_TOO_LARGE", "too large")),
                Way::Slow(task, by) if writes && call.payload.get().contains(&format!("{task:?}")) => {
                    tokio::time::sleep(by).await;
                }
                Way::Open | Way::Refused | Way::Slow(..) => {}
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

/// A task of nobody's, at work since the morning, whose turn is believed to be alive for half a minute.
pub(crate) fn task(name: &str) -> NewTask {
    let task = Task {
        id: id(name),
        context_id: Some(ContextId::from("c")),
        status: TaskStatus { state: TaskState::Working, message: None, timestamp: Some(at(0)) },
        history: vec![Message::user("m-1", "hi")],
        ..Task::default()
    };
    NewTask {
        owner: nobody(),
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

/// What tests ask of a store, in fewer words.
pub(crate) trait Asked: Store {
    async fn created(&self, new: NewTask) -> (Seq, Lease) {
        match self.create(new).await.unwrap() {
            Created::New { seq, lease, .. } => (seq, lease),
            other @ (Created::KeyUsed(_) | Created::Taken) => panic!("{other:?}"),
        }
    }

    /// Appends where the log ends.
    async fn add(&self, task: &str, after: Seq, events: Vec<TaskEvent>) -> Result<Appended, AppendError> {
        let append = Append { after, lease: None, idempotency: None, push: None, events, now: at(1) };
        self.append(&id(task), append).await
    }

    async fn found(&self, task: &str) -> Snapshot {
        self.load(&nobody(), &id(task)).await.unwrap().expect("a task")
    }

    async fn listed(&self, owner: &Owner) -> Vec<String> {
        let query = ListQuery { limit: 100, view: View::FULL, ..ListQuery::default() };
        let page = self.list(owner, &query).await.unwrap();
        page.tasks.iter().map(|task| task.task().id.to_string()).collect()
    }

    async fn left_behind(&self, seconds: i64) -> Vec<String> {
        let abandoned = self.abandoned(at(seconds), 100).await.unwrap();
        abandoned.iter().map(|abandoned| abandoned.task.task().id.to_string()).collect()
    }
}

impl Asked for StateStore {}

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

/// A task that the older worker has ended.
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
