//! The task engine behind every binding.
//!
//! The events of a task are one append-only, numbered log, and the task is the fold of its log. An agent changes a task only by
//! appending events. The blocking reply, the stream, a resumed stream, a long poll and a listing all read the log, so all of them
//! show the same events in the same order.
//!
//! - An [`Agent`] does the work, in one [`Turn`] per message. [`AgentKinds`] builds agents by name from settings.
//! - A [`Store`] keeps the logs. [`MemoryStore`] keeps them in this process.
//! - An agent that holds conversations has the rules of a [`Conversation`]: one turn at a time, a workspace, and checked input.
//! - [`Service`] implements the operations of the protocol for one [`Caller`].
//!
//! The crate knows no transport and no binding. It does write the protocol's own JSON: replies, and events and tasks that have ended, which
//! are encoded once so that the same bytes go to all readers. Time comes from a [`Clock`], so that tests can set it. Only the ids of
//! new tasks and messages contain the time of the system.

mod agent;
mod agent_kinds;
mod artifact;
mod artifact_links;
mod artifact_store;
mod caller;
mod clock;
mod conversation;
mod event;
mod file_names;
mod fold;
mod limiter;
mod memory;
mod options;
mod outbox;
mod part_writer;
mod permission;
mod redaction;
mod repeat;
mod reply;
mod report;
mod run;
mod seal;
mod served_agent;
mod service;
mod signal;
mod snapshot;
mod store;
mod stream;
mod text_stream;
mod trace;
mod turn;
mod turn_state;
mod turns;
mod value_subject;
mod values;

use std::time::{SystemTime, UNIX_EPOCH};

pub use agent::{Agent, AgentError, AgentResult, BoxAgent, Echo, agent_fn, conversational, restartable};
pub use agent_kinds::{AgentKinds, BuildAgentError};
pub use artifact::{ArtifactBuilder, ArtifactStream, EmittedArtifact};
pub use artifact_links::{ARTIFACTS_PATH, ArtifactLinks, agent_parts, referenced_content};
pub use artifact_store::{
    ArtifactError, ArtifactReader, ArtifactStore, ArtifactUrls, ArtifactWriter, Artifacts, ContentHash,
    ContentId, ContentPlace, OpenedContent, StoredContent, Swept,
};
pub use caller::{Caller, Identity, IdentityMetadata, Owner, Principal, RequestTerms, Rights};
pub use clock::{Clock, ManualClock, SystemClock};
pub use conversation::{
    AccessError, Busy, Context, ContextHold, ContextRecord, ContextRecords, ContextRules, Conversation,
    DefaultWorkspace, EndState, Fetch, FetchError, Fetched, Input, InputPiece, InputRules, Media,
    MediaSource, OpenDirectory, PeerRules, StoredWorkspace, Workspace, WorkspaceError, WorkspaceFolder,
    Workspaces, private_temporary_directory,
};
pub use event::{Entry, Seq, TaskEvent, write_json};
pub use file_names::safe_file_name;
pub use fold::{FoldError, fold};
pub use limiter::{Limiter, NoPermit, Permit, Quota};
pub use memory::MemoryStore;
pub use options::{Options, WebhookCheck};
pub use outbox::{
    DeadDelivery, Delivery, DeliveryId, DueReceivers, NewWebhook, Outbox, Outcome, PendingDelivery,
    PushEvents, PutWebhook, Webhook,
};
pub use part_writer::PartWriter;
pub use permission::{
    NotAPattern, PendingPermission, Permission, PermissionAction, PermissionAnswer, PermissionAudit,
    PermissionOption, PermissionOptionKind, PermissionPattern, PermissionPolicy, PermissionRecord,
    PermissionRequest, PermissionRule, paths_in,
};
pub use redaction::{MASK, Redaction, SHORTEST_SECRET};
pub use reply::{Page, Reply};
pub use report::{
    Exposure, FileDiff, Namespace, PlanStep, REPORTS_EXTENSION, Report, ReportOptions, ToolReport,
    ToolStatus, UnknownExposure, Usage, take_tool_file, take_tool_file_from_text,
};
pub use seal::{Seal, SealError};
pub use served_agent::ServedAgent;
pub use service::{FoundContent, Prepared, Recovered, Service, check_media_types, internal};
pub use snapshot::{EndedTask, Snapshot, StoredEndedTask, View};
pub use store::{
    Abandoned, Append, AppendError, Appended, Created, Cursor, Idempotency, Lease, ListPage, ListQuery,
    NewTask, RenewFailure, Retention, Store, StoreError, TailItem, UsedKey,
};
pub use stream::{EventStream, StreamItem};
pub use text_stream::TextStream;
pub use trace::{NotATraceParent, TraceParent, millis, state_name};
pub use turn::{Emitted, Turn};
pub use value_subject::ValueSubject;
pub use values::{ChangedValue, ValueChange, Values};

/// A boxed future, the return type of methods of object-safe traits.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A new UUID of version 7, which sorts by creation time. Ids of the same millisecond have no order: that would need a counter that
/// all threads share.
pub(crate) fn new_id<T: for<'a> From<&'a str>>() -> T {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    // These bytes of a version 4 UUID are random. The bytes that are left out contain its version and variant.
    let [a, b, c, d, e, f, _, _, _, g, h, i, j, _, _, _] = uuid::Uuid::new_v4().into_bytes();
    let id = uuid::Builder::from_unix_timestamp_millis(millis, &[a, b, c, d, e, f, g, h, i, j]).into_uuid();
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    T::from(id.hyphenated().encode_lower(&mut text))
}
