//! On other systems only the program itself is killed.

use std::io;

use tokio::process::{Child, Command};

/// A program. Its own processes are not known.
#[derive(Debug, Clone)]
pub(super) struct Group;

impl Group {
    pub(super) fn spawn(mut command: Command) -> io::Result<(Self, Child)> {
        command.kill_on_drop(true);
        Ok((Self, command.spawn()?))
    }

    pub(super) fn terminate(&self) {}

    pub(super) fn kill(&self) {}

    pub(super) async fn kill_left_behind(&self) {}
}
