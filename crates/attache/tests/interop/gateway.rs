//! Servers of the SDKs behind our gateway, and our client in front of it.

use std::sync::Arc;

use anyhow::{Result, ensure};
use attache::core::Store;
use attache::prelude::*;
use attache::protocol::StreamResponse;
use attache_agents::gateway::{Gateway, GatewayOptions};
use attache_client::{Client, Outgoing, Reply};

use crate::peers::{PATIENCE, Process, keep};
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

fn behind_the_gateway(name: &str, sdk: Sdk, binding: Binding) {
    keep(&format!("gateway::{name}"), sdk.absent(), async move {
        let mut command = sdk.program("server");
        command.arg(binding.name());
        let mut server = Process::start(name, command);
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
