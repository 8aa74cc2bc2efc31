//! Sending a message: the gates it passes, the turn it starts, and the wait for the answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use attache_protocol::{
    AgentCard, ContextId, Error, ErrorKind, IDEMPOTENCY_EXTENSION, Message, SendMessageConfiguration,
    SendMessageRequest, Task, TaskId, TaskPushNotificationConfig, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use futures::stream::{BoxStream, StreamExt};
use sha2::{Digest, Sha256};

use super::{Inner, Reply, Service, internal, to_the_end};
use crate::run;
use crate::store::Idempotency;
use crate::stream::Until;
use crate::turn::{Known, Position, Progress, Shared};
use crate::{
    AppendError, Caller, EventStream, Seq, Snapshot, StoreError, TailItem, TaskEvent, View, new_id,
};

/// The longest idempotency key that is taken.
const MAX_KEY: usize = 255;

/// How the client wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Whole,
    Stream,
}

/// A send that has passed the gates.
enum Accepted {
    /// The turn runs, or waits for the one that does. What comes after the message, if the answer is a stream.
    Turn(Arc<Shared>, Option<Tail>, View),
    /// An earlier send with the same key created this task.
    Repeat(TaskId, Caller, View),
}

type Tail = BoxStream<'static, Result<TailItem, StoreError>>;

impl Service {
    pub(super) async fn send(&self, caller: Caller, request: SendMessageRequest) -> Result<Reply, Error> {
        let wait = !request.configuration.as_ref().is_some_and(|configuration| configuration.return_immediately);
        match self.accept(caller, request, Answer::Whole).await? {
            Accepted::Repeat(task, caller, view) => {
                let snapshot =
                    if wait { self.settled(&caller, &task).await? } else { self.find(&caller, &task).await? };
                Ok(Reply::Sent(snapshot, view))
            }
            Accepted::Turn(turn, _, view) => {
                let progress = if wait { turn.signal.settled().await } else { turn.signal.begun().await };
                match progress {
                    Progress::Task => {
                        let now = self.find(&turn.caller, &turn.task_id).await?;
                        let left = if wait && !now.state.is_settled() { turn.signal.left() } else { None };
                        Ok(Reply::Sent(left.unwrap_or(now), view))
                    }
                    Progress::Message(message) => Ok(Reply::Message(message)),
                    Progress::Nothing => Err(internal(&"a turn ended and left neither task nor message")),
                }
            }
        }
    }

    pub(super) async fn stream(
        &self,
        caller: Caller,
        request: SendMessageRequest,
        resume: Option<Seq>,
    ) -> Result<Reply, Error> {
        self.require_streaming()?;
        let until =
            if self.0.options.close_stream_on_input_required { Until::EndedOrAsking } else { Until::Ended };
        let (first, tail, view) = match self.accept(caller, request, Answer::Stream).await? {
            Accepted::Repeat(task, _, view) => (None, self.0.store.tail(&task, resume.unwrap_or(Seq::START)), view),
            Accepted::Turn(turn, tail, view) => match turn.signal.begun().await {
                Progress::Message(message) => {
                    return Ok(Reply::Events(EventStream::message(*message), view));
                }
                Progress::Nothing => return Err(internal(&"a turn ended and left neither task nor message")),
                Progress::Task => {
                    let tail = tail.unwrap_or_else(|| self.0.store.tail(&turn.task_id, Seq::START));
                    (turn.before.clone(), tail, view)
                }
            },
        };
        Ok(Reply::Events(EventStream::follow(self.0.clone(), first, tail, until), view))
    }

    /// Checks everything that can be checked before the agent is asked, then starts its turn.
    async fn accept(
        &self,
        mut caller: Caller,
        request: SendMessageRequest,
        answer: Answer,
    ) -> Result<Accepted, Error> {
        if self.0.closing.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "the server is about to stop, try another or again later"));
        }
        let key = self.idempotency_key(&mut caller, &request)?;
        let idempotency = key.map(|key| Idempotency { key, fingerprint: fingerprint(&request) });
        let SendMessageRequest { mut message, configuration, .. } = request;
        let mut configuration = configuration.unwrap_or_default();
        // A stream is there at once anyway.
        configuration.return_immediately &= answer == Answer::Whole;
        let card = self.0.card.load();
        let push = configuration.task_push_notification_config.take();
        if push.is_some() && card.capabilities.push_notifications != Some(true) {
            return Err(super::push::not_supported());
        }
        let view = View {
            history: configuration.history_length.map(|length| length.max(0) as usize),
            artifacts: true,
            generation: caller.generations,
        };
        if message.parts.len() > self.0.options.max_parts {
            let limit = self.0.options.max_parts;
            return Err(Error::invalid_params("message.parts", format!("at most {limit} parts are taken")));
        }
        match message.task_id.clone() {
            Some(task_id) => {
                let before = self.continuable(&caller, &task_id, &mut message).await?;
                media_types(&card, &message)?;
                let service = self.clone();
                to_the_end(async move {
                    service.go_on(caller, message, configuration, push, before, view, answer).await
                })
                .await
            }
            None => {
                media_types(&card, &message)?;
                let service = self.clone();
                let begin = async move {
                    service.begin(caller, message, configuration, push, idempotency, view, answer).await
                };
                to_the_end(begin).await
            }
        }
    }

    /// Starts a turn that may create a task.
    #[expect(clippy::too_many_arguments, reason = "each is a fact about the message")]
    async fn begin(
        &self,
        caller: Caller,
        mut message: Message,
        mut configuration: SendMessageConfiguration,
        push: Option<TaskPushNotificationConfig>,
        idempotency: Option<Idempotency>,
        view: View,
        answer: Answer,
    ) -> Result<Accepted, Error> {
        let task_id = new_id::<TaskId>();
        let context_id = message.context_id.clone().unwrap_or_else(new_id::<ContextId>);
        message.context_id = Some(context_id.clone());
        message.task_id = Some(task_id.clone());
        configuration.if_generation_match = None;
        let push = push.map(|config| Box::new(super::push::complete(config, &task_id)));
        let fingerprint = idempotency.as_ref().map(|idempotency| idempotency.fingerprint);
        let turn = Shared::new(
            self.0.clone(),
            caller,
            message,
            configuration,
            task_id,
            context_id,
            None,
            answer == Answer::Stream,
            Position::Unborn { push, idempotency: idempotency.map(Box::new) },
        );
        if let Some(fingerprint) = fingerprint {
            // The key is claimed together with the task, so that a repeat finds it even after a crash.
            let known = turn.write().await.map_err(|error| internal(&error))?;
            if let Some(Known { task, fingerprint: earlier }) = known {
                if earlier != fingerprint {
                    let text = "this idempotency key was used for another message";
                    return Err(Error::invalid_params("Idempotency-Key", text));
                }
                return Ok(Accepted::Repeat(task, turn.caller.clone(), view));
            }
        }
        start(turn.clone()).await;
        Ok(Accepted::Turn(turn, None, view))
    }

    /// Adds a message to a task and gives it a turn.
    #[expect(clippy::too_many_arguments, reason = "each is a fact about the message")]
    async fn go_on(
        &self,
        caller: Caller,
        message: Message,
        configuration: SendMessageConfiguration,
        push: Option<TaskPushNotificationConfig>,
        before: Snapshot,
        view: View,
        answer: Answer,
    ) -> Result<Accepted, Error> {
        let task = before.task();
        let (task_id, context_id) = (task.id.clone(), task.context_id.clone().unwrap_or_default());
        if let Some(config) = push {
            self.keep_push(&task_id, super::push::complete(config, &task_id)).await?;
        }
        let expected = configuration.if_generation_match.filter(|_| caller.generations);
        self.append_message(&caller, before.clone(), expected, &task_id, &message).await?;
        let before = self.find(&caller, &task_id).await?;
        // Before the turn begins, so that the store knows that its events are read.
        let tail = (answer == Answer::Stream).then(|| self.0.store.tail(&task_id, before.seq));
        let turn = Shared::new(
            self.0.clone(),
            caller,
            message,
            configuration,
            task_id,
            context_id,
            Some(before),
            answer == Answer::Stream,
            Position::Over("the turn has not begun"),
        );
        turn.signal.begin(Progress::Task);
        if self.0.turns.start_or_wait(&turn) {
            if let Err(error) = run::take_over(&turn).await {
                run::give_up(&turn).await;
                return Err(Error::new(ErrorKind::Unavailable, format!("the task is busy: {error}")));
            }
            start(turn.clone()).await;
        }
        Ok(Accepted::Turn(turn, tail, view))
    }

    /// Writes a message into a task's log, and that the task is at work again if it was waiting for one.
    async fn append_message(
        &self,
        caller: &Caller,
        mut before: Snapshot,
        expected: Option<u64>,
        task_id: &TaskId,
        message: &Message,
    ) -> Result<(), Error> {
        let message = Arc::new(message.clone());
        loop {
            if let Some(expected) = expected
                && before.seq != Seq(expected)
            {
                let text = format!("the task is at generation {}, not {expected}", before.seq);
                let error = Error::new(ErrorKind::TaskGenerationMismatch, text);
                return Err(error.with("taskId", task_id).with("generation", before.seq));
            }
            // The status goes first: it moves the agent's question into the history, before the answer.
            let resumed = before.state.is_interrupted().then(|| self.0.resumed(&before.task()));
            let events = resumed.into_iter().chain([TaskEvent::Message(message.clone())]).collect();
            match self.0.store.append(task_id, None, before.seq, events).await {
                Ok(_) => return Ok(()),
                Err(AppendError::Conflict(_)) => before = self.find(caller, task_id).await?,
                Err(AppendError::Ended(state)) => return Err(ended(task_id, state)),
                Err(AppendError::NotFound) => return Err(Error::task_not_found(task_id)),
                Err(error @ (AppendError::LeaseLost | AppendError::Store(_))) => return Err(internal(&error)),
            }
        }
    }

    /// The task that a message continues, if it can be continued.
    async fn continuable(
        &self,
        caller: &Caller,
        task_id: &TaskId,
        message: &mut Message,
    ) -> Result<Snapshot, Error> {
        let before = self.find(caller, task_id).await?;
        let context_id = before.task().context_id.clone();
        if let (Some(named), Some(actual)) = (&message.context_id, &context_id)
            && named != actual
        {
            let text = format!("the task belongs to the context `{actual}`");
            return Err(Error::invalid_params("message.contextId", text));
        }
        message.context_id = context_id;
        if before.state.is_terminal() {
            return Err(ended(task_id, before.state));
        }
        Ok(before)
    }

    /// The key of a send: from the header, from the metadata, or the message's id where that is the rule.
    fn idempotency_key(&self, caller: &mut Caller, request: &SendMessageRequest) -> Result<Option<String>, Error> {
        let in_metadata = [&request.metadata, &request.message.metadata].into_iter().flatten().find_map(|object| {
            object.get::<serde_json::Value>(IDEMPOTENCY_EXTENSION)
        });
        let key = match (caller.idempotency_key.take(), in_metadata) {
            (Some(key), _) => key,
            (None, Some(serde_json::Value::String(key))) => key,
            (None, Some(_)) => {
                let field = format!("metadata[\"{IDEMPOTENCY_EXTENSION}\"]");
                return Err(Error::invalid_params(field, "expected a string"));
            }
            (None, None) if self.0.options.message_id_is_idempotency_key => request.message.message_id.clone(),
            (None, None) => return Ok(None),
        };
        if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            let text = format!("expected 1 to {MAX_KEY} printable ASCII characters");
            return Err(Error::invalid_params("Idempotency-Key", text));
        }
        Ok(Some(key))
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
async fn start(turn: Arc<Shared>) {
    let mut running: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(run::run(turn.clone()));
    if poll_fn(|cx| Poll::Ready(running.as_mut().poll(cx))).await.is_pending() {
        turn.service.turns.note(&turn);
        turn.service.spawn(running);
    }
}

fn ended(task_id: &TaskId, state: TaskState) -> Error {
    let text = format!("the task has ended in {state} and takes no more messages: send without `taskId` to begin another");
    Error::new(ErrorKind::UnsupportedOperation, text).with("taskId", task_id).with("state", state)
}

/// A digest of what was sent, the same whichever way it came.
fn fingerprint(request: &SendMessageRequest) -> [u8; 32] {
    let mut bytes = Vec::new();
    crate::event::write_json(&mut bytes, request);
    Sha256::digest(&bytes).into()
}

/// Checks the media types that a message states against those that the agent takes.
fn media_types(card: &AgentCard, message: &Message) -> Result<(), Error> {
    let essence = |text: &str| text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    for (i, part) in message.parts.iter().enumerate() {
        let Some(media_type) = &part.media_type else { continue };
        let given = essence(media_type);
        let taken = card.all_input_modes().any(|mode| {
            let mode = essence(mode);
            match mode.strip_suffix("/*") {
                Some("*") => true,
                Some(kind) => given.split('/').next() == Some(kind),
                None => mode == given || !mode.contains('/') && given.starts_with(&format!("{mode}/")),
            }
        });
        if !taken {
            let modes: Vec<_> = card.all_input_modes().collect();
            let text = format!("`{media_type}` is not taken here, expected one of: {}", modes.join(", "));
            return Err(Error::new(ErrorKind::ContentTypeNotSupported, text)
                .with("field", format_args!("message.parts[{i}].mediaType"))
                .with("mediaType", media_type));
        }
    }
    Ok(())
}
