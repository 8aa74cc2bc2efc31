//! Servers that can be killed, a remote agent that follows a script, and a gateway in front of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use attache_agents::gateway::{Gateway, GatewayOptions};
use attache_client::{Backoff, Client, Outgoing, Pace, Reply};
use attache_core::{Agent, AgentError, AgentResult, MemoryStore, Store, Turn};
use attache_protocol::{AgentCard, AgentSkill, JsonObject, Message, Part, StreamResponse, Task, TaskState};
use attache_server::Server;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// How long a test waits for an event before it fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The lease of servers that are killed: their successor waits for its end.
pub(crate) const SHORT_LEASE: Duration = Duration::from_secs(1);

/// Waits for an event.
pub(crate) async fn in_time<F: Future>(event: F) -> F::Output {
    tokio::time::timeout(TEST_TIMEOUT, event).await.expect("it happens in time")
}

/// A server in a runtime of its own, so that it can be killed as a process is.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    runtime: Option<Runtime>,
}

impl TestServer {
    /// Starts the server that `make` makes within the new runtime.
    pub(crate) async fn start<A, F>(make: impl FnOnce() -> F + Send + 'static) -> Self
    where
        A: Agent,
        F: Future<Output = Server<A>> + Send,
    {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (sender, address) = oneshot::channel();
        runtime.spawn(async move {
            let listening = make().await.listen().await.unwrap();
            sender.send(listening.address().unwrap()).unwrap();
            listening.run_until(std::future::pending()).await.unwrap();
        });
        Self { address: in_time(address).await.unwrap(), runtime: Some(runtime) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends everything at once, and waits until the address is free. Nothing is written or said any more.
    pub(crate) async fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            let ending = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(TEST_TIMEOUT));
            in_time(ending).await.unwrap();
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What the remote agent reports to the test.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Box<Message>),
    Canceled,
}

/// Takes the first word of a message as a command. Otherwise returns the parts of the message.
#[derive(Clone)]
pub(crate) struct Script {
    received: mpsc::UnboundedSender<Received>,
    /// Lets an agent go on that waits for the test.
    pub(crate) gate: Arc<Semaphore>,
}

impl Script {
    pub(crate) fn new() -> (Self, Reports) {
        let (received, reports) = mpsc::unbounded_channel();
        (Self { received, gate: Arc::new(Semaphore::new(0)) }, Reports(reports))
    }

    fn report(&self, event: Received) -> AgentResult {
        self.received.send(event).map_err(|_| AgentError::public("the test has ended"))
    }

    async fn pass_gate(&self) -> AgentResult {
        self.gate.acquire().await?.forget();
        Ok(())
    }
}

/// What the remote agent has reported.
pub(crate) struct Reports(mpsc::UnboundedReceiver<Received>);

impl Reports {
    /// Waits for the next message that the remote agent gets.
    pub(crate) async fn message(&mut self) -> Message {
        match in_time(self.0.recv()).await {
            Some(Received::Message(message)) => *message,
            other => panic!("not a message: {other:?}"),
        }
    }

    /// Waits until the remote task is canceled.
    pub(crate) async fn canceled(&mut self) {
        assert!(matches!(in_time(self.0.recv()).await, Some(Received::Canceled)));
    }

    /// Whether nothing more was reported.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.try_recv().is_err()
    }
}

impl Agent for Script {
    async fn run(&self, turn: Turn) -> AgentResult {
        let text = turn.text();
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        if word == "wait" {
            turn.working("waiting").await?;
        }
        if word != "gated" {
            self.report(Received::Message(Box::new(turn.message().clone())))?;
        }
        match word {
            "fail" => turn.fail(rest.to_owned()).await,
            "reject" => turn.reject(rest.to_owned()).await,
            "ask" => turn.ask(rest.to_owned()).await,
            "reply" => turn.reply(rest.to_owned()).await,
            "complete" => turn.complete_with(rest.to_owned()).await,
            "auth" => {
                turn.require_auth("log in").await?;
                tokio::select! {
                    passed = self.pass_gate() => passed?,
                    () = turn.cancelled() => return Ok(()),
                }
                turn.artifact("answer").text("logged in").await?;
                turn.complete().await
            }
            "need" => turn.require_auth("send a password").await,
            "stream" => {
                turn.working("one moment").await?;
                let metadata = JsonObject::new(&json!({"k": [1]}))?;
                let mut stream =
                    turn.artifact("story").description("A story").metadata(metadata).text("once ").stream();
                stream.chunk("upon ").await?;
                stream.last("a time").await?;
                turn.artifact("table").data(&json!({"a": 1}))?.await?;
                turn.complete().await
            }
            // The first piece, then the rest when the test lets it. A turn that runs again begins anew.
            "gated" => {
                let mut stream = turn.artifact("story").stream();
                stream.chunk("one ").await?;
                self.report(Received::Message(Box::new(turn.message().clone())))?;
                self.pass_gate().await?;
                stream.last("two").await?;
                turn.complete().await
            }
            "wait" => {
                turn.cancelled().await;
                self.report(Received::Canceled)
            }
            _ => turn.artifact("answer").parts(turn.message().parts.clone()).await,
        }
    }

    fn restartable(&self) -> bool {
        true
    }
}

pub(crate) fn remote_card() -> AgentCard {
    AgentCard::new("Remote", "Does things")
        .version("0.7")
        .documentation("https://remote.example/docs")
        .skill(AgentSkill::new("cook", "Cook"))
        .input_modes(["*/*"])
        .output_modes(["*/*"])
}

pub(crate) fn new_store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// Starts the remote agent.
pub(crate) async fn start_remote(script: Script) -> TestServer {
    start_remote_with(script, remote_card(), new_store(), "127.0.0.1:0".to_owned()).await
}

pub(crate) async fn start_remote_with(
    script: Script,
    card: AgentCard,
    store: Arc<dyn Store>,
    address: String,
) -> TestServer {
    TestServer::start(move || async move {
        Server::new(script)
            .card(card)
            .shared_store(store)
            .push(false)
            .service_options(|options| options.lease = SHORT_LEASE)
            .bind(address)
    })
    .await
}

/// The options of a gateway that notices outages soon.
pub(crate) fn quick_options(url: &str, store: Arc<dyn Store>) -> GatewayOptions {
    GatewayOptions::new(url, store).with(|options| {
        let pause = Duration::from_millis(10);
        options.client.backoff = Backoff::default().attempts(2).first(pause).longest(pause);
        options.client.pace = Pace::default().first(pause).longest(pause);
    })
}

/// Starts a gateway. It is connected within the runtime of its server.
pub(crate) async fn start_gateway(options: GatewayOptions) -> TestServer {
    start_gateway_with(options, |server| server).await
}

/// Starts a gateway on a server that is configured.
pub(crate) async fn start_gateway_with(
    options: GatewayOptions,
    configure: impl FnOnce(Server<Gateway>) -> Server<Gateway> + Send + 'static,
) -> TestServer {
    TestServer::start(move || async move {
        let store = options.store.clone();
        let gateway = Gateway::connect(options).await.unwrap();
        let (card, cards) = (gateway.card(), gateway.cards());
        let server = Server::new(gateway)
            .card(card)
            .card_updates(cards)
            .shared_store(store)
            .service_options(|options| options.lease = SHORT_LEASE)
            .bind("127.0.0.1:0");
        configure(server)
    })
    .await
}

/// A remote agent, a gateway in front of it, and a client of the gateway.
pub(crate) struct Chain {
    pub(crate) client: Client,
    pub(crate) reports: Reports,
    pub(crate) script: Script,
    pub(crate) gateway: TestServer,
    pub(crate) _remote: TestServer,
}

pub(crate) async fn chain() -> Chain {
    chain_with(remote_card(), |_| {}).await
}

pub(crate) async fn chain_with(card: AgentCard, change: impl FnOnce(&mut GatewayOptions)) -> Chain {
    let (script, reports) = Script::new();
    let remote = start_remote_with(script.clone(), card, new_store(), "127.0.0.1:0".to_owned()).await;
    let gateway = start_gateway(quick_options(&remote.url(), new_store()).with(change)).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    Chain { client, reports, script, gateway, _remote: remote }
}

/// Sends a message, and returns the task that it ends with.
pub(crate) async fn send(client: &Client, message: impl Into<Outgoing>) -> Task {
    match in_time(client.send(message)).await.unwrap() {
        Reply::Task(task) => task,
        Reply::Message(message) => panic!("not a task: {message:?}"),
    }
}

/// All events of a stream.
pub(crate) async fn stream(client: &Client, message: impl Into<Outgoing>) -> Vec<StreamResponse> {
    let mut events = in_time(client.stream(message)).await.unwrap();
    let mut all = Vec::new();
    while let Some(event) = in_time(events.next()).await {
        all.push(event.unwrap());
    }
    all
}

/// Waits until a task has this state.
pub(crate) async fn reaches(client: &Client, task: &Task, state: TaskState) -> Task {
    in_time(client.wait_until(task.id.clone(), |task| task.status.state == state)).await.unwrap()
}

/// The text of the status message.
pub(crate) fn words(task: &Task) -> String {
    task.status.message.as_ref().map(|message| message.text()).unwrap_or_default()
}

/// The texts of the parts of an artifact.
pub(crate) fn texts(task: &Task, artifact: &str) -> Vec<String> {
    let artifact = task.artifact(artifact).unwrap_or_else(|| panic!("no `{artifact}` in {task:?}"));
    artifact.parts.iter().filter_map(Part::as_text).map(str::to_owned).collect()
}

/// A message that the gateway answers with the task at once.
pub(crate) fn immediately(text: &str) -> Outgoing {
    Outgoing::new(text).return_immediately()
}
