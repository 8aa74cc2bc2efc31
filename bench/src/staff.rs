//! The workers of a gateway under measurement, or the server that it calls: a child process beside the load generator.
//!
//! Workers and server are different programs and would not share a core, so the workers do not run on the server's core: only the gateway
//! is measured there. With two cores, the load generator's core is left. The report shows the processor time of the workers, and marks a
//! window that the workers and the generator limited together.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Seek};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::worker::Crowd;

/// Workers at work. They are killed when this is dropped.
pub(crate) struct Staff {
    child: RefCell<Child>,
    id: u32,
    /// What they say; a file, which is never full and need not be read meanwhile.
    said: File,
}

impl Staff {
    /// Has `program` start workers of the engine at `engine`, on the core of this process. They may not have joined yet.
    pub(crate) fn start(program: &Path, engine: SocketAddr, crowd: Crowd) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "worker", "--engine", &format!("ws://{engine}")]);
        command.args(["--workers", &crowd.workers.to_string()]);
        command.args(["--functions", &crowd.functions.to_string()]);
        Self::spawn(command)
    }

    /// Starts a process on the core of this process.
    pub(crate) fn spawn(mut command: Command) -> Result<Self> {
        let said = tempfile::tempfile().context("making a file for what workers say")?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.try_clone()?);
        let child = command.spawn()?;
        Ok(Self { id: child.id(), child: RefCell::new(child), said })
    }

    /// The id of their process.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Fails, with what they said, if they have ended.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(status) = self.child.borrow_mut().try_wait()? else { return Ok(()) };
        let mut said = String::new();
        let mut file = &self.said;
        file.rewind()?;
        file.read_to_string(&mut said)?;
        match said.trim() {
            "" => bail!("the workers ended without a word ({status})"),
            said => bail!("the workers ended ({status}): {said}"),
        }
    }
}

impl Drop for Staff {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        // Either fails only when they have already ended, which is what is wanted.
        drop(child.kill());
        drop(child.wait());
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Staff {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Staff::spawn(command).unwrap()
    }

    #[test]
    fn workers_that_end_are_quoted() {
        let staff = shell("echo 'error: no engine here' >&2; exit 3");
        staff.child.borrow_mut().wait().unwrap();
        let error = staff.check().unwrap_err().to_string();
        assert_eq!(error, "the workers ended (exit status: 3): error: no engine here");
    }

    #[test]
    fn workers_at_work_are_left_alone() {
        shell("sleep 60").check().unwrap();
    }
}
