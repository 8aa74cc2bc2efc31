//! Triggers: functions that are called on events.
//!
//! The engine implements some types of triggers. Workers provide the others: the providing worker gets the triggers of its type
//! and calls the functions itself. A trigger whose type has no provider waits until a worker provides it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Shared;
use super::http::routes::HttpTriggerConfig;
use super::worker::Worker;
use crate::wire::{
    ErrorBody, Message, Observe, ObserveResult, ObserverStateChanged, RegisterTrigger, RegisterTriggerType,
    TriggerRegistrationResult, UnregisterTrigger,
};

pub(super) const HTTP: &str = "http";
pub(super) const STATE: &str = "state";
pub(super) const FUNCTIONS_AVAILABLE: &str = "engine::functions-available";
pub(super) const WORKERS_AVAILABLE: &str = "engine::workers-available";

/// The types that the engine implements, with their descriptions.
pub(super) const BUILTIN_TYPES: [(&str, &str); 4] = [
    (HTTP, "Calls a function for HTTP requests to a path"),
    (STATE, "Calls a function when a value of the state changes"),
    (FUNCTIONS_AVAILABLE, "Calls a function when functions come or go"),
    (WORKERS_AVAILABLE, "Calls a function when workers come or go"),
];

/// A registered trigger.
pub(super) struct Trigger {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) function: String,
    pub(super) config: Value,
    /// JSON: metadata that the function gets with each call.
    pub(super) metadata: Option<Box<RawValue>>,
    /// The worker that registered it. The trigger is removed with the worker. `None` if it is permanent.
    pub(super) owner: Option<Arc<Worker>>,
    /// How often it has fired.
    pub(super) fires: AtomicU64,
    source: TriggerSource,
}

/// What fires a trigger.
enum TriggerSource {
    Http(Arc<HttpTriggerConfig>),
    State(StateFilter),
    FunctionsAvailable,
    WorkersAvailable,
    /// The worker that provides the type fires it.
    Provided,
}

/// The changes of the state that fire a trigger.
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
        match &self.source {
            TriggerSource::State(filter) => Some(filter),
            TriggerSource::Http(_)
            | TriggerSource::FunctionsAvailable
            | TriggerSource::WorkersAvailable
            | TriggerSource::Provided => None,
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

/// A type of trigger that a worker provides.
pub(super) struct TriggerType {
    pub(super) provider: Arc<Worker>,
    pub(super) description: Option<String>,
}

#[derive(Default)]
pub(super) struct Triggers {
    by_id: HashMap<String, Arc<Trigger>>,
    types: HashMap<String, TriggerType>,
    /// The triggers of the engine's own types, by event.
    state: Vec<Arc<Trigger>>,
    functions_available: Vec<Arc<Trigger>>,
    workers_available: Vec<Arc<Trigger>>,
}

impl Triggers {
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Trigger>> {
        self.by_id.values()
    }

    pub(super) fn types(&self) -> impl Iterator<Item = (&String, &TriggerType)> {
        self.types.iter()
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

    fn list_of(&mut self, source: &TriggerSource) -> Option<&mut Vec<Arc<Trigger>>> {
        match source {
            TriggerSource::State(_) => Some(&mut self.state),
            TriggerSource::FunctionsAvailable => Some(&mut self.functions_available),
            TriggerSource::WorkersAvailable => Some(&mut self.workers_available),
            TriggerSource::Http(_) | TriggerSource::Provided => None,
        }
    }
}

/// A trigger that is to be registered.
pub(super) struct NewTrigger {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) function: String,
    pub(super) config: Value,
    pub(super) metadata: Option<Value>,
}

impl Shared {
    /// Registers a trigger. Returns the reason if it is rejected.
    pub(super) fn add_trigger(&self, owner: Option<&Arc<Worker>>, new: NewTrigger) -> Result<(), String> {
        let source = match new.kind.as_str() {
            HTTP => TriggerSource::Http(Arc::new(HttpTriggerConfig::read(&new)?)),
            STATE => {
                let config = if new.config.is_null() { json!({}) } else { new.config.clone() };
                TriggerSource::State(serde_json::from_value(config).map_err(|error| error.to_string())?)
            }
            FUNCTIONS_AVAILABLE => TriggerSource::FunctionsAvailable,
            WORKERS_AVAILABLE => TriggerSource::WorkersAvailable,
            _ => TriggerSource::Provided,
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
            source,
        });
        let mut triggers = self.triggers.lock();
        match triggers.by_id.get(&trigger.id) {
            Some(known) if !known.belongs_to(owner) => {
                return Err(format!("the trigger id `{}` belongs to another worker", trigger.id));
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
            // Checked under the lock that also guards the removal of a worker's triggers. So no trigger stays behind.
            if worker.gone.is_cancelled() {
                return Ok(());
            }
            if worker.owned.lock().triggers.len() >= self.options.limits.triggers {
                return Err(format!("a worker may have at most {} triggers", self.options.limits.triggers));
            }
        }
        if let TriggerSource::Http(config) = &trigger.source {
            self.routes.write().add(config, &trigger)?;
        }
        if let Some(worker) = owner {
            worker.owned.lock().triggers.insert(trigger.id.clone());
        }
        if let Some(list) = triggers.list_of(&trigger.source) {
            list.push(trigger.clone());
        }
        if let TriggerSource::Provided = trigger.source {
            match triggers.types.get(&trigger.kind) {
                Some(kind) => kind.provider.send(trigger.registration()),
                None => tracing::info!(
                    trigger = trigger.id,
                    kind = trigger.kind,
                    "a trigger waits for a worker that provides its type"
                ),
            }
        }
        triggers.by_id.insert(trigger.id.clone(), trigger);
        Ok(())
    }

    /// Removes a trigger, if `owner` owns it. Returns how often it fired.
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
        if let Some(list) = triggers.list_of(&trigger.source) {
            list.retain(|other| other.id != trigger.id);
        }
        match &trigger.source {
            TriggerSource::Http(config) => self.routes.write().remove(config, &trigger.id),
            TriggerSource::Provided => {
                if let Some(kind) = triggers.types.get(&trigger.kind) {
                    let (id, kind_name) = (trigger.id.clone(), Some(trigger.kind.clone()));
                    let message = UnregisterTrigger { id, trigger_type: kind_name };
                    kind.provider.send(Message::UnregisterTrigger(message).write());
                }
            }
            TriggerSource::State(_) | TriggerSource::FunctionsAvailable | TriggerSource::WorkersAvailable => {
            }
        }
    }

    /// Removes the triggers of a worker, and the types that it provided.
    pub(super) fn remove_triggers_of(&self, worker: &Arc<Worker>) {
        let mut triggers = self.triggers.lock();
        triggers.types.retain(|_, kind| kind.provider.id != worker.id);
        let owned = std::mem::take(&mut worker.owned.lock().triggers);
        for id in owned {
            if let Some(trigger) = triggers.by_id.get(&id).cloned() {
                self.drop_trigger(&mut triggers, &trigger);
            }
        }
    }

    /// Handles the registration of a trigger up to 0.25. A response is sent only if the trigger is rejected.
    pub(super) fn register_trigger(&self, worker: &Arc<Worker>, message: RegisterTrigger) {
        let RegisterTrigger { id, trigger_type, function_id, config, metadata } = message;
        let (answer_id, kind, function) = (id.clone(), trigger_type.clone(), function_id.clone());
        let new = NewTrigger { id, kind: trigger_type, function: function_id, config, metadata };
        if let Err(text) = self.add_trigger(Some(worker), new) {
            tracing::warn!(worker = %worker.id, trigger = answer_id, kind, error = text, "a trigger was rejected");
            worker.send(rejection(answer_id, kind, function, trigger_error(text)));
        }
    }

    /// Handles the registration of an observer, since 0.26.
    pub(super) fn observe(&self, worker: &Arc<Worker>, message: Observe) {
        let Observe { id, source, target, metadata } = message;
        let registered = if source.function_id == "http::on-request" {
            let mut config = source.args;
            rename(&mut config, "path", "api_path");
            rename(&mut config, "method", "http_method");
            let (kind, function) = (HTTP.to_owned(), target.function_id);
            let new = NewTrigger { id: id.clone(), kind, function, config, metadata };
            self.add_trigger(Some(worker), new).map_err(trigger_error)
        } else {
            let text =
                format!("`{}` cannot be observed here: only `http::on-request` can", source.function_id);
            Err(ErrorBody { code: "UNSUPPORTED".to_owned(), message: text, stacktrace: None })
        };
        let state = if registered.is_ok() { "active" } else { "error" };
        if let Err(error) = &registered {
            tracing::warn!(worker = %worker.id, observer = id, error = error.message, "an observer was rejected");
        }
        let answer = ObserveResult { id, state: state.to_owned(), error: registered.err() };
        worker.send(Message::ObserveResult(answer).write());
    }

    pub(super) fn unobserve(&self, worker: &Arc<Worker>, id: String) {
        let fires = self.remove_trigger(Some(worker), &id).unwrap_or(0);
        let message = ObserverStateChanged { id, state: "disposed".to_owned(), fires };
        worker.send(Message::ObserverStateChanged(message).write());
    }

    /// Records that a worker provides a type of trigger, and sends it the triggers that wait for it.
    pub(super) fn register_trigger_type(&self, worker: &Arc<Worker>, message: RegisterTriggerType) {
        let RegisterTriggerType { id, description } = message;
        let mut triggers = self.triggers.lock();
        let has_provider = BUILTIN_TYPES.iter().any(|(kind, _)| *kind == id)
            || triggers.types.get(&id).is_some_and(|kind| kind.provider.id != worker.id);
        if has_provider {
            tracing::warn!(worker = %worker.id, kind = id, "this type of trigger has a provider already");
            return;
        }
        if worker.gone.is_cancelled() {
            return;
        }
        let own = triggers.types.values().filter(|kind| kind.provider.id == worker.id).count();
        if own >= self.options.limits.trigger_types && !triggers.types.contains_key(&id) {
            tracing::warn!(worker = %worker.id, kind = id, "the worker provides too many types of triggers");
            return;
        }
        let kind = TriggerType { provider: worker.clone(), description };
        if triggers.types.insert(id.clone(), kind).is_some() {
            return;
        }
        for trigger in triggers.by_id.values().filter(|trigger| trigger.kind == id) {
            worker.send(trigger.registration());
        }
    }

    pub(super) fn unregister_trigger_type(&self, worker: &Worker, id: &str) {
        let mut triggers = self.triggers.lock();
        if triggers.types.get(id).is_some_and(|kind| kind.provider.id == worker.id) {
            triggers.types.remove(id);
        }
    }

    /// Handles a provider's result for a trigger. If the provider rejects it, the trigger is removed and its owner gets the
    /// error.
    pub(super) fn provider_result(&self, provider: &Worker, answer: TriggerRegistrationResult) {
        let Some(error) = answer.error else { return };
        let mut triggers = self.triggers.lock();
        let is_theirs =
            |kind: &str| triggers.types.get(kind).is_some_and(|kind| kind.provider.id == provider.id);
        let Some(trigger) = triggers.by_id.get(&answer.id).filter(|trigger| is_theirs(&trigger.kind)) else {
            return;
        };
        let trigger = trigger.clone();
        triggers.by_id.remove(&trigger.id);
        if let Some(owner) = &trigger.owner {
            owner.owned.lock().triggers.remove(&trigger.id);
            owner.send(rejection(answer.id, trigger.kind.clone(), trigger.function.clone(), error));
        }
    }

    /// Fires the triggers for workers: a worker has connected, disconnected, or sent its metadata.
    pub(super) fn worker_event(self: &Arc<Self>, event: &str, worker: &Worker) {
        let triggers = self.triggers.lock().of_workers();
        if triggers.is_empty() {
            return;
        }
        let data = json!({ "event": event, "worker_id": worker.id_text }).to_string();
        self.fire_all(&triggers, &data);
    }

    /// Fires triggers that have no condition.
    pub(super) fn fire_all(self: &Arc<Self>, triggers: &[Arc<Trigger>], data: &str) {
        for trigger in triggers {
            trigger.fires.fetch_add(1, Ordering::Relaxed);
            self.fire(&trigger.function, data, trigger.metadata());
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

fn rejection(id: String, trigger_type: String, function_id: String, error: ErrorBody) -> String {
    let answer = TriggerRegistrationResult { id, trigger_type, function_id, error: Some(error) };
    Message::TriggerRegistrationResult(answer).write()
}
