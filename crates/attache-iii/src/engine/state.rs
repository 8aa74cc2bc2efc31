//! `state::*`: values by scope and key, kept in the store.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use attache_core::{BoxFuture, ChangedValue, StoreError, ValueChange};
use attache_protocol::Json;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Shared;
use super::builtins::{Builtin, parse_input};
use super::frames::Extras;
use super::update::{Op, OpError, apply};
use crate::CallError;

/// How deep a value may nest. Deeper values could not be parsed again later.
const MAX_DEPTH: usize = 100;

/// The longest scope or key, in bytes.
const MAX_NAME: usize = 1024;

#[derive(Deserialize)]
struct StateKey<'a> {
    #[serde(borrow)]
    scope: Cow<'a, str>,
    #[serde(borrow)]
    key: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Set<'a> {
    #[serde(borrow)]
    scope: Cow<'a, str>,
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow, alias = "data")]
    value: &'a RawValue,
}

#[derive(Deserialize)]
struct Scope<'a> {
    #[serde(borrow)]
    scope: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Update {
    scope: String,
    key: String,
    ops: Vec<Op>,
}

fn store_failed(error: StoreError) -> CallError {
    tracing::error!(%error, "the store of the state failed");
    CallError::remote("state_error", "the state is not available")
}

fn text(value: &Option<Json>) -> &str {
    value.as_ref().map_or("null", Json::as_str)
}

impl Shared {
    /// Runs a function of the state. The result is JSON.
    pub(super) async fn state(self: &Arc<Self>, builtin: Builtin, data: &str) -> Result<String, CallError> {
        let values = self.store.values();
        let function = builtin.id();
        match builtin {
            Builtin::StateGet => {
                let StateKey { scope, key } = parse_input(function, data)?;
                let value = values.get(&scope, &key).await.map_err(store_failed)?;
                Ok(text(&value).to_owned())
            }
            Builtin::StateSet => {
                let Set { scope, key, value } = parse_input(function, data)?;
                self.check_key(function, &scope, &key)?;
                self.check_value(value.get())?;
                let value: Json = parse_input(function, value.get())?;
                let changed = self.change(&scope, &key, Box::new(move |_| Some(value.clone()))).await?;
                let (old, new) = (text(&changed.old), text(&changed.new));
                Ok(format!(r#"{{"old_value":{old},"new_value":{new}}}"#))
            }
            Builtin::StateDelete => {
                let StateKey { scope, key } = parse_input(function, data)?;
                let changed = self.change(&scope, &key, Box::new(|_| None)).await?;
                Ok(text(&changed.old).to_owned())
            }
            Builtin::StateList => {
                let Scope { scope } = parse_input(function, data)?;
                let listed = values.list(&scope).await.map_err(store_failed)?;
                let values: Vec<&str> = listed.iter().map(|(_, value)| value.as_str()).collect();
                Ok(format!("[{}]", values.join(",")))
            }
            Builtin::StateListGroups => {
                let groups = values.scopes().await.map_err(store_failed)?;
                Ok(json!({ "groups": groups }).to_string())
            }
            Builtin::StateUpdate => {
                // Checked before parsing: parsed operations need more memory than their text.
                self.check_size(data)?;
                let Update { scope, key, ops } = parse_input(function, data)?;
                self.check_key(function, &scope, &key)?;
                self.update(&scope, &key, ops).await
            }
            Builtin::WorkersRegister
            | Builtin::WorkersList
            | Builtin::WorkersInfo
            | Builtin::FunctionsList
            | Builtin::FunctionsInfo
            | Builtin::TriggerTypesList
            | Builtin::TriggerTypesInfo
            | Builtin::RegisteredTriggersList
            | Builtin::RegisteredTriggersInfo
            | Builtin::RegisterTrigger
            | Builtin::UnregisterTrigger
            | Builtin::ChannelsCreate
            | Builtin::Log(_)
            | Builtin::Baggage => self.builtin(builtin, data, None),
        }
    }

    fn check_key(&self, function: &str, scope: &str, key: &str) -> Result<(), CallError> {
        if scope.len() > MAX_NAME || key.len() > MAX_NAME {
            let text = format!(
                "Failed to deserialize input for {function}: a scope and a key have at most {MAX_NAME} bytes"
            );
            return Err(CallError::remote("deserialization_error", text));
        }
        Ok(())
    }

    fn check_size(&self, value: &str) -> Result<(), CallError> {
        let limit = self.options.limits.state_value;
        if value.len() > limit {
            let text = format!("the value has {} bytes, more than {limit}", value.len());
            return Err(CallError::remote("VALUE_TOO_LARGE", text));
        }
        Ok(())
    }

    fn check_value(&self, value: &str) -> Result<(), CallError> {
        self.check_size(value)?;
        if attache_protocol::json::is_deeper_than(value.as_bytes(), MAX_DEPTH) {
            let text = format!("the value nests deeper than {MAX_DEPTH}");
            return Err(CallError::remote("deserialization_error", text));
        }
        Ok(())
    }

    async fn update(self: &Arc<Self>, scope: &str, key: &str, ops: Vec<Op>) -> Result<String, CallError> {
        struct UpdateResult {
            errors: Vec<OpError>,
            error: Option<CallError>,
        }
        let outcome = Arc::new(Mutex::new(UpdateResult { errors: Vec::new(), error: None }));
        let (shared, shared_outcome) = (self.clone(), outcome.clone());
        let change: ValueChange = Box::new(move |old| {
            let before: Value = old.and_then(|old| old.read().ok()).unwrap_or_default();
            let (after, errors) = apply(before, ops.clone());
            let new = Json::new(&after).map_err(|error| CallError::remote("state_error", error.to_string()));
            let new = new.and_then(|new| shared.check_value(new.as_str()).map(|()| new));
            match new {
                Ok(new) => {
                    *shared_outcome.lock() = UpdateResult { errors, error: None };
                    Some(new)
                }
                Err(error) => {
                    *shared_outcome.lock() = UpdateResult { errors: Vec::new(), error: Some(error) };
                    old.cloned()
                }
            }
        });
        let changed = self.change(scope, key, change).await?;
        let mut outcome = outcome.lock();
        if let Some(error) = outcome.error.take() {
            return Err(error);
        }
        let (old, new) = (text(&changed.old), text(&changed.new));
        if outcome.errors.is_empty() {
            return Ok(format!(r#"{{"old_value":{old},"new_value":{new}}}"#));
        }
        let errors = serde_json::to_string(&outcome.errors).unwrap_or_default();
        Ok(format!(r#"{{"old_value":{old},"new_value":{new},"errors":{errors}}}"#))
    }

    /// Changes a value and fires the triggers for it.
    fn change<'a>(
        self: &'a Arc<Self>,
        scope: &'a str,
        key: &'a str,
        change: ValueChange,
    ) -> BoxFuture<'a, Result<ChangedValue, CallError>> {
        Box::pin(async move {
            let changed = self.store.values().change(scope, key, change).await.map_err(store_failed)?;
            self.fire_state_triggers(scope, key, &changed);
            Ok(changed)
        })
    }

    fn fire_state_triggers(self: &Arc<Self>, scope: &str, key: &str, changed: &ChangedValue) {
        let event = match (&changed.old, &changed.new) {
            (None, None) => return,
            (None, Some(_)) => "state:created",
            (Some(_), Some(_)) => "state:updated",
            (Some(_), None) => "state:deleted",
        };
        let triggers = self.triggers.lock().of_state(scope, key);
        if triggers.is_empty() {
            return;
        }
        let (old, new) = (text(&changed.old), text(&changed.new));
        let (scope, key) = (Value::from(scope), Value::from(key));
        let data: Arc<str> = format!(
            r#"{{"type":"state","event_type":"{event}","scope":{scope},"key":{key},"old_value":{old},"new_value":{new}}}"#
        )
        .into();
        for trigger in triggers {
            trigger.fires.fetch_add(1, Ordering::Relaxed);
            let condition = trigger.state_filter().and_then(|filter| filter.condition_function_id.clone());
            let Some(condition) = condition else {
                self.fire(&trigger.function, &data, trigger.metadata());
                continue;
            };
            let (shared, data) = (self.clone(), data.clone());
            tokio::spawn(async move {
                match shared.call_text(&condition, &data, Extras::default(), Duration::from_secs(30)).await {
                    Ok(answer) if answer.get() == "false" => {}
                    Ok(_) => shared.fire(&trigger.function, &data, trigger.metadata()),
                    Err(error) => tracing::warn!(condition, %error, "the condition of a trigger failed"),
                }
            });
        }
    }
}
