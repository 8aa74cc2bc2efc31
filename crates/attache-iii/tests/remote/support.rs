//! Remote agents on ports of their own, and an engine that their skills are functions of.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use attache_client::Backoff;
use attache_core::{Agent, AgentResult, MemoryStore, Turn};
use attache_iii::engine::{Engine, EngineOptions};
use attache_iii::remote::{Imports, RemoteOptions, import};
use attache_iii::{CallError, Catalog, FunctionCall, FunctionInfo, Functions};
use attache_protocol::{AgentCard, AgentSkill, Message};
use attache_server::Server;
use futures::stream;
use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// How long a test waits for what must happen, before it says that it did not.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// Waits for what must happen.
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what).await.expect("it happens in time")
}

/// What a remote agent tells the test.
#[derive(Debug)]
pub(crate) enum Heard {
    /// It got a message.
    Message(Box<Message>),
    /// It was told to stop.
    Canceled,
}

/// Does what the first word of a message says, and says back what else there is.
struct Cook(mpsc::UnboundedSender<Heard>);

impl Agent for Cook {
    async fn run(&self, turn: Turn) -> AgentResult {
        let text = turn.text();
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        let tell = |heard| self.0.send(heard).map_err(|_| attache_core::AgentError::public("nobody listens"));
        if word == "wait" {
            turn.working("waiting").await?;
        }
        tell(Heard::Message(Box::new(turn.message().clone())))?;
        match word {
            "fail" => turn.fail(rest).await,
            "reject" => turn.reject(rest).await,
            "ask" => turn.ask(rest).await,
            "reply" => turn.reply(rest).await,
            "wait" => {
                turn.cancelled().await;
                tell(Heard::Canceled)
            }
            _ => turn.artifact("answer").parts(turn.message().parts.clone()).await,
        }
    }
}

/// A remote agent.
pub(crate) struct Kitchen {
    pub(crate) address: SocketAddr,
    heard: mpsc::UnboundedReceiver<Heard>,
    cards: mpsc::UnboundedSender<AgentCard>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Kitchen {
    pub(crate) async fn open(card: AgentCard) -> Self {
        Self::open_at("127.0.0.1:0", card).await
    }

    pub(crate) async fn open_at(address: &str, card: AgentCard) -> Self {
        let (tell, heard) = mpsc::unbounded_channel();
        let (cards, changes) = mpsc::unbounded_channel();
        let changes = stream::unfold(changes, async |mut changes| Some((changes.recv().await?, changes)));
        let server = Server::new(Cook(tell)).card(card).card_updates(changes).push(false).bind(address);
        let listening = server.listen().await.unwrap();
        let address = listening.address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(async {
            let until = async {
                let _ = stopped.await;
            };
            listening.run_until(until).await.unwrap();
        });
        Self { address, heard, cards, stop, running }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn describe(&self, card: AgentCard) {
        self.cards.send(card).unwrap();
    }

    /// The next message it gets.
    pub(crate) async fn message(&mut self) -> Message {
        match soon(self.heard.recv()).await {
            Some(Heard::Message(message)) => *message,
            other => panic!("not a message: {other:?}"),
        }
    }

    /// Waits until it is told to stop what it is at.
    pub(crate) async fn canceled(&mut self) {
        assert!(matches!(soon(self.heard.recv()).await, Some(Heard::Canceled)));
    }

    pub(crate) async fn close(self) {
        let _ = self.stop.send(());
        soon(self.running).await.unwrap();
    }
}

/// A card with these skills.
pub(crate) fn card(name: &str, skills: &[&str]) -> AgentCard {
    let mut card = AgentCard::new(name, "Cooks").version("1");
    card.skills = skills.iter().map(|id| AgentSkill::new(*id, *id).description("Does it")).collect();
    card
}

/// The same of an agent that cannot be followed.
pub(crate) fn silent(mut card: AgentCard) -> AgentCard {
    card.capabilities.streaming = Some(false);
    card
}

pub(crate) fn engine() -> Engine {
    Engine::new(
        Arc::new(MemoryStore::new()),
        EngineOptions { listen: "127.0.0.1:0".into(), ..Default::default() },
    )
}

/// Settings that do not make a test wait.
pub(crate) fn quick() -> RemoteOptions {
    let poll = Duration::from_millis(10);
    let mut options = RemoteOptions { poll, gone_after: 5 * poll, ..RemoteOptions::default() };
    options.client.backoff = Backoff::default().attempts(2).first(poll).longest(poll);
    options
}

/// An engine with the skills of an agent, when they are there.
pub(crate) async fn importing(kitchen: &Kitchen) -> (Engine, Imports) {
    let engine = engine();
    let imports = import(engine.clone(), [kitchen.url()], quick());
    functions(&engine, |ids| !ids.is_empty()).await;
    (engine, imports)
}

/// The functions that were imported, as soon as they are as wanted.
pub(crate) async fn functions(engine: &impl Functions, wanted: impl Fn(&[&str]) -> bool) -> Catalog {
    let mut updates = engine.updates();
    let imported = |catalog: &Option<Arc<Catalog>>| {
        let ids = catalog.iter().flat_map(|catalog| catalog.keys());
        wanted(&ids.map(|id| &**id).filter(|id| id.starts_with("a2a.")).collect::<Vec<_>>())
    };
    let catalog = soon(updates.wait_for(imported)).await.unwrap().clone();
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
    let result = soon(engine.call(FunctionCall { function, payload: &payload, timeout })).await?;
    Ok(serde_json::from_str(result.get()).unwrap())
}

/// What went wrong: the code, and what was said.
pub(crate) fn no(result: Result<Value, CallError>) -> (String, String) {
    match result {
        Err(CallError::Remote { code, message }) => (code, message),
        other => panic!("not refused: {other:?}"),
    }
}

pub(crate) fn described(catalog: &Catalog, id: &str) -> FunctionInfo {
    (*catalog[id]).clone()
}
