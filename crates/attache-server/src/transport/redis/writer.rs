//! Writing to Redis: responses, acknowledgments and refused entries.
//!
//! One task writes. What is ready together goes into one transaction, with the acknowledgments of the requests whose last response is in
//! it: Redis does all of it or nothing. The writer lets other tasks run before it writes, so that few transactions carry many responses. While Redis does not answer or is full, the task tries again. Callers wait for it, so the memory
//! that responses use is bounded by the requests and streams in progress.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use attache_redis::redis::{Pipeline, RedisError, Value, pipe};
use attache_redis::{Backoff, Connection, Outage, RedisUrl, connect, field, is_transient};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::members::Notes;
use super::request::ReplyTo;
use super::{ANSWER, CONNECT, EntryId, Shared};

/// How many jobs one transaction has at most, and how many may wait.
const MAX_BATCH: usize = 128;

/// How many bytes of responses one transaction has at most, unless one response has more.
const MAX_BATCH_BYTES: usize = 16 * 1024 * 1024;

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
    /// What else changes with it.
    notes: Notes,
}

impl Response {
    /// The last response to a request.
    pub(super) fn last(reply: &ReplyTo, payload: Vec<u8>, acknowledges: Option<EntryId>) -> Self {
        let reply = reply.clone();
        Self {
            reply,
            payload: Some(payload),
            is_last: true,
            event: None,
            index: None,
            acknowledges,
            notes: Notes::default(),
        }
    }

    /// The same with further changes in its transaction.
    pub(super) fn with(self, notes: Notes) -> Self {
        Self { notes, ..self }
    }

    /// An event of a stream.
    pub(super) fn event(reply: &ReplyTo, payload: Vec<u8>, event: Option<u64>, index: u64) -> Self {
        let (reply, index) = (reply.clone(), Some(index));
        Self {
            reply,
            payload: Some(payload),
            is_last: false,
            event,
            index,
            acknowledges: None,
            notes: Notes::default(),
        }
    }

    /// An entry that only says that the server is there.
    pub(super) fn heartbeat(reply: &ReplyTo) -> Self {
        let reply = reply.clone();
        Self {
            reply,
            payload: None,
            is_last: false,
            event: None,
            index: None,
            acknowledges: None,
            notes: Notes::default(),
        }
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
    Dead { id: EntryId, reason: String, fields: DeadFields },
    Acknowledge(EntryId),
}

impl Work {
    /// How many bytes it has.
    fn size(&self) -> usize {
        match self {
            Self::Respond(response) => response.payload.as_ref().map_or(0, Vec::len),
            Self::Dead { fields, .. } => fields.iter().map(|(_, value)| value.len()).sum(),
            Self::Acknowledge(_) => 0,
        }
    }
}

/// The fields of a refused entry that the dead stream keeps.
type DeadFields = Vec<(&'static str, Vec<u8>)>;

/// Of the fields of a refused entry those of the envelope, without credentials.
fn dead_fields(mut fields: Vec<(Vec<u8>, Vec<u8>)>) -> DeadFields {
    let names = [field::CORRELATION_ID, field::REPLY_STREAM, field::PAYLOAD];
    let keep = |name: &'static str| {
        let (_, value) = fields.iter_mut().find(|(own, _)| own == name.as_bytes())?;
        let value = std::mem::take(value);
        let mut value = if name == field::PAYLOAD { without_headers(value)? } else { value };
        value.truncate(MAX_DEAD_FIELD);
        Some((name, value))
    };
    names.into_iter().filter_map(keep).collect()
}

/// A payload without its member `headers`, which has service parameters and credentials. `None` if it may have that member and cannot be
/// parsed.
fn without_headers(payload: Vec<u8>) -> Option<Vec<u8>> {
    match serde_json::from_slice::<BTreeMap<Cow<'_, str>, &RawValue>>(&payload) {
        Ok(mut members) => match members.remove(field::HEADERS) {
            Some(_) => serde_json::to_vec(&members).ok(),
            None => Some(payload),
        },
        Err(_) => memchr::memmem::find(&payload, field::HEADERS.as_bytes()).is_none().then_some(payload),
    }
}

/// Work, and where its outcome is awaited.
pub(super) struct Job {
    work: Work,
    done: oneshot::Sender<Written>,
    /// The memory of the work.
    memory: Option<OwnedSemaphorePermit>,
}

/// Takes work. Cheap to clone.
#[derive(Clone)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
    /// The memory of requests and responses, in KiB.
    memory: Arc<Semaphore>,
}

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

pub(super) fn channel(memory: Arc<Semaphore>) -> (Writer, mpsc::Receiver<Job>) {
    let (sender, jobs) = mpsc::channel(MAX_BATCH);
    (Writer { jobs: sender, memory }, jobs)
}

impl Writer {
    async fn hand_in(&self, work: Work) -> Pending {
        let (done, pending) = oneshot::channel();
        let memory = self.charge(work.size());
        // If the writer has ended, `done` is dropped and the caller waits for its own end.
        let _ = self.jobs.send(Job { work, done, memory }).await;
        Pending(pending)
    }

    /// Charges work to the memory. It exists already, so it does not wait: it takes what is free, and no requests are read until there is
    /// memory again.
    fn charge(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let free = self.memory.available_permits();
        let size = u32::try_from((bytes / 1024).min(free)).unwrap_or(u32::MAX);
        self.memory.clone().try_acquire_many_owned(size).ok()
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
        let fields = dead_fields(fields);
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
        let Response { reply, payload, is_last, event, index, notes, acknowledges: _ } = response;
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
        notes.write(pipe);
    }

    /// Adds an entry of the dead stream to a transaction.
    fn bury(&self, pipe: &mut Pipeline, id: &str, reason: &str, fields: &DeadFields) {
        let add = pipe.cmd("XADD").arg(&self.dead).arg("MAXLEN").arg(self.keep_dead).arg("*");
        add.arg(field::ENTRY_ID).arg(id).arg(field::REASON).arg(reason);
        for (name, value) in fields {
            add.arg(*name).arg(value.as_slice());
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
        gather(&mut jobs, &mut batch).await;
        while !batch.is_empty() {
            let rest = batch.split_off(transaction_length(&batch));
            link.finish(std::mem::replace(&mut batch, rest)).await;
        }
    }
}

/// Lets other tasks run as long as they bring further jobs. Each transaction costs a round trip, however many responses it has.
async fn gather(jobs: &mut mpsc::Receiver<Job>, batch: &mut Vec<Job>) {
    let mut before = 0;
    while before < batch.len() && batch.len() < MAX_BATCH {
        before = batch.len();
        tokio::task::yield_now().await;
        while batch.len() < MAX_BATCH
            && let Ok(job) = jobs.try_recv()
        {
            batch.push(job);
        }
    }
}

/// How many of the jobs, from the first one on, go into one transaction: as many as keep it small, but at least one.
fn transaction_length(jobs: &[Job]) -> usize {
    let mut bytes = 0_usize;
    let fits = jobs.iter().take_while(|job| {
        bytes = bytes.saturating_add(job.work.size());
        bytes <= MAX_BATCH_BYTES
    });
    fits.count().max(1)
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
        for Job { work, done, memory } in jobs {
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
                        refused.push((response, error, memory));
                        Written::ClientIsGone
                    }
                    Some(Ok(_)) | None => Written::Yes,
                },
            };
            let _ = done.send(written);
        }
        for (response, error, memory) in refused {
            if let Some(work) = unwritable(response, &error) {
                let (done, _) = oneshot::channel();
                Box::pin(self.finish(vec![Job { work, done, memory }])).await;
            }
        }
    }

    /// Ends a job that Redis refuses.
    async fn give_up(&mut self, Job { work, done, memory }: Job, error: &RedisError) {
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
            Some(work) => Box::pin(self.finish(vec![Job { work, done, memory }])).await,
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
    let fields = dead_fields(fields.map(|(name, value)| (name.as_bytes().to_vec(), value)).into());
    Some(Work::Dead { id, reason, fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(payload: &str) -> Option<String> {
        without_headers(payload.as_bytes().to_vec()).map(|kept| String::from_utf8(kept).unwrap())
    }

    #[test]
    fn the_dead_stream_gets_no_credentials() {
        let with = r#"{"jsonrpc":"2.0","headers":{"Authorization":"Bearer s3cret"},"id":1,"method":"x"}"#;
        assert_eq!(kept(with).unwrap(), r#"{"id":1,"jsonrpc":"2.0","method":"x"}"#);
        let escaped = r#"{"\u0068eaders":{"Authorization":"Bearer s3cret"},"id":1}"#;
        assert_eq!(kept(escaped).unwrap(), r#"{"id":1}"#);
        let twice = r#"{"headers":{"a":"s3cret"},"headers":{"b":"s3cret"},"id":1}"#;
        assert_eq!(kept(twice).unwrap(), r#"{"id":1}"#);
        for broken in [r#"{"headers":{"a":"s3cret"}"#, r#"[{"headers":{"a":"s3cret"}}]"#] {
            assert_eq!(kept(broken), None, "{broken}");
        }
        for harmless in ["{", "", r#"{"id": 1}"#] {
            assert_eq!(kept(harmless).as_deref(), Some(harmless));
        }
        let fields =
            [("correlation_id", "c"), ("authorization", "s3cret"), ("headers", "s3cret"), ("payload", with)];
        let fields = dead_fields(fields.map(|(name, value)| (name.into(), value.into())).into());
        assert_eq!(fields.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["correlation_id", "payload"]);
        assert!(!String::from_utf8_lossy(&fields[1].1).contains("s3cret"));
    }

    #[test]
    fn a_transaction_is_small_but_has_at_least_one_response() {
        let reply = ReplyTo { stream: (*b"s").into(), correlation: (*b"c").into(), is_live: false };
        let job = |size: usize| {
            let work = Work::Respond(Response::last(&reply, vec![0; size], None));
            Job { work, done: oneshot::channel().0, memory: None }
        };
        let half = MAX_BATCH_BYTES / 2;
        assert_eq!(transaction_length(&[job(half), job(half), job(1)]), 2);
        assert_eq!(transaction_length(&[job(MAX_BATCH_BYTES + 1), job(1)]), 1);
        assert_eq!(transaction_length(&[job(1), job(MAX_BATCH_BYTES)]), 1);
    }

    #[tokio::test]
    async fn responses_that_wait_use_the_memory_of_requests() {
        let memory = Arc::new(Semaphore::new(10));
        let (writer, mut jobs) = channel(memory.clone());
        let reply = ReplyTo { stream: (*b"s").into(), correlation: (*b"c").into(), is_live: false };
        let respond =
            async |size: usize| drop(writer.send(Response::last(&reply, vec![0; size], None)).await);
        respond(4 * 1024).await;
        assert_eq!(memory.available_permits(), 6);
        respond(1024 * 1024).await;
        assert_eq!(memory.available_permits(), 0);
        drop((jobs.recv().await, jobs.recv().await));
        assert_eq!(memory.available_permits(), 10);
    }

    #[tokio::test]
    async fn responses_that_are_almost_ready_share_a_transaction() {
        let (writer, mut jobs) = channel(Arc::new(Semaphore::new(0)));
        let first = EntryId::from("1-0");
        writer.hand_in(Work::Acknowledge(first)).await;
        let mut batch = Vec::new();
        jobs.recv_many(&mut batch, MAX_BATCH).await;
        for i in 2..10 {
            let writer = writer.clone();
            tokio::spawn(async move { writer.hand_in(Work::Acknowledge(format!("{i}-0").into())).await });
        }
        gather(&mut jobs, &mut batch).await;
        assert_eq!(batch.len(), 9);
    }
}
