//! The endpoint of aimock, which imitates the providers.
//!
//! `cargo xtask test` installs it and says where it is. Without that these tests are skipped with a message.

use std::sync::Arc;
use std::time::Duration;

use attache_client::Outgoing;
use attache_protocol::TaskState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::peers::{Process, absent, home, keep, place};
use crate::{adder, failure, serve_endpoint, task, text};

/// Starts the endpoint, and returns the URL of its API.
async fn start() -> (Process, String) {
    let script = home("aimock-1.43.0").join("endpoint.mjs");
    place(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/peers/node/endpoint.mjs").as_ref(), &script);
    let mut command = Command::new("node");
    command.arg(script);
    let mut process = Process::start("aimock", command);
    let url =
        process.heard("where it listens", |line| line.strip_prefix("Listening on ").map(str::to_owned)).await;
    (process, format!("{url}/v1"))
}

#[test]
fn aimock_replies_calls_tools_and_remembers() {
    keep("aimock::aimock_replies_calls_tools_and_remembers", absent("node"), async {
        let (_endpoint, url) = start().await;
        let agent = serve_endpoint(url, |_| {}, vec![adder()], |_| {}, Arc::default()).await;
        let first = task(agent.send("hello").await.unwrap());
        assert_eq!(
            (first.status.state, text(&first).as_str()),
            (TaskState::Completed, "Good morning to you.")
        );
        // The endpoint replies to this as the second turn of a conversation only.
        let second = Outgoing::new("and now").context(first.context_id.unwrap());
        assert_eq!(text(&task(agent.send(second).await.unwrap())), "Still morning.");
        // It replies to this only after the result of the tool.
        assert_eq!(text(&task(agent.send("sum").await.unwrap())), "It is 5.");
    });
}

#[test]
fn errors_of_aimock_are_repeated_hidden_or_reported() {
    keep("aimock::errors_of_aimock_are_repeated_hidden_or_reported", absent("node"), async {
        let (_endpoint, url) = start().await;
        let agent = serve_endpoint(url, |_| {}, Vec::new(), |_| {}, Arc::default()).await;
        assert_eq!(text(&task(agent.send("busy").await.unwrap())), "Now.");
        let refused = failure(&task(agent.send("refused").await.unwrap()));
        assert!(refused.starts_with("the agent failed (error id "), "{refused}");
        let cut = task(agent.send("cut").await.unwrap());
        assert_eq!(failure(&cut), "the reply of the model broke off");
        assert!("This reply does not end.".starts_with(&text(&cut)) && !text(&cut).is_empty(), "{cut:?}");
    });
}

/// What happens to the connections of an endpoint.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Request,
    Closed,
}

/// Passes connections on to an endpoint, and reports what happens to them. Returns the URL to use.
async fn watched(url: &str) -> (String, mpsc::UnboundedReceiver<Seen>) {
    let endpoint = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let watched = url.replace(&endpoint, &listener.local_addr().unwrap().to_string());
    let (sender, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((agent, _)) = listener.accept().await {
            let (mut from_endpoint, mut to_endpoint) =
                TcpStream::connect(&endpoint).await.unwrap().into_split();
            let (mut from_agent, mut to_agent) = agent.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_endpoint, &mut to_agent).await });
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = from_agent.read(&mut bytes).await {
                    to_endpoint.write_all(&bytes[..count]).await.unwrap();
                    let _ = sender.send(Seen::Request);
                }
                let _ = sender.send(Seen::Closed);
            });
        }
    });
    (watched, seen)
}

#[test]
fn a_cancel_ends_the_request_to_aimock() {
    keep("aimock::a_cancel_ends_the_request_to_aimock", absent("node"), async {
        let (_endpoint, url) = start().await;
        let (url, mut seen) = watched(&url).await;
        let agent = serve_endpoint(url, |_| {}, Vec::new(), |_| {}, Arc::default()).await;
        let begun = task(agent.send(Outgoing::new("slow").return_immediately()).await.unwrap());
        assert_eq!(seen.recv().await, Some(Seen::Request));
        let canceled = agent.cancel(begun.id).await.unwrap();
        assert_eq!(canceled.status.state, TaskState::Canceled);
        // The endpoint takes 10 s for each piece, so its reply cannot be complete.
        let closed = async { while seen.recv().await.expect("it is closed") != Seen::Closed {} };
        tokio::time::timeout(Duration::from_secs(9), closed).await.expect("the request is ended");
    });
}
