//! Unix sockets: HTTP and line-framed JSON-RPC on one path.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use attache_core::{AgentResult, Turn, agent_fn};
use attache_server::auth::KnownCallers;
use attache_server::{NamedAgent, Server, ServerError};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server on a socket in a folder of its own.
struct Running {
    path: PathBuf,
    stop: oneshot::Sender<()>,
    stopped: JoinHandle<std::io::Result<()>>,
    _folder: tempfile::TempDir,
}

async fn agent(turn: Turn) -> AgentResult {
    if turn.text() == "wait" {
        turn.working("waiting").await?;
        turn.cancelled().await;
        return Ok(());
    }
    turn.artifact("echo").text(turn.text()).await?;
    turn.complete().await
}

#[tokio::test]
async fn a_line_names_one_of_several_agents() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let loud = agent_fn(|turn: Turn| async move { turn.reply(turn.text().to_uppercase()).await });
    let server = Server::new(agent_fn(agent)).agent("loud", NamedAgent::new(loud)).unwrap();
    let listening = server.bind(format!("unix:{}", path.display())).listen().await.unwrap();
    let serving = tokio::spawn(listening.run_until(std::future::pending()));
    let mut lines = Lines::connect(&path).await;
    let request = |id: u8, agent: &str| {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
        let headers = json!({"A2A-Version": "1.0", "agent": agent});
        json!({"jsonrpc": "2.0", "id": id, "method": "SendMessage", "params": {"message": message}, "headers": headers})
    };
    lines.send(&request(1, "loud")).await;
    assert_eq!(lines.next().await.unwrap()["result"]["message"]["parts"][0]["text"], "HI");
    lines.send(&request(2, "quiet")).await;
    let refused = lines.next().await.unwrap();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(2), &json!(-32602)), "{refused}");
    serving.abort();
}

async fn serve(secret: Option<&str>) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let mut server = Server::new(agent_fn(agent)).bind(format!("unix:{}", path.display()));
    if let Some(secret) = secret {
        server = server.authenticate(KnownCallers::new().bearer("ann", secret));
    }
    let listening = server.listen().await.unwrap();
    let (stop, stopping) = oneshot::channel();
    let stopped = tokio::spawn(listening.run_until(async {
        let _ = stopping.await;
    }));
    Running { path, stop, stopped, _folder: folder }
}

struct Lines(BufReader<UnixStream>);

impl Lines {
    async fn connect(path: &Path) -> Self {
        Self(BufReader::new(UnixStream::connect(path).await.unwrap()))
    }

    async fn send(&mut self, request: &Value) {
        self.0.get_mut().write_all(format!("{request}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        (self.0.read_line(&mut line).await.unwrap() > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    async fn ask(&mut self, request: &Value) -> Value {
        self.send(request).await;
        self.next().await.unwrap()
    }
}

fn message(id: &str, method: &str, text: &str) -> Value {
    let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]});
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {"message": message}})
}

#[tokio::test]
async fn a_line_is_answered_with_a_line_in_every_generation() {
    let server = serve(None).await;
    let mut lines = Lines::connect(&server.path).await;
    let current = lines.ask(&message("1", "SendMessage", "hello")).await;
    assert_eq!(current["id"], "1");
    assert_eq!(current["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    let older = json!({"jsonrpc": "2.0", "id": 2, "method": "message/send", "params": {"message": {
        "kind": "message", "messageId": "2", "role": "user", "parts": [{"kind": "text", "text": "hello"}],
    }}});
    let older = lines.ask(&older).await;
    assert_eq!((&older["id"], &older["result"]["kind"]), (&json!(2), &json!("task")), "{older}");
}

#[tokio::test]
async fn a_stream_is_a_line_for_each_event_and_a_last_one() {
    let server = serve(None).await;
    let mut lines = Lines::connect(&server.path).await;
    lines.send(&message("s", "SendStreamingMessage", "hello")).await;
    let mut events = Vec::new();
    loop {
        let line = lines.next().await.unwrap();
        assert_eq!(line["id"], "s");
        if line["final"] == true {
            break;
        }
        events.push(line["result"].as_object().unwrap().keys().next().unwrap().clone());
    }
    assert_eq!(events.first().map(String::as_str), Some("task"));
    assert!(events.contains(&"artifactUpdate".to_owned()), "{events:?}");
}

#[tokio::test]
async fn a_task_is_canceled_on_the_connection_that_waits_for_it() {
    let server = serve(None).await;
    let mut lines = Lines::connect(&server.path).await;
    lines.send(&message("waiting", "SendStreamingMessage", "wait")).await;
    let task = lines.next().await.unwrap()["result"]["task"]["id"].clone();
    let cancel = json!({"jsonrpc": "2.0", "id": "cancel", "method": "CancelTask", "params": {"id": task}});
    lines.send(&cancel).await;
    let (mut canceled, mut ended) = (false, false);
    while !(canceled && ended) {
        let line = lines.next().await.unwrap();
        canceled |= line["id"] == "cancel" && line["result"]["status"]["state"] == "TASK_STATE_CANCELED";
        ended |= line["id"] == "waiting" && line["final"] == true;
    }
}

#[tokio::test]
async fn http_is_answered_on_the_same_path() {
    let server = serve(None).await;
    let mut stream = UnixStream::connect(&server.path).await.unwrap();
    let request = "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert!(response.contains("supportedInterfaces"));
}

#[tokio::test]
async fn a_public_host_name_is_refused_over_a_unix_socket_too() {
    let server = serve(None).await;
    for (host, status) in [("tonic", "200"), ("localhost", "200"), ("evil.example", "403")] {
        let mut stream = UnixStream::connect(&server.path).await.unwrap();
        let request =
            format!("GET /.well-known/agent-card.json HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {response}");
    }
}

#[tokio::test]
async fn a_client_behind_a_proxy_is_not_told_the_path_of_the_socket() {
    let server = serve(None).await;
    for (passed_on, is_told) in [("", true), ("X-Forwarded-For: 203.0.113.9\r\n", false)] {
        let mut stream = UnixStream::connect(&server.path).await.unwrap();
        let request = format!(
            "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\nA2A-Extensions: urn:attache:extension:transports:v1\r\n{passed_on}Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert_eq!(response.contains("agent.sock"), is_told, "{response}");
    }
}

#[tokio::test]
async fn lines_need_the_same_credentials_as_every_binding() {
    let server = serve(Some("t0ken-of-ann-for-tests")).await;
    let mut lines = Lines::connect(&server.path).await;
    let mut request = message("1", "SendMessage", "hello");
    let denied = lines.ask(&request).await;
    assert_eq!(denied["id"], "1");
    assert!(denied["error"]["message"].as_str().unwrap().contains("credentials are required"), "{denied}");
    request["headers"] = json!({"Authorization": "Bearer wrong-token-for-tests"});
    assert!(lines.ask(&request).await["error"].is_object());
    request["headers"] = json!({"Authorization": "Bearer t0ken-of-ann-for-tests"});
    assert!(lines.ask(&request).await["result"]["task"].is_object());
    let two = json!({"Authorization": "Bearer t0ken-of-ann-for-tests", "authorization": "Bearer wrong"});
    request["headers"] = two;
    assert!(lines.ask(&request).await["error"].is_object(), "one request has one credential");
}

#[tokio::test]
async fn a_bad_line_is_an_error_and_harms_no_other_request() {
    let server = serve(None).await;
    let mut lines = Lines::connect(&server.path).await;
    let bad = lines.ask(&json!({"jsonrpc": "2.0", "id": 7, "method": "Nonsense"})).await;
    assert_eq!((&bad["id"], &bad["error"]["code"]), (&json!(7), &json!(-32601)));
    lines.0.get_mut().write_all(b"{\"half\n\n").await.unwrap();
    assert_eq!(lines.next().await.unwrap()["error"]["code"], -32700);
    assert!(lines.ask(&message("1", "SendMessage", "hello")).await["result"]["task"].is_object());
    lines.0.get_mut().write_all(&vec![b' '; 8 * 1024 * 1024 + 1]).await.unwrap();
    assert!(lines.next().await.unwrap()["error"]["message"].as_str().unwrap().contains("longer than"));
    assert!(lines.next().await.is_none());
}

#[tokio::test]
async fn only_the_owner_can_connect_and_the_file_is_removed_at_the_end() {
    let server = serve(None).await;
    let found = std::fs::symlink_metadata(&server.path).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    server.stop.send(()).unwrap();
    server.stopped.await.unwrap().unwrap();
    assert!(!server.path.exists());
}

#[tokio::test]
async fn a_path_of_the_greatest_length_is_used_and_nothing_is_left_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    // The address of a Unix socket has room for 107 bytes and the end of the text.
    let rest = 107 - folder.path().as_os_str().len() - 1;
    let path = folder.path().join("s".repeat(rest));
    let listening = Server::echo().bind(format!("unix:{}", path.display())).listen().await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(listening.run_until(async {
        let _ = stopped.await;
    }));
    tokio::net::UnixStream::connect(&path).await.unwrap();
    stop.send(()).unwrap();
    served.await.unwrap().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_socket_in_use_and_other_files_are_refused_and_a_stale_socket_is_replaced() {
    let listen = async |path: &Path| {
        let server = Server::echo().bind(format!("unix:{}", path.display()));
        server.listen().await.map(drop).map_err(|error: ServerError| error.to_string())
    };
    let server = serve(None).await;
    let error = listen(&server.path).await.unwrap_err();
    assert!(error.contains("another process listens"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let error = listen(&file).await.unwrap_err();
    assert!(error.contains("is not a Unix socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let error = listen(&folder.path().join("missing/agent.sock")).await.unwrap_err();
    assert!(error.contains("does not exist: create it first"), "{error}");
    let stale = folder.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(stale.exists());
    listen(&stale).await.unwrap();
    let foreign = folder.path().join("foreign.sock");
    let _other = std::os::unix::net::UnixListener::bind(&foreign).unwrap();
    assert!(listen(&foreign).await.unwrap_err().contains("another process listens"));
}
