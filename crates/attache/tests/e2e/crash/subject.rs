//! Who is killed.

use std::fs::OpenOptions;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::support::example_path;

/// A server that can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// `attache serve --agent echo`, which answers at once.
    Echo,
    /// The example `durable_agent`, which takes its time: turns die halfway.
    Durable,
    /// The same, whose turns may be run again.
    Restartable,
}

impl Subject {
    /// Whether a turn that died is run again, instead of failing its task.
    pub(super) fn runs_again(self) -> bool {
        match self {
            Self::Echo | Self::Restartable => true,
            Self::Durable => false,
        }
    }

    /// Whether a turn lasts long enough to be interrupted on purpose.
    pub(super) fn takes_its_time(self) -> bool {
        match self {
            Self::Echo => false,
            Self::Durable | Self::Restartable => true,
        }
    }
}

/// Where a server listens and keeps its data, however often it is started.
pub(super) struct TestServer {
    subject: Subject,
    directory: PathBuf,
    address: String,
}

impl TestServer {
    pub(super) fn new(subject: Subject, directory: &Path) -> Self {
        Self { subject, directory: directory.to_owned(), address: quiet_address(subject) }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn store(&self) -> PathBuf {
        self.directory.join("tasks.db")
    }

    fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    pub(super) fn start(&self) -> Server {
        let log = OpenOptions::new().create(true).append(true).open(self.log()).expect("there is a log");
        let child = self.command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        Server { child: child.expect("the server starts"), log: self.log() }
    }

    fn command(&self) -> Command {
        let mut command = match self.subject {
            Subject::Echo => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_attache"));
                command.args([
                    "serve",
                    "--agent",
                    "echo",
                    "--allow-loopback-webhooks",
                    "--listen",
                    &self.address,
                ]);
                command.arg("--store").arg(store_url(&self.store()));
                command.arg("--keyring").arg(self.directory.join("keyring.json"));
                command
            }
            Subject::Durable | Subject::Restartable => {
                let mut command = Command::new(example_path("durable_agent"));
                command.arg(&self.address).arg(&self.directory);
                command
            }
        };
        if self.subject == Subject::Restartable {
            command.arg("--restartable");
        }
        command.kill_on_drop(true);
        command
    }

    /// Has the store checked as a user would. What the command says is wrong, if anything is.
    pub(super) async fn check_store(store: &Path) -> Result<(), String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_attache"));
        command.args(["store", "check", "--store"]).arg(store_url(store));
        let output = command.output().await.expect("the command runs");
        if output.status.success() {
            return Ok(());
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (said, complained) = (text(&output.stdout), text(&output.stderr));
        Err(format!(
            "`attache store check` of `{}` ends with {}: {said}{complained}",
            store.display(),
            output.status
        ))
    }
}

pub(super) fn store_url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

/// A port that the system assigns to no outgoing connection: while the server is down, a client that keeps trying to connect could
/// otherwise be given the server's port, and meet itself there. Each kind of server has ports of its own, because they are tested
/// at the same time.
fn quiet_address(subject: Subject) -> String {
    let first = 10_000 + 7_000 * subject as u16;
    loop {
        let address = format!("127.0.0.1:{}", fastrand::u16(first..first + 7_000));
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}

/// A running server.
pub(super) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Waits, while the server must not end by itself.
    pub(super) async fn expect_running_for(&mut self, pause: Duration) {
        if let Ok(ended) = tokio::time::timeout(pause, self.child.wait()).await {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(20).collect();
            let last: Vec<_> = last.into_iter().rev().collect();
            panic!("the server ended by itself ({ended:?}) and said last:\n{}", last.join("\n"));
        }
    }

    /// Kills the server without a warning.
    pub(super) async fn kill(mut self) {
        self.child.kill().await.expect("it can be killed");
    }

    /// Asks the server to stop, and waits until it has.
    pub(super) async fn stop(mut self) -> ExitStatus {
        let pid = self.child.id().expect("it runs").to_string();
        Command::new("kill").args(["-TERM", &pid]).status().await.expect("kill works");
        let stopped = tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await;
        stopped.expect("it stops").expect("it can be waited for")
    }
}
