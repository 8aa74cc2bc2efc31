//! Programs that this process starts: they end with it, together with the processes that they started.
//!
//! [`command`] makes the command for a program, and [`ProcessGroup`] is a program with its processes. [`Output`] is a pipe that ends with its program, [`read_errors`] reads the standard
//! error, [`LogLimit`] bounds what a program writes to the log, and [`describe`] says how a program ended.

mod command;
mod group;
mod output;
mod stderr;

pub use command::command;
pub use group::{Handle, ProcessGroup};
pub use output::Output;
pub use stderr::{LogLimit, read_errors};

use std::process::ExitStatus;

/// How a program ended, for people.
pub fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        if let Some(signal) = status.signal() {
            return format!("signal {signal}");
        }
    }
    status.code().map_or_else(|| "no exit code".to_owned(), |code| format!("exit code {code}"))
}
