//! Runs works: starts the servers they need, lets the sides of a comparison take turns, keeps every number.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use attache::store::StoreUrl;
use memchr::memmem;
use serde::Serialize;
use serde_json::{Value, json};

use crate::bare::DataAs;
use crate::connection::{ask, excerpt};
use crate::load::{self, Measurement, Plan};
use crate::machine::{Cores, Machine};
use crate::report::{Failure, Report, Row, Windows};
use crate::requests::Request;
use crate::server::{Server, SubjectCommand};
use crate::stats::Repeated;
use crate::store::Filled;
use crate::worker::Crowd;
use crate::works::Work;

/// The share of a core that other processes may take before a window counts as disturbed.
const DISTURBING: f64 = 0.1;

/// How many tasks are few and how many are many, for a store in a file.
const FEW: u64 = 10_000;
const MANY: u64 = 1_000_000;
const QUICK_MANY: u64 = 100_000;

/// How a run is to be done.
pub(crate) struct Settings {
    pub(crate) quick: bool,
    pub(crate) repeat: u32,
    pub(crate) length: Duration,
    pub(crate) subject: SubjectCommand,
}

/// One side of a comparison: a load on a server, under a name that tells it from the other sides.
pub(crate) struct Side<'a> {
    pub(crate) name: &'static str,
    pub(crate) server: &'a Server,
    pub(crate) plan: &'a Arc<Plan>,
}

/// The measurements of one side, one per repetition.
pub(crate) struct Series(Vec<Measurement>);

impl Series {
    pub(crate) fn each(&self, value: impl Fn(&Measurement) -> f64) -> Repeated {
        Repeated(self.0.iter().map(value).collect())
    }

    pub(crate) fn requests_per_s(&self) -> Repeated {
        self.each(|window| window.requests_per_s)
    }

    pub(crate) fn cpu_us_per_request(&self) -> Repeated {
        self.each(|window| window.cpu_us_per_request)
    }
}

/// The raw numbers of one side in one repetition.
#[derive(Serialize)]
pub(crate) struct Raw {
    work: String,
    side: &'static str,
    repetition: u32,
    #[serde(flatten)]
    numbers: Value,
}

/// A run under way.
pub(crate) struct Harness {
    settings: Settings,
    cores: Cores,
    raw: Vec<Raw>,
    windows: Windows,
    few_stored: Option<Arc<Filled>>,
    many_stored: Option<Arc<Filled>>,
}

impl Harness {
    pub(crate) fn new(settings: Settings, cores: Cores) -> Self {
        let windows = Windows::default();
        Self { settings, cores, raw: Vec::new(), windows, few_stored: None, many_stored: None }
    }

    /// Runs `works` one after the other. A work that fails is reported as such and does not stop the others.
    pub(crate) async fn run(mut self, works: &[Work]) -> Report {
        let mut rows: Vec<Row> = Vec::new();
        let mut failures = Vec::new();
        for work in works {
            match work.run(&mut self).await {
                Ok(found) => rows.extend(found),
                Err(error) => {
                    let failure = Failure { work: work.name(), reason: format!("{error:#}") };
                    eprintln!("{}: failed: {}", failure.work, failure.reason);
                    failures.push(failure);
                }
            }
        }
        let Settings { quick, repeat, length, subject } = self.settings;
        let settings = json!({
            "quick": quick,
            "repeat": repeat,
            "seconds": length.as_secs_f64(),
            "subject": subject.to_string(),
        });
        Report {
            machine: Machine::describe(self.cores),
            settings,
            rows,
            failures,
            raw: self.raw,
            windows: self.windows,
        }
    }

    pub(crate) fn repetitions(&self) -> std::ops::RangeInclusive<u32> {
        1..=self.settings.repeat
    }

    /// How long a window is.
    pub(crate) fn length(&self) -> Duration {
        self.settings.length
    }

    /// Starts a subject of its own.
    pub(crate) async fn subject(&self) -> Result<Server> {
        Server::subject(&self.settings.subject, None, self.cores).await
    }

    /// Starts a subject of its own that asks who calls, as the arguments say. It is always this program.
    pub(crate) async fn guarded_subject(&self, arguments: &[&str]) -> Result<Server> {
        Server::subject_with(arguments, self.cores).await
    }

    /// Starts a subject with its own store.
    pub(crate) async fn subject_on(&self, store: &StoreUrl) -> Result<Server> {
        Server::subject(&self.settings.subject, Some(store), self.cores).await
    }

    /// Starts a gateway of its own with its workers; all their functions are skills by then. The load generator, with which the
    /// workers share a core, sleeps while it waits.
    pub(crate) async fn gateway(&self, crowd: Crowd) -> Result<Server> {
        if self.cores.awake {
            eprintln!("note: workers are on the load generator's core, so it does not stay awake");
        }
        Server::gateway(crowd, self.cores).await
    }

    /// Starts our server with one of the ready-made agents.
    pub(crate) async fn agent(&self, arguments: &[&str]) -> Result<Server> {
        Server::agent(arguments, self.cores).await
    }

    /// The cores of the run.
    pub(crate) fn cores(&self) -> Cores {
        self.cores
    }

    /// A file with few tasks, made when it is first asked for.
    pub(crate) async fn few_stored(&mut self) -> Result<Arc<Filled>> {
        stored(&mut self.few_stored, FEW, self.cores).await
    }

    /// A file with many tasks, made when it is first asked for, which takes a while.
    pub(crate) async fn many_stored(&mut self) -> Result<Arc<Filled>> {
        let count = if self.settings.quick { QUICK_MANY } else { MANY };
        if self.settings.quick && self.many_stored.is_none() {
            eprintln!("note: with `--quick`, many tasks in a file are {QUICK_MANY} and not {MANY}");
        }
        stored(&mut self.many_stored, count, self.cores).await
    }

    /// Starts a bare server of its own.
    pub(crate) async fn bare(&self) -> Result<Server> {
        self.bare_with(DataAs::Tree).await
    }

    /// Starts a bare server of its own that parses data parts into what is asked.
    pub(crate) async fn bare_with(&self, data: DataAs) -> Result<Server> {
        Server::bare(data, self.cores).await
    }

    /// Asks `subject` once and has `bare` give the same answer to `work` from now on.
    pub(crate) async fn imitate(
        &self,
        work: &str,
        plan: &Plan,
        subject: &Server,
        bare: &Server,
    ) -> Result<()> {
        let answer = ask(subject.address(), &plan.requests[0]).await.context("asking the subject")?;
        if memmem::find(&answer, plan.marker.as_bytes()).is_none() || !plan.accepts(&answer) {
            bail!("expected the subject to answer with `{}`, got {}", plan.marker, excerpt(&answer));
        }
        self.teach(work, &answer, bare).await
    }

    /// Has `bare` answer `work` with `answer`.
    pub(crate) async fn teach(&self, work: &str, answer: &[u8], bare: &Server) -> Result<()> {
        ask(bare.address(), &Request::teach(work, answer))
            .await
            .with_context(|| format!("teaching the bare server to answer {}", excerpt(answer)))?;
        Ok(())
    }

    /// Measures the sides in turn, once per repetition.
    pub(crate) async fn alternate<const N: usize>(
        &mut self,
        work: &str,
        sides: [Side<'_>; N],
    ) -> Result<[Series; N]> {
        let mut series = std::array::from_fn(|_| Series(Vec::new()));
        for repetition in self.repetitions() {
            for (side, series) in sides.iter().zip(&mut series) {
                let window = load::window(side.server, side.plan, self.settings.length)
                    .await
                    .with_context(|| format!("measuring {work} on {}", side.name))?;
                self.say(work, repetition, side.name, &summary(&window));
                self.keep(work, side.name, repetition, serde_json::to_value(&window)?);
                self.count(window.others_busy);
                series.0.push(window);
            }
        }
        Ok(series)
    }

    /// Tells who watches what one side did in one repetition.
    pub(crate) fn say(&self, work: &str, repetition: u32, side: &str, what: &str) {
        eprintln!("{work:<22} {repetition} {side:<22} {what}");
    }

    /// Counts a window, in which other processes took a share of a core.
    pub(crate) fn count(&mut self, others_busy: f64) {
        self.windows.measured += 1;
        self.windows.disturbed += usize::from(others_busy > DISTURBING);
    }

    /// Keeps raw numbers for the report.
    pub(crate) fn keep(&mut self, work: &str, side: &'static str, repetition: u32, numbers: Value) {
        self.raw.push(Raw { work: work.to_owned(), side, repetition, numbers });
    }
}

async fn stored(made: &mut Option<Arc<Filled>>, count: u64, cores: Cores) -> Result<Arc<Filled>> {
    if let Some(filled) = made {
        return Ok(filled.clone());
    }
    let filled = Filled::new(count, cores).await.with_context(|| format!("storing {count} tasks"))?;
    Ok(made.insert(Arc::new(filled)).clone())
}

fn summary(window: &Measurement) -> String {
    let speed = match &window.events {
        Some(events) => {
            format!("{:>9.0} events/s, first {:.0} µs", events.events_per_s, events.first_event_p50_us)
        }
        None => format!(
            "{:>9.0} /s, p50 {:.0} µs, p99 {:.0} µs",
            window.requests_per_s, window.p50_us, window.p99_us
        ),
    };
    let (beside, workers) = match window.workers_busy {
        Some(busy) => (busy, format!("workers {:.0} %, ", busy * 100.0)),
        None => (0.0, String::new()),
    };
    let limit = if window.load_busy + beside > 0.97 && window.server_busy < 0.9 {
        if beside > 0.0 {
            ", limited by load generator and workers"
        } else {
            ", limited by the load generator"
        }
    } else {
        ""
    };
    format!(
        "{speed}; server {:.0} %, load {:.0} %, {workers}others {:.0} %{limit}",
        window.server_busy * 100.0,
        window.load_busy * 100.0,
        window.others_busy * 100.0,
    )
}
