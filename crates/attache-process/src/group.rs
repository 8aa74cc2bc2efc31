//! Processes that end with this one, and together with the processes that they started.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::process::{Child, Command};

#[cfg(unix)]
#[path = "unix.rs"]
mod system;
#[cfg(not(unix))]
#[path = "other.rs"]
mod system;

/// A process with all processes that it starts, unless they leave the group on purpose. All are killed when this is dropped.
#[derive(Debug)]
pub struct ProcessGroup(Handle);

/// A way to signal a group that does not kill it when dropped.
#[derive(Debug, Clone)]
pub struct Handle {
    group: system::Group,
    /// Whether all processes were killed. After that the number of the group can belong to other processes.
    killed: Arc<AtomicBool>,
}

impl ProcessGroup {
    /// Starts a program in a group of its own.
    pub fn spawn(mut command: Command) -> io::Result<(Self, Child)> {
        system::prepare(&mut command);
        let child = command.spawn()?;
        let group = system::Group::of(&child)?;
        Ok((Self(Handle { group, killed: Arc::default() }), child))
    }

    /// A handle for another task.
    pub fn clone_handle(&self) -> Handle {
        self.0.clone()
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
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.0.kill();
    }
}
