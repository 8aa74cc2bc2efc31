//! The endpoint of aimock, which imitates the providers.
//!
//! `cargo xtask test` installs it and says where it is. Without that these tests are skipped and say so.

use std::sync::Arc;

use attache_client::Outgoing;
use attache_protocol::TaskState;
use tokio::process::Command;

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

#[test]
fn a_cancel_ends_the_request_to_aimock() {
    keep("aimock::a_cancel_ends_the_request_to_aimock", absent("node"), async {
        let (_endpoint, url) = start().await;
        let agent = serve_endpoint(url, |_| {}, Vec::new(), |_| {}, Arc::default()).await;
        let begun = task(agent.send(Outgoing::new("slow").return_immediately()).await.unwrap());
        let canceled = agent.cancel(begun.id).await.unwrap();
        assert_eq!(canceled.status.state, TaskState::Canceled);
    });
}
