//! Process groups of POSIX, and a watchdog for the case that the server is killed.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::LazyLock;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// The environment variable that marks the processes of this server.
const MARK: &str = "__ATTACHE_RUN";

/// Waits until the server closes its end of the pipe, which also happens when it is killed. Then kills all processes with the mark.
/// The mark is in the environment, so that processes are found that left their group.
const SCRIPT: &str = r#"
while read -r line; do :; done
for process in /proc/[0-9]*; do
    if tr '\0' '\n' < "$process/environ" 2>/dev/null | grep -qx "$1"; then
        kill -KILL "${process#/proc/}" 2>/dev/null
    fi
done
"#;

/// The process group of a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group(Pid);

impl Group {
    pub(super) fn of(child: &Child) -> io::Result<Self> {
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        pid.map(Self).ok_or_else(|| io::Error::other("the program has ended already"))
    }

    pub(super) fn terminate(self) {
        self.signal(Signal::TERM);
    }

    pub(super) fn kill(self) {
        self.signal(Signal::KILL);
    }

    fn signal(self, signal: Signal) {
        // The only expected error is that all processes have ended.
        if let Err(error) = kill_process_group(self.0, signal) {
            tracing::debug!(%error, "a process group could not be signalled");
        }
    }
}

/// Puts a program into a group of its own, and marks it for the watchdog.
pub(super) fn prepare(command: &mut Command) {
    command.process_group(0).env(MARK, mark());
}

/// The mark of this server. The first call starts the watchdog.
fn mark() -> &'static str {
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
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "attache-watchdog", &format!("{MARK}={mark}")]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // In a group of its own, it survives a Ctrl-C that ends the server.
    command.process_group(0).spawn()
}
