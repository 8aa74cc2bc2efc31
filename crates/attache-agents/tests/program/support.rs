//! A server whose agent is a shell script.

use std::sync::Arc;
use std::time::Duration;

use attache_agents::program::{Program, ProgramOptions, Protocol};
use attache_client::{Client, Reply};
use attache_core::MemoryStore;
use attache_protocol::{AgentCard, Task, TaskState};
use attache_server::Server;
use tokio::task::JoinHandle;

/// Serves a shell script as an agent, and returns a client for it.
pub(crate) async fn serve(script: &str, change: impl FnOnce(&mut ProgramOptions)) -> Client {
    serve_with(script, change, |_| {}).await
}

/// The same, with options for the service.
pub(crate) async fn serve_with(
    script: &str,
    change: impl FnOnce(&mut ProgramOptions),
    service: impl FnOnce(&mut attache_core::Options),
) -> Client {
    serve_on(Arc::default(), script, change, service).await.0
}

/// The same, with a store. The server runs until it is aborted.
pub(crate) async fn serve_on(
    store: Arc<MemoryStore>,
    script: &str,
    change: impl FnOnce(&mut ProgramOptions),
    service: impl FnOnce(&mut attache_core::Options),
) -> (Client, JoinHandle<()>) {
    let options = ProgramOptions::new(["/bin/sh", "-c", script]).with(change);
    let card = AgentCard::new("Program", "A shell script").input_modes(["*/*"]);
    let server = Server::new(Program::new(options)).card(card).shared_store(store).service_options(service);
    let server = server.bind("127.0.0.1:0").listen().await.unwrap();
    let url = format!("http://{}", server.address().unwrap());
    let running = tokio::spawn(async move {
        let _ = server.run().await;
    });
    (Client::connect(&url).await.unwrap(), running)
}

/// Serves a script that speaks the JSON protocol.
pub(crate) async fn serve_json(script: &str) -> Client {
    serve(script, |options| options.protocol = Protocol::Json).await
}

pub(crate) fn task(reply: Reply) -> Task {
    match reply {
        Reply::Task(task) => task,
        Reply::Message(message) => panic!("a message instead of a task: {message:?}"),
    }
}

/// The text of an artifact.
pub(crate) fn text(task: &Task, artifact: usize) -> String {
    task.artifacts[artifact].parts.iter().filter_map(|part| part.as_text()).collect()
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

/// A script that leaves a process behind, which is not known as its own: it has a session of its own and no environment. It has the pipes
/// of the program. The number of the process is in `$!`.
pub(crate) const LEAVE_DAEMON: &str =
    "setsid env -i sleep 1000 & until grep -q ^sleep /proc/$!/cmdline; do sleep 0.01; done";

/// Ends a process that the server does not end.
pub(crate) fn kill(pid: &str) {
    let killed = std::process::Command::new("kill").args(["-9", pid.trim()]).status().unwrap();
    assert!(killed.success(), "the process {pid} has ended before");
}

/// Waits for a result that does not come if the server hangs.
pub(crate) async fn soon<T>(waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("it does not hang")
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
