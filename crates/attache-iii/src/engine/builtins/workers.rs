//! `engine::workers::*`: the connected workers.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{not_registered, parse_input};
use crate::CallError;
use crate::engine::Shared;
use crate::engine::worker::{Profile, Worker};

impl Shared {
    /// Stores the metadata of a worker.
    pub(super) fn set_worker_metadata(
        self: &Arc<Self>,
        data: &str,
        caller: Option<&Arc<Worker>>,
    ) -> Result<String, CallError> {
        let mut profile: Profile = parse_input("engine::workers::register", data)?;
        if let Some(worker) = caller {
            if data.len() > self.options.limits.registration {
                return Err(CallError::remote("INVALID_INPUT", "the metadata of the worker is too large"));
            }
            profile.name = profile.name.filter(|name| !name.is_empty());
            let before = std::mem::replace(&mut *worker.profile.write(), profile);
            worker.apply_sdk_limits();
            self.registry.rename(worker);
            self.publisher.mark_changed();
            self.worker_event("worker_metadata_updated", worker);
            // SDKs send the metadata once, when they have registered their functions.
            if before.runtime.is_none() && before.name.is_none() {
                let profile = worker.profile.read();
                let (runtime, version) = (profile.runtime.as_deref(), profile.version.as_deref());
                let (name, functions) = (&*worker.name(), worker.owned.lock().functions.len());
                let (id, address) = (worker.id, worker.address);
                tracing::info!(worker = %id, name, runtime, version, functions, %address, "worker joined");
            }
        }
        Ok(r#"{"success":true}"#.to_owned())
    }

    pub(super) fn list_workers(&self) -> String {
        let mut workers = self.registry.workers();
        workers.sort_by_key(|worker| worker.connected_at);
        let workers: Vec<_> = workers.iter().map(|worker| describe(worker)).collect();
        json!({ "workers": workers }).to_string()
    }

    pub(super) fn describe_worker(&self, data: &str) -> Result<String, CallError> {
        #[derive(Deserialize)]
        struct Info {
            #[serde(alias = "id", alias = "name", alias = "worker_name")]
            worker_id: String,
        }
        let Info { worker_id } = parse_input("engine::workers::info", data)?;
        let workers = self.registry.workers();
        let found =
            workers.iter().find(|worker| *worker.id_text == *worker_id || *worker.name() == *worker_id);
        found.map(|worker| describe(worker).to_string()).ok_or_else(|| not_registered("Worker", &worker_id))
    }
}

fn describe(worker: &Worker) -> Value {
    let since = worker.connected_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut functions: Vec<_> = worker.owned.lock().functions.keys().cloned().collect();
    functions.sort_unstable();
    let mut described = serde_json::to_value(&*worker.profile.read()).unwrap_or_default();
    described["id"] = json!(worker.id_text);
    described["worker_id"] = json!(worker.id_text);
    described["name"] = json!(worker.name());
    described["namespace"] = json!("default");
    described["status"] = json!("connected");
    described["ip_address"] = json!(worker.address.ip().to_string());
    described["connected_at_ms"] = json!(u64::try_from(since).unwrap_or(u64::MAX));
    described["function_count"] = json!(functions.len());
    described["active_invocations"] = json!(worker.load());
    described["functions"] = json!(functions);
    described
}
