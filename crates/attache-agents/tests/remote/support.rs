//! Remote agents on local ports, and an engine with their skills as functions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use attache_agents::remote::{Imports, RemoteOptions, import};
use attache_client::Backoff;
use attache_core::{Agent, AgentResult, MemoryStore, Turn};
use attache_iii::engine::{Engine, EngineOptions};
use attache_iii::{CallError, Catalog, FunctionCall, FunctionInfo, Functions};
use attache_protocol::{AgentCard, AgentSkill, Message};
use attache_server::Server;
use futures::stream;
use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// How long a test waits for an event before it fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// Waits for an event.
pub(crate) async fn in_time<F: Future>(event: F) -> F::Output {
    tokio::time::timeout(TEST_TIMEOUT, event).await.expect("it happens in time")
}

/// An event that a remote agent reports to the test.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message has arrived.
    Message(Box<Message>),
    /// The task was canceled.
    Canceled,
}

/// Takes the first word of a message as a command. Without a command, returns the parts of the message.
struct ScriptedAgent(mpsc::UnboundedSender<Received>);

impl Agent for ScriptedAgent {
    async fn run(&self, turn: Turn) -> AgentResult {
        let text = turn.text();
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        let report =
            |event| self.0.send(event).map_err(|_| attache_core::AgentError::public("the test has ended"));
        if word == "wait" {
            turn.working("waiting").await?;
        }
        report(Received::Message(Box::new(turn.message().clone())))?;
        match word {
            "fail" => turn.fail(rest).await,
            "reject" => turn.reject(rest).await,
            "ask" => turn.ask(rest).await,
            "reply" => turn.reply(rest).await,
            "wait" => {
                turn.cancelled().await;
                report(Received::Canceled)
            }
            _ => turn.artifact("answer").parts(turn.message().parts.clone()).await,
        }
    }
}

/// A remote agent.
pub(crate) struct TestAgent {
    pub(crate) address: SocketAddr,
    received: mpsc::UnboundedReceiver<Received>,
    cards: mpsc::UnboundedSender<AgentCard>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl TestAgent {
    pub(crate) async fn start(card: AgentCard) -> Self {
        Self::start_at("127.0.0.1:0", card).await
    }

    pub(crate) async fn start_at(address: &str, card: AgentCard) -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        let (cards, changes) = mpsc::unbounded_channel();
        let changes = stream::unfold(changes, async |mut changes| Some((changes.recv().await?, changes)));
        let server =
            Server::new(ScriptedAgent(sender)).card(card).card_updates(changes).push(false).bind(address);
        let listening = server.listen().await.unwrap();
        let address = listening.address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(async {
            let until = async {
                let _ = stopped.await;
            };
            listening.run_until(until).await.unwrap();
        });
        Self { address, received, cards, stop, running }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn set_card(&self, card: AgentCard) {
        self.cards.send(card).unwrap();
    }

    /// Waits for the next message.
    pub(crate) async fn message(&mut self) -> Message {
        match in_time(self.received.recv()).await {
            Some(Received::Message(message)) => *message,
            other => panic!("not a message: {other:?}"),
        }
    }

    /// Waits until the task is canceled.
    pub(crate) async fn canceled(&mut self) {
        assert!(matches!(in_time(self.received.recv()).await, Some(Received::Canceled)));
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        in_time(self.running).await.unwrap();
    }
}

/// A card with these skills.
pub(crate) fn card(name: &str, skills: &[&str]) -> AgentCard {
    let mut card = AgentCard::new(name, "Cooks").version("1");
    card.skills = skills.iter().map(|id| AgentSkill::new(*id, *id).description("Does it")).collect();
    card
}

/// The card of an agent that does not stream.
pub(crate) fn without_streaming(mut card: AgentCard) -> AgentCard {
    card.capabilities.streaming = Some(false);
    card
}

pub(crate) fn engine() -> Engine {
    Engine::new(
        Arc::new(MemoryStore::new()),
        EngineOptions::default().with(|options| options.listen = "127.0.0.1:0".into()),
    )
}

/// Options with short intervals.
pub(crate) fn fast_options() -> RemoteOptions {
    let poll = Duration::from_millis(10);
    let mut options = RemoteOptions::default().with(|options| {
        options.poll = poll;
        options.gone_after = 5 * poll;
    });
    options.client.backoff = Backoff::default().attempts(2).first(poll).longest(poll);
    options
}

/// An engine with the skills of an agent. Waits until they are registered.
pub(crate) async fn importing(agent: &TestAgent) -> (Engine, Imports) {
    let engine = engine();
    let imports = import(engine.clone(), [agent.url()], fast_options());
    functions(&engine, |ids| !ids.is_empty()).await;
    (engine, imports)
}

/// Waits until the ids of the imported functions are as wanted.
pub(crate) async fn functions(engine: &impl Functions, wanted: impl Fn(&[&str]) -> bool) -> Catalog {
    let mut updates = engine.updates();
    let imported = |catalog: &Option<Arc<Catalog>>| {
        let ids = catalog.iter().flat_map(|catalog| catalog.keys());
        wanted(&ids.map(|id| &**id).filter(|id| id.starts_with("a2a.")).collect::<Vec<_>>())
    };
    let catalog = in_time(updates.wait_for(imported)).await.unwrap().clone();
    (*catalog.unwrap_or_default()).clone()
}

pub(crate) async fn call(
    engine: &impl Functions,
    function: &str,
    payload: Value,
) -> Result<Value, CallError> {
    call_within(engine, function, payload, LONG).await
}

pub(crate) async fn call_within(
    engine: &impl Functions,
    function: &str,
    payload: Value,
    timeout: Duration,
) -> Result<Value, CallError> {
    let payload = to_raw_value(&payload).unwrap();
    let result =
        in_time(engine.call(FunctionCall { function, payload: &payload, timeout, trace_parent: None }))
            .await?;
    Ok(serde_json::from_str(result.get()).unwrap())
}

/// The code and the message of an error.
pub(crate) fn error(result: Result<Value, CallError>) -> (String, String) {
    match result {
        Err(CallError::Remote { code, message }) => (code, message),
        other => panic!("no error: {other:?}"),
    }
}

pub(crate) fn described(catalog: &Catalog, id: &str) -> FunctionInfo {
    (*catalog[id]).clone()
}
