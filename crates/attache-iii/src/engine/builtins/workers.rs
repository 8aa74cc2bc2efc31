//! `engine::workers::*`: who is there.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{input, no_such};
use crate::CallError;
use crate::engine::Shared;
use crate::engine::worker::{Profile, Worker};

impl Shared {
    /// A worker says who it is.
    pub(super) fn introduce(
        self: &Arc<Self>,
        data: &str,
        caller: Option<&Arc<Worker>>,
    ) -> Result<String, CallError> {
        let mut profile: Profile = input("engine::workers::register", data)?;
        if let Some(worker) = caller {
            if data.len() > self.options.limits.registration {
                return Err(CallError::remote("INVALID_INPUT", "the worker says too much about itself"));
            }
            profile.name = profile.name.filter(|name| !name.is_empty());
            *worker.profile.write() = profile;
            worker.heed_limits();
            self.registry.rename(worker);
            self.publisher.touch();
            self.worker_event("worker_metadata_updated", worker);
            tracing::info!(worker = %worker.id, name = &*worker.name(), "a worker has said who it is");
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
        let Info { worker_id } = input("engine::workers::info", data)?;
        let workers = self.registry.workers();
        let found =
            workers.iter().find(|worker| *worker.name_of_id == *worker_id || *worker.name() == *worker_id);
        found.map(|worker| describe(worker).to_string()).ok_or_else(|| no_such("Worker", &worker_id))
    }
}

fn describe(worker: &Worker) -> Value {
    let since = worker.connected_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut functions: Vec<_> = worker.owned.lock().functions.keys().cloned().collect();
    functions.sort_unstable();
    let mut described = serde_json::to_value(&*worker.profile.read()).unwrap_or_default();
    described["id"] = json!(worker.name_of_id);
    described["worker_id"] = json!(worker.name_of_id);
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
