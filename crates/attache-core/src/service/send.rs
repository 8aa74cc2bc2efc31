//! Sending a message: the turn it starts, and the wait for the answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use attache_protocol::{
    ContextId, Error, ErrorKind, Message, SendMessageRequest, Task, TaskId, TaskState, TaskStatus,
    TaskStatusUpdateEvent, new_task_ids,
};
use futures::stream::{BoxStream, StreamExt};

use super::chosen_id;
use super::incoming::{Answer, Incoming, media_types, stopping};
use super::{Inner, Reply, Service, internal, to_the_end};
use crate::run::{self, Line};
use crate::shared::{Origin, Position, Shared, Written};
use crate::signal::Progress;
use crate::store::{Idempotency, UsedKey};
use crate::stream::Until;
use crate::{
    Append, AppendError, Caller, EventStream, Lease, Permit, Seq, Snapshot, StoreError, TailItem, TaskEvent,
    new_id,
};

/// A message that was taken.
enum Accepted {
    /// The turn runs, or waits for the one that does. If the message continues a task and the answer is a stream: the task with the
    /// message, and what comes after it.
    Turn(Arc<Shared>, Option<(Snapshot, Tail)>),
    /// An earlier send with the same key created this task.
    Repeat(TaskId, Caller),
}

/// What became of a message to a task that exists.
enum Added {
    /// It is in the log, and this turn answers it. If the answer is a stream: the task with the message, and what comes after it.
    /// Then the task with the message once more, for a turn that begins at once.
    New(Arc<Shared>, Option<(Snapshot, Tail)>, Snapshot),
    /// It was in the log before.
    Repeat(Accepted),
}

/// What a message that names a task goes on with.
enum Before {
    /// That task.
    Task(Box<Snapshot>),
    /// That task, which has ended: there is nothing more to do than to show it.
    Ended,
    /// Nothing: the task is to be created.
    Nothing,
}

type Tail = BoxStream<'static, Result<TailItem, StoreError>>;

impl Service {
    /// What can be refused at once is before there is anything to wait for, so that the future of a send is small.
    pub(super) fn send(
        &self,
        caller: Caller,
        request: Box<SendMessageRequest>,
    ) -> impl Future<Output = Result<Reply, Error>> + Send {
        let screened = self.screen(caller, request, Answer::Whole);
        async move {
            let incoming = screened?;
            let view = incoming.view();
            let wait = !incoming.configuration.return_immediately;
            let turn = if incoming.is_plain() {
                let permit = incoming.turn_permit().await?;
                let turn = self.begin(incoming);
                start(&turn, permit).await;
                turn
            } else {
                match Box::pin(self.accept_or_find(incoming, wait)).await? {
                    Ok(turn) => turn,
                    Err(snapshot) => return Ok(Reply::Sent(snapshot, view)),
                }
            };
            let progress = if wait { turn.signal.settled().await } else { turn.signal.begun().await };
            match progress {
                Progress::Task => {
                    // What the turn left, even if another one has gone on since.
                    let left = if wait { turn.signal.left() } else { None };
                    let task = match left {
                        Some(left) => left,
                        None => self.find(&turn.caller, &turn.task_id).await?,
                    };
                    Ok(Reply::Sent(task, view))
                }
                Progress::Message(message) => Ok(Reply::Message(message)),
                Progress::Nothing => Err(self.unanswered()),
            }
        }
    }

    /// Takes a message and gives the turn that it gets, or else the task that an earlier send with the same key has created.
    async fn accept_or_find(
        &self,
        incoming: Box<Incoming>,
        wait: bool,
    ) -> Result<Result<Arc<Shared>, Snapshot>, Error> {
        match self.accept(incoming).await? {
            Accepted::Turn(turn, _) => Ok(Ok(turn)),
            Accepted::Repeat(task, caller) if wait => self.settled(&caller, &task).await.map(Err),
            Accepted::Repeat(task, caller) => self.find(&caller, &task).await.map(Err),
        }
    }

    /// Why a turn ended and left neither task nor message.
    fn unanswered(&self) -> Error {
        if self.0.closing.load(Ordering::Relaxed) {
            stopping()
        } else {
            internal(&"a turn left nothing behind")
        }
    }

    pub(super) async fn stream(
        &self,
        caller: Caller,
        request: Box<SendMessageRequest>,
        resume: Option<Seq>,
    ) -> Result<Reply, Error> {
        self.require_streaming()?;
        let incoming = self.screen(caller, request, Answer::Stream)?;
        let view = incoming.view();
        let closes = self.0.options.close_stream_on_input_required;
        let (first, tail, until) = match self.accept(incoming).await? {
            Accepted::Repeat(task, caller) => {
                // For the caller it may not exist.
                self.find(&caller, &task).await?;
                let until = if closes { Until::EndedOrAsking } else { Until::Ended };
                (None, self.0.store.tail(&task, resume.unwrap_or(Seq::START)), until)
            }
            Accepted::Turn(turn, followed) => {
                let until = match &followed {
                    _ if !closes => Until::Ended,
                    None => Until::EndedOrAsking,
                    Some(_) => Until::EndedOrAskingIn(turn.clone()),
                };
                // The stream is open while the agent makes up its mind, so that nobody on the way takes it for dead.
                let service = self.clone();
                let events = async move {
                    match turn.signal.begun().await {
                        Progress::Message(message) => EventStream::message(*message),
                        Progress::Nothing => EventStream::broken(service.unanswered()),
                        Progress::Task => {
                            let (first, tail) = match followed {
                                Some((first, tail)) => (Some(first), tail),
                                None => (None, service.0.store.tail(&turn.task_id, Seq::START)),
                            };
                            EventStream::follow(service.0.clone(), first, tail, until)
                        }
                    }
                };
                return Ok(Reply::Events(EventStream::later(events), view));
            }
        };
        Ok(Reply::Events(EventStream::follow(self.0.clone(), first, tail, until), view))
    }

    /// Takes a message: from here on it will be answered, even if the client goes away.
    async fn accept(&self, mut incoming: Box<Incoming>) -> Result<Accepted, Error> {
        if incoming.is_plain() {
            let permit = incoming.turn_permit().await?;
            let turn = self.begin(incoming);
            start(&turn, permit).await;
            return Ok(Accepted::Turn(turn, None));
        }
        if let Some(Idempotency { key, fingerprint }) = &incoming.idempotency {
            // A repeat is answered whatever has become of the task since.
            let known =
                self.0.store.find_key(&incoming.caller.owner, key).await.map_err(|error| internal(&error))?;
            if let Some(known) = known {
                return repeat(known, *fingerprint, incoming.caller);
            }
        }
        let service = self.clone();
        match incoming.message.task_id.clone() {
            None => {
                let permit = incoming.turn_permit().await?;
                to_the_end(async move { service.begin_once(incoming, permit).await }).await
            }
            Some(mut task_id) => {
                let before = self.continuable(&incoming.caller, &mut task_id, &mut incoming.message).await?;
                media_types(&self.0.card.load(), &incoming.message)?;
                match before {
                    Before::Ended => Ok(Accepted::Repeat(task_id, incoming.caller)),
                    Before::Nothing => {
                        let permit = incoming.turn_permit().await?;
                        to_the_end(async move { service.begin_once(incoming, permit).await }).await
                    }
                    Before::Task(before) => {
                        // Messages to a task that is being worked on share its permit.
                        let running = self.0.turns.has(&task_id);
                        let permit = if running { None } else { incoming.turn_permit().await? };
                        to_the_end(async move { service.go_on(incoming, *before, permit).await }).await
                    }
                }
            }
        }
    }

    /// A turn that may create a task.
    fn begin(&self, incoming: Box<Incoming>) -> Arc<Shared> {
        let Incoming { caller, mut message, mut configuration, metadata, push, idempotency, answer } =
            *incoming;
        // A message that names a task gets here only if it may create that one.
        let task_id = message.task_id.take().unwrap_or_else(new_id::<TaskId>);
        let context_id = message.context_id.clone().unwrap_or_else(new_id::<ContextId>);
        message.context_id = Some(context_id.clone());
        message.task_id = Some(task_id.clone());
        configuration.if_generation_match = None;
        let push = push.map(|webhook| Box::new(super::push::complete(webhook, &task_id)));
        let position = Position::Unborn { push, idempotency: idempotency.map(Box::new) };
        let origin = Origin {
            caller,
            message,
            configuration,
            metadata,
            task_id,
            context_id,
            followed: answer == Answer::Stream,
            rerun: false,
        };
        Shared::new(self.0.clone(), origin, None, position)
    }

    /// Starts a turn that creates a task, unless an earlier send with the same key has.
    async fn begin_once(&self, incoming: Box<Incoming>, permit: Option<Permit>) -> Result<Accepted, Error> {
        let fingerprint =
            incoming.idempotency.as_ref().map_or([0; 32], |idempotency| idempotency.fingerprint);
        let turn = self.begin(incoming);
        // The key is claimed together with the task, so that a repeat finds it even after a crash.
        match turn.write().await.map_err(|error| internal(&error))? {
            Written::Repeat(known) => repeat(known, fingerprint, turn.caller.clone()),
            Written::Done => {
                start(&turn, permit).await;
                Ok(Accepted::Turn(turn, None))
            }
            // Another message of this caller with the same task was a moment earlier, and this one is its repeat.
            Written::Taken => Ok(Accepted::Repeat(turn.task_id.clone(), turn.caller.clone())),
        }
    }

    /// Adds a message to a task and gives it a turn.
    ///
    /// The message is added under the lease of this process. Where another process works on the task, the message is refused, and
    /// nothing of it is kept: neither its idempotency key nor its webhook.
    async fn go_on(
        &self,
        incoming: Box<Incoming>,
        before: Snapshot,
        permit: Option<Permit>,
    ) -> Result<Accepted, Error> {
        let task_id = before.task().id.clone();
        match self.0.turns.line_up(&task_id).await {
            Line::First(first) => {
                let lease = self.claim(&incoming.caller, &task_id).await?;
                let refused = match self.add(incoming, before, &task_id, lease).await {
                    Ok(Added::New(turn, stream, snapshot)) => {
                        turn.begin_writing(snapshot, lease);
                        first.start(&turn, lease);
                        start(&turn, permit).await;
                        return Ok(Accepted::Turn(turn, stream));
                    }
                    Ok(Added::Repeat(accepted)) => Ok(accepted),
                    Err(error) => Err(error),
                };
                // Before the next message of this process is let in.
                run::release(&*self.0.store, &task_id, lease).await;
                refused
            }
            Line::Behind(behind, lease) => match self.add(incoming, before, &task_id, lease).await? {
                Added::New(turn, stream, _) => {
                    behind.start_later(&turn);
                    Ok(Accepted::Turn(turn, stream))
                }
                Added::Repeat(accepted) => Ok(accepted),
            },
        }
    }

    /// Takes the lease of a task that no turn of this process has.
    async fn claim(&self, caller: &Caller, task_id: &TaskId) -> Result<Lease, Error> {
        let now = self.0.clock.now();
        let lease = self.0.store.claim(task_id, now, self.0.lease_end(now)).await;
        if let Some(lease) = lease.map_err(|error| internal(&error))? {
            return Ok(lease);
        }
        let snapshot = self.find(caller, task_id).await?;
        Err(if snapshot.state.is_terminal() { ended(task_id, snapshot.state) } else { busy(task_id) })
    }

    /// Writes a message into a task's log under a lease, and makes a turn of it.
    async fn add(
        &self,
        incoming: Box<Incoming>,
        before: Snapshot,
        task_id: &TaskId,
        lease: Lease,
    ) -> Result<Added, Error> {
        if let Some(known) = self.append_message(&incoming, before, task_id, lease).await? {
            let fingerprint = incoming.idempotency.as_ref().map_or([0; 32], |key| key.fingerprint);
            return repeat(known, fingerprint, incoming.caller).map(Added::Repeat);
        }
        let Incoming { caller, message, configuration, metadata, answer, .. } = *incoming;
        let snapshot = self.find(&caller, task_id).await?;
        let context_id = snapshot.task().context_id.clone().unwrap_or_default();
        // Before the turn begins, so that the store knows that its events are read.
        let stream = (answer == Answer::Stream).then(|| self.0.store.tail(task_id, snapshot.seq));
        let stream = stream.map(|tail| (snapshot.clone(), tail));
        let (task_id, followed) = (task_id.clone(), stream.is_some());
        let origin =
            Origin { caller, message, configuration, metadata, task_id, context_id, followed, rerun: false };
        let position = Position::Over("the turn has not begun");
        let turn = Shared::new(self.0.clone(), origin, None, position);
        turn.signal.begin(Progress::Task);
        Ok(Added::New(turn, stream, snapshot))
    }

    /// Writes a message into a task's log, and that the task is at work again if it was waiting for one. If the message is a
    /// repeat, what it repeats comes back instead.
    async fn append_message(
        &self,
        incoming: &Incoming,
        mut before: Snapshot,
        task_id: &TaskId,
        lease: Lease,
    ) -> Result<Option<UsedKey>, Error> {
        let Incoming { caller, configuration, push, idempotency, .. } = incoming;
        let message = Arc::new(incoming.message.clone());
        let expected = configuration.if_generation_match.filter(|_| caller.generations);
        loop {
            require_generation(expected, &before, task_id)?;
            // The status goes first: it moves the agent's question into the history, before the answer.
            let resumed = before.state.is_interrupted().then(|| self.0.resumed(&before.task()));
            let append = Append {
                after: before.seq,
                lease: Some(lease),
                idempotency: idempotency.clone().map(|key| (caller.owner.clone(), key)),
                push: push.clone().map(|webhook| self.new_webhook(webhook, task_id)),
                events: resumed.into_iter().chain([TaskEvent::Message(message.clone())]).collect(),
                now: self.0.clock.now(),
            };
            match self.0.store.append(task_id, append).await {
                Ok(_) => return Ok(None),
                Err(AppendError::KeyUsed(known)) => return Ok(Some(known)),
                Err(AppendError::Conflict(_)) => before = self.find(caller, task_id).await?,
                Err(AppendError::Ended(state)) => return Err(ended(task_id, state)),
                Err(AppendError::NotFound) => return Err(Error::task_not_found(task_id)),
                Err(AppendError::LeaseLost) => return Err(busy(task_id)),
                Err(AppendError::TooManyWebhooks) => {
                    return Err(self.too_many_webhooks().with("taskId", task_id));
                }
                Err(AppendError::Store(error)) => return Err(internal(&error)),
            }
        }
    }

    /// What a message that names a task goes on with.
    async fn continuable(
        &self,
        caller: &Caller,
        task_id: &mut TaskId,
        message: &mut Message,
    ) -> Result<Before, Error> {
        let before = match self.resolve(caller, task_id).await {
            Ok(before) => before,
            Err(error) if error.kind() == ErrorKind::TaskNotFound && caller.allowances().chosen_task_ids => {
                new_task_ids(message, caller.tenant())?;
                message.task_id = Some(chosen_id::stored(&caller.owner, task_id));
                return Ok(Before::Nothing);
            }
            Err(error) => return Err(error),
        };
        message.task_id = Some(task_id.clone());
        let context_id = before.task().context_id.clone();
        if let (Some(named), Some(actual)) = (&message.context_id, &context_id)
            && named != actual
        {
            let text = format!("the task belongs to the context `{actual}`");
            return Err(Error::invalid_params("message.contextId", text));
        }
        message.context_id = context_id;
        match before.state.is_terminal() {
            true if caller.allowances().ended_tasks => Ok(Before::Ended),
            true => Err(ended(task_id, before.state)),
            false => Ok(Before::Task(Box::new(before))),
        }
    }

    /// The task once it has ended or needs something from the client.
    async fn settled(&self, caller: &Caller, task_id: &TaskId) -> Result<Snapshot, Error> {
        let snapshot = self.find(caller, task_id).await?;
        if snapshot.state.is_settled() {
            return Ok(snapshot);
        }
        let mut tail = self.0.store.tail(task_id, snapshot.seq);
        while let Some(item) = tail.next().await {
            let settled = match item.map_err(|error| internal(&error))? {
                TailItem::Reset(_) => true,
                TailItem::Entries(entries) => {
                    entries.iter().filter_map(|entry| entry.event.state()).any(|state| state.is_settled())
                }
            };
            if settled {
                break;
            }
        }
        self.find(caller, task_id).await
    }
}

impl Inner {
    /// The event by which a task that waited for its client is at work again.
    fn resumed(&self, task: &Task) -> TaskEvent {
        TaskEvent::Status(Arc::new(TaskStatusUpdateEvent {
            task_id: task.id.clone(),
            context_id: task.context_id.clone().unwrap_or_default(),
            status: TaskStatus {
                state: TaskState::Working,
                message: None,
                timestamp: Some(self.now_after(task.status.timestamp)),
            },
            ..TaskStatusUpdateEvent::default()
        }))
    }
}

/// Runs a turn. Most answers need no waiting, so the first step is taken right here; what is not done then goes on by itself,
/// whether or not anyone still waits for it.
async fn start(turn: &Arc<Shared>, permit: Option<Permit>) {
    let mut running: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(run::run(turn.clone(), permit));
    if poll_fn(|cx| Poll::Ready(running.as_mut().poll(cx))).await.is_pending() {
        turn.service.turns.note(turn);
        turn.service.spawn(running);
    }
}

/// Answers a send whose key was used before: with the same task for the same message, and not for another.
fn repeat(known: UsedKey, fingerprint: [u8; 32], caller: Caller) -> Result<Accepted, Error> {
    if known.fingerprint != fingerprint {
        let text = "this idempotency key was used for another message";
        return Err(Error::invalid_params("Idempotency-Key", text));
    }
    Ok(Accepted::Repeat(known.task, caller))
}

/// Refuses a message that is meant for the task at another point of its log.
fn require_generation(expected: Option<u64>, before: &Snapshot, task_id: &TaskId) -> Result<(), Error> {
    match expected {
        Some(expected) if before.seq != Seq(expected) => {
            let text = format!("the task is at generation {}, not {expected}", before.seq);
            let error = Error::new(ErrorKind::TaskGenerationMismatch, text);
            Err(error.with("taskId", task_id).with("generation", before.seq))
        }
        Some(_) | None => Ok(()),
    }
}

/// The error for a message to a task that another process works on. Nothing of the message was kept.
fn busy(task_id: &TaskId) -> Error {
    let text = "another server works on the task: send the message again in a moment";
    Error::new(ErrorKind::Unavailable, text).with("taskId", task_id)
}

fn ended(task_id: &TaskId, state: TaskState) -> Error {
    let text = format!(
        "the task has ended in {state} and takes no more messages: send without `taskId` to begin another"
    );
    Error::new(ErrorKind::UnsupportedOperation, text).with("taskId", task_id).with("state", state)
}
