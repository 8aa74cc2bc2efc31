//! Writing to Redis: responses, acknowledgments and refused entries.
//!
//! One task writes. What is ready together goes into one transaction, with the acknowledgments of the requests whose last response is in
//! it: Redis does all of it or nothing. While Redis does not answer or is full, the task tries again. Callers wait for it, so the memory
//! that responses use is bounded by the requests and streams in progress.

use std::sync::Arc;

use attache_redis::redis::{Pipeline, RedisError, Value, pipe};
use attache_redis::{Backoff, Connection, Outage, RedisUrl, connect, field, is_transient};
use tokio::sync::{mpsc, oneshot};

use super::request::ReplyTo;
use super::{ANSWER, CONNECT, EntryId, Shared};

/// How many jobs one transaction has at most, and how many may wait.
const MAX_BATCH: usize = 128;

/// How many bytes of a field of a refused entry are kept.
const MAX_DEAD_FIELD: usize = 64 * 1024;

/// A response to write.
pub(super) struct Response {
    reply: ReplyTo,
    /// Nothing for a heartbeat.
    payload: Option<Vec<u8>>,
    is_last: bool,
    /// The number of the event.
    event: Option<u64>,
    /// The position in the stream of events.
    index: Option<u64>,
    /// The request to acknowledge.
    acknowledges: Option<EntryId>,
}

impl Response {
    /// The last response to a request.
    pub(super) fn last(reply: &ReplyTo, payload: Vec<u8>, acknowledges: Option<EntryId>) -> Self {
        let reply = reply.clone();
        Self { reply, payload: Some(payload), is_last: true, event: None, index: None, acknowledges }
    }

    /// An event of a stream.
    pub(super) fn event(reply: &ReplyTo, payload: Vec<u8>, event: Option<u64>, index: u64) -> Self {
        let (reply, index) = (reply.clone(), Some(index));
        Self { reply, payload: Some(payload), is_last: false, event, index, acknowledges: None }
    }

    /// An entry that only says that the server is there.
    pub(super) fn heartbeat(reply: &ReplyTo) -> Self {
        let reply = reply.clone();
        Self { reply, payload: None, is_last: false, event: None, index: None, acknowledges: None }
    }
}

/// What became of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Yes,
    /// The client has deleted its reply stream, or has not kept it.
    ClientIsGone,
}

enum Work {
    Respond(Response),
    Dead { id: EntryId, reason: String, fields: Vec<(Vec<u8>, Vec<u8>)> },
    Acknowledge(EntryId),
}

/// Work, and where its outcome is awaited.
pub(super) struct Job {
    work: Work,
    done: oneshot::Sender<Written>,
}

/// Takes work. Cheap to clone.
#[derive(Clone)]
pub(super) struct Writer(mpsc::Sender<Job>);

/// A response that will be written.
pub(super) struct Pending(oneshot::Receiver<Written>);

impl Pending {
    /// Waits until it is written.
    pub(super) async fn wait(self) -> Written {
        match self.0.await {
            Ok(written) => written,
            // The writer has ended with the server, and so will this task.
            Err(_) => std::future::pending().await,
        }
    }
}

pub(super) fn channel() -> (Writer, mpsc::Receiver<Job>) {
    let (sender, jobs) = mpsc::channel(MAX_BATCH);
    (Writer(sender), jobs)
}

impl Writer {
    async fn hand_in(&self, work: Work) -> Pending {
        let (done, pending) = oneshot::channel();
        // If the writer has ended, `done` is dropped and the caller waits for its own end.
        let _ = self.0.send(Job { work, done }).await;
        Pending(pending)
    }

    /// Hands a response in. Responses are written in the order in which they are handed in.
    pub(super) async fn send(&self, response: Response) -> Pending {
        self.hand_in(Work::Respond(response)).await
    }

    /// Writes a response.
    pub(super) async fn respond(&self, response: Response) -> Written {
        self.send(response).await.wait().await
    }

    /// Puts an entry into the dead stream and acknowledges it.
    pub(super) async fn dead(&self, id: &EntryId, reason: String, fields: Vec<(Vec<u8>, Vec<u8>)>) {
        self.hand_in(Work::Dead { id: id.clone(), reason, fields }).await.wait().await;
    }

    /// Acknowledges a request that gets no response.
    pub(super) async fn acknowledge(&self, id: &EntryId) {
        self.hand_in(Work::Acknowledge(id.clone())).await.wait().await;
    }
}

/// What the writer needs to know. It does not keep the server alive.
pub(super) struct Target {
    url: RedisUrl,
    request_stream: String,
    group: String,
    dead: String,
    keep: usize,
    keep_dead: usize,
    expire_ms: u64,
    writing: Outage,
}

impl Target {
    pub(super) fn of(shared: &Arc<Shared>) -> Self {
        let options = &shared.options;
        Self {
            url: options.url.clone(),
            request_stream: options.request_stream.clone(),
            group: options.group.clone(),
            dead: shared.dead.clone(),
            keep: options.keep,
            keep_dead: options.keep_dead,
            expire_ms: u64::try_from(options.expire.as_millis()).unwrap_or(u64::MAX),
            writing: Outage::new("write responses"),
        }
    }

    /// Adds a response to a transaction. `expired` are the reply streams whose expiry is in it already.
    fn respond<'a>(&self, pipe: &mut Pipeline, response: &'a Response, expired: &mut Vec<&'a [u8]>) {
        let Response { reply, payload, is_last, event, index, .. } = response;
        let add = pipe.cmd("XADD").arg(&*reply.stream);
        // The server never makes the stream of a client anew that has deleted it.
        if reply.is_live {
            add.arg("NOMKSTREAM");
        }
        add.arg("MAXLEN").arg("~").arg(self.keep).arg("*");
        add.arg(field::CORRELATION_ID).arg(&*reply.correlation);
        match payload {
            Some(payload) => add.arg(field::PAYLOAD).arg(payload.as_slice()),
            None => add.arg(field::HEARTBEAT).arg("true"),
        };
        add.arg(field::FINAL).arg(if *is_last { "true" } else { "false" });
        if let Some(event) = event {
            add.arg(field::EVENT).arg(*event);
        }
        if let Some(index) = index {
            add.arg(field::INDEX).arg(*index);
        }
        if !reply.is_live && !expired.contains(&&*reply.stream) {
            pipe.cmd("PEXPIRE").arg(&*reply.stream).arg(self.expire_ms).ignore();
            expired.push(&reply.stream);
        }
    }

    /// Adds an entry of the dead stream to a transaction. It has no credentials: of the fields, only those of the envelope.
    fn bury(&self, pipe: &mut Pipeline, id: &str, reason: &str, fields: &[(Vec<u8>, Vec<u8>)]) {
        let add = pipe.cmd("XADD").arg(&self.dead).arg("MAXLEN").arg("~").arg(self.keep_dead).arg("*");
        add.arg(field::ENTRY_ID).arg(id).arg(field::REASON).arg(reason);
        for name in [field::CORRELATION_ID, field::REPLY_STREAM, field::PAYLOAD] {
            if let Some((_, value)) = fields.iter().find(|(own, _)| own == name.as_bytes()) {
                add.arg(name).arg(&value[..value.len().min(MAX_DEAD_FIELD)]);
            }
        }
    }

    /// Does all work in one transaction. Returns what Redis says to each job that adds an entry.
    async fn write(&self, connection: &mut Connection, jobs: &[Job]) -> Result<Replies, RedisError> {
        let mut pipe = pipe();
        pipe.atomic().ignore_errors();
        let (mut done, mut expired) = (Vec::new(), Vec::new());
        for job in jobs {
            match &job.work {
                Work::Respond(response) => {
                    self.respond(&mut pipe, response, &mut expired);
                    done.extend(response.acknowledges.as_deref());
                }
                Work::Dead { id, reason, fields } => {
                    self.bury(&mut pipe, id, reason, fields);
                    done.push(id);
                }
                Work::Acknowledge(id) => done.push(id),
            }
        }
        if !done.is_empty() {
            pipe.cmd("XACK").arg(&self.request_stream).arg(&self.group).arg(&done).ignore();
            pipe.cmd("XDEL").arg(&self.request_stream).arg(&done).ignore();
        }
        pipe.query_async(connection).await
    }
}

/// Does the work that is handed in, until there is no more.
pub(super) async fn run(target: Target, mut jobs: mpsc::Receiver<Job>) {
    let mut link = Link { target, connection: None, backoff: Backoff::default() };
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while jobs.recv_many(&mut batch, MAX_BATCH).await > 0 {
        link.finish(std::mem::take(&mut batch)).await;
    }
}

/// The writer with its connection.
struct Link {
    target: Target,
    connection: Option<Connection>,
    backoff: Backoff,
}

impl Link {
    /// Does work until Redis has done it or refuses it for good.
    async fn finish(&mut self, jobs: Vec<Job>) {
        let refused = match self.write(&jobs).await {
            Ok(replies) => return self.settle(jobs, replies).await,
            Err(refused) => refused,
        };
        // One job spoils the transaction for the others, for example with a stream that the server may not write to.
        if jobs.len() > 1 {
            for job in jobs {
                Box::pin(self.finish(vec![job])).await;
            }
            return;
        }
        for job in jobs {
            self.give_up(job, &refused).await;
        }
    }

    /// Writes with as many attempts as it takes. Fails if Redis refuses the work.
    async fn write(&mut self, jobs: &[Job]) -> Result<Replies, RedisError> {
        loop {
            let error = match &mut self.connection {
                Some(connection) => match self.target.write(connection, jobs).await {
                    Ok(replies) => {
                        self.target.writing.ended();
                        self.backoff.reset();
                        return Ok(replies);
                    }
                    Err(error) if !is_transient(&error) => return Err(error),
                    Err(error) => {
                        // After such an error the connection may never answer again.
                        if error.is_io_error() || error.is_unrecoverable_error() {
                            self.connection = None;
                        }
                        error
                    }
                },
                // Also after a wrong password it tries again: Redis may get that password later.
                None => match connect(&self.target.url, CONNECT, ANSWER, None).await {
                    Ok(connection) => {
                        self.connection = Some(connection);
                        continue;
                    }
                    Err(error) => error,
                },
            };
            self.target.writing.failed(&error);
            tokio::time::sleep(self.backoff.wait()).await;
        }
    }

    /// Tells each job what became of it. A response whose reply stream is no stream goes to the dead stream.
    async fn settle(&mut self, jobs: Vec<Job>, replies: Replies) {
        let mut replies = replies.into_iter();
        let mut refused = Vec::new();
        for Job { work, done } in jobs {
            let written = match work {
                Work::Acknowledge(_) => Written::Yes,
                Work::Dead { .. } => {
                    if let Some(Err(error)) = replies.next() {
                        tracing::warn!(%error, "a refused entry could not be added to the dead stream");
                    }
                    Written::Yes
                }
                Work::Respond(response) => match replies.next() {
                    Some(Ok(Value::Nil)) => Written::ClientIsGone,
                    Some(Err(error)) => {
                        refused.push((response, error));
                        Written::ClientIsGone
                    }
                    Some(Ok(_)) | None => Written::Yes,
                },
            };
            let _ = done.send(written);
        }
        for (response, error) in refused {
            if let Some(work) = unwritable(response, &error) {
                let (done, _) = oneshot::channel();
                Box::pin(self.finish(vec![Job { work, done }])).await;
            }
        }
    }

    /// Ends a job that Redis refuses.
    async fn give_up(&mut self, Job { work, done }: Job, error: &RedisError) {
        let instead = match work {
            Work::Respond(response) => unwritable(response, error),
            Work::Dead { id, reason, .. } => {
                tracing::warn!(entry = %id, reason, %error, "a refused entry could not be added to the dead stream");
                Some(Work::Acknowledge(id))
            }
            Work::Acknowledge(id) => {
                tracing::warn!(entry = %id, %error, "a request could not be acknowledged");
                None
            }
        };
        match instead {
            Some(work) => Box::pin(self.finish(vec![Job { work, done }])).await,
            None => drop(done.send(Written::ClientIsGone)),
        }
    }
}

/// What Redis says to the commands of a transaction.
type Replies = Vec<Result<Value, RedisError>>;

/// What to do about a response that cannot be written: if it is the last one, its request goes to the dead stream.
fn unwritable(response: Response, error: &RedisError) -> Option<Work> {
    let Response { reply, payload, acknowledges, .. } = response;
    let id = acknowledges?;
    let reason = format!("the response could not be written: {error}");
    tracing::warn!(entry = %id, reason, "a request was refused");
    let fields = [
        (field::CORRELATION_ID, reply.correlation.to_vec()),
        (field::REPLY_STREAM, reply.stream.to_vec()),
        (field::PAYLOAD, payload.unwrap_or_default()),
    ];
    let fields = fields.map(|(name, value)| (name.as_bytes().to_vec(), value)).into();
    Some(Work::Dead { id, reason, fields })
}
