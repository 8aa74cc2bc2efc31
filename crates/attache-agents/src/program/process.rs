//! A running program, in a process group of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use attache_core::{AgentError, AgentResult, ContextHold, PendingPermission, Turn, Workspace};
use parking_lot::Mutex;
use tokio::io::BufReader;
use tokio::process::ChildStdout;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::files::Files;
use super::input::Input;
use super::output_files::FileLocation;
use super::working_directory::WorkingDirectory;
use super::{ProgramOptions, environment};
use crate::child::{self, LogLimit, Started};
use attache_process::{Output, ProcessGroup};

/// How much of standard error is kept for the log and for the caller, in bytes.
const MAX_ERRORS: usize = 4096;

/// A running program. It is stopped when this is dropped.
pub(super) struct Process {
    /// What the program reads. Closed when the program should read no more.
    pub(super) input: Option<Input>,
    /// What the program writes.
    pub(super) output: BufReader<Output<ChildStdout>>,
    /// How many bytes the program may still write in this turn.
    pub(super) budget: usize,
    /// The request for permission that the program waits for.
    pub(super) pending: Option<PendingPermission>,
    /// Keeps the context for the task, while the program waits for an answer.
    pub(super) hold: Option<ContextHold>,
    /// The files of the messages that the program got.
    pub(super) files: Files,
    /// Where the program was started. The directory of the server, if there is none.
    pub(super) directory: Option<PathBuf>,
    /// The same, if that is not the workspace.
    pub(super) own_directory: Option<PathBuf>,
    /// The workspace, if the program was started in one.
    workspace: Option<Arc<Workspace>>,
    grace: Duration,
    errors: Arc<Mutex<Vec<u8>>>,
    /// The status of the program, when it has ended and its standard error is read.
    ended: watch::Receiver<Option<ExitStatus>>,
    /// `None` when the program was stopped.
    group: Option<ProcessGroup>,
}

impl Process {
    /// Starts the program.
    pub(super) fn start(
        options: &ProgramOptions,
        turn: &Turn,
        files: Files,
        workspace: Option<Arc<Workspace>>,
        place: OwnedSemaphorePermit,
    ) -> io::Result<Self> {
        let workspace = workspace.filter(|_| options.directory.is_none());
        let directory = options.directory.as_deref().or(workspace.as_deref().map(Workspace::root));
        let directory = directory.map(Path::to_owned);
        let own_directory = match &workspace {
            Some(_) => None,
            None => directory.clone().or_else(|| std::env::current_dir().ok()),
        };
        let opened =
            workspace.as_deref().map(|workspace| WorkingDirectory::open(workspace.root())).transpose()?;
        let variables = environment::variables(options, turn, &files);
        let path = opened.as_ref().map(WorkingDirectory::path).or(directory.as_deref());
        let Started { group, mut child, input, output, errors: stderr } =
            child::start(&options.command, variables, path)?;
        let input = Input::open(input, group.ended());
        let errors = Arc::new(Mutex::new(Vec::new()));
        let (sender, ended) = watch::channel(None);
        let (kept, task) = (errors.clone(), turn.task_id().to_string());
        let reader = async move {
            let log = |line: &str| tracing::info!(target: "attache::program", %task, "{line}");
            child::read_errors(stderr, Some(LogLimit::default()), log, |bytes| keep_last(&kept, bytes)).await;
        };
        let rest = group.clone_handle();
        // This task reaps the process, also after the turn has ended.
        tokio::spawn(async move {
            let (status, ()) = tokio::join!(rest.wait(&mut child), reader);
            drop(place);
            // If the status is unknown, the sender is dropped, which the receiver notices.
            if let Ok(status) = status {
                sender.send_replace(Some(status));
            }
        });
        Ok(Self {
            input: Some(input),
            output: BufReader::new(output),
            budget: options.max_output,
            pending: None,
            hold: None,
            files,
            directory,
            own_directory,
            workspace,
            grace: options.grace,
            errors,
            ended,
            group: Some(group),
        })
    }

    /// Where a file is that the program names.
    pub(super) fn location_of(&self, path: &Path) -> FileLocation {
        FileLocation::of(path, self.directory.as_deref(), self.workspace.clone(), &self.files)
    }

    /// Counts bytes of output. Fails if the program has written too much.
    pub(super) fn spend(&mut self, bytes: usize, options: &ProgramOptions) -> AgentResult {
        match self.budget.checked_sub(bytes) {
            Some(rest) => {
                self.budget = rest;
                Ok(())
            }
            None => {
                let limit = options.max_output;
                Err(AgentError::public(format!("the program wrote more than {limit} bytes")))
            }
        }
    }

    /// Waits until the program has ended.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let status = self.ended.wait_for(Option::is_some).await.map(|status| *status);
        status.ok().flatten().ok_or_else(|| io::Error::other("the program could not be awaited"))
    }

    /// Waits until the program has ended, without keeping it.
    pub(super) fn when_ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ended = self.ended.clone();
        async move {
            // A status that is not known is an end too.
            let _ = ended.wait_for(Option::is_some).await;
        }
    }

    /// Whether the program has not ended.
    pub(super) fn is_running(&self) -> bool {
        self.ended.borrow().is_none() && self.ended.has_changed().is_ok()
    }

    /// Closes the input of a program that is done, and stops it if it does not end by itself.
    pub(super) fn release(mut self) {
        self.input = None;
        tokio::spawn(async move {
            if tokio::time::timeout(self.grace, self.ended()).await.is_err() {
                self.stop().await;
            }
        });
    }

    /// Asks the program to stop, and kills it after the grace time.
    pub(super) async fn stop(mut self) {
        (self.input, self.hold) = (None, None);
        if let Some(group) = &self.group {
            group.terminate();
        }
        let _ = tokio::time::timeout(self.grace, self.ended()).await;
        // Kills what is left.
        drop(self.group.take());
    }

    /// The result of a program that has ended with this status.
    pub(super) fn result(&self, status: ExitStatus, options: &ProgramOptions) -> AgentResult {
        if status.success() {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&self.errors.lock()).trim().to_owned();
        let ended = child::describe(status);
        tracing::warn!(target: "attache::program", program = options.command.first(), %ended, stderr = errors, "a program failed");
        let shown =
            if options.show_errors && !errors.is_empty() { format!(": {errors}") } else { String::new() };
        Err(AgentError::public(format!("the program failed ({ended}){shown}")))
    }
}

impl Drop for Process {
    /// Stops a program whose turn is given up from outside, or that nothing waits for any more.
    fn drop(&mut self) {
        let Some(group) = self.group.take().filter(|_| self.is_running()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        group.terminate();
        let (ended, grace, files) = (self.when_ended(), self.grace, std::mem::take(&mut self.files));
        runtime.spawn(async move {
            let _ = tokio::time::timeout(grace, ended).await;
            // Dropping the group kills what is left.
            drop((group, files));
        });
    }
}

/// Keeps the last bytes of standard error.
fn keep_last(kept: &Mutex<Vec<u8>>, bytes: &[u8]) {
    let mut kept = kept.lock();
    kept.extend_from_slice(bytes);
    let excess = kept.len().saturating_sub(MAX_ERRORS);
    kept.drain(..excess);
}
