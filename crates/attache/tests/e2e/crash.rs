//! Sending at full load to a server that is killed again and again.
//!
//! Clients send, stream, cancel and repeat themselves while the server is killed with `SIGKILL` at random moments and started again
//! at once. Another program uses the store's file at the same time. Afterwards everything that any of them was told must still be true; [`check`] says what that means.
//!
//! `ATTACHE_CRASH_SECONDS` makes it longer, in rounds with a store each; `cargo xtask crash` is the way to that.
//! `ATTACHE_CRASH_SEED` repeats a round: the same messages, and the same times of death as far as the machine plays along.

mod api;
mod check;
mod client;
mod other_program;
mod receiver;
mod subject;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::sync::watch;

use self::api::Api;
use self::client::{Client, Ledger};
use self::other_program::OtherProgram;
use self::receiver::Receiver;
use self::subject::{Subject, TestServer};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_however_often_the_server_is_killed() {
    survive(Subject::Echo).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_dies_with_its_process_fails_its_task_and_says_so() {
    survive(Subject::Durable).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restartable_turn_that_dies_with_its_process_is_run_again_until_it_is_done() {
    survive(Subject::Restartable).await;
}

/// How many clients send at once.
const CLIENTS: usize = 16;

/// How long there is load in a normal test, in seconds.
const SHORT: u64 = 3;

/// How long there is load in one round of a long test.
const ROUND: Duration = Duration::from_secs(15);

/// How long clients may take to finish once the server is no longer killed. Only a broken server makes them reach it.
const FINISHING: Duration = Duration::from_secs(60);

/// What has happened so far.
#[derive(Default)]
struct Tally {
    rounds: AtomicUsize,
    kills: AtomicUsize,
    acknowledged: AtomicUsize,
    /// Messages with a key that were sent again because the first answer never came.
    repeated: AtomicUsize,
    /// Streams that were cut off and went on.
    resumed: AtomicUsize,
    /// Turns that died with the server, as far as their tasks show it.
    died: AtomicUsize,
    webhooks: AtomicUsize,
    /// How often another program used the store's file meanwhile.
    other_uses: Arc<AtomicUsize>,
}

impl Tally {
    fn words(&self) -> String {
        let Self { rounds, kills, acknowledged, repeated, resumed, died, webhooks, other_uses } = self;
        let counts: [(&AtomicUsize, &str); 8] = [
            (rounds, "rounds"),
            (kills, "kills"),
            (acknowledged, "sends acknowledged"),
            (repeated, "sends repeated"),
            (resumed, "streams resumed"),
            (died, "turns died"),
            (webhooks, "webhooks arrived"),
            (other_uses, "uses by another program"),
        ];
        counts.map(|(count, what)| format!("{} {what}", count.load(Relaxed))).join(", ")
    }
}

fn number_from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("`{name}={text}` is not a number")))
}

/// Tells how far a long test is; `cargo xtask crash` adds up the last lines.
fn say(text: &str) {
    writeln!(std::io::stdout(), "{text}").expect("stdout is open");
}

/// Rounds of load and killing, until the time is over or something is lost.
async fn survive(subject: Subject) {
    let long = number_from_env("ATTACHE_CRASH_SECONDS").map(Duration::from_secs);
    let seed = number_from_env("ATTACHE_CRASH_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let length = long.unwrap_or(Duration::from_secs(SHORT));
    let tally = Arc::new(Tally::default());
    let began = Instant::now();
    let progress = long.map(|_| tokio::spawn(tell_progress(subject, tally.clone(), began)));
    for seed in seed.. {
        let left = length.saturating_sub(began.elapsed());
        if left.is_zero() {
            break;
        }
        let lost = round(subject, seed, left.min(ROUND), &tally).await;
        if let Err(lost) = lost {
            panic!("{subject:?}, after {}:\n{lost}", tally.words());
        }
        tally.rounds.fetch_add(1, Relaxed);
    }
    if let Some(progress) = progress {
        progress.abort();
        say(&format!("{subject:?}: {}, nothing lost (seed {seed})", tally.words()));
    }
}

async fn tell_progress(subject: Subject, tally: Arc<Tally>, began: Instant) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        say(&format!("{subject:?}: {} s, {}", began.elapsed().as_secs(), tally.words()));
    }
}

/// Load and killing with a store of its own, and a look at what is left. What was lost, if anything was.
async fn round(subject: Subject, seed: u64, length: Duration, tally: &Arc<Tally>) -> Result<(), String> {
    let mut random = Rng::with_seed(seed);
    let directory = tempfile::tempdir().expect("there is a directory for temporary files");
    let place = TestServer::new(subject, directory.path());
    let receiver = Receiver::start(random.fork(), tally.clone()).await;
    let api = Api::new(&place.url());
    let ledger = Arc::new(Ledger::new(tally.clone()));

    let mut server = place.start();
    let other = OtherProgram::start(place.store(), random.fork(), tally.other_uses.clone());
    let (stop, stopped) = watch::channel(false);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let client =
                Client::new(number, subject, api.clone(), receiver.clone(), ledger.clone(), random.fork());
            tokio::spawn(client.run(stopped.clone()))
        })
        .collect();

    let end = Instant::now() + length;
    loop {
        // Sometimes before it is up: recovery can be killed too.
        let millis = if random.u8(..5) == 0 { random.u64(..60) } else { random.u64(100..900) };
        let pause = Duration::from_millis(millis);
        if Instant::now() + pause > end {
            break;
        }
        server.expect_running_for(pause).await;
        server.kill().await;
        tally.kills.fetch_add(1, Relaxed);
        server = place.start();
    }
    server.expect_running_for(Duration::from_millis(random.u64(..400))).await;
    stop.send_replace(true);
    receiver.relent();
    let mut lost = Vec::new();
    let finishing = async {
        for client in clients {
            client.await.expect("a client does not panic");
        }
    };
    if tokio::time::timeout(FINISHING, finishing).await.is_err() {
        lost.push(format!("clients still wait for answers {} s after the last restart", FINISHING.as_secs()));
    }

    let backup = tokio::task::spawn_blocking(|| other.stop()).await.expect("the other program stops");
    lost.extend(ledger.complaints());
    lost.extend(check::check(subject, &api, &ledger.take_sent(), &receiver, tally).await);
    let status = server.stop().await;
    if !status.success() {
        lost.push(format!("the server did not stop well: {status}"));
    }
    lost.extend(TestServer::check_store(&place.store()).await.err());
    if let Some(backup) = backup {
        lost.extend(TestServer::check_store(&backup).await.err());
    }
    if lost.is_empty() {
        return Ok(());
    }
    Err(explain(&lost, seed, &directory.keep()))
}

/// How many losses are told one by one.
const SHOWN: usize = 20;

fn explain(lost: &[String], seed: u64, directory: &Path) -> String {
    let mut text = format!(
        "{} things are wrong (seed {seed}: `ATTACHE_CRASH_SEED={seed}` sends and kills alike; store and log are in `{}`)\n",
        lost.len(),
        directory.display(),
    );
    for one in lost.iter().take(SHOWN) {
        text.push_str(&format!("- {one}\n"));
    }
    if lost.len() > SHOWN {
        text.push_str(&format!("- and {} more\n", lost.len() - SHOWN));
    }
    text
}
