//! Builders for tasks, events and webhooks, and shorter calls of a store.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use attache_core::{
    Append, AppendError, Appended, Created, Cursor, Delivery, DeliveryId, Entry, Idempotency, Lease,
    ListQuery, NewTask, NewWebhook, Owner, Principal, PushEvents, PutWebhook, Seq, Snapshot, Store,
    StoreError, TailItem, TaskEvent, View, Webhook,
};
use attache_protocol::{
    Artifact, AuthenticationInfo, ContextId, Message, Part, Task, TaskArtifactUpdateEvent, TaskId,
    TaskPushNotificationConfig, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};
use futures::StreamExt;
use futures::stream::BoxStream;

/// A time: so many milliseconds after a fixed time in 2026.
pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_767_300_000_000 + millis)
}

/// An owner without a tenant.
pub(crate) fn named(name: &str) -> Owner {
    Owner { principal: Principal::named(name), ..Owner::default() }
}

pub(crate) fn id(text: &str) -> TaskId {
    TaskId::from(text)
}

/// Fails the test if a future does not finish in time.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("the call did not finish in time")
}

/// A task to create.
pub(crate) struct TaskBuilder(pub(crate) NewTask);

/// A working task of an anonymous owner, with a lease of one minute.
pub(crate) fn task(name: &str) -> TaskBuilder {
    let task = Task {
        id: id(name),
        context_id: Some(ContextId::from("c")),
        status: TaskStatus { state: TaskState::Working, message: None, timestamp: Some(at(0)) },
        history: vec![Message::user("m", "hi")],
        ..Task::default()
    };
    TaskBuilder(NewTask {
        owner: Owner::default(),
        events: vec![TaskEvent::Created(Arc::new(task))],
        now: at(0),
        followed: true,
        lease_until: at(60_000),
        idempotency: None,
        push: None,
    })
}

impl TaskBuilder {
    /// Changes the created task.
    pub(crate) fn changed(mut self, change: impl FnOnce(&mut Task)) -> Self {
        if let Some(TaskEvent::Created(task)) = self.0.events.first_mut() {
            change(Arc::make_mut(task));
        }
        self
    }

    pub(crate) fn of(mut self, owner: &Owner) -> Self {
        self.0.owner = owner.clone();
        self
    }

    pub(crate) fn in_context(self, context: &str) -> Self {
        self.changed(|task| task.context_id = Some(ContextId::from(context)))
    }

    pub(crate) fn state(self, state: TaskState) -> Self {
        self.changed(|task| task.status.state = state)
    }

    /// Sets the status time and the time of creation.
    pub(crate) fn since(mut self, millis: i64) -> Self {
        self.0.now = at(millis);
        self.changed(|task| task.status.timestamp = Some(at(millis)))
    }

    pub(crate) fn lease(mut self, until: i64) -> Self {
        self.0.lease_until = at(until);
        self
    }

    pub(crate) fn unfollowed(mut self) -> Self {
        self.0.followed = false;
        self
    }

    pub(crate) fn key(mut self, key: &str, fingerprint: u8) -> Self {
        self.0.idempotency = Some(idempotency(key, fingerprint));
        self
    }

    pub(crate) fn webhook(mut self, webhook: Webhook) -> Self {
        self.0.push = Some(webhook);
        self
    }

    /// Adds an event to the log that the task is created with.
    pub(crate) fn then(mut self, event: TaskEvent) -> Self {
        self.0.events.push(event);
        self
    }
}

pub(crate) fn idempotency(key: &str, fingerprint: u8) -> Idempotency {
    Idempotency { key: key.to_owned(), fingerprint: [fingerprint; 32] }
}

pub(crate) fn status(task: &str, state: TaskState, millis: i64) -> TaskEvent {
    says(task, state, millis, None)
}

pub(crate) fn says(task: &str, state: TaskState, millis: i64, text: Option<&str>) -> TaskEvent {
    let message = text.map(|text| Box::new(Message::agent(format!("of-{millis}"), text)));
    TaskEvent::Status(Arc::new(TaskStatusUpdateEvent {
        task_id: id(task),
        context_id: ContextId::from("c"),
        status: TaskStatus { state, message, timestamp: Some(at(millis)) },
        ..TaskStatusUpdateEvent::default()
    }))
}

/// An event that appends text to an artifact.
pub(crate) fn chunk(task: &str, artifact: &str, text: &str) -> TaskEvent {
    TaskEvent::Artifact(Arc::new(TaskArtifactUpdateEvent {
        task_id: id(task),
        context_id: ContextId::from("c"),
        artifact: Artifact {
            artifact_id: artifact.to_owned(),
            parts: vec![Part::text(text)],
            ..Artifact::default()
        },
        append: true,
        ..TaskArtifactUpdateEvent::default()
    }))
}

pub(crate) fn message(text: &str) -> TaskEvent {
    TaskEvent::Message(Arc::new(Message::user(text, text)))
}

/// Events to append.
pub(crate) struct AppendBuilder(pub(crate) Append);

/// Events to append after a position.
pub(crate) fn more(after: u64, events: impl IntoIterator<Item = TaskEvent>) -> AppendBuilder {
    let events = events.into_iter().collect();
    AppendBuilder(Append {
        after: Seq(after),
        lease: None,
        idempotency: None,
        push: None,
        events,
        now: at(0),
    })
}

impl AppendBuilder {
    pub(crate) fn by(mut self, lease: Lease) -> Self {
        self.0.lease = Some(lease);
        self
    }

    pub(crate) fn key(mut self, owner: &Owner, key: &str, fingerprint: u8) -> Self {
        self.0.idempotency = Some((owner.clone(), idempotency(key, fingerprint)));
        self
    }

    pub(crate) fn with_webhook(mut self, webhook: Webhook, limit: usize) -> Self {
        self.0.push = Some(NewWebhook { webhook, limit });
        self
    }

    pub(crate) fn now(mut self, millis: i64) -> Self {
        self.0.now = at(millis);
        self
    }
}

/// A webhook of `task` with secrets. Its URL has the host `receiver`.
pub(crate) fn webhook(task: &str, name: &str, receiver: &str, events: PushEvents) -> Webhook {
    let config = TaskPushNotificationConfig {
        tenant: None,
        id: Some(name.to_owned()),
        task_id: Some(id(task)),
        url: format!("https://{receiver}/{name}"),
        token: Some(format!("token of {name}")),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials: Some(format!("secret of {name}")),
        }),
    };
    Webhook { config, events, dialect: None, trace_parent: None }
}

/// The result of creating a task.
pub(crate) struct CreatedTask {
    pub(crate) seq: Seq,
    pub(crate) lease: Lease,
    pub(crate) settled: Option<Snapshot>,
}

/// A store that is open, with shorter calls for tests.
#[derive(Clone)]
pub struct TestStore(Arc<dyn Store>);

impl Deref for TestStore {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl TestStore {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self(store)
    }

    /// Creates a task.
    pub(crate) async fn make(&self, draft: TaskBuilder) -> CreatedTask {
        match self.create(draft.0).await.expect("a task that is kept") {
            Created::New { seq, lease, settled } => CreatedTask { seq, lease, settled },
            Created::KeyUsed(known) => panic!("the key is known: {known:?}"),
            Created::Taken => panic!("the id is taken"),
        }
    }

    /// Appends events.
    pub(crate) async fn add(&self, task: &str, more: AppendBuilder) -> Result<Appended, AppendError> {
        self.append(&id(task), more.0).await
    }

    /// Appends events at the current end of the log, with retries. Returns the new end.
    pub(crate) async fn add_anywhere(&self, task: &str, events: Vec<TaskEvent>, now: i64) -> u64 {
        let mut after = 1;
        loop {
            match self.add(task, more(after, events.clone()).now(now)).await {
                Ok(appended) => return appended.seq.0,
                Err(AppendError::Conflict(seq)) => after = seq.0,
                Err(error) => panic!("{task}: {error}"),
            }
        }
    }

    /// A task of the anonymous owner.
    pub(crate) async fn find(&self, task: &str) -> Option<Snapshot> {
        self.load(&Owner::default(), &id(task)).await.expect("an answer")
    }

    pub(crate) async fn get(&self, task: &str) -> Snapshot {
        self.find(task).await.unwrap_or_else(|| panic!("there is no task `{task}`"))
    }

    /// The next `count` events after a position.
    pub(crate) async fn read(&self, task: &str, after: u64, count: usize) -> Vec<Arc<Entry>> {
        let mut tail = self.tail(&id(task), Seq(after));
        let mut all = Vec::new();
        while all.len() < count {
            let item = soon(tail.next()).await.unwrap_or_else(|| panic!("`{task}` ended at {}", all.len()));
            all.extend(entries(item));
        }
        all
    }

    /// All events after a position, up to the end of the task.
    pub(crate) async fn read_on(&self, task: &str, after: u64) -> Vec<Arc<Entry>> {
        rest(self.tail(&id(task), Seq(after))).await
    }

    pub(crate) async fn can_claim(&self, task: &str, now: i64, until: i64) -> Option<Lease> {
        self.claim(&id(task), at(now), at(until)).await.expect("an answer")
    }

    /// The tasks on all pages of a listing.
    pub(crate) async fn walk(&self, owner: &Owner, query: &ListQuery, size: usize) -> Vec<Snapshot> {
        let mut query = ListQuery { limit: size, ..query.clone() };
        let mut all = Vec::new();
        loop {
            let (tasks, next, _) = self.page(owner, &query).await;
            all.extend(tasks);
            if next.is_none() {
                return all;
            }
            query.after = next;
        }
    }

    /// One page: the tasks, the cursor of the next page, and the total.
    pub(crate) async fn page(
        &self,
        owner: &Owner,
        query: &ListQuery,
    ) -> (Vec<Snapshot>, Option<Cursor>, usize) {
        let page = self.list(owner, query).await.expect("a page");
        assert!(page.tasks.len() <= query.limit);
        assert!(
            page.tasks.len() == query.limit || page.next.is_none(),
            "a page is not full and not the last"
        );
        (page.tasks, page.next, page.total)
    }

    /// Takes the due deliveries of a receiver for ten seconds.
    pub(crate) async fn take(&self, receiver: &str, now: i64) -> Vec<Delivery> {
        let outbox = self.outbox();
        outbox.take_due(receiver, at(now), at(now + 10_000), 100).await.expect("deliveries")
    }

    /// Takes the due deliveries of a receiver. Returns the positions of their events.
    pub(crate) async fn take_seqs(&self, receiver: &str, now: i64) -> Vec<u64> {
        self.take(receiver, now).await.iter().map(|delivery| delivery.id.seq.0).collect()
    }

    pub(crate) async fn settle(&self, delivery: &DeliveryId, outcome: attache_core::Outcome) {
        self.outbox().settle(delivery, outcome).await.expect("an outcome that is noted");
    }

    /// Delivers everything that is due for a receiver. Returns the deliveries.
    pub(crate) async fn deliver_all(&self, receiver: &str, now: i64) -> Vec<Delivery> {
        let mut all = Vec::new();
        loop {
            let taken = self.take(receiver, now).await;
            if taken.is_empty() {
                return all;
            }
            for delivery in taken {
                self.settle(&delivery.id, attache_core::Outcome::Delivered).await;
                all.push(delivery);
            }
        }
    }

    pub(crate) async fn put(&self, task: &str, webhook: Webhook) {
        let new = NewWebhook { webhook, limit: 32 };
        let put = self.outbox().put_webhook(&id(task), new).await.expect("a webhook that is kept");
        assert_eq!(put, PutWebhook::Stored);
    }

    /// Registers a webhook with a limit of webhooks.
    pub(crate) async fn put_up_to(&self, task: &str, webhook: Webhook, limit: usize) -> PutWebhook {
        let new = NewWebhook { webhook, limit };
        self.outbox().put_webhook(&id(task), new).await.expect("an answer")
    }

    pub(crate) async fn hooks(&self, task: &str) -> Vec<Webhook> {
        self.outbox().webhooks(&id(task)).await.expect("webhooks")
    }

    /// The dead deliveries.
    pub(crate) async fn dead(&self) -> Vec<DeliveryId> {
        let dead = self.outbox().list_dead(None, 1_000).await.expect("deliveries");
        dead.into_iter().map(|dead| dead.id).collect()
    }
}

/// The events of one item of a tail.
pub(crate) fn entries(item: Result<TailItem, StoreError>) -> Vec<Arc<Entry>> {
    match item.expect("events") {
        TailItem::Entries(entries) => {
            assert!(!entries.is_empty(), "an item of a tail is empty");
            entries
        }
        TailItem::Reset(snapshot) => panic!("events are missing before {}", snapshot.seq),
    }
}

/// All events of a tail up to its end.
pub(crate) async fn rest(mut tail: BoxStream<'static, Result<TailItem, StoreError>>) -> Vec<Arc<Entry>> {
    let mut all = Vec::new();
    while let Some(item) = soon(tail.next()).await {
        all.extend(entries(item));
    }
    all
}

/// The positions of events.
pub(crate) fn seqs(entries: &[Arc<Entry>]) -> Vec<u64> {
    entries.iter().map(|entry| entry.seq.0).collect()
}

pub(crate) fn ids(tasks: &[Snapshot]) -> Vec<String> {
    tasks.iter().map(|task| task.task().id.as_str().to_owned()).collect()
}

/// Views that show different parts of a task.
pub(crate) fn views() -> Vec<View> {
    let mut views = Vec::new();
    for history in [None, Some(0), Some(1), Some(2), Some(1_000)] {
        for (artifacts, generation) in [(true, false), (false, false), (true, true), (false, true)] {
            views.push(View { history, artifacts, generation });
        }
    }
    views
}

/// The JSON of a snapshot.
pub(crate) fn written(snapshot: &Snapshot, view: View) -> serde_json::Value {
    let mut json = Vec::new();
    snapshot.write(view, &mut json);
    serde_json::from_slice(&json).expect("JSON")
}

/// Checks that two snapshots are equal, as values and as JSON.
#[track_caller]
pub(crate) fn assert_same(one: &Snapshot, other: &Snapshot) {
    assert_eq!((one.seq, one.state), (other.seq, other.state));
    assert_eq!(one.task(), other.task());
    for view in views() {
        assert_eq!(written(one, view), written(other, view), "{view:?}");
    }
}
