//! Stops the server: says what it waits for and how long, and ends at once when it is asked a second time.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::pin::pin;
use std::time::Duration;

use attache::server::{HttpService, InProgress, Listening, stop_signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::command::{Exit, Failure};

/// How often it is checked whether the server is idle.
const IDLE_CHECK: Duration = Duration::from_millis(250);

/// Serves until the process receives a signal to stop or is idle for this long, and until running turns and open requests have ended.
pub(super) async fn run(listening: Listening, idle: Option<Duration>) -> Result<(), Failure> {
    let (http, stop) = (listening.http_service(), CancellationToken::new());
    let mut serving = pin!(listening.run_until(stop.clone().cancelled_owned()));
    let stopped = |error: std::io::Error| Failure::new(format!("the server stopped: {error}"));
    tokio::select! {
        // A signal is handled from the first request on.
        biased;
        () = stop_signal() => stop.cancel(),
        served = &mut serving => return served.map_err(stopped),
        () = idle_for(idle, || http.in_progress()) => {
            tracing::info!("stopping: nothing was asked of the server for the time of `idle-shutdown`");
            stop.cancel();
        }
    }
    let mut report = Report::new(http);
    let mut again = pin!(stop_signal());
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            served = &mut serving => {
                report.end();
                return served.map_err(stopped);
            }
            () = &mut again => {
                report.end();
                return Err(Failure::new("stopped by a second signal").exit(Exit::Interrupted));
            }
            _ = ticks.tick() => report.tick(Instant::now()),
        }
    }
}

/// Waits until the server has worked on nothing for this long. Forever without a limit, and with 0, which switches it off. A request
/// for permission that waits for its answer is work.
async fn idle_for(limit: Option<Duration>, progress: impl Fn() -> InProgress) {
    let Some(limit) = limit.filter(|limit| !limit.is_zero()) else { return std::future::pending().await };
    let mut last = progress();
    let mut since = Instant::now();
    while since.elapsed() < limit {
        tokio::time::sleep(IDLE_CHECK.min(limit - since.elapsed())).await;
        let now = progress();
        if now != last || now.turns > 0 || now.requests > 0 || now.questions > 0 {
            since = Instant::now();
        }
        last = now;
    }
}

/// What the server waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// Turns, which are stopped after some time.
    Turns(InProgress),
    /// The rest: webhooks, and answers that are still being sent.
    Rest(usize),
}

impl Waiting {
    fn of(progress: InProgress) -> Self {
        if progress.turns > 0 { Self::Turns(progress) } else { Self::Rest(progress.requests) }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = |count: usize| match count {
            0 => String::new(),
            1 => " and 1 open request".to_owned(),
            count => format!(" and {count} open requests"),
        };
        match self {
            Self::Turns(InProgress { turns: 1, requests: open, .. }) => {
                write!(f, "1 turn{}", requests(*open))
            }
            Self::Turns(InProgress { turns, requests: open, .. }) => {
                write!(f, "{turns} turns{}", requests(*open))
            }
            Self::Rest(open) => write!(f, "deliveries to webhooks{}", requests(*open)),
        }
    }
}

/// Reports on the terminal in place, or else in the log.
struct Report {
    http: HttpService,
    on_terminal: bool,
    /// What was reported last, and since when it is waited for something of this kind.
    last: Option<(Waiting, Instant)>,
}

impl Report {
    fn new(http: HttpService) -> Self {
        Self { http, on_terminal: std::io::stderr().is_terminal(), last: None }
    }

    fn tick(&mut self, now: Instant) {
        let waiting = Waiting::of(self.http.in_progress());
        let is_same_kind = |last: &Waiting| std::mem::discriminant(last) == std::mem::discriminant(&waiting);
        let since = self.last.filter(|(last, _)| is_same_kind(last)).map_or(now, |(_, since)| since);
        let is_first = self.last.is_none();
        let is_new = self.last.is_none_or(|(last, _)| last != waiting);
        self.last = Some((waiting, since));
        let left = self.limit(waiting).saturating_sub(now.duration_since(since)).as_secs();
        if self.on_terminal {
            if is_first {
                rewrite_line("Ctrl-C again stops at once\n");
            }
            // The cursor goes back, so that a line of the log does not begin behind this text.
            rewrite_line(&format!("{}\r", countdown(waiting, left)));
        } else if is_new {
            tracing::info!(seconds = left, "stopping: waiting for {waiting}; a second signal stops at once");
        }
    }

    /// How long it is waited at most.
    fn limit(&self, waiting: Waiting) -> Duration {
        let drain = self.http.drain();
        match waiting {
            Waiting::Turns(_) => drain,
            // First for webhooks, then for connections.
            Waiting::Rest(_) => drain * 2,
        }
    }

    /// Removes the line on the terminal.
    fn end(&self) {
        if self.on_terminal && self.last.is_some() {
            rewrite_line("");
        }
    }
}

/// The line that counts down. It fits 80 columns: a line that the terminal wraps cannot be replaced.
fn countdown(waiting: Waiting, seconds: u64) -> String {
    format!("waiting for {waiting}, at most {seconds} s more")
}

/// Replaces the line of the cursor. It is one write, so that the terminal never shows a part of it.
fn rewrite_line(text: &str) {
    let mut err = anstream::stderr().lock();
    let line = format!("\r\x1b[K{text}");
    let _ = err.write_all(line.as_bytes()).and_then(|()| err.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_is_idle_after_the_last_request_and_the_last_turn() {
        let start = Instant::now();
        let progress = || {
            let mut progress = InProgress::default();
            let second = start.elapsed().as_secs();
            progress.turns = usize::from(second < 5);
            // One short request, at 9 s.
            progress.begun = u64::from(second >= 9);
            // A request for permission, until 12 s.
            progress.questions = usize::from((10..12).contains(&second));
            progress
        };
        idle_for(Some(Duration::from_secs(10)), progress).await;
        assert_eq!(start.elapsed().as_secs(), 22);
        for off in [None, Some(Duration::ZERO)] {
            let never = idle_for(off, progress);
            assert!(tokio::time::timeout(Duration::from_secs(100_000), never).await.is_err());
        }
    }

    #[test]
    fn the_countdown_fits_80_columns() {
        let mut many = InProgress::default();
        (many.turns, many.requests) = (10_000, 10_000);
        for waiting in [Waiting::Turns(many), Waiting::Rest(10_000)] {
            let line = countdown(waiting, 3600);
            assert!(line.len() < 80, "{line}");
        }
    }
}
