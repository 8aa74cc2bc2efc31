//! Refuses calls that are larger than the SDK of the called worker accepts, and results that are larger than the SDK of the caller
//! accepts.
//!
//! A worker that gets a larger message drops its connection. Its functions vanish until it reconnects, and the calls of all other
//! callers fail. The engine forwards messages of every size, so the limit is enforced here.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Inner;
use crate::functions::{CallError, FunctionCall};
use crate::sdk;

/// The largest difference between the payload and the message in which the engine forwards it, in bytes.
const OVERHEAD: usize = 4 * 1024;

/// A payload of this size can be larger than the limit after the engine has encoded it again: `1e15` becomes `1000000000000000.0`.
const MAX_GROWTH: usize = 4;

/// How long the engine may take to list its workers.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// A worker, as engines list it. Engines since 0.13 omit its functions.
#[derive(Deserialize)]
struct ListedWorker {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    runtime: Option<String>,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    functions: Vec<String>,
}

impl Inner {
    /// Checks that the worker of a function accepts a payload.
    pub(super) async fn check_size(&self, function: &str, payload: &RawValue) -> Result<(), CallError> {
        let too_large = |limit: usize, whose: String| {
            let text = format!("The payload is too large: {whose} accepts {limit} bytes");
            Err(CallError::remote("payload_too_large", text))
        };
        let written = payload.get();
        if let Some(limit) = self.options.max_payload {
            return match written.len() <= limit {
                true => Ok(()),
                false => too_large(limit, "this server".to_owned()),
            };
        }
        // The engine's own functions have no SDK.
        let builtin = ["engine::", "state::", "stream::"].iter().any(|prefix| function.starts_with(prefix));
        let Some(size) = large_message(written).filter(|_| !builtin) else { return Ok(()) };
        match self.worker_of(function).await {
            Some(ListedWorker { runtime, version, .. }) => {
                let limit = sdk::max_frame(runtime.as_deref(), version.as_deref());
                let sdk = format!(
                    "the SDK of the worker of {function} ({} {})",
                    runtime.as_deref().unwrap_or("unknown"),
                    version.as_deref().unwrap_or_default()
                );
                if size <= limit { Ok(()) } else { too_large(limit, sdk) }
            }
            None => too_large(sdk::MIN_LIMIT, format!("the worker of {function}, whose SDK is not known,")),
        }
    }

    /// Checks that the worker that called a function of this worker accepts the result.
    pub(super) async fn check_result(&self, caller: &str, result: &RawValue) -> Result<(), CallError> {
        let Some(size) = large_message(result.get()) else { return Ok(()) };
        let workers = self.workers().await.unwrap_or_default();
        let caller = workers.into_iter().find(|worker| worker.id.as_deref() == Some(caller));
        let limit = match &caller {
            Some(ListedWorker { runtime, version, .. }) => {
                sdk::max_frame(runtime.as_deref(), version.as_deref())
            }
            None => sdk::MIN_LIMIT,
        };
        if size <= limit {
            return Ok(());
        }
        let text = format!("The result is too large: the SDK of the calling worker accepts {limit} bytes");
        Err(CallError::remote("result_too_large", text))
    }

    async fn workers(&self) -> Option<Vec<ListedWorker>> {
        #[derive(Deserialize)]
        struct Workers {
            workers: Vec<ListedWorker>,
        }
        self.ask("engine::workers::list", "{}").await.map(|Workers { workers }| workers)
    }

    /// The worker that has a function.
    async fn worker_of(&self, function: &str) -> Option<ListedWorker> {
        let workers = self.workers().await?;
        let known = self.catalog.get().and_then(|updates| {
            let catalog = updates.borrow().clone();
            catalog?.get(function)?.worker.clone()
        });
        // If several workers have registered the function, the engine calls the last one.
        workers.into_iter().rev().find(|worker| match &known {
            Some(name) => worker.name.as_deref() == Some(&**name),
            None => worker.functions.iter().any(|own| own == function),
        })
    }

    async fn ask<T: for<'a> Deserialize<'a>>(&self, function: &str, payload: &str) -> Option<T> {
        let payload: &RawValue = serde_json::from_str(payload).ok()?;
        let asked = self
            .exchange(FunctionCall { function, payload, timeout: LIST_TIMEOUT, trace_parent: None }, None)
            .await;
        match asked {
            Ok(answer) => serde_json::from_str(answer.get()).ok(),
            Err(error) => {
                tracing::debug!(%error, function, "cannot find out which messages a worker accepts");
                None
            }
        }
    }
}

/// The size of the message in which the engine forwards JSON, if some SDKs do not accept it.
fn large_message(json: &str) -> Option<usize> {
    if json.len() * MAX_GROWTH + OVERHEAD <= sdk::MIN_LIMIT {
        return None;
    }
    // The engine parses the JSON and encodes it again.
    let value: Option<serde_json::Value> = serde_json::from_str(json).ok();
    let encoded = value.map_or(0, |value| value.to_string().len()).max(json.len());
    Some(encoded + OVERHEAD).filter(|size| *size > sdk::MIN_LIMIT)
}
