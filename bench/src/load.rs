//! The load generator: a closed loop of requests over a number of connections, and what was measured meanwhile.
//!
//! Every connection sends its next request when the last one is answered. The first answer on each connection must hold what
//! the work expects; every later one must be a result, or hold the same. Anything else makes the measurement fail, not merely
//! slower.
//!
//! To wake a client that sleeps is not the server's work when clients are on other machines. Here it is: the server's core
//! interrupts the other for each answer that finds the generator asleep, which on a virtual machine took about a fifth of the
//! server's time. On a core of its own the generator can be kept awake to see the server's work alone.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use memchr::memmem;
use serde::{Deserialize, Serialize};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use crate::connection::{Connection, OpenStream, excerpt};
use crate::events::EventScanner;
use crate::machine;
use crate::requests::Request;
use crate::server::{self, Server};
use crate::stats::percentile;

/// How long connections may take to begin and, after a window, to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A result or an error shows itself within this many bytes of a JSON-RPC response.
const ENVELOPE: usize = 256;

/// A look for what has come takes no longer than this, unless another process takes the core meanwhile.
const LOOK: Duration = Duration::from_micros(50);

/// What to ask, how often at once, and what must come back.
pub(crate) struct Plan {
    /// Each connection asks one of these at random, again and again. Never empty.
    pub(crate) requests: Vec<Request>,
    pub(crate) connections: usize,
    pub(crate) reply: Reply,
    /// Must occur in the first answer on each connection.
    pub(crate) marker: &'static str,
}

impl Plan {
    /// Whether an answer, or an event of one, is what each of them must be.
    pub(crate) fn accepts(&self, answer: &[u8]) -> bool {
        match self.reply {
            Reply::Whole | Reply::Stream { .. } => is_result(answer),
            Reply::Marked => memmem::find(answer, self.marker.as_bytes()).is_some(),
        }
    }
}

/// The shape of an answer.
#[derive(Clone, Copy)]
pub(crate) enum Reply {
    Whole,
    /// Whole, and with the marker in each of them: for what is no JSON-RPC response, and for tasks that may fail half-way
    /// through a window and would be counted as done.
    Marked,
    Stream {
        at_least: usize,
    },
}

/// What one window showed. A figure it gives no reason for is not a number, in JSON `null`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measurement {
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    pub(crate) requests_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) cpu_us_per_request: f64,
    #[serde(flatten)]
    pub(crate) events: Option<Events>,
    /// Share of the window that the server had a core to itself.
    pub(crate) server_busy: f64,
    /// Share in which the load generator had something to do. The rest of the time it looked whether anything had come.
    pub(crate) load_busy: f64,
    /// Share that the server's workers took from the load generator's core, if it has workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workers_busy: Option<f64>,
    /// Share that other processes took from either; the window says less the more it is.
    pub(crate) others_busy: f64,
    pub(crate) server_rss_kib: u64,
}

/// What one window showed of streams.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Events {
    pub(crate) events: u64,
    pub(crate) events_per_s: f64,
    pub(crate) cpu_us_per_event: f64,
    pub(crate) first_event_p50_us: f64,
    pub(crate) first_event_p99_us: f64,
}

/// Loads `server` according to `plan` and measures for `length`, after all connections have been answered and a short warm-up.
///
/// If the server has workers, they must still be there at the end: what they say explains what the load saw of it.
pub(crate) async fn window(server: &Server, plan: &Arc<Plan>, length: Duration) -> Result<Measurement> {
    let measured = measure(server, plan, length).await;
    server.check_workers()?;
    measured
}

async fn measure(server: &Server, plan: &Arc<Plan>, length: Duration) -> Result<Measurement> {
    let shared = Arc::new(Shared::new(plan, None));
    let mut crew = Crew::start(server, &shared).await?;
    let begun = Instant::now();
    while shared.proven.load(Relaxed) < plan.connections {
        crew.work_for(Duration::from_millis(5)).await?;
        if begun.elapsed() > PATIENCE {
            bail!("some connections got no first answer within {} s", PATIENCE.as_secs());
        }
    }
    crew.work_for((length / 10).clamp(Duration::from_millis(50), Duration::from_millis(500))).await?;

    let before = Snapshot::take(server, &shared)?;
    shared.measuring.store(true, Relaxed);
    crew.work_for(length).await?;
    let after = Snapshot::take(server, &shared)?;
    shared.measuring.store(false, Relaxed);
    let server_rss_kib = server.resident_kib()?;

    shared.stopped.store(true, Relaxed);
    let samples = crew.finish().await?;
    evaluate(plan, &before, &after, samples, server_rss_kib)
}

/// Sends `count` requests according to `plan` and returns the ids of the tasks they made, in no particular order.
pub(crate) async fn fill(server: &Server, plan: &Arc<Plan>, count: u64) -> Result<Vec<String>> {
    let shared = Arc::new(Shared::new(plan, Some(count)));
    let crew = Crew::start(server, &shared).await?;
    let samples = crew.finish().await?;
    Ok(samples.task_ids)
}

/// Opens `count` streams with `request` and keeps them open, each read up to the event that contains `marker`.
pub(crate) async fn hold(
    server: &Server,
    request: &Request,
    marker: &'static str,
    count: usize,
) -> Result<Vec<OpenStream>> {
    let mut bytes = Vec::new();
    let mut held = Vec::with_capacity(count);
    for nth in 1..=count {
        request.write(&mut bytes);
        let connection = Connection::open(server.address()).await?;
        let seen = |body: &[u8]| body.ends_with(b"\n") && memmem::find(body, marker.as_bytes()).is_some();
        let stream = timeout(PATIENCE, connection.exchange_until(&bytes, seen))
            .await
            .with_context(|| format!("open stream {nth} of {count} never said `{marker}`"))??;
        held.push(stream);
    }
    Ok(held)
}

/// What the connections of one load have in common.
struct Shared {
    plan: Arc<Plan>,
    /// Requests left to send; `None` for as many as there is time for.
    budget: Option<AtomicU64>,
    measuring: AtomicBool,
    stopped: AtomicBool,
    /// Connections whose first answer was what it should be.
    proven: AtomicUsize,
    requests: AtomicU64,
    events: AtomicU64,
    errors: AtomicU64,
    first_error: OnceLock<String>,
    /// How often any connection went on.
    steps: AtomicU64,
    /// Time in which none did, in nanoseconds.
    idle: AtomicU64,
}

impl Shared {
    fn new(plan: &Arc<Plan>, budget: Option<u64>) -> Self {
        Self {
            plan: plan.clone(),
            budget: budget.map(AtomicU64::new),
            measuring: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            proven: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            events: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            first_error: OnceLock::new(),
            steps: AtomicU64::new(0),
            idle: AtomicU64::new(0),
        }
    }

    /// Whether there is another request to send.
    fn go_on(&self) -> bool {
        match &self.budget {
            Some(left) => left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok(),
            None => !self.stopped.load(Relaxed),
        }
    }

    /// Keeps the runtime from sleeping: whenever there is nothing to do, it looks for what has come, and then again.
    async fn stay_awake(&self) -> Infallible {
        let (mut steps, mut looked) = (self.steps.load(Relaxed), Instant::now());
        loop {
            yield_now().await;
            let (steps_before, looked_before) = (steps, looked);
            (steps, looked) = (self.steps.load(Relaxed), Instant::now());
            let took = looked - looked_before;
            if steps == steps_before && took < LOOK {
                self.idle.fetch_add(u64::from(nanoseconds(took)), Relaxed);
            }
        }
    }

    /// Counts a response or event that is not what it should be.
    fn judge(&self, response: &[u8]) {
        if !self.plan.accepts(response) {
            self.errors.fetch_add(1, Relaxed);
            self.first_error.get_or_init(|| excerpt(response));
        }
    }
}

/// Times in nanoseconds, of answers that ended while measuring.
#[derive(Default)]
struct Samples {
    answers: Vec<u32>,
    first_events: Vec<u32>,
    task_ids: Vec<String>,
}

/// The connections at work.
struct Crew {
    connections: JoinSet<Result<Samples>>,
    shared: Arc<Shared>,
    waiting: Waiting,
}

/// What the load generator does while nothing arrives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Awake,
    /// Where it has no core of its own, staying awake would take time from the server.
    Asleep,
}

impl Crew {
    async fn start(server: &Server, shared: &Arc<Shared>) -> Result<Self> {
        let mut connections = JoinSet::new();
        for nth in 0..shared.plan.connections {
            let connection = Connection::open(server.address()).await?;
            let shared = shared.clone();
            connections.spawn(async move {
                let mut driven = pin!(drive(connection, shared.clone(), Rng::with_seed(nth as u64)));
                poll_fn(|context| {
                    shared.steps.fetch_add(1, Relaxed);
                    driven.as_mut().poll(context)
                })
                .await
            });
        }
        let waiting = if server.cores().awake { Waiting::Awake } else { Waiting::Asleep };
        Ok(Self { connections, shared: shared.clone(), waiting })
    }

    /// Lets the connections work for `length`. None may end meanwhile.
    async fn work_for(&mut self, length: Duration) -> Result<()> {
        tokio::select! {
            () = sleep(length) => Ok(()),
            Some(ended) = self.connections.join_next() => {
                ended??;
                bail!("a connection stopped before it was asked to")
            }
            never = self.shared.stay_awake(), if self.waiting == Waiting::Awake => match never {},
        }
    }

    /// Waits until every connection has ended, as long as answers keep coming.
    async fn finish(mut self) -> Result<Samples> {
        let shared = &self.shared;
        let mut all = Samples::default();
        let mut answered = 0;
        loop {
            match timeout(PATIENCE, self.connections.join_next()).await {
                Ok(None) => break,
                Ok(Some(ended)) => {
                    let samples = ended??;
                    all.answers.extend(samples.answers);
                    all.first_events.extend(samples.first_events);
                    all.task_ids.extend(samples.task_ids);
                }
                Err(_) if shared.requests.load(Relaxed) > answered => {
                    answered = shared.requests.load(Relaxed)
                }
                Err(_) => bail!("nothing was answered for {} s", PATIENCE.as_secs()),
            }
        }
        if let Some(first) = shared.first_error.get() {
            bail!("{} answers were not what they should be; the first: {first}", shared.errors.load(Relaxed));
        }
        Ok(all)
    }
}

async fn drive(mut connection: Connection, shared: Arc<Shared>, mut choice: Rng) -> Result<Samples> {
    let plan = &shared.plan;
    let mut samples = Samples::default();
    let (mut request, mut body) = (Vec::new(), Vec::new());
    let mut proven = false;
    while shared.go_on() {
        let which = if plan.requests.len() == 1 { 0 } else { choice.usize(..plan.requests.len()) };
        plan.requests[which].write(&mut request);
        body.clear();
        let mut first_event = None;
        let mut events = 0;

        let begun = Instant::now();
        match plan.reply {
            Reply::Whole | Reply::Marked => {
                connection.exchange(&request, |piece| body.extend_from_slice(piece)).await?;
                shared.judge(&body);
            }
            Reply::Stream { .. } => {
                let mut scanner = EventScanner::default();
                let mut event = |data: &[u8]| {
                    first_event.get_or_insert_with(|| begun.elapsed());
                    events += 1;
                    shared.events.fetch_add(1, Relaxed);
                    shared.judge(data);
                    if !proven {
                        body.extend_from_slice(data);
                    }
                };
                connection.exchange(&request, |piece| scanner.feed(piece, &mut event)).await?;
            }
        }
        let took = begun.elapsed();
        shared.requests.fetch_add(1, Relaxed);

        if !proven {
            prove(plan, &body, events)?;
            proven = true;
            shared.proven.fetch_add(1, Relaxed);
        }
        if shared.measuring.load(Relaxed) {
            samples.answers.push(nanoseconds(took));
            samples.first_events.extend(first_event.map(nanoseconds));
        }
        if shared.budget.is_some() {
            samples.task_ids.push(task_id(&body)?);
        }
    }
    Ok(samples)
}

/// Whether a JSON-RPC response, or the first event of a stream of them, is a result and not an error.
fn is_result(response: &[u8]) -> bool {
    let envelope = &response[..response.len().min(ENVELOPE)];
    memmem::find(envelope, b"\"result\"").is_some()
}

/// Checks the first answer on a connection.
fn prove(plan: &Plan, body: &[u8], events: usize) -> Result<()> {
    if memmem::find(body, plan.marker.as_bytes()).is_none() {
        bail!("expected an answer with `{}`, got {}", plan.marker, excerpt(body));
    }
    match plan.reply {
        Reply::Whole | Reply::Marked => Ok(()),
        Reply::Stream { at_least } if events >= at_least => Ok(()),
        Reply::Stream { at_least } => bail!("a stream had {events} events, expected at least {at_least}"),
    }
}

/// The id of the task in an answer to SendMessage.
pub(crate) fn task_id(body: &[u8]) -> Result<String> {
    #[derive(Deserialize)]
    struct Response {
        result: Sent,
    }
    #[derive(Deserialize)]
    struct Sent {
        task: Task,
    }
    #[derive(Deserialize)]
    struct Task {
        id: String,
    }
    let response: Response =
        serde_json::from_slice(body).with_context(|| format!("expected a task, got {}", excerpt(body)))?;
    Ok(response.result.task.id)
}

/// Counters at one moment.
struct Snapshot {
    at: Instant,
    server_cpu: Duration,
    workers_cpu: Option<Duration>,
    load_cpu: Duration,
    load_idle: Duration,
    all_cpu: Duration,
    requests: u64,
    events: u64,
}

impl Snapshot {
    fn take(server: &Server, shared: &Shared) -> Result<Self> {
        Ok(Self {
            server_cpu: server.cpu_time()?,
            workers_cpu: server.workers_cpu_time()?,
            load_cpu: server::own_cpu_time()?,
            load_idle: Duration::from_nanos(shared.idle.load(Relaxed)),
            all_cpu: machine::busy_time(server.cores())?,
            requests: shared.requests.load(Relaxed),
            events: shared.events.load(Relaxed),
            at: Instant::now(),
        })
    }
}

fn evaluate(
    plan: &Plan,
    before: &Snapshot,
    after: &Snapshot,
    mut samples: Samples,
    server_rss_kib: u64,
) -> Result<Measurement> {
    let seconds = (after.at - before.at).as_secs_f64();
    let server_cpu = (after.server_cpu - before.server_cpu).as_secs_f64();
    let workers_cpu =
        after.workers_cpu.zip(before.workers_cpu).map(|(after, before)| (after - before).as_secs_f64());
    let load_cpu = (after.load_cpu - before.load_cpu).as_secs_f64();
    let load_idle = (after.load_idle - before.load_idle).as_secs_f64();
    let known_cpu = server_cpu + workers_cpu.unwrap_or_default() + load_cpu;
    let others_cpu = (after.all_cpu - before.all_cpu).as_secs_f64() - known_cpu;
    let requests = after.requests - before.requests;
    samples.answers.sort_unstable();
    samples.first_events.sort_unstable();
    // A window may be shorter than a stream; then there are events to speak of, but no answers.
    let time =
        |sorted: &[u32], share| percentile(sorted, share).map_or(f64::NAN, |nanos| f64::from(nanos) / 1e3);
    if requests == 0 && after.events == before.events {
        bail!("nothing arrived in a window of {seconds:.1} s; make it longer with `--seconds`");
    }
    let events = match plan.reply {
        Reply::Whole | Reply::Marked => None,
        Reply::Stream { .. } => {
            let events = after.events - before.events;
            Some(Events {
                events,
                events_per_s: events as f64 / seconds,
                cpu_us_per_event: server_cpu * 1e6 / events as f64,
                first_event_p50_us: time(&samples.first_events, 0.50),
                first_event_p99_us: time(&samples.first_events, 0.99),
            })
        }
    };
    Ok(Measurement {
        seconds,
        requests,
        requests_per_s: requests as f64 / seconds,
        p50_us: time(&samples.answers, 0.50),
        p99_us: time(&samples.answers, 0.99),
        cpu_us_per_request: server_cpu * 1e6 / requests as f64,
        events,
        server_busy: server_cpu / seconds,
        load_busy: (load_cpu - load_idle).max(0.0) / seconds,
        workers_busy: workers_cpu.map(|workers_cpu| workers_cpu / seconds),
        others_busy: others_cpu.max(0.0) / seconds,
        server_rss_kib,
    })
}

fn nanoseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos()).unwrap_or(u32::MAX)
}
