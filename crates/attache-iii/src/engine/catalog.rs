//! The list of functions, published as it changes.
//!
//! Changes are gathered: a worker that registers thousands of functions makes for a few new lists, not for thousands.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::Shared;
use super::registry::Function;
use crate::{Catalog, Updates};

/// How far apart two lists are at least.
const PACE: Duration = Duration::from_millis(50);

/// How far apart two calls of those who want to be called when functions change are at least.
const TELL_PACE: Duration = Duration::from_millis(500);

/// How many bytes of a list may be schemas and the rest. Where there is more, the schemas are left out: they can be asked for one
/// by one, and workers in Python before 0.25 break off at frames of a megabyte.
const MAX_WITH_SCHEMAS: usize = 512 * 1024;

pub(super) struct Publisher {
    dirty: Notify,
    lists: watch::Sender<Option<Arc<Catalog>>>,
}

impl Publisher {
    pub(super) fn new() -> Self {
        Self { dirty: Notify::new(), lists: watch::Sender::new(None) }
    }

    /// Functions have come or gone.
    pub(super) fn touch(&self) {
        self.dirty.notify_one();
    }

    pub(super) fn subscribe(&self) -> Updates {
        self.lists.subscribe()
    }

    /// Publishes a list if it is another one than before. It is made while nobody else can publish: of two who do at once, the
    /// one with the older list must not be the last.
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
    /// Publishes lists and tells those who want to be called, for as long as it is polled.
    pub(super) async fn keep_catalog(self: Arc<Self>) {
        let mut tell_at: Option<Instant> = None;
        let mut told: Option<Instant> = None;
        loop {
            tokio::select! {
                () = self.publisher.dirty.notified() => {
                    if self.publisher.publish(|| self.registry.catalog()) && tell_at.is_none() {
                        let now = Instant::now();
                        tell_at = Some(told.map_or(now, |told| now.max(told + TELL_PACE)));
                    }
                    tokio::time::sleep(PACE).await;
                }
                () = until(tell_at) => {
                    (tell_at, told) = (None, Some(Instant::now()));
                    self.tell_functions_changed();
                }
            }
        }
    }

    fn tell_functions_changed(self: &Arc<Self>) {
        let triggers = self.triggers.lock().of_functions();
        if triggers.is_empty() {
            return;
        }
        let mut functions = self.registry.functions();
        functions.retain(|function| !function.is_internal());
        functions.sort_unstable_by(|a, b| a.info.id.cmp(&b.info.id));
        let data = format!(r#"{{"event":"functions_changed","functions":{}}}"#, summaries(&functions));
        for trigger in triggers {
            trigger.fires.fetch_add(1, Ordering::Relaxed);
            self.fire(&trigger.function, &data, trigger.metadata());
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// A function in a list: the shape of 0.13 and later, with the schemas of earlier ones.
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

/// A list of functions, as JSON.
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
    let whole = write(true);
    if whole.len() > MAX_WITH_SCHEMAS { write(false) } else { whole }
}
