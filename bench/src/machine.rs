//! The machine a run takes place on: its cores, which of them does what, and its limits.
//!
//! Pinning needs Linux. Elsewhere the harness compiles, and says that nothing is pinned.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

/// Which core serves and which generates load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Cores {
    /// How many cores this process may use.
    pub(crate) available: usize,
    /// The two cores, when there are two to tell apart.
    pub(crate) pinned: Option<Pinned>,
    /// Whether the load generator stays awake on its core while nothing arrives.
    pub(crate) awake: bool,
}

/// A core for the server under load and another for the load generator.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Pinned {
    pub(crate) server: usize,
    pub(crate) load: usize,
}

/// Pins this thread, and with it the load generator, to the last core it may use; servers get the first.
///
/// With one core nothing is pinned, which is said on stderr: server and load generator then take time from each other.
pub(crate) fn pin_load_generator() -> Result<Cores> {
    let usable = os::usable_cores()?;
    let pinned = match usable.as_slice() {
        [server, .., load] => Some(Pinned { server: *server, load: *load }),
        [] | [_] => None,
    };
    match pinned {
        Some(pinned) => os::pin(pinned.load)?,
        None => eprintln!(
            "note: no second core to pin to; server and load generator share, ratios lean towards 1"
        ),
    }
    Ok(Cores { available: usable.len().max(1), pinned, awake: false })
}

/// Does `start` on the server's core. A process started there inherits the pinning, with all threads it will ever have.
pub(crate) async fn on_the_server_core<T>(cores: Cores, start: impl Future<Output = T>) -> Result<T> {
    let Some(pinned) = cores.pinned else { return Ok(start.await) };
    os::pin(pinned.server)?;
    let started = start.await;
    os::pin(pinned.load)?;
    Ok(started)
}

/// Time that the two cores spent on processes, or were taken away by the hypervisor, since the machine started.
pub(crate) fn busy_time(cores: Cores) -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat").context("reading `/proc/stat`; the harness needs Linux")?;
    let wanted = match cores.pinned {
        Some(Pinned { server, load }) => vec![format!("cpu{server}"), format!("cpu{load}")],
        None => vec!["cpu".to_owned()],
    };
    let ticks: u64 = wanted.iter().filter_map(|name| busy_ticks(&stat, name)).sum();
    Ok(duration_of(ticks))
}

/// User, nice, system and steal of one line of `/proc/stat`.
fn busy_ticks(stat: &str, name: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    let fields: Vec<u64> = line.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
    Some([0, 1, 2, 7].iter().filter_map(|field| fields.get(*field)).sum())
}

/// Processor time in the unit of `/proc`.
pub(crate) fn duration_of(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / os::ticks_per_second() as f64)
}

/// What the results were measured on.
#[derive(Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) system: String,
    #[serde(flatten)]
    pub(crate) cores: Cores,
}

impl Machine {
    pub(crate) fn describe(cores: Cores) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or("unknown", |(_, model)| model.trim());
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let system = format!("{} {}", std::env::consts::OS, release.trim());
        Self { cpu: cpu.to_owned(), system: system.trim_end().to_owned(), cores }
    }
}

pub(crate) use os::{is_in_memory, raise_open_file_limit, terminated};

#[cfg(target_os = "linux")]
mod os {
    use std::path::Path;

    use anyhow::{Context, Result};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use tokio::signal::unix::{SignalKind, signal};

    pub(super) fn usable_cores() -> Result<Vec<usize>> {
        let usable = sched_getaffinity(None).context("asking which cores may be used")?;
        Ok((0..CpuSet::MAX_CPU).filter(|core| usable.is_set(*core)).collect())
    }

    pub(super) fn pin(core: usize) -> Result<()> {
        let mut only = CpuSet::new();
        only.set(core);
        sched_setaffinity(None, &only).with_context(|| format!("pinning to core {core}"))
    }

    /// Thousands of streams need thousands of sockets, here and in the servers, which inherit the limit.
    pub(crate) fn raise_open_file_limit() {
        let limit = getrlimit(Resource::Nofile);
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
            eprintln!("note: the limit of open files stays at {:?}: {error}", limit.current);
        }
    }

    /// The unit of processor time in `/proc/PID/stat`.
    pub(super) fn ticks_per_second() -> u64 {
        rustix::param::clock_ticks_per_second()
    }

    /// Resolves when this process is asked to end, so that the servers end with it and files are removed.
    pub(crate) async fn terminated() {
        match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(mut terminate), Ok(mut interrupt)) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            (Err(_), _) | (_, Err(_)) => std::future::pending().await,
        }
    }

    /// Whether what is written to `directory` is only in memory.
    pub(crate) fn is_in_memory(directory: &Path) -> bool {
        const TMPFS: i64 = 0x0102_1994;
        rustix::fs::statfs(directory).is_ok_and(|system| system.f_type == TMPFS)
    }
}

#[cfg(not(target_os = "linux"))]
mod os {
    use anyhow::Result;

    pub(super) fn usable_cores() -> Result<Vec<usize>> {
        Ok(Vec::new())
    }

    pub(super) fn pin(_core: usize) -> Result<()> {
        Ok(())
    }

    pub(crate) fn raise_open_file_limit() {}

    pub(super) fn ticks_per_second() -> u64 {
        100
    }

    pub(crate) async fn terminated() {
        std::future::pending().await
    }

    pub(crate) fn is_in_memory(_directory: &std::path::Path) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_is_that_of_the_core_named() {
        let stat = "cpu  10 1 20 900 5 6 7 3 0 0\ncpu1 4 1 8 400 5 6 7 2 0 0\ncpu10 9 9 9 9\n";
        assert_eq!(busy_ticks(stat, "cpu"), Some(34));
        assert_eq!(busy_ticks(stat, "cpu1"), Some(15));
        assert_eq!(busy_ticks(stat, "cpu2"), None);
    }
}
