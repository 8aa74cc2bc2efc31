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
    for _ in 0..MAX_SEARCHES {
        let found: Vec<Pid> = candidates.into_iter().filter(|pid| kill_marked(*pid, mark)).collect();
        if found.is_empty() {
            break;
        }
        killed.extend(found);
        candidates = all();
    }
    killed
}

/// All processes of the system.
fn all() -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Kills a process if it has the mark. Returns whether it was killed.
fn kill_marked(pid: Pid, mark: &str) -> bool {
    if !has_mark(pid, mark) {
        return false;
    }
    let kill = || -> io::Result<bool> {
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        // Its number can belong to another process by now.
        if !has_mark(pid, mark) {
            return Ok(false);
        }
        pidfd_send_signal(process, Signal::KILL)?;
        Ok(true)
    };
    kill().unwrap_or_else(|error| {
        tracing::debug!(%error, "a process that a program left behind could not be killed");
        false
    })
}

/// Whether a process has the mark. The environment of a process that has ended is empty, and that of other users cannot be read.
fn has_mark(pid: Pid, mark: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
    environment.is_ok_and(|all| all.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()))
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
