//! Builders for tests: a host for an agent, clients, and messages.
//!
//! Every wait has a timeout in virtual time, so that a missing event fails the test instead of hanging it.

mod agents;
mod events;
pub(crate) mod model;
mod slow_store;

use std::sync::Arc;
use std::time::Duration;

use attache_core::{
    Agent, Caller, ManualClock, MemoryStore, Options, Owner, Principal, Reply, Seq, Service, Snapshot, Store,
    View,
};
use attache_protocol::{
    AgentCard, CancelTaskRequest, ContextId, Error, GetTaskRequest, JsonObject, ListTasksRequest,
    ListTasksResponse, Message, Part, Request, SendMessageConfiguration, SendMessageRequest,
    SubscribeToTaskRequest, Task, TaskId, TaskPushNotificationConfig, Timestamp,
};

pub(crate) use agents::{Latch, Script, Step, scripts, step};
use events::events;
pub(crate) use events::{Event, Events, states};
pub(crate) use slow_store::SlowStore;

/// When the clock of a [`Host`] starts: some day in 2026.
pub(crate) const CLOCK_START: i64 = 1_767_300_000_000;

/// A service with its store and clock.
pub(crate) struct Host {
    pub(crate) service: Service,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<ManualClock>,
}

/// Hosts an agent with all capabilities and a store in memory.
pub(crate) fn host(agent: impl Agent) -> Host {
    host_with(agent, |_, _| {})
}

/// Hosts an agent whose card and options are changed first.
pub(crate) fn host_with(agent: impl Agent, change: impl FnOnce(&mut AgentCard, &mut Options)) -> Host {
    host_on(Arc::new(MemoryStore::new()), agent, change)
}

/// Hosts an agent with a store of the test's choice.
pub(crate) fn host_on(
    store: Arc<dyn Store>,
    agent: impl Agent,
    change: impl FnOnce(&mut AgentCard, &mut Options),
) -> Host {
    let mut card = AgentCard::new("Tester", "Does what the test says");
    card.capabilities.streaming = Some(true);
    card.capabilities.push_notifications = Some(true);
    card.capabilities.extended_agent_card = Some(true);
    let mut options = Options::default();
    change(&mut card, &mut options);
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(CLOCK_START)));
    let service = Service::with_clock(agent, store.clone(), card, options, clock.clone());
    Host { service, store, clock }
}

impl Host {
    /// An anonymous client.
    pub(crate) fn client(&self) -> Client {
        Client { service: self.service.clone(), caller: Caller::default() }
    }

    /// A client with a name.
    pub(crate) fn user(&self, name: &str) -> Client {
        let mut client = self.client();
        client.caller.owner = Owner { principal: Principal::named(name), ..Owner::default() };
        client
    }

    /// Sets the clock to so many milliseconds after it started.
    pub(crate) fn clock_at(&self, millis: i64) {
        self.clock.set(Timestamp::from_millis(CLOCK_START + millis));
    }

    /// Waits until no turn runs.
    pub(crate) async fn idle(&self) {
        soon(async {
            while self.service.running_turns() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

/// Fails the test if the future takes longer than any operation may.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(600), future).await.expect("an answer in time")
}

/// Lets other tasks run as far as they can without the time moving.
pub(crate) async fn settle_down() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Runs a future in virtual time.
pub(crate) fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime").block_on(future)
}

/// One caller.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) service: Service,
    pub(crate) caller: Caller,
}

/// The result of a send.
#[derive(Debug, PartialEq)]
pub(crate) enum SendResult {
    Task(Task),
    Message(Message),
}

impl SendResult {
    pub(crate) fn task(self) -> Task {
        match self {
            Self::Task(task) => task,
            Self::Message(message) => panic!("expected a task, got the message {message:?}"),
        }
    }

    pub(crate) fn message(self) -> Message {
        match self {
            Self::Message(message) => message,
            Self::Task(task) => panic!("expected a message, got the task {task:?}"),
        }
    }
}

impl Client {
    pub(crate) fn in_tenant(mut self, tenant: &str) -> Self {
        self.caller.owner.tenant = Some(tenant.into());
        self
    }

    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.caller.idempotency_key = Some(key.to_owned());
        self
    }

    /// A caller over a transport that may deliver a message again.
    pub(crate) fn with_delivery_key(mut self, key: &str) -> Self {
        self.caller.delivery_key = Some(key.to_owned());
        self
    }

    pub(crate) fn with_generations(mut self) -> Self {
        self.caller.generations = true;
        self
    }

    pub(crate) async fn call(&self, request: Request) -> Result<Reply, Error> {
        soon(self.service.call(self.caller.clone(), request, None)).await
    }

    pub(crate) async fn try_send(&self, say: Say) -> Result<SendResult, Error> {
        let reply = self.call(Request::SendMessage(Box::new(say.0))).await?;
        if let Reply::Message(message) = reply {
            return Ok(SendResult::Message(*message));
        }
        let Reply::Sent(snapshot, view) = reply else {
            panic!("a send is answered with a task or a message")
        };
        Ok(SendResult::Task(shown(&snapshot, view)))
    }

    /// Sends and expects a task.
    pub(crate) async fn send(&self, say: Say) -> Task {
        self.try_send(say).await.expect("a task").task()
    }

    /// Sends from a spawned task.
    pub(crate) fn send_meanwhile(&self, say: Say) -> tokio::task::JoinHandle<Task> {
        let client = self.clone();
        tokio::spawn(async move { client.send(say).await })
    }

    pub(crate) async fn try_stream(&self, say: Say) -> Result<Events, Error> {
        events(self.call(Request::SendStreamingMessage(Box::new(say.0))).await?)
    }

    pub(crate) async fn stream(&self, say: Say) -> Events {
        self.try_stream(say).await.expect("a stream")
    }

    pub(crate) async fn try_get(&self, request: GetTaskRequest) -> Result<Task, Error> {
        let reply = self.call(Request::GetTask(request)).await?;
        let Reply::Task(snapshot, view) = reply else { panic!("a read is answered with a task") };
        Ok(shown(&snapshot, view))
    }

    pub(crate) async fn get(&self, id: &TaskId) -> Task {
        self.try_get(GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() }).await.expect("a task")
    }

    pub(crate) async fn cancel(&self, id: &TaskId) -> Result<Task, Error> {
        let request = CancelTaskRequest { id: id.clone(), ..CancelTaskRequest::default() };
        let reply = self.call(Request::CancelTask(request)).await?;
        let Reply::Task(snapshot, view) = reply else { panic!("a cancel is answered with a task") };
        Ok(shown(&snapshot, view))
    }

    pub(crate) async fn list(&self, request: ListTasksRequest) -> Result<ListTasksResponse, Error> {
        let reply = self.call(Request::ListTasks(request)).await?;
        let Reply::Tasks(page) = reply else { panic!("a listing is answered with a page") };
        Ok(ListTasksResponse {
            tasks: page.tasks.iter().map(|snapshot| shown(snapshot, page.view)).collect(),
            next_page_token: page.next_page_token,
            page_size: page.page_size,
            total_size: page.total_size,
        })
    }

    pub(crate) async fn list_all(&self) -> Vec<Task> {
        self.list(ListTasksRequest::default()).await.expect("a page").tasks
    }

    pub(crate) async fn try_subscribe(&self, id: &TaskId, resume: Option<u64>) -> Result<Events, Error> {
        let request = SubscribeToTaskRequest { id: id.clone(), ..SubscribeToTaskRequest::default() };
        let call = self.service.call(self.caller.clone(), Request::SubscribeToTask(request), resume.map(Seq));
        events(soon(call).await?)
    }

    pub(crate) async fn subscribe(&self, id: &TaskId) -> Events {
        self.try_subscribe(id, None).await.expect("a stream")
    }

    pub(crate) async fn put_push(
        &self,
        config: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig, Error> {
        let reply = self.call(Request::CreateTaskPushNotificationConfig(config)).await?;
        let Reply::Push(config) = reply else { panic!("a webhook is answered with itself") };
        Ok(*config)
    }
}

/// A task as the client sees it. Checks that its value and its JSON are the same.
fn shown(snapshot: &Snapshot, view: View) -> Task {
    let (task, mut json) = (snapshot.viewed(view).into_owned(), Vec::new());
    snapshot.write(view, &mut json);
    same_json(&task, &json);
    task
}

fn same_json(value: &impl serde::Serialize, json: &[u8]) {
    let written: serde_json::Value = serde_json::from_slice(json).expect("JSON");
    assert_eq!(serde_json::to_value(value).expect("JSON"), written);
}

/// Builds a request to send a message.
#[derive(Clone)]
pub(crate) struct Say(pub(crate) SendMessageRequest);

pub(crate) fn say(text: &str) -> Say {
    say_part(Part::text(text))
}

pub(crate) fn say_part(part: Part) -> Say {
    Say(SendMessageRequest { message: Message::user("m", part), ..SendMessageRequest::default() })
}

impl Say {
    /// Continues a task.
    pub(crate) fn to(mut self, task: &Task) -> Self {
        self.0.message.task_id = Some(task.id.clone());
        self
    }

    pub(crate) fn in_context(mut self, context: &str) -> Self {
        self.0.message.context_id = Some(ContextId::from(context));
        self
    }

    pub(crate) fn with_id(mut self, id: &str) -> Self {
        self.0.message.message_id = id.to_owned();
        self
    }

    pub(crate) fn with_metadata(mut self, key: &str, value: impl serde::Serialize) -> Self {
        let object = std::collections::BTreeMap::from([(key, value)]);
        self.0.metadata = Some(JsonObject::new(&object).expect("an object"));
        self
    }

    pub(crate) fn configured(mut self, change: impl FnOnce(&mut SendMessageConfiguration)) -> Self {
        change(self.0.configuration.get_or_insert_default());
        self
    }

    /// Returns immediately, without waiting for the result.
    pub(crate) fn at_once(self) -> Self {
        self.configured(|configuration| configuration.return_immediately = true)
    }
}

/// The texts of the history of a task.
pub(crate) fn history(task: &Task) -> Vec<String> {
    task.history.iter().map(Message::text).collect()
}

/// The text of the status message of a task.
pub(crate) fn status_text(task: &Task) -> String {
    task.status.message.as_ref().map(|message| message.text()).unwrap_or_default()
}

/// An error as a client sees it, byte for byte.
pub(crate) fn on_the_wire(error: &Error) -> String {
    serde_json::to_string(&error.to_jsonrpc()).expect("JSON")
}
