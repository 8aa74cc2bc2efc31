//! `engine::triggers::*` and similar: types of triggers, triggers, and permanent triggers, which outlive the worker that
//! registered them.

use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{not_registered, parse_input};
use crate::CallError;
use crate::engine::Shared;
use crate::engine::triggers::{BUILTIN_TYPES, NewTrigger, Trigger};

#[derive(Deserialize)]
struct Id {
    #[serde(alias = "trigger_type")]
    id: String,
}

impl Shared {
    fn trigger_types(&self) -> Vec<Value> {
        let triggers = self.triggers.lock();
        let own = BUILTIN_TYPES.iter().map(|(id, description)| {
            json!({ "id": id, "trigger_type": id, "description": description, "worker_name": "engine" })
        });
        let provided = triggers.types().map(|(id, kind)| {
            let (description, worker) = (&kind.description, kind.provider.name());
            json!({ "id": id, "trigger_type": id, "description": description, "worker_name": worker })
        });
        let mut trigger_types: Vec<_> = own.chain(provided).collect();
        trigger_types.sort_by(|a, b| a["id"].as_str().cmp(&b["id"].as_str()));
        trigger_types
    }

    pub(super) fn list_trigger_types(&self) -> String {
        let trigger_types = self.trigger_types();
        json!({ "triggers": trigger_types, "trigger_types": trigger_types }).to_string()
    }

    pub(super) fn describe_trigger_type(&self, data: &str) -> Result<String, CallError> {
        let Id { id } = parse_input("engine::triggers::info", data)?;
        let kind = self.trigger_types().into_iter().find(|kind| kind["id"] == id);
        kind.map(|kind| kind.to_string()).ok_or_else(|| not_registered("Trigger type", &id))
    }

    pub(super) fn list_triggers(&self, data: &str) -> Result<String, CallError> {
        #[derive(Deserialize)]
        struct List {
            trigger_type: Option<String>,
            function_id: Option<String>,
        }
        let list: List = parse_input("engine::registered-triggers::list", data)?;
        let triggers = self.triggers.lock();
        let matches = |trigger: &Trigger| {
            list.trigger_type.as_ref().is_none_or(|wanted| *wanted == trigger.kind)
                && list.function_id.as_ref().is_none_or(|wanted| *wanted == trigger.function)
        };
        let mut found: Vec<_> = triggers.all().filter(|trigger| matches(trigger)).cloned().collect();
        drop(triggers);
        found.sort_by(|a, b| a.id.cmp(&b.id));
        let found: Vec<_> = found.iter().map(|trigger| describe(trigger)).collect();
        Ok(json!({ "triggers": found, "registered_triggers": found }).to_string())
    }

    pub(super) fn describe_trigger(&self, data: &str) -> Result<String, CallError> {
        let Id { id } = parse_input("engine::registered-triggers::info", data)?;
        let found = self.triggers.lock().all().find(|trigger| trigger.id == id).cloned();
        found.map(|trigger| describe(&trigger).to_string()).ok_or_else(|| not_registered("Trigger", &id))
    }

    pub(super) fn register_permanent_trigger(&self, data: &str) -> Result<String, CallError> {
        #[derive(Deserialize)]
        struct Register {
            trigger_type: String,
            function_id: String,
            #[serde(default)]
            config: Value,
            metadata: Option<Value>,
        }
        let Register { trigger_type, function_id, config, metadata } =
            parse_input("engine::register_trigger", data)?;
        let permanent = self.triggers.lock().all().filter(|trigger| trigger.owner.is_none()).count();
        if permanent >= self.options.limits.triggers || data.len() > self.options.limits.registration {
            return Err(CallError::remote("trigger_registration_failed", "there are too many triggers"));
        }
        let id = Uuid::new_v4().to_string();
        let new = NewTrigger { id: id.clone(), kind: trigger_type, function: function_id, config, metadata };
        self.add_trigger(None, new).map_err(|text| CallError::remote("trigger_registration_failed", text))?;
        Ok(json!({ "id": id }).to_string())
    }

    pub(super) fn unregister_permanent_trigger(&self, data: &str) -> Result<String, CallError> {
        let Id { id } = parse_input("engine::unregister_trigger", data)?;
        Ok(json!({ "removed": self.remove_trigger(None, &id).is_some() }).to_string())
    }
}

fn describe(trigger: &Trigger) -> Value {
    let worker = trigger.owner.as_ref().map(|owner| owner.name());
    let metadata: Option<Value> = trigger.metadata().and_then(|text| serde_json::from_str(text).ok());
    json!({
        "id": trigger.id,
        "trigger_type": trigger.kind,
        "function_id": trigger.function,
        "config": trigger.config,
        "metadata": metadata,
        "worker_name": worker,
    })
}
