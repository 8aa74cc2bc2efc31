//! The request log: one line for each request, once its response is written.
//!
//! A line has the target `attache::request`, and fields instead of prose: who asked for what, and how that ended. It holds no
//! credentials and nothing that was said: no query, no header except `traceparent`, no body. A request that is not logged costs one
//! comparison.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use attache_core::{Principal, Reply, StreamItem, TraceParent, millis, state_name};
use attache_protocol::{Error, ErrorKind, Operation, TaskId, TaskState};
use http::{HeaderMap, Method, Uri};
use parking_lot::Mutex;

use crate::audit::{cut, task_of};
use crate::dispatch::trace_parent;

/// The target of the lines.
const LOG: &str = "attache::request";

/// Which requests are logged, at the level `info`. Health checks are logged at `debug`, and so are denied requests: they are in the audit
/// log, which an attacker cannot flood.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RequestLog {
    /// All of them.
    #[default]
    All,
    /// None.
    Off,
    /// Those that took longer than this. A stream counts until it begins.
    SlowerThan(Duration),
}

/// The setting, which can change while the server runs.
pub(crate) struct Threshold(AtomicU64);

/// The value of [`Threshold`] for [`RequestLog::Off`].
const OFF: u64 = u64::MAX;

impl Threshold {
    pub(crate) fn new(log: RequestLog) -> Self {
        let threshold = Self(AtomicU64::new(OFF));
        threshold.set(log);
        threshold
    }

    pub(crate) fn set(&self, log: RequestLog) {
        let nanos = match log {
            RequestLog::All => 0,
            RequestLog::Off => OFF,
            RequestLog::SlowerThan(time) => u64::try_from(time.as_nanos()).unwrap_or(OFF),
        };
        self.0.store(nanos, Ordering::Relaxed);
    }

    /// Begins the line of a request, if it may be logged.
    pub(crate) fn begin(&self, request: &Incoming<'_>) -> Option<Box<RequestLine>> {
        let nanos = self.0.load(Ordering::Relaxed);
        let enabled = match request.is_health {
            false => tracing::enabled!(target: LOG, tracing::Level::INFO),
            true => tracing::enabled!(target: LOG, tracing::Level::DEBUG),
        };
        if nanos == OFF || !enabled {
            return None;
        }
        let record = Arc::new(RequestRecord {
            started: Instant::now(),
            binding: request.binding,
            target: request.target.map(|(method, uri)| (method.clone(), uri.clone())),
            trace_parent: trace_parent(request.headers),
            agent: request.agent.map(str::to_owned),
            notes: Mutex::default(),
        });
        let (is_health, slower_than) = (request.is_health, Duration::from_nanos(nanos));
        Some(Box::new(RequestLine { record, is_health, slower_than, answered: None, bytes: 0 }))
    }
}

/// What is known about a request when it arrives.
pub(crate) struct Incoming<'a> {
    pub(crate) binding: &'static str,
    /// Method and URL, for HTTP.
    pub(crate) target: Option<(&'a Method, &'a Uri)>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) is_health: bool,
    /// The named agent that the request is for.
    pub(crate) agent: Option<&'a str>,
}

/// What becomes known about a request while it is processed.
pub(crate) struct RequestRecord {
    started: Instant,
    binding: &'static str,
    target: Option<(Method, Uri)>,
    trace_parent: Option<TraceParent>,
    agent: Option<String>,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    caller: Principal,
    operation: Option<Operation>,
    task: Option<TaskId>,
    state: Option<TaskState>,
    error: Option<ErrorKind>,
    /// The request was not admitted.
    denied: bool,
}

impl RequestRecord {
    pub(crate) fn caller(&self, principal: &Principal) {
        self.notes.lock().caller = principal.clone();
    }

    pub(crate) fn operation(&self, operation: Operation) {
        self.notes.lock().operation = Some(operation);
    }

    /// Notes an error. The first one counts: it is the cause of later ones.
    pub(crate) fn error(&self, error: &Error) {
        let mut notes = self.notes.lock();
        notes.error.get_or_insert(error.kind());
        if let Some(task) = task_of(error) {
            notes.task.get_or_insert_with(|| task.into());
        }
    }

    /// Notes that the request was not admitted.
    pub(crate) fn denied(&self, error: &Error) {
        self.error(error);
        self.notes.lock().denied = true;
    }

    /// Notes that an error was answered with something else.
    #[cfg(feature = "grpc")]
    pub(crate) fn recovered(&self) {
        self.notes.lock().error = None;
    }

    /// Notes the task of a reply. The task of a stream is noted as its events pass.
    pub(crate) fn reply(self: &Arc<Self>, reply: Reply) -> Reply {
        match reply {
            Reply::Sent(ref snapshot, _) | Reply::Task(ref snapshot, _) => {
                self.task(&snapshot.task().id, Some(snapshot.state));
                reply
            }
            Reply::Push(ref config) => {
                self.notes.lock().task.clone_from(&config.task_id);
                reply
            }
            Reply::Events(events, view) => {
                let record = self.clone();
                Reply::Events(events.observed(move |item| record.event(item)), view)
            }
            Reply::Message(_) | Reply::Tasks(_) | Reply::Pushes(_) | Reply::Done | Reply::Card(_) => reply,
        }
    }

    fn task(&self, task: &TaskId, state: Option<TaskState>) {
        let mut notes = self.notes.lock();
        notes.task.get_or_insert_with(|| task.clone());
        notes.state = state.or(notes.state);
    }

    fn event(&self, item: &StreamItem) {
        let mut notes = self.notes.lock();
        notes.state = item.state().or(notes.state);
        if notes.task.is_none() {
            notes.task = item.task_id();
        }
    }
}

/// The line of a request, which is logged when this is dropped: when the response is written, or when the client has disconnected.
pub(crate) struct RequestLine {
    record: Arc<RequestRecord>,
    is_health: bool,
    slower_than: Duration,
    /// The status of the response, and when it was ready.
    answered: Option<(u16, Duration)>,
    bytes: u64,
}

impl RequestLine {
    pub(crate) fn record(&self) -> &Arc<RequestRecord> {
        &self.record
    }

    /// Notes the status of the response.
    pub(crate) fn answered(mut self: Box<Self>, status: u16) -> Box<Self> {
        self.answered = Some((status, self.record.started.elapsed()));
        self
    }

    /// Counts bytes of the response.
    pub(crate) fn written(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

impl Drop for RequestLine {
    fn drop(&mut self) {
        let Self { record, is_health, slower_than, answered, bytes } = self;
        let duration = record.started.elapsed();
        if answered.map_or(duration, |(_, after)| after) < *slower_than {
            return;
        }
        let RequestRecord { binding, target, trace_parent, agent, notes, .. } = &**record;
        let Notes { caller, operation, task, state, error, denied } = &*notes.lock();
        // As HTTP has it, for every binding: JSON-RPC and gRPC report errors in successful HTTP responses.
        let status = error.map(ErrorKind::http_status).or(answered.map(|(status, _)| status));
        let path = || target.as_ref().map(|(method, uri)| format!("{method} {}", cut(uri.path())));
        let target = if operation.is_none() { path() } else { None };
        macro_rules! line {
            ($level:ident, $message:literal) => {
                tracing::$level!(
                    target: LOG,
                    binding,
                    agent = agent.as_deref(),
                    operation = operation.map(Operation::name).or(target.as_deref()),
                    caller = cut(caller.name().unwrap_or("anonymous")),
                    task = task.as_ref().map(|task| cut(task.as_str())),
                    state = state.map(state_name),
                    status,
                    error = error.map(ErrorKind::reason),
                    bytes,
                    duration_ms = millis(duration),
                    traceparent = trace_parent.as_ref().map(TraceParent::as_str),
                    $message
                )
            };
        }
        match (*is_health || *denied, answered) {
            (true, _) => line!(debug, "answered"),
            (false, Some(_)) => line!(info, "answered"),
            (false, None) => line!(info, "the client disconnected before the answer"),
        }
    }
}
