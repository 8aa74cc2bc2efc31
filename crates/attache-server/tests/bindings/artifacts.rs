//! Content that is stored apart from the events: every reader gets a URL for it, on every binding.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use attache_core::{Agent, ArtifactUrls, Artifacts, Turn, agent_fn};
use attache_protocol::Part;
use attache_server::{Server, ServerError};
use attache_store::{DirectoryOptions, DirectoryStore};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, ReadBuf};

use crate::support::{Binding, Flaky, Running, card, fetch, send, serve};

/// Content above this size is stored.
const INLINE: u64 = 10;

pub(crate) fn artifacts(folder: &TempDir) -> Artifacts {
    let store = DirectoryStore::open(folder.path().join("artifacts"), DirectoryOptions::default()).unwrap();
    Artifacts::new(store).inline_limit(INLINE)
}

fn server<A: Agent>(agent: A, folder: &TempDir) -> Server<A> {
    Server::new(agent).card(card()).artifacts(artifacts(folder))
}

/// An agent with a large file in an artifact and another one in its last message.
fn filing() -> impl Agent {
    agent_fn(|turn: Turn| async move {
        turn.artifact("report").file("report.txt", "text/plain", "a report of some length").await?;
        turn.artifact("note").file("note.txt", "text/plain", "short").await?;
        turn.complete_with(Part::raw("the last words, at length").filename("last.txt")).await
    })
}

/// The URLs of all parts of a value.
fn urls(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("url").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| urls(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| urls(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn urls_of(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    urls(value, &mut found);
    found.sort();
    found.dedup();
    found
}

async fn content(server: &Running, url: &str) -> String {
    let path = url.strip_prefix(&server.base).unwrap_or_else(|| panic!("{url} is elsewhere"));
    String::from_utf8(fetch(server.bare(Method::GET, path)).await.body.to_vec()).unwrap()
}

#[tokio::test]
async fn stored_content_has_a_url_on_every_binding_in_replies_streams_and_lists() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(server(filing(), &folder)).await;
    for binding in Binding::ALL {
        let sent = server.ask("SendMessage", send("hi")).ok(binding).await;
        let expected = urls_of(&sent);
        assert_eq!(expected.len(), 2, "{binding:?}: {sent}");
        let mut texts = Vec::new();
        for url in &expected {
            texts.push(content(&server, url).await);
        }
        texts.sort();
        assert_eq!(texts, ["a report of some length", "the last words, at length"]);
        let id = json!({"id": sent["task"]["id"]});
        assert_eq!(urls_of(&server.ask("GetTask", id).ok(binding).await), expected, "{binding:?}");
        let list = json!({"includeArtifacts": true, "pageSize": 1});
        assert_eq!(urls_of(&server.ask("ListTasks", list).ok(binding).await), expected, "{binding:?}");
        let events = server.ask("SendStreamingMessage", send("hi")).ok(binding).await;
        assert_eq!(urls_of(&events).len(), 2, "{binding:?}: {events}");
        assert!(!events.to_string().contains("attache-artifact"), "{events}");
    }
}

#[tokio::test]
async fn a_client_of_0_3_gets_the_url_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(server(filing(), &folder)).await;
    let message = json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}});
    let request = server.bare(Method::POST, "/a2a").header("Content-Type", "application/json");
    let task = fetch(request.body(body.to_string())).await.json()["result"].take();
    let file = &task["artifacts"][0]["parts"][0]["file"];
    assert_eq!(content(&server, file["uri"].as_str().unwrap()).await, "a report of some length", "{task}");
    assert_eq!(file["name"], "report.txt");
}

#[tokio::test]
async fn a_reference_in_a_message_of_a_client_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(server(filing(), &folder)).await;
    let sent = server.ask("SendMessage", send("hi")).ok(Binding::JsonRpc).await;
    let url = urls_of(&sent).remove(0);
    let reference = format!("attache-artifact:{}", url.rsplit('/').next().unwrap());
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"url": reference}]});
    let sent = server.ask("SendMessage", json!({"message": message})).ok(Binding::JsonRpc).await;
    let id = sent["task"]["id"].clone();
    let task = server.ask("GetTask", json!({"id": id, "historyLength": 10})).ok(Binding::JsonRpc).await;
    assert_eq!(task["history"][0]["parts"][0]["url"], reference);
}

#[tokio::test]
async fn local_clients_can_have_the_paths_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = artifacts(&folder).urls(ArtifactUrls::File);
    let server = serve(Server::new(filing()).card(card()).artifacts(artifacts)).await;
    let sent = server.ask("SendMessage", send("hi")).ok(Binding::JsonRpc).await;
    let urls = urls_of(&sent);
    let report = urls.iter().find(|url| url.ends_with("/report.txt")).unwrap();
    let path = report.strip_prefix("file://").unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "a report of some length");
}

#[tokio::test]
async fn the_route_exists_only_if_content_is_stored() {
    let server = serve(Server::new(filing()).card(card()).fallback(|request| async move {
        let found = request.uri().path() == "/artifacts/mine/1";
        found.then(|| http::Response::new(axum::body::Body::from("from the application")))
    }))
    .await;
    assert_eq!(fetch(server.bare(Method::GET, "/artifacts/mine/1")).await.body, "from the application");
    let sent = server.ask("SendMessage", send("hi")).ok(Binding::JsonRpc).await;
    assert_eq!(urls_of(&sent), Vec::<String>::new());
}

/// Zeros, which count how many were read before the first of them was stored.
struct Zeros {
    left: usize,
    largest_read: Arc<AtomicUsize>,
}

impl AsyncRead for Zeros {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let count = buffer.remaining().min(self.left);
        self.largest_read.fetch_max(count, Ordering::Relaxed);
        buffer.initialize_unfilled_to(count).fill(0);
        buffer.advance(count);
        self.left -= count;
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_huge_artifact_is_written_and_served_in_small_pieces() {
    const SIZE: usize = 48 * 1024 * 1024;
    let folder = tempfile::tempdir().unwrap();
    let largest_read = Arc::new(AtomicUsize::new(0));
    let largest = largest_read.clone();
    let agent = agent_fn(move |turn: Turn| {
        let zeros = Zeros { left: SIZE, largest_read: largest.clone() };
        async move {
            turn.artifact("zeros").reader("zeros.bin", "application/octet-stream", zeros).await?;
            turn.complete().await
        }
    });
    let server = serve(server(agent, &folder)).await;
    let sent = server.ask("SendMessage", send("hi")).ok(Binding::JsonRpc).await;
    assert!(largest_read.load(Ordering::Relaxed) <= 64 * 1024);
    let mut response = server.http.get(urls_of(&sent).remove(0)).send().await.unwrap();
    assert_eq!(response.content_length(), Some(SIZE as u64));
    let mut read = 0;
    while let Some(chunk) = response.chunk().await.unwrap() {
        assert!(chunk.iter().all(|byte| *byte == 0));
        read += chunk.len();
    }
    assert_eq!(read, SIZE);
}

#[tokio::test]
async fn a_file_on_the_disk_becomes_an_artifact_and_one_that_is_missing_fails_the_task() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.csv");
    std::fs::write(&path, "1,2,3,4,5,6,7,8,9").unwrap();
    let agent = agent_fn(move |turn: Turn| {
        let path = path.clone();
        async move {
            let path = if turn.text() == "hi" { path } else { path.with_extension("gone") };
            turn.artifact("numbers").text("before").path(path, "text/csv").text("after").await?;
            turn.complete().await
        }
    });
    let server = serve(server(agent, &folder)).await;
    let sent = server.ask("SendMessage", send("hi")).ok(Binding::JsonRpc).await;
    let parts = &sent["task"]["artifacts"][0]["parts"];
    assert_eq!((&parts[0]["text"], &parts[2]["text"]), (&json!("before"), &json!("after")));
    assert_eq!(parts[1]["filename"], "numbers.csv");
    assert_eq!(content(&server, parts[1]["url"].as_str().unwrap()).await, "1,2,3,4,5,6,7,8,9");
    let failed = server.ask("SendMessage", send("no")).ok(Binding::JsonRpc).await;
    assert_eq!(failed["task"]["status"]["state"], "TASK_STATE_FAILED");
    assert!(!failed.to_string().contains("numbers"), "the client does not learn the path");
}

#[tokio::test]
async fn a_shared_store_needs_a_directory_that_is_declared_as_shared() {
    let folder = TempDir::new().unwrap();
    let start = async |artifacts: Artifacts| {
        let server = Server::new(filing()).card(card()).store(Flaky::shared()).artifacts(artifacts);
        server.bind("127.0.0.1:0").listen().await.map(|_| ())
    };
    let refused = start(artifacts(&folder)).await.unwrap_err();
    assert!(matches!(refused, ServerError::ArtifactsNotShared), "{refused}");
    let options = DirectoryOptions::default().shared(true);
    let shared = DirectoryStore::open(folder.path().join("shared"), options).unwrap();
    start(Artifacts::new(shared)).await.unwrap();
}
