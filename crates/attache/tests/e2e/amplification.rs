//! What one request can make the server write or keep, in proportion to its size.

use std::path::PathBuf;

use attache::client::Binding;
use attache::prelude::*;
use attache::protocol::limits;
use attache::store::{Keyring, SqliteOptions, SqliteStore};
use serde_json::{Value, json};

/// How many bytes are written for each byte that was received: a message is in the log, and once more in the task that has ended,
/// and so is what an agent makes of it; and all of it may be in the write-ahead log as well as in the file.
const PER_BYTE: u64 = 8;

/// What a request costs however small it is: pages of the tables and indexes that it touches.
const PER_REQUEST: u64 = 128 * 1024;

/// What an event costs however small it is: it repeats the identifiers of its task.
const PER_EVENT: u64 = 1024;

/// Does what the metadata of the message says.
async fn act(turn: Turn) -> AgentResult {
    let parts = turn.message().parts.clone();
    let metadata = turn.message().metadata.as_ref();
    match metadata.and_then(|metadata| metadata.get::<String>("act")).as_deref() {
        Some("pieces") => {
            let mut answer = turn.artifact("a".repeat(limits::ARTIFACT_ID)).stream();
            for part in parts {
                answer.chunk(part).await?;
            }
            turn.complete().await
        }
        Some("ask") => turn.ask("and?").await,
        Some("wait") => {
            turn.working("").await?;
            turn.cancelled().await;
            Ok(())
        }
        _ => {
            turn.artifact("echo").parts(parts).await?;
            turn.complete().await
        }
    }
}

struct Measured {
    url: String,
    http: reqwest::Client,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Measured {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tasks.db");
        let mut card = Card::new("Measured", "Is measured").input_modes(["*/*"]);
        card.capabilities.push_notifications = Some(true);
        let keyring = Keyring::from_file(directory.path().join("keyring.json")).unwrap();
        let store = SqliteStore::open(&path, SqliteOptions::new(keyring)).unwrap();
        let server = Server::new(agent_fn(act)).card(card).store(store);
        let listening = server.bind("127.0.0.1:0").listen().await.unwrap();
        let url = format!("http://{}", listening.address().unwrap());
        tokio::spawn(listening.run_until(std::future::pending()));
        let measured = Self { url, http: reqwest::Client::new(), path, _directory: directory };
        // What is made once is not counted.
        measured.call("SendMessage", &send("echo", json!([{"text": "first"}]))).await;
        measured
    }

    /// The bytes in the file and in its write-ahead log.
    fn stored(&self) -> u64 {
        let size = |ending: &str| {
            let mut path = self.path.clone().into_os_string();
            path.push(ending);
            std::fs::metadata(path).map_or(0, |file| file.len())
        };
        size("") + size("-wal")
    }

    /// Makes a request to its end, and gives how long it was and what came back.
    async fn call(&self, method: &str, params: &Value) -> (u64, String) {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let length = body.len() as u64;
        let request = self.http.post(format!("{}/a2a", self.url)).header("A2A-Version", "1.0");
        let response = request.header("Content-Type", "application/json").body(body).send().await.unwrap();
        (length, response.text().await.unwrap())
    }

    /// The same for a request that succeeds.
    async fn ok(&self, method: &str, params: &Value) -> (u64, Value) {
        let (length, text) = self.call(method, params).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert!(answer["error"].is_null(), "{}", answer["error"]);
        (length, answer["result"].clone())
    }
}

fn send(act: &str, parts: Value) -> Value {
    json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts, "metadata": {"act": act}}})
}

fn assert_bounded(what: &str, grown: u64, received: u64, requests: u64, events: u64) {
    let bound = PER_BYTE * received + PER_REQUEST * requests + PER_EVENT * events;
    assert!(
        grown <= bound,
        "{what}: {received} bytes in {requests} requests became {grown}, at most {bound}"
    );
}

#[tokio::test]
async fn a_send_is_stored_in_proportion_to_its_size() {
    let small = |count: usize| -> Value { (0..count).map(|_| json!({"text": ""})).collect() };
    let x = |bytes: usize| "x".repeat(bytes);
    let mut full = send("pieces", small(1_000));
    full["message"]["messageId"] = json!(x(limits::ID));
    full["message"]["contextId"] = json!(x(limits::ID));
    full["message"]["referenceTaskIds"] = (0..limits::REFERENCES).map(|_| json!(x(limits::ID))).collect();
    full["tenant"] = json!(x(limits::TENANT));
    for (what, params, events) in [
        ("a large text", send("echo", json!([{"text": x(4_000_000)}])), 3),
        ("a large file", send("echo", json!([{"raw": x(4_000_000)}])), 3),
        ("large data", send("echo", json!([{"data": [x(4_000_000)]}])), 3),
        (
            "large metadata",
            json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": ""}],
            "metadata": {"x": x(4_000_000)}}}),
            3,
        ),
        (
            "the metadata of a request",
            json!({"message": {"messageId": "m", "role": "ROLE_USER",
            "parts": [{"text": ""}]}, "metadata": {"x": x(4_000_000)}}),
            3,
        ),
        ("a thousand small parts", send("echo", small(1_000)), 3),
        ("a thousand small parts in a thousand pieces", send("pieces", small(1_000)), 1_003),
        ("identifiers at their limits in a thousand pieces", full, 1_003),
    ] {
        for method in ["SendMessage", "SendStreamingMessage"] {
            let server = Measured::start().await;
            let before = server.stored();
            let (received, answer) = server.call(method, &params).await;
            assert!(answer.contains("TASK_STATE_COMPLETED"), "{what}: {}", &answer[..answer.len().min(500)]);
            assert_bounded(what, server.stored() - before, received, 1, events);
        }
    }
}

#[tokio::test]
async fn what_is_refused_stores_nothing() {
    let server = Measured::start().await;
    let before = server.stored();
    let long = json!("x".repeat(7_000_000));
    for (member, value) in [
        ("contextId", long.clone()),
        ("messageId", long.clone()),
        ("taskId", long.clone()),
        ("extensions", json!([long])),
        ("referenceTaskIds", json!([long])),
    ] {
        let mut params = send("echo", json!([{"text": "hi"}]));
        params["message"][member] = value;
        let (_, answer) = server.call("SendMessage", &params).await;
        assert!(answer.contains("\"error\"") && answer.len() < 2_000, "{member}: {} bytes", answer.len());
    }
    assert_eq!(server.stored(), before);
}

#[tokio::test]
async fn messages_to_a_task_that_is_large_already_cost_no_more_than_their_own_size() {
    let server = Measured::start().await;
    let before = server.stored();
    let (mut received, sent) =
        server.ok("SendMessage", &send("ask", json!([{"text": "x".repeat(2_000_000)}]))).await;
    const MORE: u64 = 200;
    for _ in 0..MORE {
        let mut more = send("ask", json!([{"text": "more"}]));
        more["message"]["taskId"] = sent["task"]["id"].clone();
        more["configuration"] = json!({"historyLength": 0});
        received += server.ok("SendMessage", &more).await.0;
    }
    received += server.ok("CancelTask", &json!({"id": sent["task"]["id"]})).await.0;
    let grown = server.stored() - before;
    assert_bounded("follow-up messages", grown, received, MORE + 2, 3 * MORE);
    // All of them together, since what they touch is mostly the same pages.
    assert!(grown < 64 * 1024 * 1024, "{grown}");
}

#[tokio::test]
async fn webhooks_and_cancellations_are_stored_in_proportion_to_their_size() {
    let server = Measured::start().await;
    let (_, sent) = server.ok("SendMessage", &send("ask", json!([{"text": "hi"}]))).await;
    let id = &sent["task"]["id"];
    let before = server.stored();
    let mut received = 0;
    for i in 0..32 {
        let long =
            |beginning: String, limit: usize| format!("{beginning}{}", "x".repeat(limit - beginning.len()));
        let hook = json!({
            "taskId": id,
            "id": long(i.to_string(), limits::WEBHOOK_ID),
            "url": long("https://example.com/".into(), limits::WEBHOOK_URL),
            "token": long(String::new(), limits::WEBHOOK_SECRET),
            "authentication": {"scheme": "Bearer", "credentials": long(String::new(), limits::WEBHOOK_SECRET)},
        });
        received += server.ok("CreateTaskPushNotificationConfig", &hook).await.0;
    }
    let cancel = json!({"id": id, "metadata": {"x": "x".repeat(4_000_000)}});
    received += server.ok("CancelTask", &cancel).await.0;
    assert_bounded("webhooks", server.stored() - before, received, 33, 33);
}

/// What is one byte over gRPC can be six in JSON, which is how it is stored.
#[tokio::test]
async fn what_grows_when_it_is_written_as_json_grows_by_a_constant() {
    let server = Measured::start().await;
    let options = ClientOptions::default().prefer(Binding::Grpc);
    let client = Client::connect_with(&server.url, options).await.unwrap();
    let before = server.stored();
    client.send("\u{1}".repeat(1_000_000)).await.unwrap();
    assert_bounded("control characters over gRPC", server.stored() - before, 6 * 1_000_000, 1, 3);
}

/// How much memory this process has, in bytes.
#[cfg(target_os = "linux")]
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    1024 * line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_message_that_waits_for_its_turn_does_not_keep_the_task_that_it_is_for() {
    let server = Measured::start().await;
    let mut first = send("wait", json!([{"text": "x".repeat(6_000_000)}]));
    first["configuration"] = json!({"returnImmediately": true, "historyLength": 0});
    let (_, sent) = server.ok("SendMessage", &first).await;
    let mut more = send("wait", json!([{"text": "more"}]));
    more["configuration"] = first["configuration"].clone();
    more["message"]["taskId"] = sent["task"]["id"].clone();
    // What is used again and again is there after the first few.
    for _ in 0..5 {
        server.ok("SendMessage", &more).await;
    }
    let before = memory();
    for _ in 0..100 {
        server.ok("SendMessage", &more).await;
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < 150_000_000, "100 small messages keep {grown} bytes");
    server.ok("CancelTask", &json!({"id": sent["task"]["id"]})).await;
}
