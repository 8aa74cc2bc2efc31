//! The process of an MCP server.

use std::io;
use std::time::Duration;

use tokio::io::BufReader;
use tokio::process::{ChildStdin, ChildStdout};
use tokio_util::sync::CancellationToken;

use super::McpOptions;
use crate::child::{self, LogLimit, Started};
use crate::program::environment;
use attache_process::{Output, ProcessGroup};

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
pub(super) type Pipes = (BufReader<Output<ChildStdout>>, ChildStdin);

impl Process {
    /// Starts the program of a server.
    pub(super) fn start(command: &[String], options: &McpOptions) -> io::Result<(Self, Pipes)> {
        let variables = environment::base(&options.pass_environment, &options.environment);
        let Started { group, mut child, input, output, errors } =
            child::start(command, variables, options.directory.as_deref())?;
        let exited = CancellationToken::new();
        let (rest, ended, server) = (group.clone_handle(), exited.clone(), options.server.to_string());
        // This task reaps the process.
        tokio::spawn(async move {
            let waiting = async {
                let status = rest.wait(&mut child).await;
                ended.cancel();
                status
            };
            let log = |line: &str| tracing::info!(target: "attache::mcp", server, "{line}");
            let errors = child::read_errors(errors, Some(LogLimit::default()), log, |_| ());
            let (status, ()) = tokio::join!(waiting, errors);
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
