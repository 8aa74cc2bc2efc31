//! The interface to the storage of tasks.
//!
//! A store appends events to logs, returns the current task, lists tasks, and wakes readers when a log grows. It decides nothing
//! about the protocol: the fold is the only rule that it applies.

use std::sync::Arc;
use std::time::Duration;

use attache_protocol::{ContextId, TaskId, TaskState, Timestamp};
use futures::stream::BoxStream;

use crate::{BoxFuture, Entry, NewWebhook, Outbox, Owner, Seq, Snapshot, TaskEvent, Values, View, Webhook};

/// A failure of the store. Its text goes to the server's log, not to the caller.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// Why events were not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The task does not exist.
    #[error("there is no such task")]
    NotFound,
    /// The task has ended.
    #[error("the task has ended in {0}")]
    Ended(TaskState),
    /// Other events were appended first. The log ends at this position.
    #[error("the log has grown to {0}")]
    Conflict(Seq),
    /// The idempotency key was used before.
    #[error("the key was used before")]
    KeyUsed(UsedKey),
    /// Another lease holds the task.
    #[error("the lease is lost")]
    LeaseLost,
    /// The task has reached its limit of webhooks.
    #[error("the task has too many webhooks")]
    TooManyWebhooks,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The right to run the turn of a task. A newer lease makes an older one invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease(pub u64);

/// Why a lease was not renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewFailure {
    /// The task is gone, or it has not ended and another lease holds it.
    LeaseLost,
    /// The task has ended in this state. Either the turn that has the lease ended it, or another process did, for example by a cancel.
    Ended(TaskState),
}

/// Identifies repeats of a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The key that the caller chose.
    pub key: String,
    /// A digest of the request.
    pub fingerprint: [u8; 32],
}

/// An idempotency key that was used before, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedKey {
    /// The task that the send created or continued.
    pub task: TaskId,
    /// A digest of the request.
    pub fingerprint: [u8; 32],
}

/// A task to create.
#[derive(Debug)]
pub struct NewTask {
    /// The owner of the task.
    pub owner: Owner,
    /// The log so far. The first event creates the task.
    pub events: Vec<TaskEvent>,
    /// The time now.
    pub now: Timestamp,
    /// Whether a stream reads the events, and may be resumed later.
    pub followed: bool,
    /// The end of the first lease.
    pub lease_until: Timestamp,
    /// The idempotency key of the send.
    pub idempotency: Option<Idempotency>,
    /// The webhook that came with the message.
    pub push: Option<Webhook>,
}

/// The result of creating a [`NewTask`].
#[derive(Debug)]
pub enum Created {
    /// The task was created.
    New {
        /// The end of its log.
        seq: Seq,
        /// The right to run its first turn.
        lease: Lease,
        /// The task, if it has settled already.
        settled: Option<Snapshot>,
    },
    /// The task was not created: the idempotency key was used before.
    KeyUsed(UsedKey),
    /// The task was not created: another task has this id.
    Taken,
}

/// Events to append to a log, and the conditions for it.
#[derive(Debug)]
pub struct Append {
    /// The position at which the log must end.
    pub after: Seq,
    /// The lease that must hold the task, if a turn appends the events.
    pub lease: Option<Lease>,
    /// The idempotency key of the send, and its owner.
    pub idempotency: Option<(Owner, Idempotency)>,
    /// A webhook to store with the events. It receives them, too.
    pub push: Option<NewWebhook>,
    /// The events.
    pub events: Vec<TaskEvent>,
    /// The time now.
    pub now: Timestamp,
}

/// The result of an append.
#[derive(Debug)]
pub struct Appended {
    /// The end of the log with the events.
    pub seq: Seq,
    /// The task right after the events, if they settled it. A caller that waits gets this task, even if it changes again.
    pub settled: Option<Snapshot>,
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    /// Only tasks of this context.
    pub context: Option<ContextId>,
    /// Only tasks in this state.
    pub state: Option<TaskState>,
    /// Only tasks whose status has this time or a later one.
    pub since: Option<Timestamp>,
    /// Only tasks after this position.
    pub after: Option<Cursor>,
    /// The maximal number of tasks.
    pub limit: usize,
    /// The parts of each task that the caller needs. A store need not read the others.
    pub view: View,
}

/// A position in a listing. It stays valid if the task at this position changes or is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The status time of the last task, in nanoseconds since 1970.
    pub nanos: i64,
    /// Orders tasks of the same time. Each store defines its meaning.
    pub tie: u64,
}

/// A page of tasks, latest status first.
#[derive(Debug)]
pub struct ListPage {
    /// The tasks.
    pub tasks: Vec<Snapshot>,
    /// The position of the next page, if there is one.
    pub next: Option<Cursor>,
    /// The number of matching tasks on all pages.
    pub total: usize,
}

/// An item of [`Store::tail`].
#[derive(Debug, Clone)]
pub enum TailItem {
    /// The next events, in order and without a gap.
    Entries(Vec<Arc<Entry>>),
    /// The store no longer has the single events. The current task replaces them.
    Reset(Snapshot),
}

/// A task that is submitted or working, but whose turn has died.
#[derive(Debug)]
pub struct Abandoned {
    /// The owner of the task.
    pub owner: Owner,
    /// The current task.
    pub task: Snapshot,
}

/// Which of the tasks that have ended are deleted. Without a limit, none are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// Tasks that ended longer ago than this are deleted.
    pub max_age: Option<Duration>,
    /// Of each owner, the oldest tasks beyond this number are deleted.
    pub max_tasks: Option<usize>,
}

impl Retention {
    /// Sets `max_age`.
    pub fn max_age(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.max_age = age.into();
        self
    }

    /// Sets `max_tasks`.
    pub fn max_tasks(mut self, count: impl Into<Option<usize>>) -> Self {
        self.max_tasks = count.into();
        self
    }
}

/// Stores tasks as logs of events.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a store of tasks", note = "`MemoryStore` is one")]
pub trait Store: Send + Sync + 'static {
    /// Creates a task.
    fn create(&self, task: NewTask) -> BoxFuture<'_, Result<Created, StoreError>>;

    /// Appends events to a log: all of them, or none.
    fn append<'a>(&'a self, task: &'a TaskId, append: Append)
    -> BoxFuture<'a, Result<Appended, AppendError>>;

    /// The current task, if it belongs to `owner`.
    fn load<'a>(
        &'a self,
        owner: &'a Owner,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>>;

    /// Finds an idempotency key that `owner` has used.
    fn find_key<'a>(
        &'a self,
        owner: &'a Owner,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<UsedKey>, StoreError>>;

    /// Lists tasks of `owner`.
    fn list<'a>(
        &'a self,
        owner: &'a Owner,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<ListPage, StoreError>>;

    /// Streams the events after `after`. The stream ends with the last event of the task.
    fn tail(&self, task: &TaskId, after: Seq) -> BoxStream<'static, Result<TailItem, StoreError>>;

    /// Claims a task until `until`. Returns `None` if the task has ended, does not exist, or has a lease that has not expired at `now`.
    fn claim<'a>(
        &'a self,
        task: &'a TaskId,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Lease>, StoreError>>;

    /// Extends leases to `until`. The result has an entry for each lease that was not extended, and the reason.
    ///
    /// A process learns here that another process has ended its task, for example by a cancel.
    fn renew<'a>(
        &'a self,
        leases: &'a [(TaskId, Lease)],
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<(TaskId, RenewFailure)>, StoreError>>;

    /// Releases a lease. Does nothing if the lease does not hold the task.
    fn release<'a>(&'a self, task: &'a TaskId, lease: Lease) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Whether a task of `owner` exists.
    fn contains<'a>(&'a self, owner: &'a Owner, task: &'a TaskId) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move { Ok(self.load(owner, task).await?.is_some()) })
    }

    /// Whether servers on several machines can use the store together. Content of artifacts must then be shared too.
    fn is_shared(&self) -> bool {
        false
    }

    /// Whether everything in the store is lost when the process ends.
    fn is_volatile(&self) -> bool {
        false
    }

    /// What kind of store it is, in one word, for operators.
    fn kind(&self) -> &'static str {
        "custom"
    }

    /// The webhooks of tasks and their deliveries. An append stores its deliveries in the same transaction.
    fn outbox(&self) -> &dyn Outbox;

    /// Small values that belong to no task.
    fn values(&self) -> &dyn Values;

    /// Tasks of an agent (see [`Owner::agent`]) that are submitted or working and have no lease, or a lease that has expired at `now`.
    fn abandoned<'a>(
        &'a self,
        agent: Option<&'a str>,
        now: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Abandoned>, StoreError>>;

    /// Deletes tasks that have ended, with everything that belongs to them. Tasks with open deliveries stay. Deletes at most `limit`
    /// tasks and returns their number.
    fn prune<'a>(
        &'a self,
        retention: &'a Retention,
        now: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<usize, StoreError>>;
}
