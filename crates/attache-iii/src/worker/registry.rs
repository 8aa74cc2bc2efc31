//! What a worker has registered, to be said again to each engine it joins.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use serde_json::Value;
use tokio::sync::watch;
use uuid::Uuid;

use super::Inner;
use super::handlers::Handler;
use crate::wire::{
    Message, Named, RegisterFunction, RegisterTrigger, RegistrationRejected, TriggerRegistrationResult,
    UnregisterTrigger,
};

/// Why an engine said no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which kind of no, such as `FUNCTION_NAMESPACE_CONFLICT`.
    pub code: String,
    /// What there is to say about it.
    pub message: String,
}

/// A function or a trigger that a worker has registered. Dropping this does not unregister it.
#[derive(Debug)]
pub struct Registration {
    worker: Weak<Inner>,
    kind: Kind,
    id: String,
    refusal: watch::Receiver<Option<Refusal>>,
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

    /// Whether the engine said no, and why. Silence means yes.
    pub fn refusal(&self) -> watch::Receiver<Option<Refusal>> {
        self.refusal.clone()
    }

    /// Takes it back.
    pub fn unregister(self) {
        if let Some(worker) = self.worker.upgrade() {
            worker.unregister(&self);
        }
    }
}

/// What is registered.
#[derive(Default)]
pub(super) struct Registry {
    functions: BTreeMap<String, Function>,
    triggers: BTreeMap<String, Trigger>,
}

struct Function {
    said: RegisterFunction,
    handler: Handler,
    refusal: watch::Sender<Option<Refusal>>,
}

struct Trigger {
    said: RegisterTrigger,
    refusal: watch::Sender<Option<Refusal>>,
}

impl Registry {
    /// How many functions there are.
    pub(super) fn functions(&self) -> usize {
        self.functions.len()
    }

    /// What runs a function.
    pub(super) fn handler(&self, id: &str) -> Option<Handler> {
        self.functions.get(id).map(|function| function.handler.clone())
    }

    /// Everything, in the order in which an engine wants it. No engine has said no to it yet.
    pub(super) fn everything(&self) -> Vec<String> {
        let functions = self.functions.values().map(|function| {
            forgive(&function.refusal);
            Message::RegisterFunction(function.said.clone()).write()
        });
        let triggers = self.triggers.values().map(|trigger| {
            forgive(&trigger.refusal);
            Message::RegisterTrigger(trigger.said.clone()).write()
        });
        functions.chain(triggers).collect()
    }

    /// The opposite of everything.
    pub(super) fn nothing(&self) -> Vec<String> {
        let triggers = self.triggers.values().map(|trigger| leave_trigger(&trigger.said));
        let functions = self.functions.keys().map(|id| leave_function(id));
        triggers.chain(functions).collect()
    }
}

impl Inner {
    pub(super) fn register(self: &Arc<Self>, said: RegisterFunction, handler: Handler) -> Registration {
        let (refusal, refused) = watch::channel(None);
        let id = said.id.clone();
        // Held until it is said, so that it is neither forgotten nor out of order when a connection comes at this moment.
        let mut registry = self.registry.lock();
        self.note(Message::RegisterFunction(said.clone()).write());
        registry.functions.insert(id.clone(), Function { said, handler, refusal });
        drop(registry);
        Registration { worker: Arc::downgrade(self), kind: Kind::Function, id, refusal: refused }
    }

    pub(super) fn register_trigger(
        self: &Arc<Self>,
        trigger_type: String,
        function_id: String,
        config: Value,
    ) -> Registration {
        let (refusal, refused) = watch::channel(None);
        let id = Uuid::new_v4().to_string();
        let said = RegisterTrigger { id: id.clone(), trigger_type, function_id, config, metadata: None };
        let mut registry = self.registry.lock();
        self.note(Message::RegisterTrigger(said.clone()).write());
        registry.triggers.insert(id.clone(), Trigger { said, refusal });
        drop(registry);
        Registration { worker: Arc::downgrade(self), kind: Kind::Trigger, id, refusal: refused }
    }

    fn unregister(&self, gone: &Registration) {
        let mut registry = self.registry.lock();
        match gone.kind {
            Kind::Function => {
                let same = |function: &Function| function.refusal.subscribe().same_channel(&gone.refusal);
                // It may have been registered anew since.
                if registry.functions.get(&gone.id).is_some_and(same) {
                    registry.functions.remove(&gone.id);
                    self.note(leave_function(&gone.id));
                }
            }
            Kind::Trigger => {
                if let Some(trigger) = registry.triggers.remove(&gone.id) {
                    self.note(leave_trigger(&trigger.said));
                }
            }
        }
    }

    /// The engine does not take a function.
    pub(super) fn function_refused(&self, id: &str, rejected: &RegistrationRejected) {
        let registry = self.registry.lock();
        let Some(function) = registry.functions.get(id) else { return };
        let code = rejected.code.clone();
        let message = match (&rejected.message, &rejected.owner_worker_id) {
            (Some(message), _) => message.clone(),
            (None, Some(owner)) => format!("the worker `{owner}` has it already"),
            (None, None) => "the engine does not take it".to_owned(),
        };
        tracing::warn!(function = id, code, message, "a function was refused by the engine");
        function.refusal.send_replace(Some(Refusal { code, message }));
    }

    /// The engine says what became of a trigger.
    pub(super) fn trigger_result(&self, result: TriggerRegistrationResult) {
        let registry = self.registry.lock();
        let Some(trigger) = registry.triggers.get(&result.id) else { return };
        let Some(error) = result.error else { return forgive(&trigger.refusal) };
        let RegisterTrigger { trigger_type, function_id, .. } = &trigger.said;
        tracing::warn!(
            trigger_type,
            function = function_id,
            code = error.code,
            message = error.message,
            "a trigger was refused by the engine"
        );
        trigger.refusal.send_replace(Some(Refusal { code: error.code, message: error.message }));
    }

    /// Registers functions again that another worker had, now that a worker is gone.
    pub(super) fn claim_refused(&self) {
        let registry = self.registry.lock();
        for function in registry.functions.values() {
            if function.refusal.borrow().is_some() {
                forgive(&function.refusal);
                self.note(Message::RegisterFunction(function.said.clone()).write());
            }
        }
    }

    /// Says something about this worker, if there is anyone to hear it.
    fn note(&self, frame: String) {
        if let Some(line) = self.calls.line() {
            // A line that has just gone: the next one hears everything.
            let _ = line.notes.send(frame);
        }
    }
}

fn forgive(refusal: &watch::Sender<Option<Refusal>>) {
    refusal.send_if_modified(|refusal| refusal.take().is_some());
}

fn leave_function(id: &str) -> String {
    Message::UnregisterFunction(Named { id: id.to_owned() }).write()
}

fn leave_trigger(said: &RegisterTrigger) -> String {
    let (id, trigger_type) = (said.id.clone(), Some(said.trigger_type.clone()));
    Message::UnregisterTrigger(UnregisterTrigger { id, trigger_type }).write()
}
