//! What keeps the logs of tasks.
//!
//! A store appends events, tells what a task has become, lists tasks, and wakes those who read a log as it grows. It decides
//! nothing about the protocol; the fold is the only rule it applies.

use std::sync::Arc;
use std::time::Duration;

use attache_protocol::{ContextId, TaskId, TaskState, Timestamp};
use futures::stream::BoxStream;

use crate::{BoxFuture, Entry, NewWebhook, Outbox, Owner, Seq, Snapshot, TaskEvent, Values, View, Webhook};

/// The store could not do its work. What happened goes to the log, not to the caller.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// Why events were not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// There is no such task.
    #[error("there is no such task")]
    NotFound,
    /// The task has ended.
    #[error("the task has ended in {0}")]
    Ended(TaskState),
    /// Others appended first: the log now ends at this position.
    #[error("the log has grown to {0}")]
    Conflict(Seq),
    /// The key was used before.
    #[error("the key was used before")]
    KeyUsed(UsedKey),
    /// Someone else holds the task now.
    #[error("the lease is lost")]
    LeaseLost,
    /// The task has as many webhooks as it may have.
    #[error("the task has too many webhooks")]
    TooManyWebhooks,
    /// The store could not do its work.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The right to run a task's turn. A newer lease makes an older one worthless.
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

/// What makes a repeated send the same send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key.
    pub key: String,
    /// A digest of what was sent.
    pub fingerprint: [u8; 32],
}

/// What a key was used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedKey {
    /// The task.
    pub task: TaskId,
    /// A digest of what was sent.
    pub fingerprint: [u8; 32],
}

/// A task to be kept.
#[derive(Debug)]
pub struct NewTask {
    /// Whom it belongs to.
    pub owner: Owner,
    /// Its log so far. The first event creates the task.
    pub events: Vec<TaskEvent>,
    /// The time now.
    pub now: Timestamp,
    /// Whether someone reads its events as they come, and may come back for those it missed.
    pub followed: bool,
    /// Until when its first turn is believed to be alive.
    pub lease_until: Timestamp,
    /// The key under which it is created only once.
    pub idempotency: Option<Idempotency>,
    /// The webhook that came with the message.
    pub push: Option<Webhook>,
}

/// What became of a [`NewTask`].
#[derive(Debug)]
pub enum Created {
    /// It is kept.
    New {
        /// Where its log ends.
        seq: Seq,
        /// The right to run its turn.
        lease: Lease,
        /// The task, if it has settled already.
        settled: Option<Snapshot>,
    },
    /// The key was used before.
    KeyUsed(UsedKey),
    /// There is a task with this id already.
    Taken,
}

/// Events for a log, and under which conditions they are added.
#[derive(Debug)]
pub struct Append {
    /// Where the log must end.
    pub after: Seq,
    /// The right to run the task's turn, if the events are a turn's.
    pub lease: Option<Lease>,
    /// The key under which the owner has them added only once.
    pub idempotency: Option<(Owner, Idempotency)>,
    /// A webhook that is kept with them, and is told of them.
    pub push: Option<NewWebhook>,
    /// The events.
    pub events: Vec<TaskEvent>,
    /// The time now.
    pub now: Timestamp,
}

/// What became of events that were appended.
#[derive(Debug)]
pub struct Appended {
    /// Where the log ends with them.
    pub seq: Seq,
    /// The task as they left it, if it has settled: whoever waits for that gets it, whatever happens next.
    pub settled: Option<Snapshot>,
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    /// Only those of this context.
    pub context: Option<ContextId>,
    /// Only those in this state.
    pub state: Option<TaskState>,
    /// Only those whose status is of this time or later.
    pub since: Option<Timestamp>,
    /// Only those after this position.
    pub after: Option<Cursor>,
    /// How many at most.
    pub limit: usize,
    /// What will be shown of each. What will not be shown need not be read.
    pub view: View,
}

/// A position in a listing. It stays valid when the task that it was taken from moves or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The time of the last task's status, in nanoseconds since 1970.
    pub nanos: i64,
    /// What tells tasks of the same time apart; its meaning is the store's.
    pub tie: u64,
}

/// A page of tasks, latest status first.
#[derive(Debug)]
pub struct ListPage {
    /// The tasks.
    pub tasks: Vec<Snapshot>,
    /// Where to go on, if there are more.
    pub next: Option<Cursor>,
    /// How many tasks match, on all pages together.
    pub total: usize,
}

/// What a reader of a log gets.
#[derive(Debug, Clone)]
pub enum TailItem {
    /// The next events, in order and without a gap.
    Entries(Vec<Arc<Entry>>),
    /// The events asked for are no longer kept one by one: the task as it is now takes their place.
    Reset(Snapshot),
}

/// A task that nobody works on, though somebody should.
#[derive(Debug)]
pub struct Abandoned {
    /// Whom it belongs to.
    pub owner: Owner,
    /// The task as it was left.
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

/// Keeps the logs of tasks.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a store of tasks", note = "`MemoryStore` is one")]
pub trait Store: Send + Sync + 'static {
    /// Keeps a new task.
    fn create(&self, task: NewTask) -> BoxFuture<'_, Result<Created, StoreError>>;

    /// Adds events to a log. All of them, or none.
    fn append<'a>(&'a self, task: &'a TaskId, append: Append)
    -> BoxFuture<'a, Result<Appended, AppendError>>;

    /// The task as it is now, if it belongs to `owner`.
    fn load<'a>(
        &'a self,
        owner: &'a Owner,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>>;

    /// What a key was used for.
    fn find_key<'a>(
        &'a self,
        owner: &'a Owner,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<UsedKey>, StoreError>>;

    /// A page of the tasks that belong to `owner`.
    fn list<'a>(
        &'a self,
        owner: &'a Owner,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<ListPage, StoreError>>;

    /// The events after `after` as they come, up to the one that ends the task.
    fn tail(&self, task: &TaskId, after: Seq) -> BoxStream<'static, Result<TailItem, StoreError>>;

    /// Takes the right to run a turn, if nobody who is believed to be alive has it.
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

    /// Gives the right to run a turn back.
    fn release<'a>(&'a self, task: &'a TaskId, lease: Lease) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The webhooks of the tasks, and what is to be told to them. What an append has to tell is in the outbox with the append.
    fn outbox(&self) -> &dyn Outbox;

    /// Small values that are kept beside the tasks.
    fn values(&self) -> &dyn Values;

    /// Tasks that are to be worked on (submitted or working) and whose turn nobody has the right to run, or nobody who is believed
    /// to be alive.
    fn abandoned(&self, now: Timestamp, limit: usize) -> BoxFuture<'_, Result<Vec<Abandoned>, StoreError>>;

    /// Forgets tasks that have ended, with everything that belongs to them, and which nothing is to be delivered for any more. At
    /// most `limit`; how many they were.
    fn prune<'a>(
        &'a self,
        retention: &'a Retention,
        now: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<usize, StoreError>>;
}
