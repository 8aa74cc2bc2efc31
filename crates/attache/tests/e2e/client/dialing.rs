//! Agents over Unix sockets, commands, WebSocket and the gRPC envelope, and `attache proxy` between any two.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use super::echo;
use crate::home::Home;
use crate::support::{Program, attache, until};

/// The command, as a word of a shell.
const ATTACHE: &str = env!("CARGO_BIN_EXE_attache");

/// A running proxy; stopped when dropped.
struct RunningProxy {
    child: Child,
    /// Where it listens.
    addresses: Vec<String>,
}

impl RunningProxy {
    async fn start(listen: &[&str], target: &str) -> Self {
        let mut command = attache();
        command.arg("proxy").args(listen.iter().flat_map(|address| ["--listen", address])).arg(target);
        let mut child = command.stderr(Stdio::piped()).kill_on_drop(true).spawn().expect("the proxy starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is ours")).lines();
        let mut addresses = Vec::new();
        while addresses.len() < listen.len() {
            let line = lines.next_line().await.expect("it can be read").expect("it says where it listens");
            addresses.extend(line.split_once(" leads to ").map(|(address, _)| address.to_owned()));
        }
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, addresses }
    }
}

/// The addresses of one agent on each transport that this server listens on.
fn transports(agent: &Program) -> [String; 4] {
    let rest = agent.url.trim_start_matches("http://");
    [
        format!("ws://{rest}/ws"),
        format!("ws://{rest}/a2a"),
        format!("grpc-jsonrpc://{rest}"),
        format!("stdio:'{ATTACHE}' proxy --stdio {}", agent.url),
    ]
}

async fn works(home: &Home, address: &str) {
    let ran = home.run(&["card", address, "--json"]).await;
    let card: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{address}: {ran}"));
    assert_eq!(card["name"], "Echo", "{address}");
    for how in ["--stream", "--no-stream"] {
        let ran = home.run(&["send", address, "Hello", how]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "Hello\n"), "{address} {how}: {ran}");
    }
    let sent = home.run(&["send", address, "Hello again", "--json"]).await;
    let sent: Value = serde_json::from_str(&sent.stdout).expect("JSON");
    let id = sent["id"].as_str().or(sent["task"]["id"].as_str()).expect("the task has an id");
    let shown = home.run(&["task", "get", address, id]).await;
    assert_eq!(shown.code, Some(0), "{address}: {shown}");
    let listed = home.run(&["task", "list", address]).await;
    assert!(listed.stdout.contains(id), "{address}: {listed}");
    let chat = home.run_with_input(&["chat", address], "one\ntwo\n").await;
    assert_eq!((chat.code, chat.stdout.as_str()), (Some(0), "one\ntwo\n"), "{address}: {chat}");
    let missing = home.run(&["task", "get", address, "missing"]).await;
    assert_eq!(missing.code, Some(1), "{address}: {missing}");
}

#[tokio::test]
async fn every_command_works_over_every_transport() {
    let (agent, home) = (echo().await, Home::new());
    for address in transports(&agent) {
        works(&home, &address).await;
    }
}

#[tokio::test]
async fn a_task_is_watched_and_canceled_over_every_transport() {
    let home = Home::new();
    let socket = format!("unix:{}", home.path("agent.sock").display());
    let settings = home.file("attache.yml", "program:\n  command: sleep 600\n");
    let listen = ["--listen", "127.0.0.1:0", "--listen", &socket];
    let (mut agent, _) = Program::command(&[&["serve", "--config", &settings][..], &listen].concat()).await;
    // It names the socket too.
    agent.url.truncate(agent.url.find(' ').unwrap_or(agent.url.len()));
    for address in transports(&agent).iter().chain([&socket]) {
        let sent = home.run(&["send", address, "wait", "--no-wait"]).await;
        assert_eq!(sent.code, Some(0), "{address}: {sent}");
        let task = sent.stdout.trim();
        let watch = home.command(&["task", "watch", address, task]).spawn().expect("it starts");
        let canceled = home.run(&["task", "cancel", address, task, "--json"]).await;
        assert!(
            canceled.code == Some(0) && canceled.stdout.contains("TASK_STATE_CANCELED"),
            "{address}: {canceled}"
        );
        let watched = watch.wait_with_output().await.expect("it ends");
        assert_eq!(watched.status.code(), Some(1), "{address}: the task was canceled");
    }
}

#[tokio::test]
async fn every_command_works_over_a_unix_socket() {
    let (folder, home) = (tempfile::tempdir().expect("a folder"), Home::new());
    let address = format!("unix:{}", folder.path().join("agent.sock").display());
    let _agent = Program::command(&["serve", "--agent", "echo", "--listen", &address]).await;
    works(&home, &address).await;
    let named = home.run(&["agents", "add", "local", &address]).await;
    assert_eq!(named.code, Some(0), "{named}");
    assert_eq!(home.run(&["send", "local", "by name"]).await.stdout, "by name\n");
}

#[tokio::test]
async fn every_command_works_with_a_server_that_it_starts() {
    let (folder, home) = (tempfile::tempdir().expect("a folder"), Home::new());
    let store = folder.path().join("tasks.db");
    works(&home, &format!("stdio:'{ATTACHE}' serve --agent echo --stdio --store sqlite:{}", store.display()))
        .await;
}

#[tokio::test]
async fn a_preferred_transport_is_taken_from_the_card() {
    let (agent, home) = (echo().await, Home::new());
    for binding in ["websocket", "grpc-jsonrpc", "grpc", "http-json", "jsonrpc"] {
        let ran = home.run(&["send", &agent.url, "Hello", "--prefer", binding]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "Hello\n"), "{binding}: {ran}");
    }
}

#[tokio::test]
async fn a_proxy_connects_any_two_transports() {
    let (agent, home) = (echo().await, Home::new());
    let folder = tempfile::tempdir().expect("a folder");
    let first = format!("unix:{}", folder.path().join("first.sock").display());
    let _first = RunningProxy::start(&[&first], &agent.url).await;
    let targets = [vec![agent.url.clone(), first], transports(&agent).to_vec()].concat();
    for (number, target) in targets.iter().enumerate() {
        let socket = format!("unix:{}", folder.path().join(format!("{number}.sock")).display());
        let mut proxy = RunningProxy::start(&["127.0.0.1:0", &socket], target).await;
        let [http, socket] = &proxy.addresses[..] else { panic!("two addresses") };
        let rest = http.trim_start_matches("http://");
        for address in [
            http.clone(),
            socket.clone(),
            format!("ws://{rest}/ws"),
            format!("stdio:'{ATTACHE}' proxy --stdio {http}"),
        ] {
            works(&home, &address).await;
        }
        let card: Value =
            reqwest::get(format!("{http}/.well-known/agent-card.json")).await.unwrap().json().await.unwrap();
        let urls: Vec<_> = card["supportedInterfaces"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["url"].as_str().unwrap())
            .collect();
        assert!(urls.iter().all(|url| url.contains(rest)), "the card leads to the proxy: {urls:?}");
        let pid = proxy.child.id().expect("it runs").to_string();
        Command::new("kill").args(["-TERM", &pid]).status().await.expect("kill works");
        proxy.child.wait().await.expect("it ends");
    }
}

#[tokio::test]
async fn a_proxy_passes_older_versions_through() {
    let agent = echo().await;
    let proxy = RunningProxy::start(
        &["127.0.0.1:0"],
        &format!("ws://{}/ws", agent.url.trim_start_matches("http://")),
    )
    .await;
    let message = json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]});
    let request =
        json!({"jsonrpc": "2.0", "id": "mine", "method": "message/stream", "params": {"message": message}});
    let url = format!("{}/a2a", proxy.addresses[0]);
    let client = reqwest::Client::new();
    let response = client.post(&url).json(&request).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    assert!(text.contains("\"id\":\"mine\"") && text.contains("\"kind\":\"status-update\""), "{text}");
    assert!(text.starts_with("id: 1\n"), "{text}");
    let refused = client.post(&url).header("host", "evil.example").json(&request).send().await.unwrap();
    assert!(refused.status().is_client_error(), "a page with a name of its own is refused");
}

#[tokio::test]
async fn a_proxy_does_not_listen_for_other_machines_unless_that_is_wanted() {
    let ran = Home::new().run(&["proxy", "--listen", "0.0.0.0:0", "http://127.0.0.1:1"]).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(ran.stderr.contains("--insecure"), "{ran}");
    let redis = "redis://:s3cret@192.0.2.1:6379";
    let ran = Home::new().run(&["proxy", "--redis", redis, "http://127.0.0.1:1"]).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(ran.stderr.contains("--insecure") && !ran.stderr.contains("s3cret"), "{ran}");
}

#[tokio::test]
async fn a_proxy_on_standard_input_ends_with_its_client_and_ends_its_command() {
    let agent = echo().await;
    let folder = tempfile::tempdir().expect("a folder");
    let pid_file = folder.path().join("pid");
    let inner =
        format!("sh -c 'echo $$ > {}; exec {ATTACHE} proxy --stdio {}'", pid_file.display(), agent.url);
    let mut command = attache();
    command.args(["proxy", "--stdio", &format!("stdio:{inner}")]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("its input is ours");
    let mut lines = BufReader::new(child.stdout.take().expect("its output is ours")).lines();
    input
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"GetTask\",\"params\":{\"id\":\"x\"}}\n")
        .await
        .unwrap();
    let line = lines.next_line().await.unwrap().expect("an answer");
    let answer: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32001)), "{line}");
    let pid = std::fs::read_to_string(&pid_file).expect("the command runs").trim().to_owned();
    drop(input);
    assert!(child.wait().await.expect("it ends").success());
    assert_eq!(lines.next_line().await.unwrap(), None, "nothing but frames was written");
    until("the command has ended", async || !std::path::Path::new(&format!("/proc/{pid}")).exists()).await;
}

#[tokio::test]
async fn a_command_that_fails_is_explained() {
    let ran = Home::new().run(&["send", "stdio:sh -c 'echo no key is set >&2; exit 7'", "Hello"]).await;
    assert_eq!(ran.code, Some(3), "{ran}");
    assert!(
        ran.stderr.contains("the command ended with exit code 7 before it answered: no key is set"),
        "{ran}"
    );
}
