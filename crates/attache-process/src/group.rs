//! Processes that end with this one, and together with the processes that they started.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::output::Output;

#[cfg(unix)]
#[path = "unix.rs"]
mod system;
#[cfg(not(unix))]
#[path = "other.rs"]
mod system;

/// A process with all processes that it starts. All are killed when this is dropped, except those that left the group: they are killed
/// when the process has ended and its status was [read](Handle::wait).
#[derive(Debug)]
pub struct ProcessGroup(Handle);

/// A way to signal a group and to wait for it that does not kill it when dropped.
#[derive(Debug, Clone)]
pub struct Handle {
    group: system::Group,
    /// Whether all processes were killed. After that the number of the group can belong to other processes.
    killed: Arc<AtomicBool>,
    /// Whether the process has ended, and what it left behind was killed.
    ended: watch::Sender<bool>,
}

impl ProcessGroup {
    /// Starts a program in a group of its own.
    pub fn spawn(command: Command) -> io::Result<(Self, Child)> {
        let (group, child) = system::Group::spawn(command)?;
        Ok((Self(Handle { group, killed: Arc::default(), ended: watch::Sender::new(false) }), child))
    }

    /// A handle for another task.
    pub fn clone_handle(&self) -> Handle {
        self.0.clone()
    }

    /// A pipe from the program, which ends with the program.
    pub fn output<R>(&self, pipe: R) -> Output<R> {
        Output::new(pipe, self.0.ended())
    }

    /// Waits until the program has ended, without keeping the group. Another task has to [wait](Handle::wait) for the program itself.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        self.0.ended()
    }

    /// Asks all processes to end.
    pub fn terminate(&self) {
        if !self.0.killed.load(Ordering::Acquire) {
            self.0.group.terminate();
        }
    }
}

impl Handle {
    /// Kills all processes, once.
    pub fn kill(&self) {
        if !self.killed.swap(true, Ordering::AcqRel) {
            self.group.kill();
        }
    }

    /// Waits until the program has ended, and kills the processes that it left behind. On Linux these are also the processes in sessions
    /// of their own.
    pub async fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let status = child.wait().await;
        self.kill();
        self.group.kill_left_behind().await;
        self.ended.send_replace(true);
        status
    }

    fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.ended.subscribe();
        async move {
            // Without a sender no task waits for the program any more.
            let _ = ended.wait_for(|ended| *ended).await;
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.0.kill();
    }
}
