//! The registrations of a worker. They are sent to the engine again after each reconnect.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use uuid::Uuid;

use super::Inner;
use super::handlers::Handler;
use crate::wire::{
    IdOnly, Message, RegisterFunction, RegisterTrigger, RegistrationRejected, TriggerRegistrationResult,
    UnregisterTrigger,
};

/// How long to wait after a worker has disconnected, so that several of them cause one registration.
const SETTLE: Duration = Duration::from_millis(100);

/// Why an engine rejected something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The code, such as `FUNCTION_NAMESPACE_CONFLICT`.
    pub code: String,
    /// The description.
    pub message: String,
}

/// A registered function or trigger. Dropping this does not unregister it.
#[derive(Debug)]
pub struct Registration {
    worker: Weak<Inner>,
    kind: Kind,
    id: String,
    rejection: watch::Receiver<Option<Rejection>>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Function,
    Trigger,
}

impl Registration {
    /// The id of the function or trigger.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The engine's rejection, if there is one. Engines confirm nothing.
    pub fn rejection(&self) -> watch::Receiver<Option<Rejection>> {
        self.rejection.clone()
    }

    /// Unregisters it.
    pub fn unregister(self) {
        if let Some(worker) = self.worker.upgrade() {
            worker.unregister(&self);
        }
    }
}

/// All registrations of the worker.
#[derive(Default)]
pub(super) struct Registry {
    functions: BTreeMap<String, Function>,
    triggers: BTreeMap<String, Trigger>,
}

struct Function {
    message: RegisterFunction,
    handler: Handler,
    rejection: watch::Sender<Option<Rejection>>,
    /// The last rejection that was logged, so that it is not logged again with each attempt.
    logged: Mutex<Option<Rejection>>,
}

struct Trigger {
    message: RegisterTrigger,
    rejection: watch::Sender<Option<Rejection>>,
    /// As for functions.
    logged: Mutex<Option<Rejection>>,
}

impl Registry {
    /// The number of functions.
    pub(super) fn functions(&self) -> usize {
        self.functions.len()
    }

    /// The ids of the functions.
    pub(super) fn function_ids(&self) -> Vec<String> {
        self.functions.keys().cloned().collect()
    }

    /// The handler of a function.
    pub(super) fn handler(&self, id: &str) -> Option<Handler> {
        self.functions.get(id).map(|function| function.handler.clone())
    }

    /// The frames that register everything, in the order that engines need. Clears earlier rejections.
    pub(super) fn registrations(&self) -> Vec<String> {
        let functions = self.functions.values().map(|function| {
            clear_rejection(&function.rejection);
            Message::RegisterFunction(function.message.clone()).write()
        });
        let triggers = self.triggers.values().map(|trigger| {
            clear_rejection(&trigger.rejection);
            Message::RegisterTrigger(trigger.message.clone()).write()
        });
        functions.chain(triggers).collect()
    }

    /// The frames that unregister everything.
    pub(super) fn unregistrations(&self) -> Vec<String> {
        let triggers = self.triggers.values().map(|trigger| unregister_trigger(&trigger.message));
        let functions = self.functions.keys().map(|id| unregister_function(id));
        triggers.chain(functions).collect()
    }
}

impl Inner {
    pub(super) fn register(self: &Arc<Self>, message: RegisterFunction, handler: Handler) -> Registration {
        let (rejection, receiver) = watch::channel(None);
        let id = message.id.clone();
        // The lock is held until the frame is queued. Otherwise the frame could be lost, or sent out of order, if a connection is
        // established at this moment.
        let mut registry = self.registry.lock();
        self.send_control(Message::RegisterFunction(message.clone()).write());
        registry
            .functions
            .insert(id.clone(), Function { message, handler, rejection, logged: Mutex::default() });
        drop(registry);
        Registration { worker: Arc::downgrade(self), kind: Kind::Function, id, rejection: receiver }
    }

    pub(super) fn register_trigger(
        self: &Arc<Self>,
        trigger_type: String,
        function_id: String,
        config: Value,
    ) -> Registration {
        let (rejection, receiver) = watch::channel(None);
        let id = Uuid::new_v4().to_string();
        let message = RegisterTrigger { id: id.clone(), trigger_type, function_id, config, metadata: None };
        let mut registry = self.registry.lock();
        self.send_control(Message::RegisterTrigger(message.clone()).write());
        registry.triggers.insert(id.clone(), Trigger { message, rejection, logged: Mutex::default() });
        drop(registry);
        Registration { worker: Arc::downgrade(self), kind: Kind::Trigger, id, rejection: receiver }
    }

    fn unregister(&self, registration: &Registration) {
        let mut registry = self.registry.lock();
        match registration.kind {
            Kind::Function => {
                let same = |function: &Function| {
                    function.rejection.subscribe().same_channel(&registration.rejection)
                };
                // It may have been replaced since.
                if registry.functions.get(&registration.id).is_some_and(same) {
                    registry.functions.remove(&registration.id);
                    self.send_control(unregister_function(&registration.id));
                }
            }
            Kind::Trigger => {
                if let Some(trigger) = registry.triggers.remove(&registration.id) {
                    self.send_control(unregister_trigger(&trigger.message));
                }
            }
        }
    }

    /// Records that the engine rejected a function.
    pub(super) fn function_rejected(&self, id: &str, rejected: &RegistrationRejected) {
        let registry = self.registry.lock();
        let Some(function) = registry.functions.get(id) else { return };
        let code = rejected.code.clone();
        let message = match (&rejected.message, &rejected.owner_worker_id) {
            (Some(message), _) => message.clone(),
            (None, Some(owner)) => format!("the worker `{owner}` has registered it already"),
            (None, None) => "the engine rejected it".to_owned(),
        };
        let rejection = Rejection { code, message };
        if function.logged.lock().replace(rejection.clone()).as_ref() != Some(&rejection) {
            let Rejection { code, message } = &rejection;
            tracing::warn!(function = id, code, message, "the engine rejected a function");
        }
        function.rejection.send_replace(Some(rejection));
    }

    /// Records the result of a trigger's registration.
    pub(super) fn trigger_result(&self, result: TriggerRegistrationResult) {
        let registry = self.registry.lock();
        let Some(trigger) = registry.triggers.get(&result.id) else { return };
        let Some(error) = result.error else { return clear_rejection(&trigger.rejection) };
        let RegisterTrigger { trigger_type, function_id, .. } = &trigger.message;
        let rejection = Rejection { code: error.code, message: error.message };
        if trigger.logged.lock().replace(rejection.clone()).as_ref() != Some(&rejection) {
            let Rejection { code, message } = &rejection;
            tracing::warn!(
                trigger_type,
                function = function_id,
                code,
                message,
                "the engine rejected a trigger"
            );
        }
        trigger.rejection.send_replace(Some(rejection));
    }

    /// Registers everything again in a moment, because a worker has disconnected, or may have, or a function is missing.
    ///
    /// The engine may have removed registrations of this worker with those of the other one: engines before 0.23 remove routes by their
    /// path and functions by their id. Or it rejected functions that the other worker had. Registrations are idempotent.
    pub(super) fn register_again_soon(self: &Arc<Self>) {
        if self.registering_again.swap(true, Ordering::Relaxed) {
            return;
        }
        let inner = self.clone();
        self.runtime.spawn(async move {
            tokio::time::sleep(SETTLE).await;
            inner.registering_again.store(false, Ordering::Relaxed);
            let registry = inner.registry.lock();
            for frame in registry.registrations() {
                inner.send_control(frame);
            }
        });
    }

    /// Queues a frame about this worker, if it is connected.
    fn send_control(&self, frame: String) {
        if let Some(outgoing) = self.calls.outgoing() {
            // If this connection was just lost, the next one registers everything.
            let _ = outgoing.control.send(frame);
        }
    }
}

fn clear_rejection(rejection: &watch::Sender<Option<Rejection>>) {
    rejection.send_if_modified(|rejection| rejection.take().is_some());
}

fn unregister_function(id: &str) -> String {
    Message::UnregisterFunction(IdOnly { id: id.to_owned() }).write()
}

fn unregister_trigger(message: &RegisterTrigger) -> String {
    let (id, trigger_type) = (message.id.clone(), Some(message.trigger_type.clone()));
    Message::UnregisterTrigger(UnregisterTrigger { id, trigger_type }).write()
}
