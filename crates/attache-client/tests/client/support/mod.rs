//! Servers for tests: ours, ours behind a proxy that can cut connections, and scripted ones.

mod agents;
mod calls;
mod fake;
mod proxy;
mod wires;

use std::net::SocketAddr;
use std::time::Duration;

use attache_client::{Backoff, Client, ClientError, ClientOptions, Events};
use attache_core::Agent;
use attache_protocol::{StreamResponse, Task};
use attache_server::Server;

pub(crate) use self::agents::{Player, gated};
pub(crate) use self::calls::{Calls, Chunk, framed, refusal, response};
pub(crate) use self::fake::{
    Fake, Reaction, ReceivedRequest, STREAM, card, card_with, json, plain_sse, rpc_result, sse,
};
pub(crate) use self::proxy::Proxy;
pub(crate) use self::wires::{WIRES, lists, numbers, over, over_with};

/// How long a test waits before it fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits, but not forever.
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what).await.expect("it happens in time")
}

/// Runs a server on a free port until the test ends.
pub(crate) async fn serve<A: Agent>(server: Server<A>) -> SocketAddr {
    let listening = server.bind("127.0.0.1:0").listen().await.unwrap();
    let address = listening.address().unwrap();
    tokio::spawn(listening.run_until(std::future::pending()));
    address
}

/// A client of an agent that follows instructions.
pub(crate) async fn playing() -> Client {
    connect(&format!("http://{}", serve(Server::new(Player)).await)).await
}

pub(crate) async fn connect(address: &str) -> Client {
    soon(Client::connect_with(address, quick())).await.unwrap()
}

/// Options without long waits.
pub(crate) fn quick() -> ClientOptions {
    let backoff =
        Backoff::default().attempts(5).first(Duration::from_millis(1)).longest(Duration::from_millis(20));
    ClientOptions::default().backoff(backoff)
}

/// All events until the end of the stream.
pub(crate) async fn rest(events: &mut Events) -> Result<Vec<StreamResponse>, ClientError> {
    let mut all = Vec::new();
    while let Some(event) = soon(events.next()).await {
        all.push(event?);
    }
    Ok(all)
}

/// The next event. Fails at the end.
pub(crate) async fn next(events: &mut Events) -> StreamResponse {
    soon(events.next()).await.expect("another event").unwrap()
}

/// A short form of an event.
pub(crate) fn gist(event: &StreamResponse) -> String {
    match event {
        StreamResponse::Task(task) => format!("task {}", task.status.state),
        StreamResponse::Message(message) => format!("message {}", message.text()),
        StreamResponse::StatusUpdate(update) => format!("status {}", update.status.state),
        StreamResponse::ArtifactUpdate(update) => format!("artifact {}", update.artifact.text()),
    }
}

pub(crate) fn gists(events: &[StreamResponse]) -> Vec<String> {
    events.iter().map(gist).collect()
}

/// The task in an event.
pub(crate) fn task(event: &StreamResponse) -> &Task {
    if let StreamResponse::Task(task) = event { task } else { panic!("not a task: {event:?}") }
}
