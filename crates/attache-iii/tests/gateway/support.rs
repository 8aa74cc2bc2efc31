//! A fake engine, and a client of the gateway to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use attache_core::{BoxFuture, Caller, MemoryStore, Options, Reply, Service};
use attache_iii::wire::{ChannelRef, Direction};
use attache_iii::{
    CallError, Catalog, Channel, ChannelItem, FunctionCall, FunctionGatewayOptions, FunctionInfo, Functions,
    Gateway, Updates,
};
use attache_protocol::{
    CancelTaskRequest, Dialect, Error, Message, Part, Request, SendMessageRequest, Task, TaskId,
};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};

type Handler = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Value, CallError>> + Send + Sync>;

/// An engine without a socket.
pub(crate) struct FakeEngine {
    handlers: Mutex<HashMap<String, Handler>>,
    catalog: watch::Sender<Option<Arc<Catalog>>>,
    /// The calls with their payloads, in order.
    pub(crate) calls: Mutex<Vec<(String, Value)>>,
    pub(crate) called: Notify,
    channels: Mutex<Vec<mpsc::Sender<ChannelItem>>>,
}

impl FakeEngine {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            handlers: Mutex::default(),
            catalog: watch::channel(Some(Arc::default())).0,
            calls: Mutex::default(),
            called: Notify::new(),
            channels: Mutex::default(),
        })
    }

    /// Registers a function that returns a value.
    pub(crate) fn function(self: &Arc<Self>, id: &str, metadata: Value, answer: Value) {
        self.register(FunctionInfo { metadata: Some(metadata), ..FunctionInfo::new(id) }, move |_| {
            let answer = answer.clone();
            Box::pin(async move { Ok(answer) })
        });
    }

    pub(crate) fn register(
        &self,
        function: FunctionInfo,
        handler: impl Fn(Value) -> BoxFuture<'static, Result<Value, CallError>> + Send + Sync + 'static,
    ) {
        self.handlers.lock().insert(function.id.to_string(), Arc::new(handler));
        self.catalog.send_modify(|catalog| {
            let mut changed = catalog.as_deref().cloned().unwrap_or_default();
            changed.insert(function.id.clone(), Arc::new(function));
            *catalog = Some(Arc::new(changed));
        });
    }

    /// Makes the list of functions unavailable.
    pub(crate) fn lose_list(&self) {
        self.catalog.send_replace(None);
    }

    /// The writing end of the next channel that was opened.
    pub(crate) fn writer(&self) -> mpsc::Sender<ChannelItem> {
        self.channels.lock().pop().expect("a channel")
    }
}

impl Functions for FakeEngine {
    fn call<'a>(&'a self, call: FunctionCall<'a>) -> BoxFuture<'a, Result<Box<RawValue>, CallError>> {
        let payload: Value = serde_json::from_str(call.payload.get()).expect("a payload");
        self.calls.lock().push((call.function.to_owned(), payload.clone()));
        self.called.notify_waiters();
        let handler = self.handlers.lock().get(call.function).cloned();
        Box::pin(async move {
            let handler = handler.ok_or_else(|| CallError::remote("function_not_found", "not found"))?;
            let answer = tokio::time::timeout(call.timeout, handler(payload));
            let answer = answer.await.map_err(|_| CallError::TimedOut)??;
            Ok(serde_json::value::to_raw_value(&answer).expect("JSON"))
        })
    }

    fn open_channel(&self) -> BoxFuture<'_, Result<Channel, CallError>> {
        let (sender, items) = mpsc::channel(16);
        self.channels.lock().push(sender);
        let writer = ChannelRef {
            channel_id: "c1".to_owned(),
            access_key: "k".to_owned(),
            direction: Direction::Write,
        };
        Box::pin(async move { Ok(Channel { writer, items }) })
    }

    fn updates(&self) -> Updates {
        self.catalog.subscribe()
    }
}

/// A client of a gateway to an engine.
pub(crate) struct Client {
    pub(crate) service: Service,
    pub(crate) gateway: Gateway,
}

impl Client {
    pub(crate) fn new(engine: &Arc<FakeEngine>) -> Self {
        Self::with(engine, |_| {})
    }

    pub(crate) fn with(engine: &Arc<FakeEngine>, change: impl FnOnce(&mut FunctionGatewayOptions)) -> Self {
        let mut options = FunctionGatewayOptions::default();
        change(&mut options);
        let gateway = Gateway::new(engine.clone(), options);
        let service =
            Service::new(gateway.clone(), Arc::new(MemoryStore::new()), gateway.card(), Options::default());
        Self { service, gateway }
    }

    /// Sends a message in the dialect of 1.0.
    pub(crate) async fn send(&self, part: Part) -> Task {
        self.send_as(Caller::default(), Message::user("m", part)).await.expect("a task")
    }

    pub(crate) async fn send_as(&self, caller: Caller, message: Message) -> Result<Task, Error> {
        let request = SendMessageRequest { message, ..SendMessageRequest::default() };
        let reply = self.service.call(caller, Request::SendMessage(Box::new(request)), None).await?;
        let Reply::Sent(snapshot, view) = reply else { panic!("expected a task") };
        Ok(snapshot.viewed(view).into_owned())
    }

    pub(crate) async fn cancel(&self, id: TaskId) -> Result<Task, Error> {
        let request = CancelTaskRequest { id, ..CancelTaskRequest::default() };
        let reply = self.service.call(Caller::default(), Request::CancelTask(request), None).await?;
        let Reply::Task(snapshot, view) = reply else { panic!("expected a task") };
        Ok(snapshot.viewed(view).into_owned())
    }

    /// The stored tasks.
    pub(crate) async fn tasks(&self) -> Vec<Task> {
        match self.service.call(Caller::default(), Request::ListTasks(Default::default()), None).await {
            Ok(Reply::Tasks(page)) => {
                page.tasks.iter().map(|task| task.viewed(page.view).into_owned()).collect()
            }
            _ => panic!("expected tasks"),
        }
    }
}

/// A caller that uses the dialect of iii.
pub(crate) fn old_caller() -> Caller {
    Caller { dialect: Some(Dialect::Iii), ..Caller::default() }
}

/// A data part that calls a function.
pub(crate) fn call(id: &str, payload: Value) -> Part {
    Part::data(&json!({"function_id": id, "payload": payload})).expect("JSON")
}

/// The text of a task's status message.
pub(crate) fn status_text(task: &Task) -> String {
    task.status.message.as_ref().map(|message| message.text()).unwrap_or_default()
}

pub(crate) fn exposed() -> Value {
    json!({"a2a.expose": true})
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
