//! Process groups of POSIX, and a watchdog for the case that the server is killed.

use std::io;
use std::process::Stdio;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

#[cfg(target_os = "linux")]
#[path = "left_behind.rs"]
mod left_behind;

/// The environment variable that marks the processes of a program: the mark of this server, and the number of the program. Processes
/// inherit it, so that they are found also if they have left their group.
const MARK: &str = "__ATTACHE_RUN";

/// Waits until the server closes its end of the pipe, which also happens when it is killed. Then kills all processes with the mark, until
/// none is found: a process can start others while it is searched for. One `grep` finds a process that is replaced by another one all the
/// time. The `grep` of BusyBox may not know the option, and is then slower.
const SCRIPT: &str = r#"
while read -r line; do :; done
search() {
    if printf x | grep -qz x 2>/dev/null; then
        grep -lsz "^$1\." /proc/[0-9]*/environ
    else
        for process in /proc/[0-9]*; do
            tr '\0' '\n' < "$process/environ" 2>/dev/null | grep -q "^$1\." && echo "$process/environ"
        done
    fi
}
searches=0
while [ "$searches" -lt 100 ]; do
    found=$(search "$1")
    [ -n "$found" ] || break
    for file in $found; do
        process="${file#/proc/}"
        kill -KILL "${process%/environ}" 2>/dev/null
    done
    searches=$((searches + 1))
done
"#;

/// The process group of a program.
#[derive(Debug, Clone)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only Linux tells the environment of a process")
)]
pub(super) struct Group {
    /// The program. Its number is also that of the group.
    leader: Pid,
    /// The number of the program in the mark.
    number: u64,
    started: Instant,
}

impl Group {
    /// Starts a program in a group of its own, marked for the watchdog.
    pub(super) fn spawn(mut command: Command) -> io::Result<(Self, Child)> {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        command.process_group(0).env(MARK, format!("{}.{number}", server_mark()));
        let started = Instant::now();
        let child = command.spawn()?;
        let leader = child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        let leader = leader.ok_or_else(|| io::Error::other("the program has ended already"))?;
        Ok((Self { leader, number, started }, child))
    }

    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // The only expected error is that all processes have ended.
        if let Err(error) = kill_process_group(self.leader, signal) {
            tracing::debug!(%error, "a process group could not be signalled");
        }
    }

    /// Kills the processes that left the group, after the program has ended.
    #[cfg(target_os = "linux")]
    pub(super) async fn kill_left_behind(&self) {
        let mark = format!("{MARK}={}.{}", server_mark(), self.number);
        left_behind::kill(self.leader, self.started, mark).await;
    }

    /// Processes that left the group are found on Linux only.
    #[cfg(not(target_os = "linux"))]
    pub(super) async fn kill_left_behind(&self) {}
}

/// The mark of this server. The first call starts the watchdog.
fn server_mark() -> &'static str {
    struct Watchdog {
        mark: String,
        /// The child with the server's end of the pipe, which is closed when the server ends.
        _child: Option<std::process::Child>,
    }
    static WATCHDOG: LazyLock<Watchdog> = LazyLock::new(|| {
        let mark = uuid::Uuid::new_v4().to_string();
        let child = start_watchdog(&mark);
        if let Err(error) = &child {
            tracing::warn!(%error, "cannot start `/bin/sh`: programs can outlive this server if it is killed");
        }
        Watchdog { mark, _child: child.ok() }
    });
    &WATCHDOG.mark
}

fn start_watchdog(mark: &str) -> io::Result<std::process::Child> {
    use std::os::unix::process::CommandExt;

    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "attache-watchdog", &format!("{MARK}={mark}")]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // A server that another one started has a mark itself. The watchdog must outlive it.
    command.env_remove(MARK);
    // In a group of its own, it survives a Ctrl-C that ends the server.
    command.process_group(0).spawn()
}
