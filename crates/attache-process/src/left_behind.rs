//! Processes that a program left behind in sessions of their own, on Linux.
//!
//! They are found by the mark in their environment. A search through all processes takes about as long as starting a program. So for a
//! program that ran for a short time, only the processes that were started after it are looked at. Often there is none.

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, child_subreaper, pidfd_open, pidfd_send_signal, waitid,
};

/// How often the processes are searched, because they can start others meanwhile.
const MAX_SEARCHES: usize = 10;

/// The first and the longest pause for a process that replaces its program, which takes long only if the processors are busy.
const EXEC_PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(32));

/// In this time a system does not use all numbers of processes, so that later processes have higher numbers.
const SHORT_RUN: Duration = Duration::from_secs(1);

/// How often the status of killed processes is read until they have ended, and the pause between two attempts.
const MAX_REAPS: usize = 1000;
const REAP_PAUSE: Duration = Duration::from_millis(10);

/// Kills the processes with a mark, after the program has ended. `leader` was the process of the program.
pub(super) async fn kill(leader: Pid, started: Instant, mark: String) {
    let later = match started.elapsed() < SHORT_RUN {
        true => later_than(leader),
        false => None,
    };
    let mut killed = Vec::new();
    if later.as_ref().is_none_or(|later| !later.is_empty()) {
        // Reading about processes can take some milliseconds.
        let searching = tokio::task::spawn_blocking(move || search(later, &mark));
        killed = searching.await.unwrap_or_default();
    }
    if inherits_orphans() {
        tokio::spawn(async move {
            reap(WaitId::Pgid(Some(leader))).await;
            for pid in killed {
                reap(WaitId::Pid(pid)).await;
            }
        });
    }
}

/// The numbers of processes that were started after this one, unless the system began with low numbers again.
fn later_than(pid: Pid) -> Option<std::ops::RangeInclusive<i32>> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    let last: i32 = load.split_ascii_whitespace().last()?.parse().ok()?;
    let first = pid.as_raw_nonzero().get();
    (last >= first).then(|| first + 1..=last)
}

/// Kills all processes with a mark: among these numbers, and then among all until none is found.
fn search(first: Option<std::ops::RangeInclusive<i32>>, mark: &str) -> Vec<Pid> {
    let mut killed = Vec::new();
    let mut candidates = first.map_or_else(all, |range| range.filter_map(Pid::from_raw).collect());
    let (mut pause, longest) = EXEC_PAUSE;
    for _ in 0..MAX_SEARCHES {
        let (mut found, mut unknown) = (Vec::new(), Vec::new());
        for pid in candidates {
            match kill_marked(pid, mark) {
                Mark::Own => found.push(pid),
                Mark::Unknown => unknown.push(pid),
                Mark::Other => {}
            }
        }
        candidates = match (found.is_empty(), unknown.is_empty()) {
            (false, _) => all(),
            (true, false) => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(longest);
                unknown
            }
            (true, true) => break,
        };
        killed.extend(found);
    }
    killed
}

/// All processes of the system.
fn all() -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Kills a process if it has the mark, and returns the mark.
fn kill_marked(pid: Pid, mark: &str) -> Mark {
    let kill = || -> io::Result<Mark> {
        let found = mark_of(pid, mark);
        if found != Mark::Own {
            return Ok(found);
        }
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        // Its number can belong to another process by now.
        let found = mark_of(pid, mark);
        if found == Mark::Own {
            pidfd_send_signal(process, Signal::KILL)?;
        }
        Ok(found)
    };
    kill().unwrap_or_else(|error| {
        tracing::debug!(%error, "a process that a program left behind could not be killed");
        Mark::Other
    })
}

/// Whether a process has the mark.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Own,
    /// It has another one or none, has ended, or belongs to another user, whose environments cannot be read.
    Other,
    /// It runs and has no environment. The system shows it so for a moment while the process replaces its program.
    Unknown,
}

fn mark_of(pid: Pid, mark: &str) -> Mark {
    let process = format!("/proc/{}", pid.as_raw_nonzero());
    let Ok(environment) = std::fs::read(format!("{process}/environ")) else { return Mark::Other };
    if environment.is_empty() {
        // A process that has ended has no program.
        let runs = std::fs::read_link(format!("{process}/exe")).is_ok();
        return if runs { Mark::Unknown } else { Mark::Other };
    }
    let has_mark = environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
    if has_mark { Mark::Own } else { Mark::Other }
}

/// Whether processes whose parent has ended become children of this process, as in a container whose first process it is.
fn inherits_orphans() -> bool {
    std::process::id() == 1 || child_subreaper().is_ok_and(|is_set| is_set.is_some())
}

/// Reads the status of killed processes that have become children of this process, so that the system can forget them.
async fn reap(processes: WaitId<'_>) {
    for _ in 0..MAX_REAPS {
        match waitid(processes.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            // There can be more.
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => tokio::time::sleep(REAP_PAUSE).await,
            // None is left, or all belong to another process.
            Err(_) => break,
        }
    }
}
