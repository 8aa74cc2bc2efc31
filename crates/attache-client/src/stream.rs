//! The events of a task, over as many connections as needed.
//!
//! If a stream breaks, the client subscribes to the task again, starting after the last event that was read. A server that
//! numbers its events continues exactly there. Other servers send the current task, which contains everything that was missed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use attache_protocol::{
    GetTaskRequest, Request, SendMessageRequest, StreamResponse, SubscribeToTaskRequest, Task, TaskId,
    TaskState,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, Stream, StreamExt};

use crate::deadline::Deadline;
use crate::request_headers::RequestHeaders;
use crate::transport::{Connection, Event, Received, Transport};
use crate::{ClientError, Texts};

/// How long a server may take to close a stream that has ended. If the client closed it, the connection could not be reused.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How many unreadable events are kept.
const MAX_UNREADABLE: usize = 32;

/// An event of a stream that could not be read. The stream went on without it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnreadableEvent {
    /// Why it could not be read.
    pub why: String,
}

/// The events of a task, or a direct message.
///
/// An error is the last item. Dropping this ends the stream; the task continues. An event that cannot be read is left out and
/// reported by [`unreadable`](Self::unreadable).
pub struct Events {
    events: BoxStream<'static, Result<Item, ClientError>>,
    unreadable: Vec<UnreadableEvent>,
    /// The maximum size of the collected text, in bytes.
    max_text: usize,
}

/// What a stream delivers.
enum Item {
    Event(StreamResponse),
    Unreadable(UnreadableEvent),
}

impl Events {
    /// The next event; nothing at the end.
    ///
    /// The same as `StreamExt::next`, without the import. If the future is dropped, no event is lost.
    pub async fn next(&mut self) -> Option<Result<StreamResponse, ClientError>> {
        StreamExt::next(self).await
    }

    /// The events so far that could not be read, up to a limit. The text of the task may lack what they said; the task itself has it.
    pub fn unreadable(&self) -> &[UnreadableEvent] {
        &self.unreadable
    }

    /// Waits for the end, and returns the text that the agent produced.
    ///
    /// ```no_run
    /// # async fn example(agent: attache_client::Client) -> Result<(), attache_client::ClientError> {
    /// let texts = agent.stream("Tell me a story").await?.texts().await?;
    /// eprintln!("{:?}: {}", texts.state(), texts.all());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn texts(mut self) -> Result<Texts, ClientError> {
        let mut texts = Texts::default();
        while let Some(event) = Self::next(&mut self).await {
            texts.note(&event?);
            if texts.size() > self.max_text {
                return Err(ClientError::TooLarge { limit: self.max_text });
            }
        }
        texts.unreadable_events = self.unreadable.len();
        Ok(texts)
    }

    /// A stream of one event.
    pub(crate) fn one(event: StreamResponse) -> Self {
        let events = stream::iter([Ok(Item::Event(event))]).boxed();
        Self { events, unreadable: Vec::new(), max_text: usize::MAX }
    }

    pub(crate) fn follow(follower: Follower) -> Self {
        let max_text = follower.transport.http.options.max_body;
        let events = |mut follower: Follower| async { follower.next().await.map(|event| (event, follower)) };
        let events = stream::unfold(follower, events).fuse().boxed();
        Self { events, unreadable: Vec::new(), max_text }
    }
}

impl Stream for Events {
    type Item = Result<StreamResponse, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(self.events.poll_next_unpin(cx)) {
                Some(Ok(Item::Event(event))) => return Poll::Ready(Some(Ok(event))),
                Some(Ok(Item::Unreadable(event))) => {
                    if self.unreadable.len() < MAX_UNREADABLE {
                        self.unreadable.push(event);
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// The request that opened a stream.
pub(crate) enum Opening {
    /// A message, sent with this request.
    Send(Request),
    Subscribe(TaskId),
}

impl Opening {
    pub(crate) fn send(request: SendMessageRequest) -> Self {
        Self::Send(Request::SendStreamingMessage(Box::new(request)))
    }
}

/// The state of a stream that is being read.
pub(crate) struct Follower {
    transport: Transport,
    opening: Opening,
    headers: RequestHeaders,
    deadline: Deadline,
    /// Nothing once the stream has ended.
    connection: Option<Connection>,
    task: Option<TaskId>,
    last_event: Option<Arc<str>>,
    state: StreamState,
    /// Whether this is the first connection, and whether it has delivered an event.
    resumption: Resumption,
    /// Attempts to reconnect since the last progress.
    attempts: u32,
    /// Why the first event could not be read, if no event could be read so far.
    unreadable: Option<String>,
}

/// The state of the stream, according to the last event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamState {
    /// More events follow.
    Open,
    /// The task waits for the client. The server decides whether more events follow.
    Waiting,
    /// The agent needs input. More events follow only after another message.
    CredentialRequest,
    /// The task or the direct message is complete.
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Resumption {
    /// The first connection.
    None,
    /// A later connection without an event so far.
    Fresh,
    /// A later connection with events.
    Running,
}

impl Follower {
    pub(crate) async fn open(
        transport: Transport,
        opening: Opening,
        headers: RequestHeaders,
        deadline: Deadline,
    ) -> Result<Self, ClientError> {
        let mut follower = Self {
            transport,
            deadline,
            task: match &opening {
                // Before the first event, the client cannot know whether the agent received the message.
                Opening::Send(_) => None,
                Opening::Subscribe(id) => Some(id.clone()),
            },
            opening,
            headers,
            connection: None,
            last_event: None,
            state: StreamState::Open,
            resumption: Resumption::None,
            attempts: 0,
            unreadable: None,
        };
        let opened = async {
            match follower.connect().await {
                Ok(connection) => follower.connection = Some(connection),
                Err(error) if follower.may_repeat() && error.is_transient() => {
                    follower.boxed_reconnect(error).await?;
                }
                Err(error) => return Err(error),
            }
            Ok(())
        };
        deadline.keep(opened).await?;
        Ok(follower)
    }

    async fn next(&mut self) -> Option<Result<Item, ClientError>> {
        let deadline = self.deadline;
        match deadline.keep(async { Ok(self.advance().await) }).await {
            Ok(event) => event,
            Err(late) => {
                self.connection = None;
                Some(Err(late))
            }
        }
    }

    async fn advance(&mut self) -> Option<Result<Item, ClientError>> {
        loop {
            let connection = self.connection.as_mut()?;
            let silence = match self.state {
                StreamState::Ended => CLOSE_TIMEOUT,
                StreamState::Open | StreamState::Waiting | StreamState::CredentialRequest => {
                    self.transport.idle_timeout()
                }
            };
            // A subscription would continue after the point where the stream of a message ends.
            if self.state == StreamState::CredentialRequest && self.resumption != Resumption::None {
                self.connection = None;
                return None;
            }
            let cause = match (connection.next(silence).await, self.state) {
                (Ok(Some(Received::Event(event))), _) => {
                    let event = self.catch_up(event).await;
                    return Some(self.note(event).map(Item::Event));
                }
                (Ok(Some(Received::Unreadable(why))), _) => {
                    let task = self.task.as_ref().map(TaskId::as_str);
                    tracing::warn!(task, why, "an event of a stream cannot be read");
                    if self.task.is_none() && self.unreadable.is_none() {
                        self.unreadable = Some(why.clone());
                    }
                    return Some(Ok(Item::Unreadable(UnreadableEvent { why })));
                }
                (Ok(None), StreamState::Waiting | StreamState::CredentialRequest | StreamState::Ended)
                | (Err(_), StreamState::CredentialRequest | StreamState::Ended) => {
                    self.connection = None;
                    return None;
                }
                // A stream without a single event that can be read is none.
                (Ok(None), StreamState::Open) if let Some(why) = self.unreadable.take() => {
                    ClientError::Protocol(why)
                }
                (Ok(None), StreamState::Open) => {
                    ClientError::Broken("the stream ended before its task did".to_owned())
                }
                (Err(error), StreamState::Open | StreamState::Waiting) => error,
            };
            self.connection = None;
            let broken = matches!(cause, ClientError::Broken(_) | ClientError::Timeout { .. });
            let reconnected = if broken {
                match self.ended_task().await {
                    Some(task) => Ok(Some(task)),
                    None => self.boxed_reconnect(cause).await,
                }
            } else if self.resumption == Resumption::Fresh {
                // Some servers open the stream of a subscription and then refuse it there.
                self.ended_task_or(cause).await.map(Some)
            } else {
                Err(cause)
            };
            match reconnected {
                Ok(None) => {}
                Ok(Some(task)) => return Some(Ok(Item::Event(StreamResponse::Task(task)))),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Returns the event. If events may have been missed, reads the task and returns it instead; it includes the event. Servers
    /// of 0.3 continue with the next event and do not send what was missed.
    async fn catch_up(&mut self, event: Event) -> Event {
        let numbered = self.last_event.is_some();
        if self.resumption != Resumption::Fresh
            || numbered
            || matches!(event.response, StreamResponse::Task(_))
        {
            return event;
        }
        self.attempts = 0;
        match self.read().await {
            Ok(Some(task)) => Event { response: StreamResponse::Task(task), ..event },
            Ok(None) => event,
            Err(error) => {
                tracing::debug!(%error, "could not read the task after a reconnect");
                event
            }
        }
    }

    /// Updates the state of the stream by an event, and returns the event. An update without the id of its task is about the task of
    /// the stream.
    fn note(&mut self, Event { id, mut response, is_last }: Event) -> Result<StreamResponse, ClientError> {
        self.unreadable = None;
        if let Some(known) = &self.task {
            match &mut response {
                StreamResponse::StatusUpdate(update) if update.task_id.is_empty() => {
                    update.task_id.clone_from(known);
                }
                StreamResponse::ArtifactUpdate(update) if update.task_id.is_empty() => {
                    update.task_id.clone_from(known);
                }
                StreamResponse::StatusUpdate(_)
                | StreamResponse::ArtifactUpdate(_)
                | StreamResponse::Task(_)
                | StreamResponse::Message(_) => {}
            }
        }
        let task = match &response {
            StreamResponse::Task(task) => {
                // The state of the task when the message arrived is not a response to the message.
                self.set_state(task.status.state, self.resumption != Resumption::None);
                Some(&task.id)
            }
            StreamResponse::StatusUpdate(update) => {
                self.set_state(update.status.state, true);
                Some(&update.task_id)
            }
            StreamResponse::ArtifactUpdate(update) => Some(&update.task_id),
            StreamResponse::Message(_) => {
                self.state = StreamState::Ended;
                None
            }
        };
        if is_last && self.state == StreamState::Open {
            self.state = StreamState::Ended;
        }
        match (task, &self.task) {
            (Some(task), _) if task.is_empty() => {
                self.connection = None;
                return Err(ClientError::Protocol("an event names no task".to_owned()));
            }
            (Some(task), None) => self.task = Some(task.clone()),
            (Some(_) | None, _) => {}
        }
        // Every new connection begins with a snapshot, which is not progress.
        if self.resumption != Resumption::Fresh || !matches!(response, StreamResponse::Task(_)) {
            self.attempts = 0;
        }
        if self.resumption == Resumption::Fresh {
            self.resumption = Resumption::Running;
        }
        self.last_event = id.or_else(|| self.last_event.take());
        Ok(response)
    }

    fn set_state(&mut self, state: TaskState, is_news: bool) {
        let needs_input =
            state == TaskState::InputRequired && is_news && matches!(self.opening, Opening::Send(_));
        self.state = if needs_input {
            StreamState::CredentialRequest
        } else if state.is_terminal() {
            StreamState::Ended
        } else if state.is_interrupted() {
            StreamState::Waiting
        } else {
            StreamState::Open
        };
    }

    /// Whether the message may be sent again.
    fn may_repeat(&self) -> bool {
        matches!(self.opening, Opening::Send(_)) && self.headers.is_repeatable()
    }

    /// Opens a connection that continues after the last event.
    async fn connect(&self) -> Result<Connection, ClientError> {
        match (&self.opening, &self.task) {
            (Opening::Send(request), None) => {
                let limit = self.transport.http.options.send_timeout;
                self.transport.open(request, &self.headers, limit).await
            }
            (Opening::Send(_) | Opening::Subscribe(_), Some(task)) => self.subscribe(task.clone()).await,
            (Opening::Subscribe(id), None) => self.subscribe(id.clone()).await,
        }
    }

    async fn subscribe(&self, id: TaskId) -> Result<Connection, ClientError> {
        let request = Request::SubscribeToTask(SubscribeToTaskRequest { tenant: self.tenant(), id });
        let headers = self.headers.resuming(self.last_event.as_deref());
        self.transport.open(&request, &headers, self.transport.http.options.call_timeout).await
    }

    fn tenant(&self) -> Option<String> {
        self.transport.agent.endpoint.tenant.clone()
    }

    /// [`reconnect`](Self::reconnect), boxed: every stream would reserve space for what few streams need.
    fn boxed_reconnect(&mut self, cause: ClientError) -> BoxFuture<'_, Result<Option<Task>, ClientError>> {
        self.reconnect(cause).boxed()
    }

    /// Reconnects, within the limits of the back-off. If the task has ended and can no longer be subscribed to, returns it as
    /// the last event.
    async fn reconnect(&mut self, mut cause: ClientError) -> Result<Option<Task>, ClientError> {
        let backoff = self.transport.http.options.backoff;
        loop {
            let possible = self.task.is_some() || self.may_repeat();
            let wait = backoff.wait_after(&cause, self.attempts + 1);
            let Some(wait) = wait.filter(|_| possible && self.attempts < backoff.attempts) else {
                return Err(ClientError::Interrupted { attempts: self.attempts, cause: Box::new(cause) });
            };
            self.attempts += 1;
            let task = self.task.as_ref().map(TaskId::as_str);
            tracing::debug!(task, attempt = self.attempts, %cause, "resuming a stream");
            tokio::time::sleep(wait).await;
            let error = match self.connect().await {
                Ok(connection) => {
                    self.resumption = Resumption::Fresh;
                    self.connection = Some(connection);
                    return Ok(None);
                }
                Err(error) => match self.ended_task_or(error).await {
                    Ok(task) => return Ok(Some(task)),
                    Err(error) => error,
                },
            };
            if !error.is_transient() && !matches!(error, ClientError::Timeout { .. }) {
                return Err(error);
            }
            cause = error;
        }
    }

    /// Returns the task if it has ended, because then servers refuse a subscription with various errors. Otherwise returns the
    /// error.
    async fn ended_task_or(&self, refusal: ClientError) -> Result<Task, ClientError> {
        if !matches!(refusal, ClientError::Remote(_)) || refusal.is_transient() {
            return Err(refusal);
        }
        match self.read().await {
            Ok(Some(task)) if task.status.state.is_terminal() => Ok(task),
            Err(late) if late.is_transient() => Err(late),
            Ok(_) | Err(_) => Err(refusal),
        }
    }

    /// Returns the task if it has ended and the connection broke without an event: some servers of 0.3 refuse a subscription to
    /// such a task in this way. If events have numbers, the missed ones can still be read, so nothing is returned.
    async fn ended_task(&self) -> Option<Task> {
        if self.resumption != Resumption::Fresh || self.last_event.is_some() {
            return None;
        }
        self.read().await.ok().flatten().filter(|task| task.status.state.is_terminal())
    }

    /// Reads the current task, if its id is known. Boxed for the same reason as [`boxed_reconnect`](Self::boxed_reconnect).
    fn read(&self) -> BoxFuture<'_, Result<Option<Task>, ClientError>> {
        let reading = async {
            let Some(id) = self.task.clone() else { return Ok(None) };
            let request = GetTaskRequest { tenant: self.tenant(), id, ..GetTaskRequest::default() };
            let (headers, limit) = (self.headers.resuming(None), self.transport.http.options.call_timeout);
            self.transport.call(&Request::GetTask(request), &headers, limit).await.map(Some)
        };
        reading.boxed()
    }
}
