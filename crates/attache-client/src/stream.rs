//! The events of a task as a client follows them, over as many connections as it takes.
//!
//! A stream that breaks is taken up again with a subscription to its task, from the last event that was read. A server that
//! numbers its events goes on exactly there. From one that does not, the whole task as it is now comes next, which says
//! everything that was missed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use attache_protocol::{
    ErrorKind, GetTaskRequest, Operation, SendMessageRequest, StreamResponse, SubscribeToTaskRequest, Task,
    TaskId, TaskState,
};
use futures::stream::{self, BoxStream, Stream, StreamExt};

use crate::ClientError;
use crate::jsonrpc::{Beside, Connection, Event, JsonRpc};

/// How long a server may take to close a stream that has nothing more to say. Closing it ourselves would cost the connection.
const CLOSING: Duration = Duration::from_secs(1);

/// The events of a task, or a direct answer.
///
/// After an error nothing more comes. Whoever drops it stops listening; the task goes on.
pub struct Events(BoxStream<'static, Result<StreamResponse, ClientError>>);

impl Events {
    /// The next event; nothing at the end.
    ///
    /// The same as `StreamExt::next`, for those who need nothing else of a stream. No event is lost if the wait is given up.
    pub async fn next(&mut self) -> Option<Result<StreamResponse, ClientError>> {
        self.0.next().await
    }

    /// A stream of one event.
    pub(crate) fn one(event: StreamResponse) -> Self {
        Self(stream::iter([Ok(event)]).boxed())
    }

    pub(crate) fn follow(follower: Follower) -> Self {
        let events = |mut follower: Follower| async { follower.next().await.map(|event| (event, follower)) };
        Self(stream::unfold(follower, events).fuse().boxed())
    }
}

impl Stream for Events {
    type Item = Result<StreamResponse, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// What a stream was opened with.
pub(crate) enum Opening {
    Send(Box<SendMessageRequest>),
    Subscribe(SubscribeToTaskRequest),
}

/// What is known about a stream while it is read.
pub(crate) struct Follower {
    rpc: JsonRpc,
    opening: Opening,
    beside: Beside,
    /// Nothing once the stream is over.
    connection: Option<Connection>,
    task: Option<TaskId>,
    last_event: Option<Arc<str>>,
    standing: Standing,
    /// What the connection was made for, and whether it has led anywhere yet.
    resumption: Resumption,
    /// Attempts to take the stream up again since it last went on.
    attempts: u32,
}

/// How far the stream has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// There is more to come.
    Open,
    /// The task waits for the client. Whether more is to come is up to the server.
    Waiting,
    /// The agent has asked what the message was: more is to come only after another message.
    Asked,
    /// Everything was said.
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Resumption {
    /// The first connection.
    None,
    /// A later one that has said nothing yet.
    Fresh,
    /// A later one.
    Running,
}

impl Follower {
    pub(crate) async fn open(rpc: JsonRpc, opening: Opening, beside: Beside) -> Result<Self, ClientError> {
        let mut follower = Self {
            rpc,
            task: match &opening {
                // Whether the agent has got the message is not known before it says something.
                Opening::Send(_) => None,
                Opening::Subscribe(request) => Some(request.id.clone()),
            },
            opening,
            beside,
            connection: None,
            last_event: None,
            standing: Standing::Open,
            resumption: Resumption::None,
            attempts: 0,
        };
        match follower.connect().await {
            Ok(connection) => follower.connection = Some(connection),
            Err(error) if follower.may_repeat() && error.is_transient() => {
                follower.take_up(error).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(follower)
    }

    async fn next(&mut self) -> Option<Result<StreamResponse, ClientError>> {
        loop {
            let connection = self.connection.as_mut()?;
            let silence = match self.standing {
                Standing::Ended => CLOSING,
                Standing::Open | Standing::Waiting | Standing::Asked => self.rpc.http.options.idle_timeout,
            };
            // A subscription would go on where the stream of a message ends.
            if self.standing == Standing::Asked && self.resumption != Resumption::None {
                self.connection = None;
                return None;
            }
            let cause = match (connection.next(silence).await, self.standing) {
                (Ok(Some(event)), _) => return Some(self.note(event)),
                (Ok(None), Standing::Waiting | Standing::Asked | Standing::Ended)
                | (Err(_), Standing::Asked | Standing::Ended) => {
                    self.connection = None;
                    return None;
                }
                (Ok(None), Standing::Open) => {
                    ClientError::Broken("the stream ended before its task did".to_owned())
                }
                (Err(error), Standing::Open | Standing::Waiting) => error,
            };
            self.connection = None;
            let broken = matches!(cause, ClientError::Broken(_) | ClientError::Timeout { .. });
            match if broken { self.take_up(cause).await } else { Err(cause) } {
                Ok(None) => {}
                Ok(Some(task)) => return Some(Ok(StreamResponse::Task(task))),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Notes what an event says about the stream, and gives it out.
    fn note(&mut self, Event { id, response }: Event) -> Result<StreamResponse, ClientError> {
        let task = match &response {
            StreamResponse::Task(task) => {
                // What the task stood at when the message came is not an answer to it.
                self.stand(task.status.state, self.resumption != Resumption::None);
                Some(&task.id)
            }
            StreamResponse::StatusUpdate(update) => {
                self.stand(update.status.state, true);
                Some(&update.task_id)
            }
            StreamResponse::ArtifactUpdate(update) => Some(&update.task_id),
            StreamResponse::Message(_) => {
                self.standing = Standing::Ended;
                None
            }
        };
        match (task, &self.task) {
            (Some(task), _) if task.is_empty() => {
                self.connection = None;
                return Err(ClientError::Protocol("an event names no task".to_owned()));
            }
            (Some(task), None) => self.task = Some(task.clone()),
            (Some(_) | None, _) => {}
        }
        // A snapshot that comes with every new connection does not mean that the stream goes on.
        if self.resumption != Resumption::Fresh || !matches!(response, StreamResponse::Task(_)) {
            self.attempts = 0;
        }
        if self.resumption == Resumption::Fresh {
            self.resumption = Resumption::Running;
        }
        self.last_event = id.or_else(|| self.last_event.take());
        Ok(response)
    }

    fn stand(&mut self, state: TaskState, is_news: bool) {
        let asked = state == TaskState::InputRequired && is_news && matches!(self.opening, Opening::Send(_));
        self.standing = if asked {
            Standing::Asked
        } else if state.is_terminal() {
            Standing::Ended
        } else if state.is_interrupted() {
            Standing::Waiting
        } else {
            Standing::Open
        };
    }

    /// Whether the message may be sent again.
    fn may_repeat(&self) -> bool {
        matches!(self.opening, Opening::Send(_)) && self.beside.idempotency_key.is_some()
    }

    /// Makes a connection that goes on where the last one ended.
    async fn connect(&self) -> Result<Connection, ClientError> {
        let options = &self.rpc.http.options;
        match (&self.opening, &self.task) {
            (Opening::Send(request), None) => {
                let operation = Operation::SendStreamingMessage;
                self.rpc.open(operation, request, &self.beside, options.send_timeout).await
            }
            (Opening::Send(_), Some(task)) => {
                let tenant = self.rpc.endpoint.tenant.clone();
                self.subscribe(&SubscribeToTaskRequest { tenant, id: task.clone() }).await
            }
            (Opening::Subscribe(request), _) => self.subscribe(request).await,
        }
    }

    async fn subscribe(&self, request: &SubscribeToTaskRequest) -> Result<Connection, ClientError> {
        let beside = self.beside.resuming(self.last_event.as_deref());
        let limit = self.rpc.http.options.call_timeout;
        self.rpc.open(Operation::SubscribeToTask, request, &beside, limit).await
    }

    /// Takes the stream up again, as often as it may be tried. If the task has ended meanwhile and nobody may follow it any
    /// more, the stream is over and this is its last event.
    async fn take_up(&mut self, mut cause: ClientError) -> Result<Option<Task>, ClientError> {
        let backoff = self.rpc.http.options.backoff;
        loop {
            let possible = self.task.is_some() || self.may_repeat();
            if !possible || self.attempts >= backoff.attempts {
                return Err(ClientError::Interrupted { attempts: self.attempts, cause: Box::new(cause) });
            }
            self.attempts += 1;
            let task = self.task.as_ref().map(TaskId::as_str);
            tracing::debug!(task, attempt = self.attempts, %cause, "taking a stream up again");
            tokio::time::sleep(backoff.wait(self.attempts)).await;
            let error = match self.connect().await {
                Ok(connection) => {
                    self.resumption = Resumption::Fresh;
                    self.connection = Some(connection);
                    return Ok(None);
                }
                Err(error) if error.kind() == Some(ErrorKind::UnsupportedOperation) => {
                    match self.ended().await {
                        Ok(Some(task)) => return Ok(Some(task)),
                        Ok(None) => return Err(error),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            if !error.is_transient() && !matches!(error, ClientError::Timeout { .. }) {
                return Err(error);
            }
            cause = error;
        }
    }

    /// The task, if it has ended: most servers let nobody subscribe to it any more.
    async fn ended(&self) -> Result<Option<Task>, ClientError> {
        let Some(id) = self.task.clone() else { return Ok(None) };
        let request =
            GetTaskRequest { tenant: self.rpc.endpoint.tenant.clone(), id, ..GetTaskRequest::default() };
        let limit = self.rpc.http.options.call_timeout;
        let task: Task =
            self.rpc.call(Operation::GetTask, &request, &self.beside.resuming(None), limit).await?;
        Ok(task.status.state.is_terminal().then_some(task))
    }
}
