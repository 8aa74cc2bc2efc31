//! One turn: sends the caller's message, and follows the remote task until it has ended or needs the caller.

use std::collections::VecDeque;
use std::time::Duration;

use attache_client::{Client, ClientError, Events, Outgoing, Reply};
use attache_core::{BoxFuture, StoreError, Turn};
use attache_protocol::{Artifact, ContextId, Message, StreamResponse, Task, TaskId, TaskState, TaskStatus};
use futures::FutureExt;

use super::Inner;
use super::fault::{Fault, is_temporary};
use super::files::{self, RemoteFiles};
use super::links::Link;
use super::mirror::{Mirror, Repeated};
use super::outage::Outage;
use super::outgoing::{RemoteIds, outgoing};
use super::waiting::is_answered_by_caller;

/// The longest id of a remote task or context that is accepted, in bytes.
const MAX_ID: usize = 1024;

/// How many events that have arrived together are read before the first one is applied.
const MAX_AT_ONCE: usize = 32;

/// How long a stream is read whose task has ended.
const STREAM_END_TIMEOUT: Duration = Duration::from_secs(1);

/// One turn of a gateway.
///
/// What few turns need is boxed. Otherwise each turn would reserve space for it, and copy that space with every move.
pub(super) struct Session<'a> {
    pub(super) gateway: &'a Inner,
    pub(super) turn: &'a Turn,
    mirror: Mirror<'a>,
    files: RemoteFiles,
    pub(super) link: Link,
    stored: Stored,
    /// The id of the remote task if the agent speaks 0.1, once the message was sent: the gateway chooses it.
    pub(super) chosen_task: Option<TaskId>,
    /// Whether the remote task existed before this turn.
    pub(super) continues: bool,
    /// Events that have arrived and are not applied yet.
    arrived: VecDeque<Result<StreamResponse, ClientError>>,
    /// Where the response comes from. It is a field, so that a message that is being sent can be waited for after the turn was canceled.
    pub(super) source: Source,
}

/// What the store has of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    Nothing,
    /// The link of a task under way.
    UnderWay,
    /// Only the id of the remote task, which has ended.
    Ended,
}

/// The response to the message.
pub(super) enum Source {
    /// The message is being sent.
    Opening(BoxFuture<'static, Result<Opened, ClientError>>),
    Events(Box<Events>),
    /// The response has been read.
    Read,
}

pub(super) enum Opened {
    Events(Box<Events>),
    Reply(Reply),
}

/// What to do after a part of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Read on.
    Continue,
    /// The turn is over: the task has ended or waits for the caller.
    Settled,
    /// The stream lacks something. Read the whole task.
    Reread,
}

impl<'a> Session<'a> {
    pub(super) async fn new(gateway: &'a Inner, turn: &'a Turn) -> Result<Self, Fault> {
        let found = match turn.task() {
            Some(_) => gateway.links.task(turn.task_id()).await?,
            None => None,
        };
        let stored = if found.is_some() { Stored::UnderWay } else { Stored::Nothing };
        let mut link = found.unwrap_or_default();
        if link.context.is_none() {
            link.context = gateway.links.context(&turn.caller().owner, turn.context_id()).await?;
        }
        let mut mirror = Mirror::new(turn, gateway.options.max_bytes);
        if gateway.options.show_remote_ids {
            mirror.show_ids(&link);
        }
        let continues = link.task.is_some();
        Ok(Self {
            gateway,
            turn,
            mirror,
            files: RemoteFiles::default(),
            link,
            stored,
            chosen_task: None,
            continues,
            arrived: VecDeque::new(),
            source: Source::Read,
        })
    }

    /// The id of the remote task, once it is known.
    pub(super) fn remote_task(&self) -> Option<&TaskId> {
        let chosen = || self.chosen_task.as_ref().filter(|_| self.speaks_v0_1());
        self.link.task.as_ref().or_else(chosen)
    }

    /// The rest of the response, for a turn that is given up before the id of the remote task is known.
    pub(super) fn take_source(&mut self) -> Source {
        std::mem::replace(&mut self.source, Source::Read)
    }

    /// Does the work of the turn.
    pub(super) async fn run(&mut self) -> Result<(), Fault> {
        let mut next = self.begin().await?;
        loop {
            if next != Next::Settled || self.mirror.state().is_interrupted() {
                self.save_link().await?;
            }
            match next {
                Next::Settled if self.mirror.state() == TaskState::AuthRequired => {
                    let Some(id) = self.link.task.clone() else { break };
                    if is_answered_by_caller(self.gateway, self.turn, id).await? {
                        break;
                    }
                    next = Next::Reread;
                }
                Next::Settled => break,
                Next::Continue | Next::Reread => next = self.follow().boxed().await?,
            }
        }
        self.finish().await
    }

    /// Sends the message and reads the response.
    pub(super) async fn send(&mut self) -> Result<Next, Fault> {
        let message = self.outgoing().await?;
        let client = self.gateway.client.clone();
        self.source = Source::Opening(Box::pin(open(client, message, self.continues)));
        let opened = match &mut self.source {
            Source::Opening(opening) => tokio::select! {
                opened = &mut *opening => opened,
                // Such an agent may not respond before the end of the task. Our task has to survive a crash until then.
                () = self.gateway.client.until_v0_1() => {
                    self.mirror.begin().await?;
                    opening.await
                }
            },
            Source::Events(_) | Source::Read => return Ok(Next::Reread),
        };
        self.source = Source::Read;
        match opened {
            Ok(Opened::Reply(reply)) => self.apply_reply(reply).await,
            Ok(Opened::Events(events)) => {
                self.source = Source::Events(events);
                self.read_events().await
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn outgoing(&mut self) -> Result<Outgoing, Fault> {
        let message = self.sent_message().await?;
        let mut references = Vec::new();
        // Only tasks of the caller: to the remote agent, all callers are one.
        for task in self.turn.referenced_tasks().await? {
            references.extend(self.gateway.links.remote_task(&task.id).await?);
        }
        let (task, context) = (self.link.task.clone(), self.link.context.clone());
        let ids = RemoteIds { message, task, context, references };
        outgoing(self.turn, &self.gateway.client, ids)
            .map_err(|_| Fault::Invalid("the metadata of the message is not an object"))
    }

    /// The id of the message at the remote agent.
    pub(super) async fn sent_message(&mut self) -> Result<String, Fault> {
        let own = &self.turn.message().message_id;
        let sent_as = self.gateway.links.message_id(self.turn.task_id(), own).await?;
        let message = self.link.sent_message(own, sent_as).sent_as.clone();
        let chosen = || self.link.task.clone().unwrap_or_else(|| message.as_str().into());
        self.chosen_task = self.gateway.client.may_speak_v0_1().then(chosen);
        Ok(message)
    }

    /// Applies the response of an agent that does not stream.
    async fn apply_reply(&mut self, reply: Reply) -> Result<Next, Fault> {
        match reply {
            Reply::Message(message) => self.apply_message(message).boxed().await,
            Reply::Task(task) => {
                let ends = task.status.state.is_terminal();
                self.accept(&task.id, task.context_id.as_ref(), ends).await?;
                self.apply_task(task, true).await
            }
        }
    }

    /// Reads a stream to its end, or until the task is settled.
    pub(super) async fn read_events(&mut self) -> Result<Next, Fault> {
        let mut is_first = true;
        let mut reread = false;
        loop {
            let Some(event) = self.next_event().await? else { return Ok(Next::Reread) };
            let event = match event {
                None => {
                    if let Source::Events(events) = &self.source {
                        reread |= !events.unreadable().is_empty();
                    }
                    self.source = Source::Read;
                    let settled = self.mirror.state().is_settled() && !reread;
                    return Ok(if settled { Next::Settled } else { Next::Reread });
                }
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    self.source = Source::Read;
                    // The task goes on, and can be read when the agent is reachable again.
                    let goes_on = self.is_accepted() && is_temporary(&error);
                    Outage::new(self.gateway, self.turn).log(&error);
                    return if goes_on { Ok(Next::Reread) } else { Err(error.into()) };
                }
            };
            // The first snapshot can have the question that the message answers.
            let is_old = std::mem::take(&mut is_first) && self.continues;
            let next = self.apply_event(event, is_old).await?;
            reread |= next == Next::Reread;
            if next == Next::Settled || next == Next::Reread {
                self.end_stream();
                return Ok(if reread { Next::Reread } else { next });
            }
        }
    }

    /// Ends the reading of a stream. If its task has ended, the rest is read in the background: only then can the connection be used
    /// for the next message.
    pub(super) fn end_stream(&mut self) {
        self.arrived.clear();
        let source = self.take_source();
        if let Source::Events(mut events) = source
            && self.mirror.state().is_terminal()
            // Most streams end together with their last event.
            && !matches!(events.next().now_or_never(), Some(None))
        {
            let rest = async move { while events.next().await.is_some() {} };
            tokio::spawn(tokio::time::timeout(STREAM_END_TIMEOUT, rest));
        }
    }

    /// The next event of the stream: the inner value is nothing at the end of the stream, the outer one if there is none.
    ///
    /// What has arrived together with the first event is read, too. If the task has ended by then, its link is not needed.
    async fn next_event(&mut self) -> Result<Option<Option<Result<StreamResponse, ClientError>>>, Fault> {
        if let Some(event) = self.arrived.pop_front() {
            return Ok(Some(Some(event)));
        }
        if self.is_accepted() {
            // What follows can take long.
            self.save_link().await?;
        }
        let is_accepted = self.is_accepted();
        let Source::Events(events) = &mut self.source else { return Ok(None) };
        let first = events.next().await;
        while !is_accepted && self.arrived.len() < MAX_AT_ONCE {
            let Some(Some(event)) = events.next().now_or_never() else { break };
            self.arrived.push_back(event);
        }
        Ok(Some(first))
    }

    /// Whether the task ends with this event, or with one that has arrived together with it.
    fn ends_at_once(&self, event: &StreamResponse) -> bool {
        let ends = |event: &StreamResponse| match event {
            StreamResponse::Task(task) => task.status.state.is_terminal(),
            StreamResponse::StatusUpdate(update) => update.status.state.is_terminal(),
            StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => false,
        };
        ends(event) || self.arrived.iter().flatten().any(ends)
    }

    pub(super) async fn apply_event(&mut self, event: StreamResponse, is_old: bool) -> Result<Next, Fault> {
        let ends = self.ends_at_once(&event);
        match event {
            StreamResponse::Message(message) => self.apply_message(message).boxed().await,
            StreamResponse::Task(task) => {
                if !self.accept(&task.id, task.context_id.as_ref(), ends).await? {
                    return Ok(Next::Continue);
                }
                let with_status = !(is_old && task.status.state.is_interrupted());
                self.apply_task(task, with_status).await
            }
            StreamResponse::StatusUpdate(update) => {
                if !self.accept(&update.task_id, Some(&update.context_id), ends).await? {
                    return Ok(Next::Continue);
                }
                if self.may_lack_artifacts(&update.status)
                    && let Some(next) = self.read_completed(&update.task_id).boxed().await?
                {
                    return Ok(next);
                }
                self.mirror.status_update(update).await?;
                Ok(self.next())
            }
            StreamResponse::ArtifactUpdate(update) => {
                if !self.accept(&update.task_id, Some(&update.context_id), ends).await? {
                    return Ok(Next::Continue);
                }
                let mut update = update;
                self.fetch_files(&mut update.artifact).await?;
                Ok(match self.mirror.artifact(update).await? {
                    Repeated::Yes => Next::Continue,
                    Repeated::NeedsSnapshot => Next::Reread,
                })
            }
        }
    }

    /// Whether a stream that ends with this status may not have shown everything. Some agents, such as those of fasta2a, can add an
    /// artifact to their task without an event.
    fn may_lack_artifacts(&self, status: &TaskStatus) -> bool {
        status.state == TaskState::Completed && status.message.is_none() && !self.mirror.has_artifacts()
    }

    /// Reads and repeats a completed task. Nothing if that is not possible: then the events of the stream are all there is.
    async fn read_completed(&mut self, id: &TaskId) -> Result<Option<Next>, Fault> {
        match self.gateway.client.get(id.clone()).await {
            Ok(task) if task.status.state.is_terminal() => self.apply_task(task, true).await.map(Some),
            Err(error) if is_temporary(&error) => Ok(Some(Next::Reread)),
            Ok(_) => Ok(None),
            Err(error) => {
                tracing::debug!(target: super::LOG, %error, "a completed task cannot be read");
                Ok(None)
            }
        }
    }

    async fn fetch_files(&mut self, artifact: &mut Artifact) -> Result<(), Fault> {
        let (client, mirror) = (&self.gateway.client, &mut self.mirror);
        if !files::has_files(client, self.turn, &artifact.parts) {
            return Ok(());
        }
        self.files.fetch(client, self.turn, mirror, &mut artifact.parts).boxed().await
    }

    pub(super) async fn apply_task(&mut self, mut task: Task, with_status: bool) -> Result<Next, Fault> {
        for artifact in &mut task.artifacts {
            self.fetch_files(artifact).await?;
        }
        self.mirror.snapshot(task, with_status).await?;
        Ok(if with_status { self.next() } else { Next::Continue })
    }

    fn next(&self) -> Next {
        if self.mirror.state().is_settled() { Next::Settled } else { Next::Continue }
    }

    /// Repeats a direct message. A message in response to an answer does not end the task, so the task decides what follows.
    async fn apply_message(&mut self, message: Message) -> Result<Next, Fault> {
        if let Some(context) = message.context_id.as_ref().filter(|id| !id.is_empty()) {
            self.save_context(context).await?;
        }
        if let Some(task) = self.link.task.clone().filter(|_| self.continues) {
            let mut task = self.gateway.client.get(task).await?;
            if !task.status.state.is_terminal() {
                task.status.message = Some(Box::new(message));
                return self.apply_task(task, true).await;
            }
        }
        self.mirror.reply(message).await?;
        Ok(Next::Settled)
    }

    /// Notes the ids of the remote task when they are known. `ends` is whether the task has ended already. Returns whether the event
    /// belongs to this task.
    pub(super) async fn accept(
        &mut self,
        task: &TaskId,
        context: Option<&ContextId>,
        ends: bool,
    ) -> Result<bool, Fault> {
        if self.is_accepted() {
            return Ok(self.link.task.as_ref() == Some(task));
        }
        if task.is_empty() || task.as_str().len() > MAX_ID {
            return Err(Fault::Invalid("the id of the task is empty or too long"));
        }
        if self.link.task.as_ref().is_some_and(|known| known != task) {
            // The agent has begun another task instead of continuing the named one.
            tracing::debug!(target: super::LOG, task = %self.turn.task_id(), "the remote agent has begun another task");
        }
        self.link.task = Some(task.clone());
        let session = self.session_of(task);
        let new_context = self.note_context(context.filter(|id| !id.is_empty()).or(session.as_ref()))?;
        if let Some(message) = &mut self.link.message {
            message.accepted = true;
        }
        let (gateway, turn, link) = (self.gateway, self.turn, &self.link);
        let ends = ends && self.stored == Stored::Nothing;
        let save_context = async {
            match &new_context {
                Some(context) => store_context(gateway, turn, context).await,
                None => Ok(()),
            }
        };
        let save_task = async {
            match ends {
                true => gateway.links.note_ended(turn.task_id(), task).await,
                false => gateway.links.save_task(turn.task_id(), link).await,
            }
        };
        // Together, so that the store can write both at once.
        futures::try_join!(save_context, save_task)?;
        self.stored = if ends { Stored::Ended } else { Stored::UnderWay };
        if self.gateway.options.show_remote_ids {
            self.mirror.show_ids(&self.link);
        }
        if !ends {
            self.mirror.begin().await?;
        }
        Ok(true)
    }

    /// Stores the link of a task that did not end as quickly as it seemed, or that waits for its caller.
    async fn save_link(&mut self) -> Result<(), Fault> {
        if self.stored != Stored::UnderWay && self.link.task.is_some() {
            self.gateway.links.save_task(self.turn.task_id(), &self.link).await?;
            self.stored = Stored::UnderWay;
        }
        Ok(())
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.link.has_accepted(&self.turn.message().message_id)
    }

    async fn save_context(&mut self, context: &ContextId) -> Result<(), Fault> {
        match self.note_context(Some(context))? {
            Some(new) => Ok(store_context(self.gateway, self.turn, &new).await?),
            None => Ok(()),
        }
    }

    /// Notes the remote context. Returns it if it is new.
    fn note_context(&mut self, context: Option<&ContextId>) -> Result<Option<ContextId>, Fault> {
        let Some(context) = context.filter(|id| !id.is_empty()) else { return Ok(None) };
        if context.as_str().len() > MAX_ID {
            return Err(Fault::Invalid("the id of the context is too long"));
        }
        let is_new = self.link.context.as_ref() != Some(context);
        if is_new {
            self.link.context = Some(context.clone());
        }
        Ok(is_new.then(|| context.clone()))
    }

    /// Forgets a task that has no next turn.
    async fn finish(&mut self) -> Result<(), Fault> {
        if self.stored == Stored::UnderWay && !self.mirror.state().is_interrupted() {
            self.gateway.links.end_task(self.turn.task_id(), self.link.task.as_ref()).await?;
        }
        Ok(())
    }
}

async fn store_context(gateway: &Inner, turn: &Turn, remote: &ContextId) -> Result<(), StoreError> {
    gateway.links.save_context(&turn.caller().owner, turn.context_id(), remote).await
}

/// Sends a message.
async fn open(client: Client, message: Outgoing, continues: bool) -> Result<Opened, ClientError> {
    if client.card().capabilities.streaming == Some(true) {
        return client.stream(message).await.map(|events| Opened::Events(Box::new(events)));
    }
    // An existing task can still have its previous status in an immediate response, so this request blocks.
    let message = if continues { message } else { message.return_immediately() };
    client.send(message).await.map(Opened::Reply)
}

impl Source {
    /// Waits until the id of the remote task is known.
    pub(super) async fn task_id(self) -> Option<TaskId> {
        let mut events = match self {
            Self::Read => return None,
            Self::Events(events) => events,
            Self::Opening(opening) => match opening.await.ok()? {
                Opened::Reply(Reply::Task(task)) => return Some(task.id),
                Opened::Reply(Reply::Message(_)) => return None,
                Opened::Events(events) => events,
            },
        };
        match events.next().await?.ok()? {
            StreamResponse::Task(task) => Some(task.id),
            StreamResponse::StatusUpdate(update) => Some(update.task_id),
            StreamResponse::ArtifactUpdate(update) => Some(update.task_id),
            StreamResponse::Message(_) => None,
        }
    }
}
