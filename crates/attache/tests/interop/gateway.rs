//! Servers of the SDKs behind our gateway, and our client in front of it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use attache::core::Store;
use attache::prelude::*;
use attache::protocol::StreamResponse;
use attache_agents::gateway::{Gateway, GatewayOptions};
use attache_client::{Client, Outgoing, Reply};
use tokio::process::Command;

use crate::peers::{PATIENCE, Process, absent, home, keep};
use crate::sdk::{Binding, Sdk};

/// What an agent does behind the gateway, as its callers see it.
async fn everything(agent: &Client) -> Result<()> {
    ensure!(agent.card().name == "Interop", "{:?}", agent.card());

    let Reply::Task(task) = agent.send("say hello").await? else { anyhow::bail!("`say` leads to no task") };
    ensure!(task.status.state == TaskState::Completed && text(&task) == "hello", "{task:?}");

    let Reply::Message(message) = agent.send("direct").await? else {
        anyhow::bail!("`direct` leads to a task")
    };
    ensure!(message.text() == "a direct answer", "{message:?}");

    let mut events = agent.stream("stream").await?;
    let mut pieces = Vec::new();
    while let Some(event) = events.next().await {
        if let StreamResponse::ArtifactUpdate(update) = event? {
            pieces.push((update.artifact.text(), update.append, update.last_chunk));
        }
    }
    let expected = [("one ", false, false), ("two ", true, false), ("three", true, true)];
    ensure!(pieces == expected.map(|(text, append, last)| (text.to_owned(), append, last)), "{pieces:?}");

    let Reply::Task(task) = agent.send("ask").await? else { anyhow::bail!("`ask` leads to no task") };
    ensure!(task.status.state == TaskState::InputRequired, "{task:?}");
    let Reply::Task(task) = agent.send(Outgoing::new("blue").answering(&task)).await? else {
        anyhow::bail!("an answer leads to no task")
    };
    ensure!(task.status.state == TaskState::Completed && text(&task) == "blue it is", "{task:?}");

    let Reply::Task(task) = agent.send(Outgoing::new("hold").return_immediately()).await? else {
        anyhow::bail!("`hold` leads to no task")
    };
    let canceled = agent.cancel(task.id).await?;
    ensure!(canceled.status.state == TaskState::Canceled, "{canceled:?}");

    let Reply::Task(task) = agent.send("fail").await? else { anyhow::bail!("`fail` leads to no task") };
    let words = task.status.message.as_deref().map(Message::text).unwrap_or_default();
    ensure!(task.status.state == TaskState::Failed && words == "it broke", "{task:?}");

    let file = Part::raw(vec![0, 1, 254]).filename("a.bin").media_type("application/octet-stream");
    let Reply::Task(task) = agent.send(vec![Part::text("echo"), file.clone()]).await? else {
        anyhow::bail!("`echo` leads to no task")
    };
    ensure!(task.artifacts.iter().any(|artifact| artifact.parts == [file.clone()]), "{task:?}");
    Ok(())
}

fn text(task: &Task) -> String {
    task.artifacts.iter().map(Artifact::text).collect()
}

/// What an agent of fasta2a does behind the gateway. It has tasks only, and each message begins a new one.
async fn everything_of_fasta2a(agent: &Client) -> Result<()> {
    ensure!(agent.card().name == "Interop", "{:?}", agent.card());
    let said = async |message: Outgoing| -> Result<Task> {
        match agent.send(message).await? {
            Reply::Task(task) => Ok(task),
            Reply::Message(message) => anyhow::bail!("not a task: {message:?}"),
        }
    };
    for message in ["say hello", "keep hello"] {
        let task = said(message.into()).await?;
        ensure!(task.status.state == TaskState::Completed && text(&task) == "hello", "{message}: {task:?}");
        ensure!(task.artifacts[0].artifact_id == "answer", "{task:?}");
    }

    let mut events = agent.stream("stream").await?;
    let mut pieces = Vec::new();
    while let Some(event) = events.next().await {
        if let StreamResponse::ArtifactUpdate(update) = event? {
            pieces.push((update.artifact.text(), update.append, update.last_chunk));
        }
    }
    let expected = [("one ", false, false), ("two ", true, false), ("three", true, true)];
    ensure!(pieces == expected.map(|(text, append, last)| (text.to_owned(), append, last)), "{pieces:?}");

    for turn in ["turn 1", "turn 2"] {
        let task = said(Outgoing::new("turn").context("a conversation")).await?;
        ensure!(text(&task) == turn, "{task:?}");
    }
    let task = said(Outgoing::new("turn").context("another one")).await?;
    ensure!(text(&task) == "turn 1", "{task:?}");

    let failed = said("fail".into()).await?;
    ensure!(failed.status.state == TaskState::Failed, "{failed:?}");
    let stopped = said("stop".into()).await?;
    ensure!(stopped.status.state == TaskState::Canceled, "{stopped:?}");

    let file = Part::raw(vec![0, 1, 254]).filename("a.bin").media_type("application/octet-stream");
    let task = said(vec![Part::text("echo"), file.clone()].into()).await?;
    ensure!(task.artifacts.iter().any(|artifact| artifact.parts == [file.clone()]), "{task:?}");
    Ok(())
}

fn behind_the_gateway(name: &str, sdk: Sdk, binding: Binding) {
    let command = || {
        let mut command = sdk.program("server");
        command.arg(binding.name());
        command
    };
    try_behind_the_gateway(name, sdk.absent(), command, everything);
}

/// Starts a server with a gateway in front of it, and tries everything.
fn try_behind_the_gateway(
    name: &str,
    absent: Option<String>,
    command: impl FnOnce() -> Command,
    everything: impl AsyncFnOnce(&Client) -> Result<()>,
) {
    keep(&format!("gateway::{name}"), absent, async move {
        let mut server = Process::start(name, command());
        let url = server
            .heard("where it listens", |line| line.strip_prefix("Listening on ").map(str::to_owned))
            .await;
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let options = GatewayOptions::new(url, store.clone())
            // The address of gRPC is another origin.
            .with(|options| options.client.trusted_origins = Default::default());
        let gateway = Gateway::connect(options).await.expect("the gateway connects");
        let card = gateway.card();
        let listening = Server::new(gateway)
            .card(card)
            .shared_store(store)
            .bind("127.0.0.1:0")
            .listen()
            .await
            .expect("an address");
        let address = listening.address().expect("an address");
        let serving = tokio::spawn(listening.run_until(std::future::pending()));
        let agent = Client::connect(&format!("http://{address}")).await.expect("the client connects");
        let done = tokio::time::timeout(PATIENCE, everything(&agent)).await;
        serving.abort();
        done.expect("it does not take too long").unwrap_or_else(|error| panic!("{name}: {error:#}"));
    });
}

#[test]
fn python_0_3_over_jsonrpc_works_behind_the_gateway() {
    behind_the_gateway("python_0_3_over_jsonrpc", Sdk::Python0, Binding::JsonRpc);
}

#[test]
fn python_0_3_over_grpc_works_behind_the_gateway() {
    behind_the_gateway("python_0_3_over_grpc", Sdk::Python0, Binding::Grpc);
}

#[test]
fn node_0_3_over_jsonrpc_works_behind_the_gateway() {
    behind_the_gateway("node_0_3_over_jsonrpc", Sdk::Node0, Binding::JsonRpc);
}

#[test]
fn python_1_over_jsonrpc_works_behind_the_gateway() {
    behind_the_gateway("python_1_over_jsonrpc", Sdk::Python1, Binding::JsonRpc);
}

#[test]
fn fasta2a_works_behind_the_gateway() {
    let command = || {
        let mut command = Command::new(home("fasta2a-2.1.1").join("bin/python"));
        let program = "tests/interop/peers/python/server_fasta2a.py";
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(program));
        command
    };
    try_behind_the_gateway("fasta2a", absent("python"), command, everything_of_fasta2a);
}
