//! `engine::functions::*`: lists functions and describes their schemas.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{not_registered, parse_input};
use crate::CallError;
use crate::engine::Shared;
use crate::engine::catalog::summaries;
use crate::engine::registry::Function;

/// How many functions one call can describe.
const MAX_BATCH: usize = 32;

#[derive(Deserialize)]
struct List {
    prefix: Option<String>,
    search: Option<String>,
    worker: Option<String>,
    workers: Option<HashSet<String>>,
    include_internal: Option<bool>,
}

impl List {
    fn matches(&self, function: &Function) -> bool {
        let info = &function.info;
        let worker = info.worker.as_deref().unwrap_or("engine");
        let found = |search: &str| {
            info.id.to_lowercase().contains(search)
                || info.description.as_ref().is_some_and(|text| text.to_lowercase().contains(search))
        };
        (self.include_internal.unwrap_or(false) || !function.is_internal())
            && self.prefix.as_deref().is_none_or(|prefix| info.id.starts_with(prefix))
            && self.worker.as_deref().is_none_or(|wanted| wanted == worker)
            && self.workers.as_ref().is_none_or(|all| all.contains(worker))
            && self.search.as_deref().is_none_or(found)
    }
}

impl Shared {
    pub(super) fn list_functions(&self, data: &str) -> Result<String, CallError> {
        let mut list: List = parse_input("engine::functions::list", data)?;
        list.search = list.search.map(|search| search.to_lowercase());
        let mut functions = self.registry.functions();
        functions.retain(|function| list.matches(function));
        functions.sort_unstable_by(|a, b| a.info.id.cmp(&b.info.id));
        Ok(format!(r#"{{"functions":{}}}"#, summaries(&functions)))
    }

    pub(super) fn describe_functions(&self, data: &str) -> Result<String, CallError> {
        #[derive(Deserialize)]
        struct Info {
            function_id: Option<String>,
            function_ids: Option<Vec<String>>,
        }
        let info: Info = parse_input("engine::functions::info", data)?;
        match info {
            Info { function_ids: Some(ids), function_id: _ } if ids.len() > MAX_BATCH => {
                let text =
                    format!("at most {MAX_BATCH} functions can be described at once, not {}", ids.len());
                Err(CallError::remote("INVALID_INPUT", text))
            }
            Info { function_ids: Some(ids), function_id: _ } => {
                let describe = |id: &String| {
                    self.describe(id).unwrap_or_else(|| json!({ "function_id": id, "error": "not_found" }))
                };
                Ok(json!({ "functions": ids.iter().map(describe).collect::<Vec<_>>() }).to_string())
            }
            Info { function_ids: None, function_id: Some(id) } => self
                .describe(&id)
                .map(|value| value.to_string())
                .ok_or_else(|| not_registered("Function", &id)),
            Info { function_ids: None, function_id: None } => {
                let text =
                    "Failed to deserialize input for engine::functions::info: missing field `function_id`";
                Err(CallError::remote("deserialization_error", text))
            }
        }
    }

    fn describe(&self, id: &str) -> Option<Value> {
        let function = self.registry.function(id)?;
        let info = &function.info;
        let triggers: Vec<_> = self
            .triggers
            .lock()
            .all()
            .filter(|trigger| trigger.function == id)
            .map(
                |trigger| json!({ "id": trigger.id, "trigger_type": trigger.kind, "config": trigger.config }),
            )
            .collect();
        let mut described = json!({
            "function_id": id,
            "namespace": "default",
            "worker_name": info.worker.as_deref().unwrap_or("engine"),
            "registered_triggers": triggers,
        });
        let members = [
            ("description", info.description.clone().map(Value::from)),
            ("request_schema", info.request_format.clone()),
            ("response_schema", info.response_format.clone()),
            ("metadata", info.metadata.clone()),
        ];
        for (name, value) in members {
            if let Some(value) = value {
                described[name] = value;
            }
        }
        Some(described)
    }
}
