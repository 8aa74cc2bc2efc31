//! Triggers: which function wants to be called when what happens.
//!
//! Some kinds of triggers are the engine's own; others are a worker's, which is told about the triggers and calls the functions
//! itself. A trigger of a kind that nobody provides waits for someone who does.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Shared;
use super::http::routes::Target;
use super::worker::Worker;
use crate::wire::{
    ErrorBody, Message, Observe, ObserveResult, ObserverStateChanged, RegisterTrigger, RegisterTriggerType,
    TriggerRegistrationResult, UnregisterTrigger,
};

pub(super) const HTTP: &str = "http";
pub(super) const STATE: &str = "state";
pub(super) const FUNCTIONS_AVAILABLE: &str = "engine::functions-available";
pub(super) const WORKERS_AVAILABLE: &str = "engine::workers-available";

/// The kinds that are the engine's own, and what they are about.
pub(super) const OWN_KINDS: [(&str, &str); 4] = [
    (HTTP, "Calls a function for HTTP requests to a path"),
    (STATE, "Calls a function when a value of the state changes"),
    (FUNCTIONS_AVAILABLE, "Calls a function when functions come or go"),
    (WORKERS_AVAILABLE, "Calls a function when workers come or go"),
];

/// A trigger that is taken.
pub(super) struct Trigger {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) function: String,
    pub(super) config: Value,
    /// JSON: what to tell the function with each call.
    pub(super) metadata: Option<Box<RawValue>>,
    /// The worker with which it goes; nobody, if it is to stay.
    pub(super) owner: Option<Arc<Worker>>,
    /// How often it has fired.
    pub(super) fires: AtomicU64,
    plan: Plan,
}

/// What makes a trigger fire.
enum Plan {
    Http(Target),
    State(StateFilter),
    FunctionsAvailable,
    WorkersAvailable,
    /// Whoever provides the kind knows.
    Provided,
}

/// Which changes of the state a trigger is about.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StateFilter {
    scope: Option<String>,
    key: Option<String>,
    pub(super) condition_function_id: Option<String>,
}

impl StateFilter {
    pub(super) fn matches(&self, scope: &str, key: &str) -> bool {
        self.scope.as_deref().is_none_or(|own| own == scope)
            && self.key.as_deref().is_none_or(|own| own == key)
    }
}

impl Trigger {
    pub(super) fn state_filter(&self) -> Option<&StateFilter> {
        match &self.plan {
            Plan::State(filter) => Some(filter),
            Plan::Http(_) | Plan::FunctionsAvailable | Plan::WorkersAvailable | Plan::Provided => None,
        }
    }

    pub(super) fn metadata(&self) -> Option<&str> {
        self.metadata.as_deref().map(RawValue::get)
    }

    fn belongs_to(&self, owner: Option<&Arc<Worker>>) -> bool {
        self.owner.as_ref().map(|worker| worker.id) == owner.map(|worker| worker.id)
    }

    fn registration(&self) -> String {
        let metadata = self.metadata().and_then(|text| serde_json::from_str(text).ok());
        Message::RegisterTrigger(RegisterTrigger {
            id: self.id.clone(),
            trigger_type: self.kind.clone(),
            function_id: self.function.clone(),
            config: self.config.clone(),
            metadata,
        })
        .write()
    }
}

/// A kind of trigger that a worker provides.
pub(super) struct Kind {
    pub(super) provider: Arc<Worker>,
    pub(super) description: Option<String>,
}

#[derive(Default)]
pub(super) struct Triggers {
    by_id: HashMap<String, Arc<Trigger>>,
    kinds: HashMap<String, Kind>,
    /// The triggers of the engine's own kinds that are asked for by what happens.
    state: Vec<Arc<Trigger>>,
    functions_available: Vec<Arc<Trigger>>,
    workers_available: Vec<Arc<Trigger>>,
}

impl Triggers {
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Trigger>> {
        self.by_id.values()
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = (&String, &Kind)> {
        self.kinds.iter()
    }

    pub(super) fn of_state(&self, scope: &str, key: &str) -> Vec<Arc<Trigger>> {
        let matching =
            |trigger: &&Arc<Trigger>| trigger.state_filter().is_some_and(|filter| filter.matches(scope, key));
        self.state.iter().filter(matching).cloned().collect()
    }

    pub(super) fn of_functions(&self) -> Vec<Arc<Trigger>> {
        self.functions_available.clone()
    }

    pub(super) fn of_workers(&self) -> Vec<Arc<Trigger>> {
        self.workers_available.clone()
    }

    fn list_of(&mut self, plan: &Plan) -> Option<&mut Vec<Arc<Trigger>>> {
        match plan {
            Plan::State(_) => Some(&mut self.state),
            Plan::FunctionsAvailable => Some(&mut self.functions_available),
            Plan::WorkersAvailable => Some(&mut self.workers_available),
            Plan::Http(_) | Plan::Provided => None,
        }
    }
}

/// A trigger as it is asked for.
pub(super) struct NewTrigger {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) function: String,
    pub(super) config: Value,
    pub(super) metadata: Option<Value>,
}

impl Shared {
    /// Takes a trigger, or says why not.
    pub(super) fn add_trigger(&self, owner: Option<&Arc<Worker>>, new: NewTrigger) -> Result<(), String> {
        let plan = match new.kind.as_str() {
            HTTP => Plan::Http(Target::read(&new)?),
            STATE => {
                let config = if new.config.is_null() { json!({}) } else { new.config.clone() };
                Plan::State(serde_json::from_value(config).map_err(|error| error.to_string())?)
            }
            FUNCTIONS_AVAILABLE => Plan::FunctionsAvailable,
            WORKERS_AVAILABLE => Plan::WorkersAvailable,
            _ => Plan::Provided,
        };
        let metadata = new.metadata.as_ref().and_then(|value| serde_json::value::to_raw_value(value).ok());
        let trigger = Arc::new(Trigger {
            id: new.id,
            kind: new.kind,
            function: new.function,
            config: new.config,
            metadata,
            owner: owner.cloned(),
            fires: AtomicU64::new(0),
            plan,
        });
        let mut triggers = self.triggers.lock();
        match triggers.by_id.get(&trigger.id) {
            Some(known) if !known.belongs_to(owner) => {
                return Err(format!("the trigger id `{}` is another worker's", trigger.id));
            }
            Some(known) => {
                let same = known.kind == trigger.kind
                    && known.function == trigger.function
                    && known.config == trigger.config;
                if same {
                    return Ok(());
                }
                let known = known.clone();
                self.drop_trigger(&mut triggers, &known);
            }
            None => {}
        }
        if let Some(worker) = owner {
            // Asked under the lock under which the worker's triggers are removed, so that none is left behind.
            if worker.gone.is_cancelled() {
                return Ok(());
            }
            if worker.owned.lock().triggers.len() >= self.options.limits.triggers {
                return Err(format!("a worker has at most {} triggers", self.options.limits.triggers));
            }
        }
        if let Plan::Http(target) = &trigger.plan {
            self.routes.write().add(target, &trigger)?;
        }
        if let Some(worker) = owner {
            worker.owned.lock().triggers.insert(trigger.id.clone());
        }
        if let Some(list) = triggers.list_of(&trigger.plan) {
            list.push(trigger.clone());
        }
        if let Plan::Provided = trigger.plan {
            match triggers.kinds.get(&trigger.kind) {
                Some(kind) => kind.provider.send(trigger.registration()),
                None => tracing::info!(
                    trigger = trigger.id,
                    kind = trigger.kind,
                    "a trigger waits for someone who provides its kind"
                ),
            }
        }
        triggers.by_id.insert(trigger.id.clone(), trigger);
        Ok(())
    }

    /// Removes a trigger, if it is the owner's. How often it had fired.
    pub(super) fn remove_trigger(&self, owner: Option<&Arc<Worker>>, id: &str) -> Option<u64> {
        let mut triggers = self.triggers.lock();
        let trigger = triggers.by_id.get(id).filter(|trigger| trigger.belongs_to(owner)).cloned()?;
        self.drop_trigger(&mut triggers, &trigger);
        if let Some(worker) = owner {
            worker.owned.lock().triggers.remove(id);
        }
        Some(trigger.fires.load(Ordering::Relaxed))
    }

    fn drop_trigger(&self, triggers: &mut Triggers, trigger: &Arc<Trigger>) {
        triggers.by_id.remove(&trigger.id);
        if let Some(list) = triggers.list_of(&trigger.plan) {
            list.retain(|other| other.id != trigger.id);
        }
        match &trigger.plan {
            Plan::Http(target) => self.routes.write().remove(target, &trigger.id),
            Plan::Provided => {
                if let Some(kind) = triggers.kinds.get(&trigger.kind) {
                    let (id, kind_name) = (trigger.id.clone(), Some(trigger.kind.clone()));
                    let message = UnregisterTrigger { id, trigger_type: kind_name };
                    kind.provider.send(Message::UnregisterTrigger(message).write());
                }
            }
            Plan::State(_) | Plan::FunctionsAvailable | Plan::WorkersAvailable => {}
        }
    }

    /// Removes what a worker wanted and what it provided.
    pub(super) fn remove_triggers_of(&self, worker: &Arc<Worker>) {
        let mut triggers = self.triggers.lock();
        triggers.kinds.retain(|_, kind| kind.provider.id != worker.id);
        let owned = std::mem::take(&mut worker.owned.lock().triggers);
        for id in owned {
            if let Some(trigger) = triggers.by_id.get(&id).cloned() {
                self.drop_trigger(&mut triggers, &trigger);
            }
        }
    }

    /// What a worker asks for in the words up to 0.25. Nothing is said where it is taken.
    pub(super) fn register_trigger(&self, worker: &Arc<Worker>, message: RegisterTrigger) {
        let RegisterTrigger { id, trigger_type, function_id, config, metadata } = message;
        let (answer_id, kind, function) = (id.clone(), trigger_type.clone(), function_id.clone());
        let new = NewTrigger { id, kind: trigger_type, function: function_id, config, metadata };
        if let Err(text) = self.add_trigger(Some(worker), new) {
            tracing::warn!(worker = %worker.id, trigger = answer_id, kind, error = text, "a trigger is not taken");
            worker.send(refused(answer_id, kind, function, trigger_error(text)));
        }
    }

    /// What a worker asks for in the words of 0.26.
    pub(super) fn observe(&self, worker: &Arc<Worker>, message: Observe) {
        let Observe { id, source, target, metadata } = message;
        let taken = if source.function_id == "http::on-request" {
            let mut config = source.args;
            rename(&mut config, "path", "api_path");
            rename(&mut config, "method", "http_method");
            let (kind, function) = (HTTP.to_owned(), target.function_id);
            let new = NewTrigger { id: id.clone(), kind, function, config, metadata };
            self.add_trigger(Some(worker), new).map_err(trigger_error)
        } else {
            let text = format!("`{}` cannot be observed here: `http::on-request` can", source.function_id);
            Err(ErrorBody { code: "UNSUPPORTED".to_owned(), message: text, stacktrace: None })
        };
        let state = if taken.is_ok() { "active" } else { "error" };
        if let Err(error) = &taken {
            tracing::warn!(worker = %worker.id, observer = id, error = error.message, "an observer is not taken");
        }
        let answer = ObserveResult { id, state: state.to_owned(), error: taken.err() };
        worker.send(Message::ObserveResult(answer).write());
    }

    pub(super) fn unobserve(&self, worker: &Arc<Worker>, id: String) {
        let fires = self.remove_trigger(Some(worker), &id).unwrap_or(0);
        let message = ObserverStateChanged { id, state: "disposed".to_owned(), fires };
        worker.send(Message::ObserverStateChanged(message).write());
    }

    /// A worker provides a kind of trigger: it gets those that have waited.
    pub(super) fn provide_kind(&self, worker: &Arc<Worker>, message: RegisterTriggerType) {
        let RegisterTriggerType { id, description } = message;
        let mut triggers = self.triggers.lock();
        let taken = OWN_KINDS.iter().any(|(kind, _)| *kind == id)
            || triggers.kinds.get(&id).is_some_and(|kind| kind.provider.id != worker.id);
        if taken {
            tracing::warn!(worker = %worker.id, kind = id, "a kind of trigger is provided already");
            return;
        }
        if worker.gone.is_cancelled() {
            return;
        }
        let own = triggers.kinds.values().filter(|kind| kind.provider.id == worker.id).count();
        if own >= self.options.limits.trigger_types && !triggers.kinds.contains_key(&id) {
            tracing::warn!(worker = %worker.id, kind = id, "a worker provides too many kinds of triggers");
            return;
        }
        let kind = Kind { provider: worker.clone(), description };
        if triggers.kinds.insert(id.clone(), kind).is_some() {
            return;
        }
        for trigger in triggers.by_id.values().filter(|trigger| trigger.kind == id) {
            worker.send(trigger.registration());
        }
    }

    pub(super) fn withdraw_kind(&self, worker: &Worker, id: &str) {
        let mut triggers = self.triggers.lock();
        if triggers.kinds.get(id).is_some_and(|kind| kind.provider.id == worker.id) {
            triggers.kinds.remove(id);
        }
    }

    /// What the provider of a kind says about a trigger; whoever asked for it is told if it is a no.
    pub(super) fn provider_answered(&self, provider: &Worker, answer: TriggerRegistrationResult) {
        let Some(error) = answer.error else { return };
        let mut triggers = self.triggers.lock();
        let is_theirs =
            |kind: &str| triggers.kinds.get(kind).is_some_and(|kind| kind.provider.id == provider.id);
        let Some(trigger) = triggers.by_id.get(&answer.id).filter(|trigger| is_theirs(&trigger.kind)) else {
            return;
        };
        let trigger = trigger.clone();
        triggers.by_id.remove(&trigger.id);
        if let Some(owner) = &trigger.owner {
            owner.owned.lock().triggers.remove(&trigger.id);
            owner.send(refused(answer.id, trigger.kind.clone(), trigger.function.clone(), error));
        }
    }

    /// Tells those who want to know that a worker has come, gone, or said who it is.
    pub(super) fn worker_event(self: &Arc<Self>, event: &str, worker: &Worker) {
        let triggers = self.triggers.lock().of_workers();
        if triggers.is_empty() {
            return;
        }
        let data = json!({ "event": event, "worker_id": worker.name_of_id }).to_string();
        for trigger in triggers {
            trigger.fires.fetch_add(1, Ordering::Relaxed);
            self.fire(&trigger.function, &data, trigger.metadata());
        }
    }
}

fn rename(config: &mut Value, from: &str, to: &str) {
    if let Value::Object(members) = config
        && let Some(value) = members.remove(from)
    {
        members.insert(to.to_owned(), value);
    }
}

fn trigger_error(message: String) -> ErrorBody {
    ErrorBody { code: "trigger_registration_failed".to_owned(), message, stacktrace: None }
}

fn refused(id: String, trigger_type: String, function_id: String, error: ErrorBody) -> String {
    let answer = TriggerRegistrationResult { id, trigger_type, function_id, error: Some(error) };
    Message::TriggerRegistrationResult(answer).write()
}
