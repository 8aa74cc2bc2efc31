//! Servers that die in the middle, and come back.

use std::time::Duration;

use attache_agents::gateway::{Gateway, GatewayError};
use attache_client::Client;
use attache_protocol::TaskState;

use crate::handmade::*;
use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_agent_that_dies_and_comes_back_finishes_the_task() {
    let (script, mut reports) = Script::new();
    let store = new_store();
    let remote =
        start_remote_with(script.clone(), remote_card(), store.clone(), "127.0.0.1:0".to_owned()).await;
    let address = remote.address.to_string();
    let gateway = start_gateway(quick_options(&remote.url(), new_store())).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    let task = send(&client, immediately("gated")).await;
    reports.message().await;
    in_time(client.wait_until(task.id.clone(), |task| !task.artifacts.is_empty())).await.unwrap();
    remote.kill().await;
    script.gate.add_permits(1);
    let _again = start_remote_with(script, remote_card(), store, address).await;
    let task = reaches(&client, &task, TaskState::Completed).await;
    assert_eq!(texts(&task, "story"), ["one ", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_agent_that_has_lost_the_task_fails_it() {
    let (script, mut reports) = Script::new();
    let remote = start_remote(script.clone()).await;
    let address = remote.address.to_string();
    let gateway = start_gateway(quick_options(&remote.url(), new_store())).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    let task = send(&client, immediately("gated")).await;
    reports.message().await;
    in_time(client.wait_until(task.id.clone(), |task| !task.artifacts.is_empty())).await.unwrap();
    remote.kill().await;
    let _again = start_remote_with(script, remote_card(), new_store(), address).await;
    let task = reaches(&client, &task, TaskState::Failed).await;
    assert_eq!(words(&task), "the remote agent no longer has the task: begin another");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_dies_goes_on_and_does_not_send_the_message_again() {
    let (script, mut reports) = Script::new();
    let remote = start_remote(script.clone()).await;
    let store = new_store();
    let gateway = start_gateway(quick_options(&remote.url(), store.clone())).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    let task = send(&client, immediately("gated")).await;
    reports.message().await;
    in_time(client.wait_until(task.id.clone(), |task| !task.artifacts.is_empty())).await.unwrap();
    gateway.kill().await;
    script.gate.add_permits(1);
    let gateway = start_gateway(quick_options(&remote.url(), store)).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    let task = reaches(&client, &task, TaskState::Completed).await;
    assert_eq!(texts(&task, "story"), ["one ", "two"]);
    assert!(reports.is_empty(), "the message was sent once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_may_have_arrived_is_sent_again_under_the_same_id() {
    let mut remote = Remote::start(true, |_, number, id| match number {
        0 => events(&id, Vec::new(), true),
        _ => events(&id, vec![task("TASK_STATE_COMPLETED")], false),
    })
    .await;
    let store = new_store();
    let gateway = start_gateway(quick_options(&remote.url, store.clone())).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    // With a key, the task exists before the remote agent has it.
    let sent = send(&client, immediately("hi").idempotency_key("k")).await;
    let first = remote.request().await;
    gateway.kill().await;
    let gateway = start_gateway(quick_options(&remote.url, store)).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    reaches(&client, &sent, TaskState::Completed).await;
    let again = remote.request().await;
    assert_eq!(first.headers["idempotency-key"], again.headers["idempotency-key"]);
    let id = |request: &Request| request.body["params"]["message"]["messageId"].clone();
    assert_eq!(id(&first), id(&again));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_survives_a_restart_of_the_gateway() {
    let (script, mut reports) = Script::new();
    let remote = start_remote(script).await;
    let store = new_store();
    let gateway = start_gateway(quick_options(&remote.url(), store.clone())).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    let asked = send(&client, "ask which?").await;
    gateway.kill().await;
    let gateway = start_gateway(quick_options(&remote.url(), store)).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    let task = send(&client, attache_client::Outgoing::new("this one").answering(&asked)).await;
    assert_eq!(texts(&task, "answer"), ["this one"]);
    assert_eq!(reports.message().await.task_id, reports.message().await.task_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_agent_that_cannot_be_reached_is_an_error_at_the_start() {
    let port = unused_port();
    let error =
        Gateway::connect(quick_options(&format!("http://u:s3cret@127.0.0.1:{port}/?k=s3cret"), new_store()))
            .await
            .unwrap_err();
    let GatewayError::Connect { .. } = &error else { panic!("another error: {error}") };
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("cannot connect to the remote agent at `http://127.0.0.1:{port}/`")),
        "{text}"
    );
    assert!(!text.contains("s3cret"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_can_wait_for_its_remote_agent() {
    let port = unused_port();
    let options =
        quick_options(&format!("http://127.0.0.1:{port}"), new_store()).with(|options| options.wait = true);
    let connecting = tokio::spawn(Gateway::connect(options));
    let (script, _reports) = Script::new();
    let _remote = start_remote_with(script, remote_card(), new_store(), format!("127.0.0.1:{port}")).await;
    let gateway = in_time(connecting).await.unwrap().unwrap();
    assert_eq!(gateway.card().name, "Remote");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_reads_that_the_remote_agent_is_down_and_no_more() {
    let (script, _reports) = Script::new();
    let remote = start_remote(script).await;
    let port = remote.address.port().to_string();
    let gateway = start_gateway(quick_options(&remote.url(), new_store())).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    remote.kill().await;
    let task = send(&client, "hi").await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(words(&task), "the remote agent cannot be reached: try again later");
    assert!(!words(&task).contains(&port));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_agent_that_takes_too_long_is_canceled() {
    let mut chain = chain_with(remote_card(), |options| options.timeout = Duration::from_secs(1)).await;
    let task = send(&chain.client, "wait").await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(words(&task), "the remote agent did not finish within 1 s");
    chain.reports.message().await;
    chain.reports.canceled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_make_no_sense_are_rejected() {
    for (name, change) in [
        (
            "refresh",
            (|options| options.refresh = Duration::ZERO) as fn(&mut attache_agents::gateway::GatewayOptions),
        ),
        ("timeout", |options| options.timeout = Duration::ZERO),
        ("max_bytes", |options| options.max_bytes = 0),
        ("max_links", |options| options.max_links = 0),
    ] {
        let error = Gateway::connect(quick_options("http://127.0.0.1:1", new_store()).with(change))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), format!("the option `{name}` of the gateway is 0, expected more"));
    }
}

/// A port that nothing listens on.
fn unused_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
