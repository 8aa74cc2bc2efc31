//! Clients that stop reading streams of large events, at the real command.

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio_tungstenite::tungstenite::Message;

use crate::home::Home;
use crate::support::{Program, until};

/// How many clients stop reading on each transport, and how many events of which size they do not read: 16 MB.
const READERS: usize = 32;
const EVENTS: usize = 160;
const EVENT: usize = 100_000;

/// How much the memory of the server may grow, in MiB. If it kept the events for each reader, it would be 1,000. What it keeps is the log, once,
/// and for each reader what is between the log and a full socket.
const BOUND: u64 = 300;

const PROGRAM: &str = r#"#!/bin/sh
read -r line
echo '{"type":"status","text":"waiting"}'
while [ ! -e go ]; do sleep 0.05; done
text=$(head -c SIZE /dev/zero | tr '\0' x)
n=0
while [ $n -lt COUNT ]; do
  printf '{"type":"chunk","name":"big","text":"%s"}\n' "$text"
  n=$((n + 1))
done
echo '{"type":"complete"}'
"#;

/// The most memory that a process has had, in MiB.
fn peak(program: &Program) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") / 1024
}

async fn call(url: &str, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let post = reqwest::Client::new().post(format!("{url}/a2a")).header("A2A-Version", "1.0");
    let post = post.header("Content-Type", "application/json").body(request.to_string());
    post.send().await.expect("an answer").json().await.expect("JSON")
}

#[tokio::test]
async fn readers_that_stop_cost_a_bounded_amount_of_memory_and_lose_no_event() {
    let home = Home::new();
    let program = PROGRAM.replace("SIZE", &EVENT.to_string()).replace("COUNT", &EVENTS.to_string());
    let script = home.file("agent.sh", &program);
    let (folder, socket) = (home.path(""), home.path("agent.sock"));
    let settings = format!(
        "program: {{ command: sh {script}, protocol: json, directory: {} }}\nlisten: [127.0.0.1:0, 'unix:{}']\nstore: memory\n",
        folder.display(),
        socket.display()
    );
    let file = home.file("attache.yml", &settings);
    let (server, _) = Program::command(&["serve", "--config", &file, "--no-artifacts"]).await;
    let url = server.url.split(' ').next().unwrap_or_default().to_owned();
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let send = json!({"message": message, "configuration": {"returnImmediately": true}});
    let sent = call(&url, "SendMessage", send).await;
    let task = sent["result"]["task"]["id"].clone();
    let subscribe = json!({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}, "headers": {"A2A-Version": "1.0"}});
    let subscribe = subscribe.to_string();
    let (mut lines, mut sockets) = (Vec::new(), Vec::new());
    for _ in 0..READERS {
        let mut reader = BufReader::new(UnixStream::connect(&socket).await.expect("it listens")).lines();
        reader.get_mut().get_mut().write_all(format!("{subscribe}\n").as_bytes()).await.unwrap();
        assert!(reader.next_line().await.unwrap().expect("an event").contains("\"task\""));
        lines.push(reader);
        let address = format!("{}/ws", url.replacen("http", "ws", 1));
        let (mut reader, _) = tokio_tungstenite::connect_async(address).await.expect("it listens");
        reader.send(Message::text(subscribe.clone())).await.unwrap();
        let first = reader.next().await.expect("an event").unwrap();
        assert!(first.to_text().unwrap().contains("\"task\""), "{first}");
        sockets.push(reader);
    }
    let before = peak(&server);
    home.file("go", "");
    until("the task has ended", async || {
        let got = call(&url, "GetTask", json!({"id": task, "historyLength": 0})).await;
        got["result"]["status"]["state"] == "TASK_STATE_COMPLETED"
    })
    .await;
    // One that reads again gets everything.
    let (mut line, mut socket) = (lines.pop().unwrap(), sockets.pop().unwrap());
    let (mut over_lines, mut over_socket) = (0, 0);
    loop {
        let line = line.next_line().await.unwrap().expect("the stream goes on");
        over_lines += usize::from(line.contains("\"artifactUpdate\""));
        if line.ends_with("\"final\":true}") {
            break;
        }
    }
    loop {
        let message = socket.next().await.expect("the stream goes on").unwrap();
        let Message::Text(text) = message else { continue };
        over_socket += usize::from(text.contains("\"artifactUpdate\""));
        if text.ends_with("\"final\":true}") {
            break;
        }
    }
    assert!(over_lines >= EVENTS && over_socket >= EVENTS, "{over_lines} and {over_socket} of {EVENTS}");
    let grown = peak(&server) - before;
    assert!(grown < BOUND, "{grown} MiB");
}
