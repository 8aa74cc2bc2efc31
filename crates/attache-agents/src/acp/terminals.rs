//! Commands that the agent runs through the server, in the workspace of its session.

use std::collections::HashMap;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::watch;

use super::AcpOptions;
use super::wire::{CreateTerminal, RpcError, code};
use super::workspace::Workspace;
use crate::program::environment;
use attache_process::ProcessGroup;

/// How many terminals a session may have at once.
const MAX_TERMINALS: usize = 16;

/// How much output a terminal keeps, in bytes.
const MAX_OUTPUT: usize = 1024 * 1024;

/// The terminals of a session. Their processes are killed when this is dropped.
#[derive(Default)]
pub(super) struct Terminals {
    by_id: Mutex<HashMap<String, Arc<Terminal>>>,
    next: AtomicU64,
}

struct Terminal {
    /// Dropping the group kills its processes.
    group: Mutex<Option<ProcessGroup>>,
    output: Arc<Mutex<Output>>,
    ended: watch::Receiver<Option<ExitStatus>>,
}

/// The last bytes of the output.
struct Output {
    bytes: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl Output {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let excess = self.bytes.len().saturating_sub(self.limit);
        self.truncated |= excess > 0;
        self.bytes.drain(..excess);
    }

    /// The text, which begins with a whole character.
    fn text(&self) -> String {
        let skipped = match self.truncated {
            true => self.bytes.iter().take_while(|byte| (**byte & 0xc0) == 0x80).count(),
            false => 0,
        };
        String::from_utf8_lossy(&self.bytes[skipped..]).into_owned()
    }
}

impl Terminals {
    /// Starts a command. Without arguments it is a line for the shell.
    pub(super) fn create(
        &self,
        request: &CreateTerminal,
        workspace: &Workspace,
        options: &AcpOptions,
    ) -> Result<Value, RpcError> {
        if self.by_id.lock().len() >= MAX_TERMINALS {
            let text = format!("a session may have {MAX_TERMINALS} terminals at once: release one first");
            return Err(RpcError::new(code::INVALID_REQUEST, text));
        }
        // The process starts in the directory that is opened here, whatever its path leads to by then.
        let directory = workspace.directory(request.cwd.as_deref().unwrap_or(Path::new(".")))?;
        let mut command = match request.args.as_slice() {
            [] => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", &request.command]);
                shell
            }
            args => {
                let mut command = Command::new(&request.command);
                command.args(args);
                command
            }
        };
        command
            .env_clear()
            .envs(environment::base(&options.pass_environment, &options.environment))
            .current_dir(directory.path());
        command.envs(request.env.iter().map(|variable| (&variable.name, &variable.value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (group, mut child) = ProcessGroup::spawn(command).map_err(|error| {
            RpcError::new(code::INVALID_PARAMS, format!("`{}` cannot be started: {error}", request.command))
        })?;
        let limit = request.output_byte_limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.map_or(MAX_OUTPUT, |limit| limit.min(MAX_OUTPUT));
        let output = Arc::new(Mutex::new(Output { bytes: Vec::new(), limit, truncated: false }));
        let (sender, ended) = watch::channel(None);
        let readers = (
            child.stdout.take().map(|pipe| collect(group.output(pipe), output.clone())),
            child.stderr.take().map(|pipe| collect(group.output(pipe), output.clone())),
        );
        let rest = group.clone_handle();
        // This task reaps the process.
        tokio::spawn(async move {
            let (status, (), ()) =
                tokio::join!(rest.wait(&mut child), optional(readers.0), optional(readers.1));
            if let Ok(status) = status {
                sender.send_replace(Some(status));
            }
        });
        let id = format!("terminal-{}", self.next.fetch_add(1, Ordering::Relaxed) + 1);
        let terminal = Terminal { group: Mutex::new(Some(group)), output, ended };
        self.by_id.lock().insert(id.clone(), Arc::new(terminal));
        Ok(json!({"terminalId": id}))
    }

    fn find(&self, id: &str) -> Result<Arc<Terminal>, RpcError> {
        let found = self.by_id.lock().get(id).cloned();
        found.ok_or_else(|| RpcError::new(code::NOT_FOUND, format!("there is no terminal `{id}`")))
    }

    /// The output so far.
    pub(super) fn output(&self, id: &str) -> Result<Value, RpcError> {
        let terminal = self.find(id)?;
        let status = *terminal.ended.borrow();
        let output = terminal.output.lock();
        Ok(
            json!({"output": output.text(), "truncated": output.truncated, "exitStatus": status.map(describe)}),
        )
    }

    /// Waits until the command has ended.
    pub(super) async fn wait(&self, id: &str) -> Result<Value, RpcError> {
        let mut ended = self.find(id)?.ended.clone();
        let status = ended.wait_for(Option::is_some).await.ok().and_then(|status| *status);
        let status =
            status.ok_or_else(|| RpcError::new(code::INTERNAL, "the command could not be awaited"))?;
        Ok(describe(status))
    }

    /// Kills the command. Its output can still be read.
    pub(super) fn kill(&self, id: &str) -> Result<Value, RpcError> {
        drop(self.find(id)?.group.lock().take());
        Ok(json!({}))
    }

    /// Kills the command, and forgets it.
    pub(super) fn release(&self, id: &str) -> Result<Value, RpcError> {
        self.kill(id)?;
        self.by_id.lock().remove(id);
        Ok(json!({}))
    }

    /// Kills and forgets all commands.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.by_id.lock());
        for terminal in all.into_values() {
            // Requests that wait for the end of the command keep the terminal itself.
            drop(terminal.group.lock().take());
        }
    }
}

impl Drop for Terminals {
    fn drop(&mut self) {
        self.clear();
    }
}

fn describe(status: ExitStatus) -> Value {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal = None::<i32>;
    json!({"exitCode": status.code(), "signal": signal.map(|signal| signal.to_string())})
}

async fn optional(reader: Option<impl Future<Output = ()>>) {
    if let Some(reader) = reader {
        reader.await;
    }
}

async fn collect(mut pipe: impl AsyncRead + Unpin, output: Arc<Mutex<Output>>) {
    let mut buffer = [0; 8192];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        output.lock().push(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_output_is_kept_and_begins_with_a_whole_character() {
        let mut output = Output { bytes: Vec::new(), limit: 5, truncated: false };
        output.push("ab".as_bytes());
        assert_eq!((output.text().as_str(), output.truncated), ("ab", false));
        output.push("äöü".as_bytes());
        assert_eq!((output.text().as_str(), output.truncated), ("öü", true));
    }
}
