//! A call of an imported function: one message, and the task that comes of it.
//!
//! The task is followed on its own, apart from whoever called. So a caller that leaves while the message is on its way leaves no
//! task behind: what has begun by then is found out, and canceled.

use std::sync::Arc;
use std::time::Duration;

use attache_client::{Client, ClientError, Reply};
use attache_core::{TaskEvent, fold};
use attache_iii::{CallError, FunctionInfo};
use attache_protocol::{Content, Message, Part, StreamResponse, Task, TaskId, TaskState};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::answer;
use super::outgoing::{message, outgoing};
use super::skills::Skill;
use crate::AgentCredentials;

/// How long to wait for a task to come of a message whose sender has left.
const BEGINNING: Duration = Duration::from_secs(30);

/// How long to wait before a task is looked at again, at first and at most, where it cannot be followed.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How often in a row looking at a task may fail.
const FAILURES: u32 = 6;

/// The most that a task may produce piece by piece, in bytes. What comes at once is limited by the client.
const LARGEST: usize = 64 * 1024 * 1024;

/// An imported function.
pub(crate) struct Import {
    pub(super) client: Client,
    pub(super) credentials: AgentCredentials,
    pub(super) skill: Skill,
    pub(super) info: FunctionInfo,
}

impl Import {
    /// Whether calling one is calling the other.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.info == other.info && self.skill == other.skill
    }

    /// Calls it, through so many agents including this one. If the call takes too long, or is dropped, what it began is canceled.
    pub(crate) async fn call(
        &self,
        payload: &RawValue,
        limit: Duration,
        hops: u64,
    ) -> Result<Box<RawValue>, CallError> {
        let message = message(&self.skill, payload, hops).map_err(|error| {
            CallError::remote("deserialization_error", format!("the payload cannot be sent: {error}"))
        })?;
        let given_up = CancellationToken::new();
        let talking = tokio::spawn(talk(self.client.clone(), message, given_up.clone()));
        let _give_up = given_up.drop_guard();
        match tokio::time::timeout(limit, talking).await {
            Ok(Ok(Ok(reply))) => answer::answer(reply),
            Ok(Ok(Err(error))) => {
                let denied = self.credentials.explain(&self.client.interface_url(), &error);
                Err(denied
                    .map_or_else(|| answer::error(&error), |text| CallError::remote("agent_denied", text)))
            }
            Ok(Err(_)) => Err(CallError::remote("invocation_failed", "the call of the agent panicked")),
            Err(_) => Err(CallError::TimedOut),
        }
    }
}

/// Sends a message and waits for what comes of it. Once it is given up, for as much as is needed to cancel that.
async fn talk(client: Client, message: Message, given_up: CancellationToken) -> Result<Reply, ClientError> {
    let (begun, mut task) = watch::channel(message.task_id.clone());
    let mut following = std::pin::pin!(follow(&client, message, &begun));
    tokio::select! {
        biased;
        reply = &mut following => {
            // Nobody will hear what comes of a task that is followed no more.
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
        () = tokio::time::sleep(BEGINNING) => None,
    };
    if let Some(id) = id {
        cancel(client.clone(), id).await;
    }
    // Nobody reads this.
    Err(ClientError::Broken("the call was given up".to_owned()))
}

async fn cancel(client: Client, task: TaskId) {
    match client.cancel(task.clone()).await {
        Ok(_) => tracing::debug!(%task, "canceled a remote task that nobody waits for"),
        Err(error) => tracing::debug!(%task, %error, "a remote task that nobody waits for goes on"),
    }
}

type Begun = watch::Sender<Option<TaskId>>;

/// Sends a message and waits until its task has ended, or wants something.
async fn follow(client: &Client, message: Message, begun: &Begun) -> Result<Reply, ClientError> {
    if client.card().capabilities.streaming == Some(true) {
        stream(client, message, begun).await
    } else {
        look(client, message, begun).await
    }
}

async fn stream(client: &Client, message: Message, begun: &Begun) -> Result<Reply, ClientError> {
    let mut events = client.stream(outgoing(message)).await?;
    let mut task: Option<Task> = None;
    let mut bytes = 0;
    while let Some(event) = events.next().await {
        let (id, context, event) = match event? {
            StreamResponse::Message(message) => return Ok(Reply::Message(message)),
            StreamResponse::Task(now) => {
                begun.send_replace(Some(now.id.clone()));
                task = Some(now);
                continue;
            }
            StreamResponse::StatusUpdate(update) => {
                (update.task_id.clone(), update.context_id.clone(), TaskEvent::Status(Arc::new(update)))
            }
            StreamResponse::ArtifactUpdate(update) => {
                bytes += update.artifact.parts.iter().map(size).sum::<usize>();
                if bytes > LARGEST {
                    return Err(ClientError::TooLarge { limit: LARGEST });
                }
                (update.task_id.clone(), update.context_id.clone(), TaskEvent::Artifact(Arc::new(update)))
            }
        };
        // Some servers do not begin with the task.
        let task = task.get_or_insert_with(|| {
            begun.send_replace(Some(id.clone()));
            Task { id, context_id: Some(context).filter(|id| !id.is_empty()), ..Task::default() }
        });
        // What waits for someone waits until another call; what has ended closes its stream by itself.
        let waits = event.state().is_some_and(TaskState::is_interrupted);
        // What is said about a task that has ended changes nothing.
        let _ = fold(task, event);
        if waits {
            break;
        }
    }
    let nothing = || ClientError::Protocol("the stream has no events".to_owned());
    task.map(Reply::Task).ok_or_else(nothing)
}

/// About how much room a part takes.
fn size(part: &Part) -> usize {
    let content = match &part.content {
        Content::Text(text) | Content::Url(text) => text.len(),
        Content::Raw(bytes) => bytes.len(),
        Content::Data(data) => data.as_str().len(),
    };
    size_of::<Part>() + content
}

/// Looks at the task again and again: an agent that does not stream would otherwise hold its answer back, and nobody would know
/// what to cancel.
async fn look(client: &Client, message: Message, begun: &Begun) -> Result<Reply, ClientError> {
    // A task that goes on may still say what it said before, so its answer is waited for.
    let goes_on = message.task_id.is_some();
    let outgoing = outgoing(message);
    let outgoing = if goes_on { outgoing } else { outgoing.return_immediately() };
    let mut task = match client.send(outgoing).await? {
        Reply::Message(message) => return Ok(Reply::Message(message)),
        Reply::Task(task) => task,
    };
    begun.send_replace(Some(task.id.clone()));
    let (mut wait, longest) = LOOK;
    let mut failures = 0;
    while !task.status.state.is_terminal() && !task.status.state.is_interrupted() {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(longest);
        match client.get(task.id.clone()).await {
            Ok(now) => (task, failures) = (now, 0),
            Err(error) if error.is_transient() && failures < FAILURES => failures += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(Reply::Task(task))
}
