//! Overload: what becomes of a server that is asked for ten times what it can take, and of one with thousands of slow clients.
//!
//! The agent takes its time over each message, as agents do, and the server works on so many at once: that is what it can take.
//! The load is an open loop over many connections: requests come when they come, whether or not others were answered. What is
//! promised is that answers are right, that the rest is refused clearly and at once, that memory does not grow, and that
//! afterwards everything is as before.

mod offered;
mod slow;

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use self::offered::Offer;
use crate::machine;
use crate::server::Server;
use crate::stats::percentile;

/// How many requests the server works on at once, and how long the agent takes for each: 2,000 in a second.
const AT_ONCE: usize = 100;
const TAKES: Duration = Duration::from_millis(50);

/// How many times what it can take the server is asked for, and over how many connections.
const TIMES: f64 = 10.0;
const CONNECTIONS: usize = 2_000;

/// What counts as the full speed again, and how long it may take.
const FULL: f64 = 0.95;
const RECOVERY: Duration = Duration::from_secs(2);

/// How much the memory of a server under a steady load may differ from one moment to a later one.
const STEADY_KIB: u64 = 16 * 1024;

/// How long a refusal may take, for 99 of 100: no longer than the wait that it asks for.
const REFUSAL: Duration = Duration::from_secs(1);

/// The share of its rate that a client must keep while others are slow.
const UNDISTURBED: f64 = 0.9;

/// Ask ten times what a server can take of it, and keep thousands of slow connections open.
#[derive(Args)]
pub(crate) struct Overload {
    /// For how many seconds the server is asked for too much
    #[arg(long, value_name = "N", default_value_t = 60.0)]
    seconds: f64,
    /// For how many seconds its speed is measured, before and afterwards
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    measure: f64,
    /// How many slow connections are kept open
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    slow: usize,
}

impl Overload {
    /// Runs everything, prints what was seen and fails if a promise was broken.
    pub(crate) async fn run(self) -> Result<()> {
        let length = |seconds: f64, name: &str| {
            let length = Duration::try_from_secs_f64(seconds);
            length.ok().filter(|length| !length.is_zero()).with_context(|| {
                format!("`--{name} {seconds}` is not a length of time; use a number of seconds above 0")
            })
        };
        let (load, measure) = (length(self.seconds, "seconds")?, length(self.measure, "measure")?);
        machine::raise_open_file_limit();
        let cores = machine::pin_load_generator()?;
        let mut table = Table::default();

        let server = Server::subject_with(&["--max-requests", &AT_ONCE.to_string()], cores).await?;
        overload(&mut table, &server, load, measure).await?;
        drop(server);

        let server = Server::subject_with(&[], cores).await?;
        slow(&mut table, &server, self.slow, measure).await?;
        table.print()
    }
}

/// The server's speed, what becomes of it under too much load, and its speed afterwards.
async fn overload(table: &mut Table, server: &Server, load: Duration, measure: Duration) -> Result<()> {
    eprintln!("measuring for {} s what the server can take", measure.as_secs_f64());
    let before = Offer::closed(AT_ONCE, TAKES).run(server.address(), measure).await?;
    let capacity = before.answered as f64 / measure.as_secs_f64();
    let rss_before = server.resident_kib()?;

    let rate = TIMES * capacity;
    eprintln!("asking for {rate:.0} a second, for {} s", load.as_secs_f64());
    let offer = Offer::open(CONNECTIONS, rate, TAKES);
    let (during, memory) = tokio::join!(offer.run(server.address(), load), watch(server, load));
    let (mut during, memory) = (during?, memory?);

    eprintln!("measuring again");
    let (full_speed, after) = recovery(server.address(), capacity, measure).await?;
    let rss_after = server.resident_kib()?;

    during.refusals.sort_unstable();
    let p99 = percentile(&during.refusals, 0.99).map(|micros| Duration::from_micros(micros.into()));
    let (early, late) = memory.early_and_late();
    table.row("what it can take", format!("{capacity:.0} requests/s"));
    table.row("asked for", format!("{:.0} requests/s for {} s", rate, load.as_secs_f64()));
    table.row("sent", during.sent());
    // A generator that cannot keep up has proved nothing.
    let times = during.sent() as f64 / load.as_secs_f64() / capacity;
    let shown = format!("{times:.1} times what it can take");
    table.judge("sent a second", shown, times >= 0.8 * TIMES, "at least 8 times");
    table.row("answered", during.answered);
    table.row("refused with 503", during.unavailable);
    table.row("refused with 429", during.exhausted);
    table.row("connections lost", during.lost);
    table.judge("wrong answers", during.wrong, during.wrong == 0, "0");
    let shown = p99.map_or("none".to_owned(), |time| format!("{:.1} ms", time.as_secs_f64() * 1000.0));
    table.judge("refusals, p99", shown, p99.is_some_and(|time| time <= REFUSAL), "at most 1 s");
    table.row("memory before", mebibytes(rss_before));
    table.row("memory at the most", mebibytes(memory.most()));
    table.row("memory after", mebibytes(rss_after));
    let grown = late.saturating_sub(early);
    table.judge("memory grown meanwhile", mebibytes(grown), grown <= STEADY_KIB, "at most 16 MiB");
    let within = full_speed.is_some_and(|time| time <= RECOVERY);
    let shown = full_speed.map_or("never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()));
    table.judge("full speed again after", shown, within, "at most 2 s");
    table.row("speed afterwards", format!("{after:.0} requests/s"));
    if let Some(first) = during.first_wrong {
        eprintln!("the first wrong answer: {first}");
    }
    Ok(())
}

/// How long it takes until the server is as fast as it was, and how fast it is then.
async fn recovery(address: SocketAddr, capacity: f64, measure: Duration) -> Result<(Option<Duration>, f64)> {
    let window = Duration::from_millis(500);
    let began = Instant::now();
    let mut full_speed = None;
    while full_speed.is_none() && began.elapsed() < 5 * RECOVERY {
        let here = began.elapsed();
        let seen = Offer::closed(AT_ONCE, TAKES).run(address, window).await?;
        if seen.answered as f64 / window.as_secs_f64() >= FULL * capacity {
            full_speed = Some(here);
        }
    }
    let after = Offer::closed(AT_ONCE, TAKES).run(address, measure).await?;
    Ok((full_speed, after.answered as f64 / measure.as_secs_f64()))
}

/// A client's speed while others are slow, against its speed before and afterwards.
async fn slow(table: &mut Table, server: &Server, count: usize, measure: Duration) -> Result<()> {
    let speed = async || {
        let seen = Offer::closed(16, Duration::ZERO).run(server.address(), measure).await?;
        if seen.wrong + seen.refused() + seen.lost > 0 {
            bail!("a client that is alone was not served: {seen:?}");
        }
        anyhow::Ok(seen.answered as f64 / measure.as_secs_f64())
    };
    eprintln!("measuring a client alone");
    let before = speed().await?;
    eprintln!("opening {count} slow connections");
    let slow = slow::Crowd::open(server.address(), count).await?;
    let rss = server.resident_kib()?;
    let during = speed().await?;
    let still = slow.still_open();
    drop(slow);
    let after = speed().await?;
    let alone = f64::midpoint(before, after);
    table.row("slow connections", format!("{count}, of which {still} were there to the end"));
    table.row("memory with them", mebibytes(rss));
    table.row("a client alone", format!("{before:.0} requests/s, and {after:.0} afterwards"));
    let share = during / alone;
    table.judge(
        "a client among them",
        format!("{during:.0} requests/s, {share:.2}"),
        share >= UNDISTURBED,
        "at least 0.9",
    );
    Ok(())
}

/// The memory of a server, looked at again and again.
pub(crate) struct Memory(Vec<u64>);

/// Looks at the memory of a server for a while.
pub(crate) async fn watch(server: &Server, length: Duration) -> Result<Memory> {
    let began = Instant::now();
    let mut seen = vec![server.resident_kib()?];
    while began.elapsed() < length {
        tokio::time::sleep(Duration::from_millis(100).min(length / 10)).await;
        seen.push(server.resident_kib()?);
    }
    Ok(Memory(seen))
}

impl Memory {
    /// The most that was seen, in KiB.
    pub(crate) fn most(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or_default()
    }

    /// The mean of the second fifth and of the last: the first one belongs to the connections being opened.
    fn early_and_late(&self) -> (u64, u64) {
        let fifth = (self.0.len() / 5).max(1);
        let mean = |part: &[u64]| part.iter().sum::<u64>() / part.len().max(1) as u64;
        let early = self.0.get(fifth..2 * fifth).unwrap_or(&self.0);
        (mean(early), mean(&self.0[self.0.len() - fifth..]))
    }
}

pub(crate) fn mebibytes(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

/// What was seen, line by line, and which promises were broken.
#[derive(Default)]
pub(crate) struct Table {
    lines: Vec<(&'static str, String)>,
    broken: Vec<&'static str>,
}

impl Table {
    pub(crate) fn row(&mut self, name: &'static str, value: impl ToString) {
        self.lines.push((name, value.to_string()));
    }

    pub(crate) fn judge(&mut self, name: &'static str, value: impl ToString, kept: bool, promise: &str) {
        let verdict = if kept { "kept" } else { "BROKEN" };
        self.lines.push((name, format!("{} (promised: {promise}; {verdict})", value.to_string())));
        if !kept {
            self.broken.push(name);
        }
    }

    pub(crate) fn print(self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        for (name, value) in &self.lines {
            writeln!(out, "{name:<24}{value}")?;
        }
        if self.broken.is_empty() { Ok(()) } else { bail!("broken: {}", self.broken.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject;

    /// The short version: what is answered is right and what is not is refused clearly, during and after.
    #[test]
    fn a_server_that_is_asked_for_too_much_answers_some_and_refuses_the_rest() {
        let (ready, address) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            crate::single_threaded(async {
                let settings = subject::Settings::with_room_for(4);
                let listening = subject::server(([127, 0, 0, 1], 0).into(), settings)?.listen().await?;
                ready.send(listening.address()?)?;
                listening.run_until(std::future::pending()).await?;
                Ok(())
            })
        });
        let address = address.recv().unwrap();
        let takes = Duration::from_millis(20);
        crate::single_threaded(async {
            let during = Offer::open(100, 2_000.0, takes).run(address, Duration::from_secs(1)).await?;
            assert_eq!((during.wrong, during.first_wrong.as_deref()), (0, None));
            assert!(during.answered > 0 && during.unavailable > 0, "{during:?}");
            let after = Offer::closed(4, takes).run(address, Duration::from_millis(500)).await?;
            assert_eq!((after.wrong, after.lost), (0, 0), "{after:?}");
            assert!(after.answered > 0, "{after:?}");
            let crowd = slow::Crowd::open(address, 30).await?;
            // The rest may have been refused: there is room for four.
            assert!(crowd.still_open() >= 10, "nobody hangs up on a head that is a moment old");
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn memory_is_compared_once_all_connections_are_there() {
        let memory = Memory(vec![10, 50, 60, 60, 60, 60, 60, 60, 70, 72]);
        assert_eq!((memory.most(), memory.early_and_late()), (72, (60, 71)));
        assert_eq!(Memory(vec![7]).early_and_late(), (7, 7));
    }

    #[test]
    fn a_broken_promise_is_named() {
        let mut table = Table::default();
        table.judge("fine", 0, true, "0");
        table.judge("wrong answers", 1, false, "0");
        assert_eq!(table.broken, ["wrong answers"]);
        assert_eq!(table.lines[1].1, "1 (promised: 0; BROKEN)");
    }
}
