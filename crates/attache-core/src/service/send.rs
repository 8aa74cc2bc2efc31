//! Sending a message: the turn that it starts, and the wait for the result.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use attache_protocol::{
    ContextId, Error, ErrorKind, Message, Role, SendMessageRequest, Task, TaskId, TaskState, TaskStatus,
    TaskStatusUpdateEvent, new_task_ids,
};
use futures::stream::{BoxStream, StreamExt};

use super::chosen_id;
use super::incoming::{Incoming, ReplyMode, check_media_types, stopping};
use super::{Inner, Reply, Service, internal, run_to_completion};
use crate::conversation::ContextAdmission;
use crate::permission::{check_answer, waits_for_answer};
use crate::run;
use crate::signal::Progress;
use crate::store::{Idempotency, UsedKey};
use crate::stream::StreamEnd;
use crate::turn_state::{TurnState, WriteOutcome, WriteState};
use crate::turns::TurnOrder;
use crate::{
    Agent, Append, AppendError, Caller, EventStream, Lease, Namespace, Permit, Seq, Snapshot, StoreError,
    TailItem, TaskEvent, Turn, new_id,
};

/// A message that was accepted.
enum Accepted {
    /// The turn of the message, which runs or is in the queue. If the message continues a task and the reply is a stream: the task
    /// with the message, and the events after it.
    Turn(Arc<TurnState>, Option<(Snapshot, Tail)>),
    /// The message is a repeat. Its task was created or continued before.
    Repeat(TaskId, Caller),
}

/// The result of adding a message to an existing task.
enum AddedMessage {
    /// The message is in the log, and this turn answers it. If the reply is a stream: the task with the message, and the events after
    /// it. The last member is the task with the message, for a turn that starts now.
    New(Arc<TurnState>, Option<(Snapshot, Tail)>, Snapshot),
    /// The message is a repeat.
    Repeat(Accepted),
}

/// What a message that names a task continues.
enum Continuation {
    /// The task.
    Task(Box<Snapshot>),
    /// The task, which has ended. The reply is this task.
    Ended,
    /// No task: it is to be created with the id of the message.
    NewTask,
}

type Tail = BoxStream<'static, Result<TailItem, StoreError>>;

impl Service {
    /// Sends a message. The checks run before the future is made, so that the future is small.
    pub(super) fn send(
        &self,
        caller: Caller,
        request: Box<SendMessageRequest>,
    ) -> impl Future<Output = Result<Reply, Error>> + Send {
        let checked = self.check_send(caller, request, ReplyMode::Single);
        async move {
            let incoming = checked?;
            let view = incoming.view();
            let wait = !incoming.configuration.return_immediately;
            let turn = if incoming.needs_no_lookup() {
                let permit = incoming.turn_permit().await?;
                let turn = self.new_turn(incoming);
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
                    // The task at the end of this turn, even if another turn has changed it since.
                    let settled = if wait { turn.signal.final_task() } else { None };
                    let task = match settled {
                        Some(settled) => settled,
                        None => self.find(&turn.caller, &turn.task_id).await?,
                    };
                    Ok(Reply::Sent(task, view))
                }
                Progress::Message(message) => Ok(Reply::Message(message)),
                Progress::Nothing => Err(self.no_result()),
            }
        }
    }

    /// Accepts a message. Returns its turn, or the task of the earlier send if the message is a repeat.
    async fn accept_or_find(
        &self,
        incoming: Box<Incoming>,
        wait: bool,
    ) -> Result<Result<Arc<TurnState>, Snapshot>, Error> {
        match self.accept(incoming).await? {
            Accepted::Turn(turn, _) => Ok(Ok(turn)),
            Accepted::Repeat(task, caller) if wait => self.wait_until_settled(&caller, &task).await.map(Err),
            Accepted::Repeat(task, caller) => self.find(&caller, &task).await.map(Err),
        }
    }

    /// The error for a turn that ended with neither a task nor a message.
    fn no_result(&self) -> Error {
        if self.0.closing.load(Ordering::Relaxed) {
            stopping()
        } else {
            internal(&"a turn ended without a task or a message")
        }
    }

    pub(super) async fn stream(
        &self,
        caller: Caller,
        request: Box<SendMessageRequest>,
        resume: Option<Seq>,
    ) -> Result<Reply, Error> {
        let incoming = self.check_send(caller, request, ReplyMode::Stream)?;
        let view = incoming.view();
        let closes = self.0.options.close_stream_on_input_required;
        let (first, tail, until) = match self.accept(incoming).await? {
            Accepted::Repeat(task, caller) => {
                // The task may have been deleted.
                self.find(&caller, &task).await?;
                let until = if closes { StreamEnd::InputRequired } else { StreamEnd::TaskEnded };
                (None, self.0.store.tail(&task, resume.unwrap_or(Seq::START)), until)
            }
            Accepted::Turn(turn, followed) => {
                let until = match &followed {
                    _ if !closes => StreamEnd::TaskEnded,
                    None => StreamEnd::InputRequired,
                    Some(_) => StreamEnd::InputRequiredIn(turn.clone()),
                };
                // The stream opens before the agent's first event, so that no proxy times out the response.
                let service = self.clone();
                let events = async move {
                    match turn.signal.begun().await {
                        Progress::Message(message) => EventStream::message(*message),
                        Progress::Nothing => EventStream::error(service.no_result()),
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

    /// Accepts a message. The agent answers it even if the client disconnects.
    async fn accept(&self, mut incoming: Box<Incoming>) -> Result<Accepted, Error> {
        if incoming.needs_no_lookup() {
            let permit = incoming.turn_permit().await?;
            let turn = self.new_turn(incoming);
            start(&turn, permit).await;
            return Ok(Accepted::Turn(turn, None));
        }
        if let Some(Idempotency { key, fingerprint }) = &incoming.idempotency {
            // A repeat gets its task in whatever state the task is now.
            let used =
                self.0.store.find_key(&incoming.caller.owner, key).await.map_err(|error| internal(&error))?;
            if let Some(used) = used {
                return repeat(used, *fingerprint, incoming.caller);
            }
        }
        let service = self.clone();
        match incoming.message.task_id.clone() {
            None => {
                let permit = self.permit_and_place(&mut incoming, None).await?;
                if !incoming.stores_key_first {
                    let turn = self.new_turn(incoming);
                    start(&turn, permit).await;
                    return Ok(Accepted::Turn(turn, None));
                }
                run_to_completion(async move { service.create_task(incoming, permit).await }).await
            }
            Some(mut task_id) => {
                let before = self.continuation(&incoming.caller, &mut task_id, &mut incoming.message).await?;
                // The answer to a question of ours is data, whatever the agent takes.
                let is_answer = matches!(&before, Continuation::Task(task) if waits_for_answer(&task.task()));
                if !is_answer {
                    check_media_types(&self.0.card.load(), &incoming.message)?;
                }
                match before {
                    Continuation::Ended => Ok(Accepted::Repeat(task_id, incoming.caller)),
                    Continuation::NewTask => {
                        self.0.agent.prepare(&mut incoming.message);
                        let permit = self.permit_and_place(&mut incoming, None).await?;
                        run_to_completion(async move { service.create_task(incoming, permit).await }).await
                    }
                    Continuation::Task(before) => {
                        // Messages to a task with a running turn share the permit of that turn. Turns that wait until this task has got
                        // its answer have permits and do not run: the answer needs none, or both could wait for each other.
                        let shares = self.0.turns.has(&task_id) || self.0.contexts.is_awaited(&task_id);
                        let task = before.task();
                        let none = Message::default();
                        let first = Some(
                            task.history.iter().find(|message| message.role == Role::User).unwrap_or(&none),
                        );
                        let permit = match shares {
                            true => self.place(&mut incoming, first).await.map(|()| None)?,
                            false => self.permit_and_place(&mut incoming, first).await?,
                        };
                        drop(task);
                        run_to_completion(
                            async move { service.continue_task(incoming, *before, permit).await },
                        )
                        .await
                    }
                }
            }
        }
    }

    /// Makes a turn without a task. Its first event creates the task.
    fn new_turn(&self, mut incoming: Box<Incoming>) -> Arc<TurnState> {
        // A message with a task id gets here only if it may create a task with that id.
        let named = incoming.message.task_id.take().or(incoming.new_task.take());
        let task_id = named.unwrap_or_else(new_id::<TaskId>);
        let context_id = incoming.message.context_id.clone().unwrap_or_else(new_id::<ContextId>);
        incoming.message.context_id = Some(context_id.clone());
        incoming.message.task_id = Some(task_id.clone());
        incoming.configuration.if_generation_match = None;
        let push = incoming.push.take().map(|webhook| Box::new(super::push::complete(webhook, &task_id)));
        let idempotency = incoming.idempotency.take().map(Box::new);
        let write_state = WriteState::NoTask { push, idempotency };
        let followed = incoming.reply_mode == ReplyMode::Stream;
        let request = incoming.into_turn(task_id, context_id, followed);
        let turn = TurnState::new(self.0.clone(), request, None, write_state);
        if let ContextAdmission::Refused(text) = turn.place {
            // The mark is written with the task, so that no turn takes the message for a part of the conversation.
            let turn = Turn { inner: turn.clone() };
            if let Err(error) = turn.refuse(text) {
                tracing::warn!(task = %turn.task_id(), %error, "a refused message could not be reported");
            }
        }
        turn
    }

    /// Creates a task and starts its turn, unless an earlier send has used the same key.
    async fn create_task(&self, incoming: Box<Incoming>, permit: Option<Permit>) -> Result<Accepted, Error> {
        let fingerprint =
            incoming.idempotency.as_ref().map_or([0; 32], |idempotency| idempotency.fingerprint);
        let turn = self.new_turn(incoming);
        // The key is stored together with the task, so that a repeat finds it even after a crash.
        match turn.write().await.map_err(|error| internal(&error))? {
            WriteOutcome::Repeat(used) => repeat(used, fingerprint, turn.caller.clone()),
            WriteOutcome::Done => {
                start(&turn, permit).await;
                Ok(Accepted::Turn(turn, None))
            }
            // Another message of this caller has just created the task with this id. This one is its repeat.
            WriteOutcome::Taken => Ok(Accepted::Repeat(turn.task_id.clone(), turn.caller.clone())),
        }
    }

    /// Adds a message to a task, and starts or queues its turn.
    ///
    /// The message is added under the lease of this process. If another process works on the task, the message is rejected, and
    /// nothing of it is stored: neither its idempotency key nor its webhook.
    async fn continue_task(
        &self,
        incoming: Box<Incoming>,
        before: Snapshot,
        permit: Option<Permit>,
    ) -> Result<Accepted, Error> {
        let task_id = before.task().id.clone();
        match self.0.turns.join_queue(&task_id).await {
            TurnOrder::First(first) => {
                let lease = self.claim(&incoming.caller, &task_id).await?;
                let not_started = match self.add_message(incoming, before, &task_id, lease).await {
                    Ok(AddedMessage::New(turn, stream, snapshot)) => {
                        turn.begin_writing(snapshot, lease);
                        first.start(&turn, lease);
                        start(&turn, permit).await;
                        return Ok(Accepted::Turn(turn, stream));
                    }
                    Ok(AddedMessage::Repeat(accepted)) => Ok(accepted),
                    Err(error) => Err(error),
                };
                // `first` is dropped after the release, so that the next message of this process can claim the task.
                run::release(&*self.0.store, &task_id, lease).await;
                drop(first);
                not_started
            }
            TurnOrder::Queued(queued, lease) => {
                match self.add_message(incoming, before, &task_id, lease).await? {
                    AddedMessage::New(turn, stream, _) => {
                        queued.start_later(&turn);
                        Ok(Accepted::Turn(turn, stream))
                    }
                    AddedMessage::Repeat(accepted) => Ok(accepted),
                }
            }
        }
    }

    /// Claims a task that has no turn in this process.
    async fn claim(&self, caller: &Caller, task_id: &TaskId) -> Result<Lease, Error> {
        let now = self.0.clock.now();
        let lease = self.0.store.claim(task_id, now, self.0.lease_end(now)).await;
        if let Some(lease) = lease.map_err(|error| internal(&error))? {
            return Ok(lease);
        }
        let snapshot = self.find(caller, task_id).await?;
        Err(if snapshot.state.is_terminal() { ended(task_id, snapshot.state) } else { busy(task_id) })
    }

    /// Appends a message to the log under a lease, and makes its turn.
    async fn add_message(
        &self,
        incoming: Box<Incoming>,
        before: Snapshot,
        task_id: &TaskId,
        lease: Lease,
    ) -> Result<AddedMessage, Error> {
        if let Some(used) = self.append_message(&incoming, before, task_id, lease).await? {
            let fingerprint = incoming.idempotency.as_ref().map_or([0; 32], |key| key.fingerprint);
            return repeat(used, fingerprint, incoming.caller).map(AddedMessage::Repeat);
        }
        let snapshot = self.find(&incoming.caller, task_id).await?;
        let context_id = snapshot.task().context_id.clone().unwrap_or_default();
        // The stream is opened before the turn starts, so that the store keeps the events for it.
        let streams = incoming.reply_mode == ReplyMode::Stream;
        let stream = streams.then(|| self.0.store.tail(task_id, snapshot.seq));
        let stream = stream.map(|tail| (snapshot.clone(), tail));
        let request = incoming.into_turn(task_id.clone(), context_id, stream.is_some());
        let write_state = WriteState::Closed("the turn has not begun");
        let turn = TurnState::new(self.0.clone(), request, None, write_state);
        turn.signal.begin(Progress::Task);
        Ok(AddedMessage::New(turn, stream, snapshot))
    }

    /// Appends a message to the log. If the task was interrupted, its state becomes working. If the message is a repeat, returns the
    /// used key instead.
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
            // The status goes first: it moves the question of the agent into the history, before the answer.
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
                Err(AppendError::KeyUsed(used)) => return Ok(Some(used)),
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

    /// What a message that names a task continues.
    async fn continuation(
        &self,
        caller: &Caller,
        task_id: &mut TaskId,
        message: &mut Message,
    ) -> Result<Continuation, Error> {
        let before = match self.resolve(caller, task_id).await {
            Ok(before) => before,
            Err(error)
                if error.kind() == ErrorKind::TaskNotFound && caller.dialect_rules().chosen_task_ids =>
            {
                new_task_ids(message, caller.tenant())?;
                message.task_id = Some(chosen_id::stored(&caller.owner, task_id));
                return Ok(Continuation::NewTask);
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
        if self.0.options.reports.namespace == Namespace::IacCode {
            check_answer(&before.task(), message, self.0.questions.is_open(task_id))?;
        }
        match before.state.is_terminal() {
            true if caller.dialect_rules().ended_tasks => Ok(Continuation::Ended),
            true => Err(ended(task_id, before.state)),
            false => Ok(Continuation::Task(Box::new(before))),
        }
    }

    /// Waits until the task has ended or is interrupted.
    async fn wait_until_settled(&self, caller: &Caller, task_id: &TaskId) -> Result<Snapshot, Error> {
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
    /// The event that sets an interrupted task to working.
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

/// Starts a turn. Most agents are done at the first poll, which happens here. Otherwise the turn is spawned, so that it does not depend
/// on the request.
async fn start(turn: &Arc<TurnState>, permit: Option<Permit>) {
    let mut running: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(run::run(turn.clone(), permit));
    if poll_fn(|cx| Poll::Ready(running.as_mut().poll(cx))).await.is_pending() {
        turn.service.turns.register_running(turn);
        turn.service.spawn(running);
    }
}

/// Accepts a repeat of an earlier send with the same key. Rejects a different message with that key.
fn repeat(used: UsedKey, fingerprint: [u8; 32], caller: Caller) -> Result<Accepted, Error> {
    if used.fingerprint != fingerprint {
        let text = "this idempotency key was used for another message";
        return Err(Error::invalid_params("Idempotency-Key", text));
    }
    Ok(Accepted::Repeat(used.task, caller))
}

/// Rejects a message that expects another generation of the task.
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

/// The error for a message to a task that another process works on. Nothing of the message was stored.
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
