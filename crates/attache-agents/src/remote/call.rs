//! A call of an imported function: sends one message, and waits for its task.
//!
//! The task is followed in a background task, independent of the caller. If the caller gives up while the message is being sent, the
//! background task waits until the id of the remote task is known, and cancels it.

use std::sync::Arc;
use std::time::Duration;

use attache_client::{Client, ClientError, Outgoing, Reply};
use attache_core::{TaskEvent, TraceParent, fold};
use attache_iii::{CallError, FunctionInfo};
use attache_protocol::{Content, Message, Part, StreamResponse, Task, TaskId, TaskState};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::outgoing::{build_message, outgoing};
use super::result;
use super::skills::Skill;
use crate::AgentCredentials;

/// After the caller has given up, how long to wait for the id of the remote task.
const TASK_ID_TIMEOUT: Duration = Duration::from_secs(30);

/// The first and the longest interval between two polls of a task, for agents that do not stream.
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How many polls in a row may fail.
const MAX_POLL_FAILURES: u32 = 6;

/// The most that a task may stream in total, in bytes. The client limits single responses.
const MAX_STREAMED: usize = 64 * 1024 * 1024;

/// A skill of a remote agent that is registered as a function.
pub(super) struct ImportedFunction {
    pub(super) client: Client,
    pub(super) credentials: AgentCredentials,
    pub(super) skill: Skill,
    pub(super) info: FunctionInfo,
}

impl ImportedFunction {
    /// Whether both have the same description and call the same skill.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.info == other.info && self.skill == other.skill
    }

    /// Calls the function. `hops` is the number of agents that the request has come through, this one included. On a timeout, or if the
    /// future is dropped, the remote task is canceled.
    pub(super) async fn call(
        &self,
        payload: &RawValue,
        timeout: Duration,
        hops: u64,
        trace_parent: Option<TraceParent>,
    ) -> Result<Box<RawValue>, CallError> {
        let message = build_message(&self.skill, payload, hops).map_err(|error| {
            CallError::remote("deserialization_error", format!("the payload cannot be sent: {error}"))
        })?;
        let given_up = CancellationToken::new();
        let call = tokio::spawn(run_call(self.client.clone(), message, trace_parent, given_up.clone()));
        let _give_up = given_up.drop_guard();
        match tokio::time::timeout(timeout, call).await {
            Ok(Ok(Ok(reply))) => result::from_reply(reply),
            Ok(Ok(Err(error))) => {
                let denied = self.credentials.explain(&self.client.interface_url(), &error);
                Err(denied.map_or_else(
                    || result::from_error(&error),
                    |text| CallError::remote("agent_denied", text),
                ))
            }
            Ok(Err(_)) => Err(CallError::remote("invocation_failed", "the call of the agent panicked")),
            Err(_) => Err(CallError::TimedOut),
        }
    }
}

/// Sends a message and waits for its task. Once the caller has given up, cancels the task instead.
async fn run_call(
    client: Client,
    message: Message,
    trace_parent: Option<TraceParent>,
    given_up: CancellationToken,
) -> Result<Reply, ClientError> {
    let (started, mut task) = watch::channel(message.task_id.clone());
    let message = outgoing(message, trace_parent);
    let mut following = std::pin::pin!(send_and_follow(&client, message, &started));
    tokio::select! {
        biased;
        reply = &mut following => {
            // The task may still be running, and its result cannot be received any more.
            let lost = matches!(reply, Err(ClientError::Interrupted { .. } | ClientError::TooLarge { .. }));
            if let Some(id) = task.borrow().clone().filter(|_| lost) {
                tokio::spawn(cancel(client.clone(), id));
            }
            return reply;
        }
        () = given_up.cancelled() => {}
    }
    let id = tokio::select! {
        biased;
        reply = &mut following => return reply,
        id = task.wait_for(Option::is_some) => id.ok().and_then(|id| id.clone()),
        () = tokio::time::sleep(TASK_ID_TIMEOUT) => None,
    };
    if let Some(id) = id {
        cancel(client.clone(), id).await;
    }
    // The caller has gone, so this error is not read.
    Err(ClientError::Broken("the call was given up".to_owned()))
}

async fn cancel(client: Client, task: TaskId) {
    match client.cancel(task.clone()).await {
        Ok(_) => tracing::debug!(%task, "canceled an abandoned remote task"),
        Err(error) => tracing::debug!(%task, %error, "cannot cancel an abandoned remote task"),
    }
}

/// Announces the id of the remote task as soon as it is known.
type TaskStarted = watch::Sender<Option<TaskId>>;

/// Sends a message and waits until its task has ended or is interrupted.
async fn send_and_follow(
    client: &Client,
    message: Outgoing,
    started: &TaskStarted,
) -> Result<Reply, ClientError> {
    if client.card().capabilities.streaming == Some(true) {
        follow_stream(client, message, started).await
    } else {
        poll_task(client, message, started).await
    }
}

async fn follow_stream(
    client: &Client,
    message: Outgoing,
    started: &TaskStarted,
) -> Result<Reply, ClientError> {
    let mut events = client.stream(message).await?;
    let mut task: Option<Task> = None;
    let mut bytes = 0;
    while let Some(event) = events.next().await {
        let (id, context, event) = match event? {
            StreamResponse::Message(message) => return Ok(Reply::Message(message)),
            StreamResponse::Task(current) => {
                started.send_replace(Some(current.id.clone()));
                task = Some(current);
                continue;
            }
            StreamResponse::StatusUpdate(update) => {
                (update.task_id.clone(), update.context_id.clone(), TaskEvent::Status(Arc::new(update)))
            }
            StreamResponse::ArtifactUpdate(update) => {
                bytes += update.artifact.parts.iter().map(size).sum::<usize>();
                if bytes > MAX_STREAMED {
                    return Err(ClientError::TooLarge { limit: MAX_STREAMED });
                }
                (update.task_id.clone(), update.context_id.clone(), TaskEvent::Artifact(Arc::new(update)))
            }
        };
        // Some servers do not send the task first.
        let task = task.get_or_insert_with(|| {
            started.send_replace(Some(id.clone()));
            Task { id, context_id: Some(context).filter(|id| !id.is_empty()), ..Task::default() }
        });
        // An interrupted task waits for another call, but its stream may stay open. The stream of an ended task closes.
        let interrupted = event.state().is_some_and(TaskState::is_interrupted);
        // An event after the end of the task is an error of the agent, and is ignored.
        let _ = fold(task, event);
        if interrupted {
            break;
        }
    }
    let no_events = || ClientError::Protocol("the stream has no events".to_owned());
    task.map(Reply::Task).ok_or_else(no_events)
}

/// The approximate size of a part in memory, in bytes.
fn size(part: &Part) -> usize {
    let content = match &part.content {
        Content::Text(text) | Content::Url(text) => text.len(),
        Content::Raw(bytes) => bytes.len(),
        Content::Data(data) => data.as_str().len(),
    };
    size_of::<Part>() + content
}

/// Polls the task. A blocking request to an agent that does not stream would return only at the end of the task, so the id would not be
/// known when the call has to be canceled.
async fn poll_task(client: &Client, message: Outgoing, started: &TaskStarted) -> Result<Reply, ClientError> {
    // An existing task can still have its previous status in an immediate response, so this request blocks.
    let continues = started.borrow().is_some();
    let message = if continues { message } else { message.return_immediately() };
    let mut task = match client.send(message).await? {
        Reply::Message(message) => return Ok(Reply::Message(message)),
        Reply::Task(task) => task,
    };
    started.send_replace(Some(task.id.clone()));
    let (mut wait, longest) = POLL_INTERVAL;
    let mut failures = 0;
    while !task.status.state.is_terminal() && !task.status.state.is_interrupted() {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(longest);
        match client.get(task.id.clone()).await {
            Ok(current) => (task, failures) = (current, 0),
            Err(error) if error.is_transient() && failures < MAX_POLL_FAILURES => failures += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(Reply::Task(task))
}
