//! Clients that others wrote the libraries of, on the transports of the `attache` command: `websockets`, `grpcio`, a Python program over
//! standard input and output, and Chromium.
//!
//! `cargo xtask test` installs the libraries, and Chromium on Debian; without that, these tests are skipped, and a line states why.
#![cfg(unix)]

mod browser;
#[path = "../shared/peers.rs"]
#[expect(dead_code, reason = "other tests use all of it")]
mod peers;
mod snippets;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use crate::peers::{PATIENCE, Process, absent, home, keep};

/// The `attache` command, without what the environment tells the tests.
fn attache(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attache"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ATTACHE_")) {
        command.env_remove(name);
    }
    command.env("ATTACHE_STORE", "memory:").args(arguments);
    command
}

/// A server that listens on a free port.
struct Server {
    address: String,
    _process: Process,
}

async fn serve(arguments: &[&str]) -> Server {
    let arguments = [&["serve", "--listen", "127.0.0.1:0"], arguments].concat();
    let mut process = Process::start("attache", attache(&arguments));
    let line =
        process.heard("its address", |line| line.strip_prefix("Listening on http://").map(str::to_owned));
    let address = line.await.split(' ').next().unwrap_or_default().to_owned();
    Server { address, _process: process }
}

fn program(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transports/peers").join(name)
}

/// Runs a client in Python to its end.
async fn python(client: &str, arguments: &[&str]) {
    let mut command = Command::new(home("transports-python").join("bin/python"));
    command.arg(program("python").join(client)).args(arguments).env("PYTHONDONTWRITEBYTECODE", "1");
    for name in ["ATTACHE_PEERS", "ATTACHE_PEERS_WITHOUT"] {
        command.env_remove(name);
    }
    command.env("ATTACHE_STORE", "memory:");
    let mut process = Process::start(client, command);
    process.heard("that everything passed", |line| (line == "passed").then_some(())).await;
    let status = tokio::time::timeout(PATIENCE, process.child.wait()).await.expect("it ends").unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_client_with_the_package_websockets_does_everything() {
    keep("websockets", absent("python"), async {
        let server = serve(&["--agent", "echo"]).await;
        for path in ["/ws", "/a2a"] {
            python("websocket_client.py", &[&format!("ws://{}{path}", server.address)]).await;
        }
    });
}

#[test]
fn a_client_with_grpcio_does_everything_over_the_envelope() {
    keep("grpcio", absent("python"), async {
        let server = serve(&["--agent", "echo"]).await;
        python("envelope_client.py", &[&server.address]).await;
    });
}

#[test]
fn a_python_program_does_everything_over_standard_input_and_output() {
    keep("stdio", absent("python"), async {
        let command = env!("CARGO_BIN_EXE_attache");
        python("stdio_client.py", &[command, "serve", "--agent", "echo", "--stdio"]).await;
    });
}

/// A server on standard input and output.
struct Started {
    child: Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Started {
    fn start(arguments: &[&str]) -> Self {
        Self::of(attache(&[&["serve", "--stdio", "--agent", "echo"], arguments].concat()))
    }

    fn of(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn ask(&mut self, request: &Value) -> Value {
        let line = format!("{request}\n");
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap();
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("it answers");
        serde_json::from_str(&line.unwrap().expect("it runs")).unwrap()
    }

    async fn ends(&mut self) -> bool {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.expect("it ends").unwrap().success()
    }
}

fn hello() -> Value {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]});
    json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}})
}

#[tokio::test]
async fn a_server_on_standard_input_and_output_ends_with_its_input_and_listens_nowhere_else() {
    let mut server = Started::start(&[]);
    assert!(server.ask(&hello()).await["result"]["task"].is_object());
    let card = server.ask(&json!({"jsonrpc": "2.0", "id": 2, "method": "GetAgentCard", "params": {}})).await;
    let interfaces = card["result"]["supportedInterfaces"].as_array().unwrap();
    assert!(interfaces.iter().any(|interface| interface["url"] == "stdio://attache"), "{card}");
    drop(server.child.stdin.take());
    assert!(server.ends().await);
}

#[tokio::test]
async fn the_end_of_standard_input_never_cancels_a_task() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("tasks.db").display());
    let serve = ["serve", "--stdio", "--program", "sh -c 'cat; sleep 1'", "--store", &store];
    let mut server = Started::of(attache(&serve));
    let mut send = hello();
    send["params"]["configuration"] = json!({"returnImmediately": true});
    let sent = server.ask(&send).await;
    let task = sent["result"]["task"]["id"].clone();
    drop(server.child.stdin.take());
    assert!(server.ends().await);
    let mut again = Started::of(attache(&serve));
    let get = json!({"jsonrpc": "2.0", "id": 2, "method": "GetTask", "params": {"id": task}});
    let found = again.ask(&get).await;
    assert_eq!(found["result"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent} {found}");
}

#[tokio::test]
async fn a_server_on_standard_input_and_output_listens_elsewhere_too_if_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("a.sock");
    let mut server = Started::start(&["--listen", &format!("unix:{}", socket.display())]);
    assert!(server.ask(&hello()).await["result"]["task"].is_object());
    let mut stream = BufReader::new(UnixStream::connect(&socket).await.unwrap());
    stream.get_mut().write_all(format!("{}\n", hello()).as_bytes()).await.unwrap();
    let mut line = String::new();
    tokio::time::timeout(PATIENCE, stream.read_line(&mut line)).await.expect("it answers").unwrap();
    assert!(line.contains("\"task\""), "{line}");
    drop(server.child.stdin.take());
    assert!(server.ends().await);
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_server_on_standard_input_and_output_stops_when_it_is_told_and_its_input_is_open() {
    let mut server = Started::start(&[]);
    assert!(server.ask(&hello()).await["result"]["task"].is_object());
    let pid = server.child.id().unwrap().to_string();
    let told = std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(told.success());
    assert!(server.ends().await);
}

#[tokio::test]
async fn a_server_ends_when_its_parent_is_gone_though_another_process_holds_the_pipe() {
    // The shell starts the server with a pipe that `sleep` holds open as well, and is killed.
    let script = format!(
        "sleep 20 | {} serve --stdio --agent echo 2>&1 >/dev/null & echo $!; wait",
        env!("CARGO_BIN_EXE_attache")
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("ATTACHE_STORE", "memory:").stdout(Stdio::piped()).kill_on_drop(true);
    let mut shell = shell.spawn().unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
    let pid = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let runs = || std::path::Path::new(&format!("/proc/{pid}/exe")).exists();
    if !std::path::Path::new("/proc/self/exe").exists() {
        return;
    }
    while !tokio::time::timeout(PATIENCE, lines.next_line())
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .contains("Answering")
    {}
    assert!(runs());
    shell.kill().await.unwrap();
    let gone = async {
        while runs() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it ends");
}
