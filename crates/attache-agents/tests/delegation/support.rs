//! Agents on local ports, and an engine whose functions delegate to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use attache_agents::FunctionGuard;
use attache_agents::delegation::{Delegation, DelegationOptions};
use attache_core::{Agent, AgentResult, Identity, MemoryStore, Store, TraceParent, Turn};
use attache_iii::engine::{Engine, EngineOptions};
use attache_iii::{CallError, FunctionCall, FunctionGatewayOptions, Functions, Gateway};
use attache_outbound::Policy;
use attache_protocol::{AgentCard, AgentSkill};
use attache_server::auth::KnownCallers;
use attache_server::{HttpService, Server, SigningKeys};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinHandle;
use tower_service::Service;

/// How long a test waits for an event before it fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits for an event.
pub(crate) async fn in_time<F: Future>(event: F) -> F::Output {
    tokio::time::timeout(TEST_TIMEOUT, event).await.expect("it happens in time")
}

/// Takes the first word of a message as a command.
struct ScriptedAgent {
    received: mpsc::UnboundedSender<String>,
    barrier: Arc<Barrier>,
}

impl Agent for ScriptedAgent {
    async fn run(&self, turn: Turn) -> AgentResult {
        let text = turn.text();
        let _ = self.received.send(format!("{}: {text}", turn.context_id()));
        match text.split_once(' ').unwrap_or((&text, "")) {
            ("fail", why) => turn.fail(why).await,
            ("reply", text) => turn.reply(text).await,
            ("ask", question) => turn.ask(question).await,
            ("wait", _) => {
                turn.working("waiting").await?;
                turn.cancelled().await;
                Ok(())
            }
            ("barrier", _) => {
                turn.working("waiting for the others").await?;
                self.barrier.wait().await;
                turn.complete_with("all are here").await
            }
            _ => {
                turn.artifact("echo").text(format!("echo: {text}")).await?;
                turn.complete().await
            }
        }
    }
}

/// A running agent.
pub(crate) struct TestAgent {
    pub(crate) address: SocketAddr,
    pub(crate) received: mpsc::UnboundedReceiver<String>,
    running: JoinHandle<()>,
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl TestAgent {
    pub(crate) async fn start(name: &str) -> Self {
        Self::start_with_barrier(name, Arc::new(Barrier::new(1))).await
    }

    /// An agent that waits, on the command `barrier`, until all agents with the same barrier have a message.
    pub(crate) async fn start_with_barrier(name: &str, barrier: Arc<Barrier>) -> Self {
        Self::start_with(name, barrier, |server| server).await
    }

    /// An agent that requires this token.
    pub(crate) async fn start_with_token(token: &str, public_card: bool) -> Self {
        let callers = KnownCallers::new().bearer("delegator", token);
        Self::start_with("Guarded", Arc::new(Barrier::new(1)), |server| {
            server.authenticate(callers).options(|options| options.public_card = public_card)
        })
        .await
    }

    /// An agent whose card is signed with these keys.
    pub(crate) async fn start_signed(keys: SigningKeys) -> Self {
        Self::start_with("Signed", Arc::new(Barrier::new(1)), |server| server.signing(keys)).await
    }

    async fn start_with(
        name: &str,
        barrier: Arc<Barrier>,
        configure: impl FnOnce(Server<ScriptedAgent>) -> Server<ScriptedAgent>,
    ) -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        let card = AgentCard::new(name, "Does paperwork").skill(AgentSkill::new("paper", "Paperwork"));
        let server = Server::new(ScriptedAgent { received: sender, barrier })
            .card(card)
            .push(false)
            .bind("127.0.0.1:0");
        let listening = configure(server).listen().await.unwrap();
        let address = listening.address().unwrap();
        let running = tokio::spawn(async {
            let _ = listening.run_until(std::future::pending()).await;
        });
        Self { address, received, running }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The endpoint of protocol 0.1.
    pub(crate) fn v0_1_url(&self) -> String {
        format!("{}/a2a/rpc", self.url())
    }
}

/// Options that allow agents on this machine.
pub(crate) fn local_options() -> DelegationOptions {
    DelegationOptions::default().with(|options| options.policy = Policy::default().allow_loopback(true))
}

/// An engine with the functions of delegation.
pub(crate) struct Delegator {
    pub(crate) engine: Engine,
    pub(crate) delegation: Delegation,
    server: HttpService,
    _functions: Vec<FunctionGuard>,
}

impl Delegator {
    pub(crate) fn new() -> Self {
        Self::with(Arc::new(MemoryStore::new()), local_options())
    }

    pub(crate) fn with(store: Arc<dyn Store>, options: DelegationOptions) -> Self {
        let engine = Engine::new(store.clone(), EngineOptions::default());
        let delegation = Delegation::new(store.clone(), options).unwrap();
        let exposure = attache_iii::Exposure { all: true, ..attache_iii::Exposure::default() };
        let settings = FunctionGatewayOptions::default().with(|options| {
            options.exposure = exposure;
            options.default_function = Some("agent::chat".to_owned());
        });
        engine.register(attache_iii::FunctionInfo::new("agent::chat"), |invocation| async move {
            let input: Value = serde_json::from_str(invocation.payload.get()).unwrap();
            let before = input["history"].as_array().unwrap().iter();
            let before =
                before.map(|message| format!("{}: {}; ", message["role"], message["parts"][0]["text"]));
            let text = format!("{}you said {}", before.collect::<String>(), input["message"]);
            Ok(to_raw_value(&text.replace('"', "")).unwrap())
        });
        let gateway = Gateway::new(Arc::new(engine.clone()), settings);
        let server = Server::new(gateway.clone()).card(gateway.card()).card_updates(gateway.cards());
        let surface = server.shared_store(store).into_http_service("http://delegator.example").unwrap();
        delegation.set_own_agent(gateway, "http://delegator.example");
        let functions = delegation.register_functions(&engine, surface.in_process(Identity::default()));
        Self { engine, delegation, server: surface, _functions: functions }
    }

    /// Waits until the agent has its functions.
    pub(crate) async fn ready(&self) {
        let mut updates = self.engine.updates();
        let has_function = |catalog: &Option<Arc<attache_iii::Catalog>>| {
            catalog.as_ref().is_some_and(|catalog| catalog.contains_key("agent::chat"))
        };
        in_time(updates.wait_for(has_function)).await.unwrap();
    }

    /// Waits until the served card has this name, and returns it as protocol 0.1.
    pub(crate) async fn served_card(&self, name: &str) -> Value {
        in_time(async {
            loop {
                let request =
                    http::Request::get("/.well-known/agent.json").body(Full::<Bytes>::default()).unwrap();
                let Ok(response) = self.server.clone().call(request).await;
                let body = response.into_body().collect().await.unwrap().to_bytes();
                let card: Value = serde_json::from_slice(&body).unwrap();
                if card["name"] == name {
                    return card;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// Calls a function that must succeed.
    pub(crate) async fn call(&self, function: &str, payload: Value) -> Value {
        self.call_result(function, payload).await.unwrap()
    }

    /// Calls a function that must fail. Returns the code and the message.
    pub(crate) async fn error(&self, function: &str, payload: Value) -> (String, String) {
        match self.call_result(function, payload).await {
            Err(CallError::Remote { code, message }) => (code, message),
            other => panic!("no error: {other:?}"),
        }
    }

    pub(crate) async fn call_result(&self, function: &str, payload: Value) -> Result<Value, CallError> {
        self.call_traced(function, payload, None).await
    }

    /// Calls a function within a trace.
    pub(crate) async fn call_in_trace(
        &self,
        function: &str,
        payload: Value,
        trace: &str,
    ) -> Result<Value, CallError> {
        self.call_traced(function, payload, Some(trace.parse().unwrap())).await
    }

    async fn call_traced(
        &self,
        function: &str,
        payload: Value,
        trace_parent: Option<TraceParent>,
    ) -> Result<Value, CallError> {
        let payload = to_raw_value(&payload).unwrap();
        let call = FunctionCall { function, payload: &payload, timeout: TEST_TIMEOUT, trace_parent };
        let result = in_time(self.engine.call(call)).await?;
        Ok(serde_json::from_str(result.get()).unwrap())
    }

    /// Waits until a task is in one of these states.
    pub(crate) async fn until(&self, task: &Value, states: &[&str]) -> Value {
        in_time(async {
            loop {
                let now =
                    self.call("a2a::get_task", serde_json::json!({"taskId": task["id"], "wait": 0})).await;
                if states.contains(&now["status"]["state"].as_str().unwrap()) {
                    return now;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }
}
