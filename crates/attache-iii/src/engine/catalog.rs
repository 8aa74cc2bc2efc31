//! Publishes the list of functions when it changes.
//!
//! Changes are collected: a worker that registers thousands of functions causes a few new lists, not thousands.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::Shared;
use super::registry::Function;
use crate::{Catalog, Updates};

/// The shortest time between two lists.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// The shortest time between two calls of the triggers for changed functions.
const MIN_NOTIFY_INTERVAL: Duration = Duration::from_millis(500);

/// The largest list with schemas, in bytes. A larger list omits the schemas, because Python workers before 0.25 disconnect at
/// frames of more than 1 MiB. Workers can request the schemas of single functions.
const MAX_WITH_SCHEMAS: usize = 512 * 1024;

pub(super) struct Publisher {
    dirty: Notify,
    lists: watch::Sender<Option<Arc<Catalog>>>,
}

impl Publisher {
    pub(super) fn new() -> Self {
        Self { dirty: Notify::new(), lists: watch::Sender::new(None) }
    }

    /// Records that functions were added or removed.
    pub(super) fn mark_changed(&self) {
        self.dirty.notify_one();
    }

    pub(super) fn subscribe(&self) -> Updates {
        self.lists.subscribe()
    }

    /// Publishes a list if it differs from the last one. The list is built under the lock of the channel. Otherwise, of two
    /// concurrent calls, the one with the older list could publish last.
    pub(super) fn publish(&self, list: impl FnOnce() -> Catalog) -> bool {
        self.lists.send_if_modified(|current| {
            let catalog = list();
            let same = current.as_ref().is_some_and(|current| {
                current.len() == catalog.len()
                    && current.values().zip(catalog.values()).all(|(a, b)| Arc::ptr_eq(a, b))
            });
            if !same {
                *current = Some(Arc::new(catalog));
            }
            !same
        })
    }
}

impl Shared {
    /// Publishes lists and fires the triggers for changed functions. Runs until it is dropped.
    pub(super) async fn run_publisher(self: Arc<Self>) {
        let mut notify_at: Option<Instant> = None;
        let mut notified_at: Option<Instant> = None;
        loop {
            tokio::select! {
                () = self.publisher.dirty.notified() => {
                    if self.publisher.publish(|| self.registry.catalog()) && notify_at.is_none() {
                        let now = Instant::now();
                        notify_at = Some(notified_at.map_or(now, |notified_at| now.max(notified_at + MIN_NOTIFY_INTERVAL)));
                    }
                    tokio::time::sleep(MIN_INTERVAL).await;
                }
                () = until(notify_at) => {
                    (notify_at, notified_at) = (None, Some(Instant::now()));
                    self.notify_functions_changed();
                }
            }
        }
    }

    fn notify_functions_changed(self: &Arc<Self>) {
        let triggers = self.triggers.lock().of_functions();
        if triggers.is_empty() {
            return;
        }
        let mut functions = self.registry.functions();
        functions.retain(|function| !function.is_internal());
        functions.sort_unstable_by(|a, b| a.info.id.cmp(&b.info.id));
        let data = format!(r#"{{"event":"functions_changed","functions":{}}}"#, summaries(&functions));
        self.fire_all(&triggers, &data);
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// A function in a list: the format of 0.13 and later, plus the schemas of earlier versions.
#[derive(Serialize)]
struct Summary<'a> {
    function_id: &'a str,
    namespace: &'static str,
    worker_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_format: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<&'a Value>,
}

/// Encodes a list of functions as JSON.
pub(super) fn summaries(functions: &[Arc<Function>]) -> String {
    let write = |with_schemas: bool| {
        let all: Vec<_> = functions
            .iter()
            .map(|function| {
                let info = &*function.info;
                Summary {
                    function_id: &info.id,
                    namespace: "default",
                    worker_name: info.worker.as_deref().unwrap_or("engine"),
                    description: info.description.as_deref(),
                    metadata: info.metadata.as_ref(),
                    request_format: info.request_format.as_ref().filter(|_| with_schemas),
                    response_format: info.response_format.as_ref().filter(|_| with_schemas),
                }
            })
            .collect();
        serde_json::to_string(&all).unwrap_or_default()
    };
    let with_schemas = write(true);
    if with_schemas.len() > MAX_WITH_SCHEMAS { write(false) } else { with_schemas }
}
