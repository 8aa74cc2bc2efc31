//! The process of an MCP server.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

use super::McpOptions;
use crate::process_group::ProcessGroup;
use crate::program::environment;

/// The longest line of standard error in the log, in bytes.
const MAX_LOG_LINE: usize = 1024;

/// How much is read from the process at once, in bytes.
const BUFFER: usize = 64 * 1024;

/// A running server. It is stopped when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    group: Option<ProcessGroup>,
    grace: Duration,
    /// Canceled when the process has ended.
    exited: CancellationToken,
}

/// The pipes of a process.
pub(super) type Pipes = (BufReader<ChildStdout>, ChildStdin);

impl Process {
    /// Starts the program of a server.
    pub(super) fn start(command: &[String], options: &McpOptions) -> io::Result<(Self, Pipes)> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
        };
        let mut command = Command::new(program);
        command.args(arguments).env_clear();
        command.envs(environment::base(&options.pass_environment, &options.environment));
        if let Some(directory) = &options.directory {
            command.current_dir(directory);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (group, mut child) = ProcessGroup::spawn(command)?;
        let missing = || io::Error::other("a pipe to the program is missing");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let exited = CancellationToken::new();
        let (rest, ended, server) = (group.clone_handle(), exited.clone(), options.server.to_string());
        // This task reaps the process.
        tokio::spawn(async move {
            let waiting = async {
                let status = child.wait().await;
                ended.cancel();
                // Processes that the server started and left behind would keep its pipes open.
                rest.kill();
                status
            };
            let (status, ()) = tokio::join!(waiting, log_errors(stderr, &server));
            if let Ok(status) = status {
                tracing::info!(target: "attache::mcp", server, %status, "an MCP server ended");
            }
        });
        let process = Self { group: Some(group), grace: options.grace, exited };
        Ok((process, (BufReader::with_capacity(BUFFER, output), input)))
    }
}

impl Drop for Process {
    /// Asks the process to end, and kills it after the grace time.
    fn drop(&mut self) {
        let Some(group) = self.group.take() else { return };
        if self.exited.is_cancelled() {
            return;
        }
        group.terminate();
        let (grace, exited) = (self.grace, self.exited.clone());
        // Without a runtime the group is dropped at once, which kills it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = tokio::time::timeout(grace, exited.cancelled()).await;
                drop(group);
            });
        }
    }
}

/// Logs the lines of standard error.
async fn log_errors(mut stderr: ChildStderr, server: &str) {
    let mut buffer = [0; 4096];
    let mut line = Vec::new();
    let log = |line: &[u8]| {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        if !text.is_empty() {
            tracing::info!(target: "attache::mcp", server, "{text}");
        }
    };
    // A process that cannot be read any more has ended.
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        for byte in &buffer[..count] {
            if *byte == b'\n' || line.len() >= MAX_LOG_LINE {
                log(&line);
                line.clear();
            }
            if *byte != b'\n' {
                line.push(*byte);
            }
        }
    }
    log(&line);
}
