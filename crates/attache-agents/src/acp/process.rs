//! The program, in a process group of its own.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::BufReader;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::watch;

use super::AcpOptions;
use crate::child::{self, LogLimit, Started};
use crate::program::environment;
use attache_process::{Output, ProcessGroup};

/// A running program. It is stopped when this is dropped.
pub(super) struct Process {
    group: Mutex<Option<ProcessGroup>>,
    ended: watch::Receiver<Option<ExitStatus>>,
    grace: Duration,
}

impl Process {
    /// Starts the program.
    pub(super) fn start(
        options: &AcpOptions,
    ) -> io::Result<(Self, ChildStdin, BufReader<Output<ChildStdout>>)> {
        let variables = environment::base(&options.pass_environment, &options.environment);
        let Started { group, mut child, input, output, errors } =
            child::start(&options.command, variables, None)?;
        let (sender, ended) = watch::channel(None);
        let rest = group.clone_handle();
        // This task reaps the process, also after this value is dropped.
        tokio::spawn(async move {
            // If the status is unknown, the sender is dropped, which the receiver notices.
            if let Ok(status) = rest.wait(&mut child).await {
                sender.send_replace(Some(status));
            }
        });
        let log = |line: &str| tracing::info!(target: "attache::acp", "{line}");
        tokio::spawn(child::read_errors(errors, Some(LogLimit::default()), log, |_| ()));
        let process = Self { group: Mutex::new(Some(group)), ended, grace: options.grace };
        Ok((process, input, BufReader::new(output)))
    }

    /// How the program ended, for people. Waits a moment until that is known.
    pub(super) async fn describe_end(&self) -> String {
        let mut ended = self.ended.clone();
        let status = tokio::time::timeout(self.grace, ended.wait_for(Option::is_some)).await;
        match status.ok().and_then(Result::ok).and_then(|status| *status) {
            Some(status) => child::describe(status),
            None => "it closed its output".to_owned(),
        }
    }

    /// Asks the program to end, and kills it after the grace time.
    pub(super) fn stop(&self) {
        let Some(group) = self.group.lock().take() else { return };
        group.terminate();
        let (mut ended, grace) = (self.ended.clone(), self.grace);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = tokio::time::timeout(grace, ended.wait_for(Option::is_some)).await;
                // Dropping the group kills what is left.
                drop(group);
            });
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}
