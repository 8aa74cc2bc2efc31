//! Programs that are started, watched for a limited time, and ended.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A running program whose standard output is read line by line. It ends with this value.
pub(super) struct Process {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

/// What a program has said until its end.
pub(super) struct Ended {
    pub(super) success: bool,
    pub(super) output: String,
    pub(super) errors: String,
}

impl Process {
    pub(super) fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let output = child.stdout.take().context("the program has a standard output")?;
        let stderr = child.stderr.take().context("the program has a standard error")?;
        Ok(Self { child, lines: lines(output), errors: whole(stderr) })
    }

    /// The next line, or nothing when the program has closed its output or the time is over.
    pub(super) fn line(&self, until: Instant) -> Option<String> {
        self.lines.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }

    /// Waits for the end of the program. One that takes too long is killed, which is an error.
    pub(super) fn finish(mut self, patience: Duration) -> Result<Ended> {
        let until = Instant::now() + patience;
        let mut output = String::new();
        while let Some(line) = self.line(until) {
            output.push_str(&line);
            output.push('\n');
        }
        if Instant::now() >= until {
            bail!("no answer after {} s; so far: {}", patience.as_secs(), output.trim());
        }
        let status = self.child.wait()?;
        Ok(Ended { success: status.success(), output, errors: self.said() })
    }

    /// What the program has written to its standard error, once it has ended.
    pub(super) fn said(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.errors.recv_timeout(Duration::from_secs(1)).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(output);
        let mut line = Vec::new();
        // A program may write anything, also what is not UTF-8.
        while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

fn whole(mut source: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = source.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_takes_too_long_is_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo first; exec sleep 60"]);
        let process = Process::start(command).unwrap();
        let began = Instant::now();
        // On a busy machine a shell takes a while to start.
        let error = process.finish(Duration::from_secs(3)).err().unwrap().to_string();
        assert!(error.ends_with("so far: first"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn both_outputs_of_a_program_are_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo error >&2; exit 3"]);
        let ended = Process::start(command).unwrap().finish(Duration::from_secs(30)).unwrap();
        assert_eq!(
            (ended.success, ended.output.as_str(), ended.errors.as_str()),
            (false, "out\n", "error\n")
        );
    }
}
