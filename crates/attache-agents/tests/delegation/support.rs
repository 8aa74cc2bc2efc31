//! Agents on ports of their own, and an engine whose functions delegate to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use attache_agents::Offer;
use attache_agents::delegation::{Delegation, DelegationOptions};
use attache_core::{Agent, AgentResult, MemoryStore, Store, Turn};
use attache_iii::engine::{Engine, EngineOptions};
use attache_iii::{CallError, FunctionCall, Functions, Gateway, GatewayOptions};
use attache_outbound::Policy;
use attache_protocol::{AgentCard, AgentSkill};
use attache_server::auth::KnownCallers;
use attache_server::{HttpService, Server};
use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinHandle;

/// How long a test waits for what must happen, before it says that it did not.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for what must happen.
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what).await.expect("it happens in time")
}

/// Does what the first word of a message says.
struct Clerk {
    heard: mpsc::UnboundedSender<String>,
    together: Arc<Barrier>,
}

impl Agent for Clerk {
    async fn run(&self, turn: Turn) -> AgentResult {
        let text = turn.text();
        let _ = self.heard.send(format!("{}: {text}", turn.context_id()));
        match text.split_once(' ').unwrap_or((&text, "")) {
            ("fail", why) => turn.fail(why).await,
            ("reply", words) => turn.reply(words).await,
            ("ask", question) => turn.ask(question).await,
            ("wait", _) => {
                turn.working("waiting").await?;
                turn.cancelled().await;
                Ok(())
            }
            ("together", _) => {
                turn.working("waiting for the others").await?;
                self.together.wait().await;
                turn.complete_with("all are here").await
            }
            _ => {
                turn.artifact("echo").text(format!("echo: {text}")).await?;
                turn.complete().await
            }
        }
    }
}

/// Another agent.
pub(crate) struct Office {
    pub(crate) address: SocketAddr,
    pub(crate) heard: mpsc::UnboundedReceiver<String>,
    running: JoinHandle<()>,
}

impl Drop for Office {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Office {
    pub(crate) async fn open(name: &str) -> Self {
        Self::open_with(name, Arc::new(Barrier::new(1))).await
    }

    /// An agent that is told to wait for others waits for those who share the barrier.
    pub(crate) async fn open_with(name: &str, together: Arc<Barrier>) -> Self {
        Self::furnish(name, together, |server| server).await
    }

    /// An agent that wants to be shown this token.
    pub(crate) async fn guarded(token: &str, public_card: bool) -> Self {
        let callers = KnownCallers::new().bearer("house", token);
        Self::furnish("Guarded", Arc::new(Barrier::new(1)), |server| {
            server.authenticate(callers).options(|options| options.public_card = public_card)
        })
        .await
    }

    async fn furnish(
        name: &str,
        together: Arc<Barrier>,
        furnish: impl FnOnce(Server<Clerk>) -> Server<Clerk>,
    ) -> Self {
        let (tell, heard) = mpsc::unbounded_channel();
        let card = AgentCard::new(name, "Does paperwork").skill(AgentSkill::new("paper", "Paperwork"));
        let server = Server::new(Clerk { heard: tell, together }).card(card).push(false).bind("127.0.0.1:0");
        let listening = furnish(server).listen().await.unwrap();
        let address = listening.address().unwrap();
        let running = tokio::spawn(async {
            let _ = listening.run_until(std::future::pending()).await;
        });
        Self { address, heard, running }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it speaks the oldest protocol.
    pub(crate) fn oldest(&self) -> String {
        format!("{}/a2a/rpc", self.url())
    }
}

/// Settings for agents on this machine.
pub(crate) fn near() -> DelegationOptions {
    DelegationOptions { policy: Policy::default().allow_loopback(true), ..DelegationOptions::default() }
}

/// An engine whose functions delegate.
pub(crate) struct House {
    pub(crate) engine: Engine,
    pub(crate) delegation: Delegation,
    _surface: HttpService,
    _offers: Vec<Offer>,
}

impl House {
    pub(crate) fn new() -> Self {
        Self::with(Arc::new(MemoryStore::new()), near())
    }

    pub(crate) fn with(store: Arc<dyn Store>, options: DelegationOptions) -> Self {
        let engine = Engine::new(store.clone(), EngineOptions::default());
        let delegation = Delegation::new(store.clone(), options).unwrap();
        let exposure = attache_iii::Exposure { all: true, tier: None };
        let settings = GatewayOptions {
            exposure,
            default_function: Some("agent::chat".to_owned()),
            ..GatewayOptions::default()
        };
        engine.register(attache_iii::FunctionInfo::new("agent::chat"), |invocation| async move {
            let said: Value = serde_json::from_str(invocation.payload.get()).unwrap();
            let before = said["history"].as_array().unwrap().iter();
            let before =
                before.map(|message| format!("{}: {}; ", message["role"], message["parts"][0]["text"]));
            let text = format!("{}you said {}", before.collect::<String>(), said["message"]);
            Ok(to_raw_value(&text.replace('"', "")).unwrap())
        });
        let gateway = Gateway::new(Arc::new(engine.clone()), settings);
        let server = Server::new(gateway.clone()).card(gateway.card()).card_updates(gateway.cards());
        let surface = server.shared_store(store).into_http_service("http://house.example").unwrap();
        delegation.at_home(gateway, "http://house.example");
        let offers = delegation.offer(&engine, surface.clone());
        Self { engine, delegation, _surface: surface, _offers: offers }
    }

    /// Waits until the agent knows its functions.
    pub(crate) async fn ready(&self) {
        let mut updates = self.engine.updates();
        let knows = |catalog: &Option<Arc<attache_iii::Catalog>>| {
            catalog.as_ref().is_some_and(|catalog| catalog.contains_key("agent::chat"))
        };
        soon(updates.wait_for(knows)).await.unwrap();
    }

    /// Calls a function that must succeed.
    pub(crate) async fn call(&self, function: &str, payload: Value) -> Value {
        self.ask(function, payload).await.unwrap()
    }

    /// What a function refuses with.
    pub(crate) async fn refusal(&self, function: &str, payload: Value) -> (String, String) {
        match self.ask(function, payload).await {
            Err(CallError::Remote { code, message }) => (code, message),
            other => panic!("not refused: {other:?}"),
        }
    }

    pub(crate) async fn ask(&self, function: &str, payload: Value) -> Result<Value, CallError> {
        let payload = to_raw_value(&payload).unwrap();
        let call = FunctionCall { function, payload: &payload, timeout: PATIENCE };
        let result = soon(self.engine.call(call)).await?;
        Ok(serde_json::from_str(result.get()).unwrap())
    }

    /// A task as soon as it is in one of these states.
    pub(crate) async fn until(&self, task: &Value, states: &[&str]) -> Value {
        soon(async {
            loop {
                let now = self.call("a2a::get_task", serde_json::json!({"taskId": task["id"]})).await;
                if states.contains(&now["status"]["state"].as_str().unwrap()) {
                    return now;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }
}
