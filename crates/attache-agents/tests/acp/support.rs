//! A server whose agent is a scripted coding agent.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use attache_agents::acp::{Acp, AcpOptions};
use attache_client::{Client, ClientOptions, Events, Outgoing, Reply, SchemeCredentials};
use attache_core::{MemoryStore, Namespace, Options, Redaction, ReportOptions};
use attache_protocol::{StreamResponse, Task, TaskState};
use attache_server::Server;
use attache_server::auth::KnownCallers;
use serde_json::Value;
use tempfile::TempDir;

/// The scripted agent.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/acp/agent.py");

/// Whether a test cannot run because there is no Python. Prints that in a line that is not captured.
pub(crate) fn skip(test: &str) -> bool {
    let mut python = std::process::Command::new("python3");
    python.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let missing = !python.status().is_ok_and(|status| status.success());
    if missing {
        writeln!(std::io::stdout(), "\nskipped {test}: python is not installed").expect("there is an output");
    }
    missing
}

/// A served agent.
pub(crate) struct Served {
    pub(crate) client: Client,
    pub(crate) url: String,
    pub(crate) store: Arc<MemoryStore>,
    /// A folder for the test. The workspaces are in `data`.
    pub(crate) folder: Arc<TempDir>,
    server: tokio::task::JoinHandle<()>,
}

/// Serves the scripted agent with these arguments.
pub(crate) async fn serve(arguments: &[&str], change: impl FnOnce(&mut AcpOptions)) -> Served {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    start(arguments, change, folder, Arc::default()).await
}

/// Serves the scripted agent to two callers, who have to log in. Returns a client for each.
pub(crate) async fn serve_two(folder: &TempDir) -> [Client; 2] {
    let options = AcpOptions::new(["python3", SCRIPT]).with(|options| {
        options.data_directory = Some(folder.path().join("data"));
    });
    let acp = Acp::new(options).unwrap();
    let callers = KnownCallers::new().bearer("alice", "t0ken-of-alice").bearer("bob", "t0ken-of-bob");
    let card = acp.card();
    let server =
        Server::new(acp).card(card).authenticate(callers).bind("127.0.0.1:0").listen().await.unwrap();
    let url = format!("http://{}", server.address().unwrap());
    tokio::spawn(server.run());
    let client = async |token: &str| {
        let options = ClientOptions::default().with_credentials(SchemeCredentials::new().token(token));
        Client::connect_with(&url, options).await.unwrap()
    };
    [client("t0ken-of-alice").await, client("t0ken-of-bob").await]
}

/// Serves the scripted agent with the metadata of iac-code, in place of whose server it is.
pub(crate) async fn serve_iac_code(arguments: &[&str]) -> Served {
    let (folder, store) = (Arc::new(tempfile::tempdir().unwrap()), Arc::default());
    start_with(arguments, |_| {}, iac_code, folder, store).await
}

fn iac_code(options: &mut Options) {
    options.reports = ReportOptions::default().namespace(Namespace::IacCode);
    options.redaction = Some(Redaction::new().secret("hunter2-hunter2"));
}

async fn start(
    arguments: &[&str],
    change: impl FnOnce(&mut AcpOptions),
    folder: Arc<TempDir>,
    store: Arc<MemoryStore>,
) -> Served {
    start_with(arguments, change, |_| {}, folder, store).await
}

async fn start_with(
    arguments: &[&str],
    change: impl FnOnce(&mut AcpOptions),
    configure: fn(&mut Options),
    folder: Arc<TempDir>,
    store: Arc<MemoryStore>,
) -> Served {
    let log = folder.path().join("log").display().to_string();
    let command = [&["python3", SCRIPT, "--log", &log], arguments].concat();
    let options = AcpOptions::new(command).with(|options| {
        options.data_directory = Some(folder.path().join("data"));
        change(options);
    });
    let acp = Acp::new(options).unwrap();
    let card = acp.card();
    let cards = acp.cards();
    let server = Server::new(acp).card(card).card_updates(cards).shared_store(store.clone());
    let server = server.service_options(configure);
    let server = server.bind("127.0.0.1:0").listen().await.unwrap();
    let url = format!("http://{}", server.address().unwrap());
    let server = tokio::spawn(async move {
        let _ = server.run().await;
    });
    Served { client: Client::connect(&url).await.unwrap(), url, store, folder, server }
}

impl Served {
    /// Sends a message, and waits for the task.
    pub(crate) async fn send(&self, message: impl Into<Outgoing>) -> Task {
        task(self.client.send(message).await.unwrap())
    }

    /// Sends a message in a conversation.
    pub(crate) async fn say(&self, context: &str, text: &str) -> Task {
        self.send(Outgoing::from(text).context(context)).await
    }

    /// Answers the question of a task.
    pub(crate) async fn answer(&self, asked: &Task, text: &str) -> Task {
        task(self.client.answer(asked, text).await.unwrap())
    }

    /// Sends a message, and waits for the first text of the answer.
    pub(crate) async fn begin(&self, message: impl Into<Outgoing>) -> (Events, String) {
        let mut events = self.client.stream(message).await.unwrap();
        let text = next_text(&mut events).await;
        (events, text)
    }

    /// The ids of all tasks, the latest first.
    pub(crate) async fn latest(&self) -> Task {
        self.client.list(Default::default()).await.unwrap().tasks[0].clone()
    }

    /// What the coding agent has received.
    pub(crate) fn received(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        // The last line can be incomplete.
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The processes of the coding agent, also those that have ended.
    pub(crate) fn pids(&self) -> Vec<String> {
        self.received()
            .iter()
            .filter_map(|message| message["pid"].as_u64())
            .map(|pid| pid.to_string())
            .collect()
    }

    /// How many requests or notifications of a method the coding agent has received.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.received().iter().filter(|message| message["method"] == method).count()
    }

    /// The answers to requests for permission that the coding agent has received.
    pub(crate) fn outcomes(&self) -> Vec<Value> {
        self.received()
            .iter()
            .map(|message| message["result"]["outcome"].clone())
            .filter(|outcome| !outcome.is_null())
            .collect()
    }

    /// The same for a server in place of the one of iac-code.
    pub(crate) async fn restart_iac_code(self, arguments: &[&str]) -> Self {
        let Self { store, folder, server, .. } = self;
        server.abort();
        let _ = server.await;
        start_with(arguments, |_| {}, iac_code, folder, store).await
    }

    /// Stops the server, and serves the same store with a new agent.
    pub(crate) async fn restart(self, arguments: &[&str]) -> Self {
        self.restart_with(arguments, |_| {}).await
    }

    /// The same with other options.
    pub(crate) async fn restart_with(self, arguments: &[&str], change: impl FnOnce(&mut AcpOptions)) -> Self {
        let Self { store, folder, server, .. } = self;
        server.abort();
        let _ = server.await;
        start(arguments, change, folder, store).await
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

pub(crate) fn task(reply: Reply) -> Task {
    match reply {
        Reply::Task(task) => task,
        Reply::Message(message) => panic!("a message instead of a task: {message:?}"),
    }
}

/// The next text of an artifact in a stream.
pub(crate) async fn next_text(events: &mut Events) -> String {
    loop {
        let event = events.next().await.expect("the stream goes on").expect("an event");
        if let StreamResponse::ArtifactUpdate(update) = event {
            return update.artifact.parts.iter().filter_map(|part| part.as_text()).collect();
        }
    }
}

/// The answer of a task that was completed.
pub(crate) fn answer(task: &Task) -> String {
    assert_eq!(task.status.state, TaskState::Completed, "{task:?}");
    text(task)
}

/// The answer so far.
pub(crate) fn text(task: &Task) -> String {
    let artifacts = task.artifacts.iter().filter(|artifact| artifact.artifact_id == "answer");
    artifacts.flat_map(|artifact| &artifact.parts).filter_map(|part| part.as_text()).collect()
}

/// The text of a failure.
pub(crate) fn failure(task: &Task) -> String {
    assert_eq!(task.status.state, TaskState::Failed, "{task:?}");
    task.status.message.as_ref().unwrap().text()
}

/// Whether a process runs. A zombie does not.
pub(crate) fn runs(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    status.is_ok_and(|status| !status.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let met = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), met).await.unwrap_or_else(|_| panic!("never: {what}"));
}
