//! A server whose agent is the scripted MCP server.

use std::path::Path;
use std::time::Duration;

use attache_agents::mcp::{Mcp, McpOptions, McpServer};
use attache_client::{Client, Events, Reply};
use attache_core::Options;
use attache_protocol::{Message, Part, StreamResponse, Task, TaskState};
use attache_server::Server;
use serde_json::{Value, json};

/// The options for the scripted server in a mode.
pub(crate) fn options(mode: &str) -> McpOptions {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.py");
    McpOptions::new(McpServer::program(["python3", script.to_str().unwrap(), mode]))
}

/// Connects to the scripted server.
pub(crate) async fn connect(change: impl FnOnce(&mut McpOptions)) -> Mcp {
    Mcp::connect(options("normal").with(change)).await.unwrap()
}

/// Serves an agent, and returns a client for it.
pub(crate) async fn serve(mcp: &Mcp) -> Client {
    serve_with(mcp, Options::default()).await
}

/// The same with options of the service.
pub(crate) async fn serve_with(mcp: &Mcp, options: Options) -> Client {
    let server =
        Server::new(mcp.clone()).card(mcp.card()).service_options(|it| *it = options).bind("127.0.0.1:0");
    let server = server.listen().await.unwrap();
    let url = format!("http://{}", server.address().unwrap());
    tokio::spawn(server.run());
    Client::connect(&url).await.unwrap()
}

/// Serves the scripted server as an agent.
pub(crate) async fn agent(change: impl FnOnce(&mut McpOptions)) -> Client {
    serve(&connect(change).await).await
}

/// A message that calls a tool.
pub(crate) fn call(tool: &str, arguments: Value) -> Message {
    let id = format!("m-{}", uuid::Uuid::new_v4());
    let part = Part::data(&json!({"tool": tool, "arguments": arguments})).unwrap();
    Message { parts: vec![part], ..Message::user(id, "") }
}

pub(crate) fn task(reply: Reply) -> Task {
    match reply {
        Reply::Task(task) => task,
        Reply::Message(message) => panic!("a message instead of a task: {message:?}"),
    }
}

/// Calls a tool and returns the task.
pub(crate) async fn run(agent: &Client, tool: &str, arguments: Value) -> Task {
    task(agent.send(call(tool, arguments)).await.unwrap())
}

/// The text of the first artifact of a completed task.
pub(crate) fn text(task: &Task) -> String {
    assert_eq!(task.status.state, TaskState::Completed, "{task:?}");
    task.artifacts[0].parts.iter().filter_map(|part| part.as_text()).collect()
}

/// The text of the first artifact as JSON.
pub(crate) fn json(task: &Task) -> Value {
    serde_json::from_str(&text(task)).unwrap()
}

/// The text of a failure.
pub(crate) fn failure(task: &Task) -> String {
    assert_eq!(task.status.state, TaskState::Failed, "{task:?}");
    task.status.message.as_ref().unwrap().text()
}

/// The question of a task.
pub(crate) fn question(task: &Task) -> String {
    assert_eq!(task.status.state, TaskState::InputRequired, "{task:?}");
    task.status.message.as_ref().unwrap().text()
}

/// Starts a call of a tool that reports progress and then hangs. Returns its task when the call runs.
pub(crate) async fn start(agent: &Client, tool: &str) -> (Task, Events) {
    let mut events = agent.stream(call(tool, json!({}))).await.unwrap();
    loop {
        let event = events.next().await.expect("the stream goes on").expect("an event");
        if let StreamResponse::StatusUpdate(update) = event
            && update.status.message.is_some()
        {
            return (agent.get(update.task_id.clone()).await.unwrap(), events);
        }
    }
}

/// Whether a process runs. A zombie does not.
pub(crate) fn runs(pid: i64) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
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
