//! A task as it is in the state: what the older worker wrote and reads, and one member more for what it does not have.
//!
//! That member is `attache`. Where the older form would lose something (data that it lays out as text, extensions), the original
//! is kept there too, so that a task is read as it was written.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use attache_core::{Owner, Principal, Seq};
use attache_protocol::{Artifact, Content, Dialect, Message, Part, Role, Task, TaskState, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::CallError;

/// How long someone is believed to work on a task after the last sign of it.
pub(super) const BELIEVED: Duration = Duration::from_secs(120);

/// What a task has beside its older form.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    /// Whom it belongs to.
    pub(super) owner: Owner,
    /// The last event that it includes; zero if that is not known.
    pub(super) seq: Seq,
    /// Who wrote it; nobody that we know, if it is empty.
    pub(super) writer: String,
    /// Until when its turn is believed to be alive.
    pub(super) leased: Option<Timestamp>,
}

/// A task that was read.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) task: Task,
    pub(super) beside: Beside,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Member<'a> {
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

/// Writes a task.
pub(super) fn write(task: &Task, beside: &Beside) -> Result<Box<RawValue>, CallError> {
    let member = Member {
        tenant: beside.owner.tenant.as_deref().map(Cow::Borrowed),
        principal: beside.owner.principal.name().map(Cow::Borrowed),
        generation: beside.seq.0,
        writer: Cow::Borrowed(&beside.writer),
        leased_until: beside.leased.filter(|_| is_worked_on(task.status.state)),
        artifacts: originals(&task.artifacts, artifact_loses),
        history: originals(&task.history, message_loses),
        status_message: task.status.message.as_deref().filter(|said| message_loses(said)).map(Cow::Borrowed),
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

/// Reads a task, whoever wrote it. What is wrong with it, if it is none.
pub(super) fn read(json: &str) -> Result<Document, String> {
    #[derive(Deserialize)]
    struct Whole<'a> {
        #[serde(default, borrow)]
        attache: Option<Member<'a>>,
    }
    let mut task = Dialect::Iii.read_task(json.as_bytes()).map_err(|error| error.to_string())?;
    let whole: Whole<'_> = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let member = whole.attache.unwrap_or_default();
    // Someone who does not know of the originals may have changed what they are the originals of.
    for (at, original) in member.artifacts {
        if let Some(shown) = task.artifacts.get_mut(at)
            && shown.artifact_id == original.artifact_id
        {
            *shown = original.into_owned();
        }
    }
    for (at, original) in member.history {
        if let Some(shown) = task.history.get_mut(at)
            && shown.message_id == original.message_id
        {
            *shown = original.into_owned();
        }
    }
    if let (Some(shown), Some(original)) = (&mut task.status.message, member.status_message)
        && shown.message_id == original.message_id
    {
        **shown = original.into_owned();
    }
    let principal = member.principal.map_or(Principal::Anonymous, Principal::named);
    let owner = Owner { tenant: member.tenant.map(Into::into), principal };
    let (seq, writer) = (Seq(member.generation), member.writer.into_owned());
    Ok(Document { task, beside: Beside { owner, seq, writer, leased: member.leased_until } })
}

/// Until when someone is believed to work on a task: long ago, if it waits for nobody but its client.
pub(super) fn believed_until(task: &Task, leased: Option<Timestamp>) -> Timestamp {
    let sign = leased.max(task.status.timestamp).filter(|_| is_worked_on(task.status.state));
    sign.map_or(Timestamp::UNIX_EPOCH, |sign| sign.after(BELIEVED))
}

fn is_worked_on(state: TaskState) -> bool {
    !state.is_settled()
}

fn originals<T: Clone>(all: &[T], loses: impl Fn(&T) -> bool) -> BTreeMap<usize, Cow<'_, T>> {
    let lossy = all.iter().enumerate().filter(|(_, original)| loses(original));
    lossy.map(|(at, original)| (at, Cow::Borrowed(original))).collect()
}

fn artifact_loses(artifact: &Artifact) -> bool {
    let is_data = |part: &Part| matches!(part.content, Content::Data(_));
    !artifact.extensions.is_empty() || artifact.parts.iter().any(is_data)
}

fn message_loses(message: &Message) -> bool {
    !message.extensions.is_empty()
        || !message.reference_task_ids.is_empty()
        || message.role == Role::Unspecified
}
