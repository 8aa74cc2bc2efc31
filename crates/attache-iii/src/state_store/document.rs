//! A task as JSON in the state of an engine: the format of the older iii-a2a worker, plus one member.
//!
//! That member is `attache`. It holds what the older format does not have. Where the older format would lose data (it writes data
//! parts as text, and omits extensions), the member holds the original too. So a task is read exactly as it was written.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use attache_core::{Owner, Principal, Seq};
use attache_protocol::{Artifact, Content, Dialect, Message, Part, Role, Task, TaskState, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::CallError;

/// How long another process is assumed to work on a task after its last sign of life.
pub(super) const LEASE_GRACE: Duration = Duration::from_secs(120);

/// What a task has besides the older format.
#[derive(Debug, Clone)]
pub(super) struct TaskMeta {
    /// The owner of the task.
    pub(super) owner: Owner,
    /// The last event that the task includes. Zero if unknown.
    pub(super) seq: Seq,
    /// The store that wrote it. Empty if the older worker wrote it.
    pub(super) writer: String,
    /// Until when the turn has its lease.
    pub(super) leased: Option<Timestamp>,
}

/// A parsed document.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) task: Task,
    pub(super) meta: TaskMeta,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MetaJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<Cow<'a, str>>,
    generation: u64,
    writer: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leased_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    artifacts: BTreeMap<usize, Cow<'a, Artifact>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    history: BTreeMap<usize, Cow<'a, Message>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<Cow<'a, Message>>,
}

/// Encodes a task.
pub(super) fn write(task: &Task, meta: &TaskMeta) -> Result<Box<RawValue>, CallError> {
    let member = MetaJson {
        agent: meta.owner.agent.as_deref().map(Cow::Borrowed),
        tenant: meta.owner.tenant.as_deref().map(Cow::Borrowed),
        principal: meta.owner.principal.name().map(Cow::Borrowed),
        generation: meta.seq.0,
        writer: Cow::Borrowed(&meta.writer),
        leased_until: meta.leased.filter(|_| is_worked_on(task.status.state)),
        artifacts: originals(&task.artifacts, artifact_is_lossy),
        history: originals(&task.history, message_is_lossy),
        status_message: task
            .status
            .message
            .as_deref()
            .filter(|message| message_is_lossy(message))
            .map(Cow::Borrowed),
    };
    let mut json = Vec::new();
    Dialect::Iii.write_task(task, &mut json);
    json.pop();
    json.extend_from_slice(br#","attache":"#);
    serde_json::to_writer(&mut json, &member).map_err(unwritable)?;
    json.push(b'}');
    serde_json::from_slice(&json).map_err(unwritable)
}

fn unwritable(error: serde_json::Error) -> CallError {
    CallError::remote("unwritable", error.to_string())
}

/// Parses a task of any writer. The error says what is wrong.
pub(super) fn read(json: &str) -> Result<Document, String> {
    #[derive(Deserialize)]
    struct WithMeta<'a> {
        #[serde(default, borrow)]
        attache: Option<MetaJson<'a>>,
    }
    let mut task = Dialect::Iii.read_task(json.as_bytes()).map_err(|error| error.to_string())?;
    let parsed: WithMeta<'_> = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let member = parsed.attache.unwrap_or_default();
    // A writer that does not know the originals may have changed the members that they belong to. So the ids are compared.
    for (at, original) in member.artifacts {
        if let Some(current) = task.artifacts.get_mut(at)
            && current.artifact_id == original.artifact_id
        {
            *current = original.into_owned();
        }
    }
    for (at, original) in member.history {
        if let Some(current) = task.history.get_mut(at)
            && current.message_id == original.message_id
        {
            *current = original.into_owned();
        }
    }
    if let (Some(current), Some(original)) = (&mut task.status.message, member.status_message)
        && current.message_id == original.message_id
    {
        **current = original.into_owned();
    }
    let principal = member.principal.map_or(Principal::Anonymous, Principal::named);
    let owner =
        Owner { agent: member.agent.map(Into::into), tenant: member.tenant.map(Into::into), principal };
    let (seq, writer) = (Seq(member.generation), member.writer.into_owned());
    Ok(Document { task, meta: TaskMeta { owner, seq, writer, leased: member.leased_until } })
}

/// Until when another process is assumed to work on a task. In the past, if the task has ended or waits for its client.
pub(super) fn lease_expiry(task: &Task, leased: Option<Timestamp>) -> Timestamp {
    let sign = leased.max(task.status.timestamp).filter(|_| is_worked_on(task.status.state));
    sign.map_or(Timestamp::UNIX_EPOCH, |sign| sign.after(LEASE_GRACE))
}

fn is_worked_on(state: TaskState) -> bool {
    !state.is_settled()
}

fn originals<T: Clone>(all: &[T], is_lossy: impl Fn(&T) -> bool) -> BTreeMap<usize, Cow<'_, T>> {
    let lossy = all.iter().enumerate().filter(|(_, original)| is_lossy(original));
    lossy.map(|(at, original)| (at, Cow::Borrowed(original))).collect()
}

fn artifact_is_lossy(artifact: &Artifact) -> bool {
    let is_data = |part: &Part| matches!(part.content, Content::Data(_));
    !artifact.extensions.is_empty() || artifact.parts.iter().any(is_data)
}

fn message_is_lossy(message: &Message) -> bool {
    !message.extensions.is_empty()
        || !message.reference_task_ids.is_empty()
        || message.role == Role::Unspecified
}
