//! On other systems only the program itself is killed.

use std::io;

use tokio::process::{Child, Command};

/// A program. Its own processes are not known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group;

impl Group {
    pub(super) fn of(_: &Child) -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) fn terminate(self) {}

    pub(super) fn kill(self) {}
}

pub(super) fn prepare(command: &mut Command) {
    command.kill_on_drop(true);
}
