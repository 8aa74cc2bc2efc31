//! MCP servers of other projects. `cargo xtask test` installs them.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use attache_agents::mcp::{Mcp, McpOptions, McpServer};
use attache_protocol::{Content, Task, TaskState};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::{question, run, serve, task, text};

const NODE: &str = "mcp-node-2026.8.31";
const PYTHON: &str = "mcp-python-2026.10.19";

/// Runs a test, or says why not: in a line of its own that no one captures, because otherwise it would count as passed.
fn keep(name: &str, language: &str, test: impl Future<Output = ()>) {
    let reason = match std::env::var_os("ATTACHE_PEERS") {
        None => Some("MCP servers are installed by `cargo xtask test`: run that".to_owned()),
        Some(_) => {
            let without = std::env::var("ATTACHE_PEERS_WITHOUT").unwrap_or_default();
            without
                .split(',')
                .any(|absent| absent == language)
                .then(|| format!("{language} is not installed"))
        }
    };
    if let Some(reason) = reason {
        writeln!(std::io::stdout(), "\nskipped peers::{name}: {reason}").expect("there is an output");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

fn home(folder: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("ATTACHE_PEERS").expect("it was looked at before")).join(folder)
}

/// The command of a server from npm.
fn node(server: &str, arguments: &[&str]) -> McpOptions {
    let script = home(NODE).join("node_modules/@modelcontextprotocol").join(server).join("dist/index.js");
    let script = script.to_str().unwrap();
    McpOptions::new(McpServer::program([&["node", script], arguments].concat()))
}

fn data(task: &Task, artifact: usize) -> Option<Value> {
    task.artifacts[artifact].parts.iter().find_map(|part| part.as_data()).and_then(|data| data.read().ok())
}

/// What holds for server-everything, however it is reached.
async fn use_everything(mcp: &Mcp) {
    let agent = serve(mcp).await;
    let skills: Vec<String> = mcp.card().skills.iter().map(|skill| skill.id.clone()).collect();
    assert!(skills.iter().any(|skill| skill == "echo"), "{skills:?}");
    assert_eq!(text(&run(&agent, "echo", json!({"message": "hello"})).await), "Echo: hello");
    assert_eq!(text(&run(&agent, "get-sum", json!({"a": 2, "b": 3})).await), "The sum of 2 and 3 is 5.");
    let wrong = run(&agent, "get-sum", json!({"a": 2, "b": "three"})).await;
    assert_eq!(wrong.status.state, TaskState::Failed);
    let image = run(&agent, "get-tiny-image", json!({})).await;
    let is_png = |part: &attache_protocol::Part| {
        part.media_type.as_deref() == Some("image/png")
            && matches!(&part.content, Content::Raw(bytes) if bytes.starts_with(b"\x89PNG"))
    };
    assert!(image.artifacts[0].parts.iter().any(is_png), "{image:?}");
    let structured = run(&agent, "get-structured-content", json!({"location": "Chicago"})).await;
    assert!(data(&structured, 0).is_some_and(|data| data.get("temperature").is_some()), "{structured:?}");
    let links = run(&agent, "get-resource-links", json!({"count": 2})).await;
    let urls = links.artifacts[0].parts.iter().filter(|part| matches!(part.content, Content::Url(_)));
    assert_eq!(urls.count(), 2, "{links:?}");
    let mut events = agent
        .stream(
            attache_client::Outgoing::from(crate::support::call(
                "trigger-long-running-operation",
                json!({"duration": 1, "steps": 2}),
            ))
            .extension(attache_core::REPORTS_EXTENSION),
        )
        .await
        .unwrap();
    let mut progress = Vec::new();
    while let Some(event) = events.next().await {
        if let attache_protocol::StreamResponse::StatusUpdate(update) = event.unwrap() {
            let report = update.metadata.and_then(|metadata| metadata.get::<Value>("attache"));
            progress.extend(report.and_then(|report| report.get("progress").cloned()));
        }
    }
    assert_eq!(progress.last(), Some(&json!({"progress": 2.0, "total": 2.0})));
    let asked = run(&agent, "trigger-elicitation-request", json!({})).await;
    assert!(!question(&asked).is_empty());
    let declined = task(agent.answer(&asked, "decline").await.unwrap());
    assert!(text(&declined).contains("declined"), "{declined:?}");
    let asked = run(&agent, "trigger-elicitation-request", json!({})).await;
    let accepted = task(agent.answer(&asked, "{\"name\": \"Ann\", \"check\": true}").await.unwrap());
    assert!(text(&accepted).contains("Ann"), "{accepted:?}");
}

#[test]
fn server_everything_works_over_standard_input_and_output() {
    keep("server_everything_works_over_standard_input_and_output", "node", async {
        use_everything(&Mcp::connect(node("server-everything", &["stdio"])).await.unwrap()).await;
    });
}

/// A process that is killed with the test.
struct Listening(#[expect(dead_code, reason = "it is killed when dropped")] Child);

async fn listen(port: u16) -> Listening {
    let script = home(NODE).join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let mut command = Command::new("node");
    command.arg(script).arg("streamableHttp").env("PORT", port.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let ready = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("listening") {
                return;
            }
        }
        panic!("the server ended");
    };
    tokio::time::timeout(Duration::from_secs(30), ready).await.expect("it listens");
    // The rest must be read, or the server would block.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Listening(child)
}

#[test]
fn server_everything_works_over_http() {
    keep("server_everything_works_over_http", "node", async {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let _server = listen(port).await;
        let url = format!("http://127.0.0.1:{port}/mcp");
        let mcp = Mcp::connect(McpOptions::new(McpServer::url(&url).unwrap())).await.unwrap();
        use_everything(&mcp).await;
    });
}

#[test]
fn server_filesystem_reads_and_writes_in_its_folder_only() {
    keep("server_filesystem_reads_and_writes_in_its_folder_only", "node", async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let mcp = Mcp::connect(node("server-filesystem", &[path.to_str().unwrap()])).await.unwrap();
        let agent = serve(&mcp).await;
        let file = path.join("a.txt");
        let written = run(&agent, "write_file", json!({"path": file, "content": "hello"})).await;
        assert_eq!(written.status.state, TaskState::Completed, "{written:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "hello");
        let read = run(&agent, "read_text_file", json!({"path": file})).await;
        assert_eq!(read.status.state, TaskState::Completed, "{read:?}");
        let outside = run(&agent, "read_text_file", json!({"path": "/etc/passwd"})).await;
        assert_eq!(outside.status.state, TaskState::Failed);
        let why = outside.status.message.unwrap().text();
        assert!(why.contains("outside allowed directories"), "{why}");
    });
}

#[test]
fn server_filesystem_uses_the_configured_directories() {
    keep("server_filesystem_uses_the_configured_directories", "node", async {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let allowed = second.path().canonicalize().unwrap();
        let options = node("server-filesystem", &[first.path().to_str().unwrap()]);
        let mcp = Mcp::connect(options.with(|options| options.roots = vec![allowed.clone()])).await.unwrap();
        std::fs::write(allowed.join("b.txt"), "from the root").unwrap();
        let read = async || mcp.call("read_text_file", json!({"path": allowed.join("b.txt")})).await.unwrap();
        // The server asks for the directories after the handshake.
        let found = async {
            while read().await.is_error {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), found).await.expect("the directory is used");
    });
}

#[test]
fn mcp_server_time_tells_the_time() {
    keep("mcp_server_time_tells_the_time", "python", async {
        let server = home(PYTHON).join("bin/mcp-server-time");
        let mcp =
            Mcp::connect(McpOptions::new(McpServer::program([server.to_str().unwrap()]))).await.unwrap();
        let agent = serve(&mcp).await;
        let done = run(&agent, "get_current_time", json!({"timezone": "Europe/Oslo"})).await;
        assert_eq!(done.status.state, TaskState::Completed, "{done:?}");
        let wrong = run(&agent, "get_current_time", json!({"timezone": "Nowhere/City"})).await;
        assert_eq!(wrong.status.state, TaskState::Failed);
    });
}

#[test]
fn a_canceled_call_of_server_everything_is_canceled() {
    keep("a_canceled_call_of_server_everything_is_canceled", "node", async {
        let mcp = Mcp::connect(node("server-everything", &["stdio"])).await.unwrap();
        let agent = serve(&mcp).await;
        let call =
            crate::support::call("trigger-long-running-operation", json!({"duration": 100, "steps": 200}));
        let call = attache_client::Outgoing::from(call).extension(attache_core::REPORTS_EXTENSION);
        let mut events = agent.stream(call).await.unwrap();
        let id = loop {
            let event = events.next().await.unwrap().unwrap();
            if let attache_protocol::StreamResponse::StatusUpdate(update) = event
                && update.metadata.is_some()
            {
                break update.task_id;
            }
        };
        assert_eq!(agent.cancel(id).await.unwrap().status.state, TaskState::Canceled);
        assert_eq!(text(&run(&agent, "echo", json!({"message": "still here"})).await), "Echo: still here");
    });
}
