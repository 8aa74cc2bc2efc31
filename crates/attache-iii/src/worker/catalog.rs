//! The functions of the engine, as they come and go.
//!
//! The engine says when workers come and go, and a little later when functions do; a slow poll catches what it does not say. Where
//! the functions cannot be had, nobody is told of any: what is unknown is not offered.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use super::connection::Pauses;
use super::{Connection, Inner};
use crate::functions::{CallError, Catalog, FunctionCall, FunctionInfo, Updates};
use crate::wire::RegisterFunction;

/// How long the engine may take to say what there is.
const ANSWER: Duration = Duration::from_secs(10);

/// How long to wait for more changes before looking.
const SETTLE: Duration = Duration::from_millis(100);

/// How many functions can be asked about at once.
const TOGETHER: usize = 32;

/// Begins to follow the engine's functions.
pub(super) fn follow(inner: &Arc<Inner>) -> Updates {
    let (catalog, updates) = watch::channel(None);
    let changed = subscribe(inner);
    let follower = Follower {
        inner: inner.clone(),
        catalog,
        asking: Asking::Together,
        known: HashMap::new(),
        failing: false,
    };
    inner.runtime.spawn(follower.run(changed));
    updates
}

/// Has the engine say when something changes.
fn subscribe(inner: &Arc<Inner>) -> Arc<Notify> {
    let changed = Arc::new(Notify::new());
    let name = inner.options.name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let id = format!("a2a::functions_changed.{name}");
    let function = RegisterFunction {
        id: id.clone(),
        description: Some("Hears that functions or workers came or went".to_owned()),
        metadata: Some(json!({"internal": true})),
        ..RegisterFunction::default()
    };
    let (worker, told) = (Arc::downgrade(inner), changed.clone());
    inner.register(
        function,
        Arc::new(move |call| {
            #[derive(Deserialize)]
            struct Event {
                event: String,
            }
            let left = call.read::<Event>().is_ok_and(|event| event.event == "worker_disconnected");
            if let Some(worker) = worker.upgrade().filter(|_| left) {
                worker.claim_refused();
            }
            told.notify_one();
            Box::pin(std::future::ready(Ok(RawValue::NULL.to_owned())))
        }),
    );
    for trigger in ["engine::functions-available", "engine::workers-available"] {
        inner.register_trigger(trigger.to_owned(), id.clone(), json!({}));
    }
    changed
}

/// A function as the engine lists it, or as it describes it in full: the two differ in what is there.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Listed {
    function_id: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    worker_name: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    metadata: Option<Value>,
    #[serde(default, alias = "request_schema")]
    request_format: Option<Value>,
    #[serde(default, alias = "response_schema")]
    response_format: Option<Value>,
}

impl Listed {
    /// Whether it has to be asked about: it is meant for us, and its schemas were not listed.
    fn wants_schemas(&self) -> bool {
        let ours = |metadata: &Value| {
            metadata.as_object().is_some_and(|metadata| metadata.keys().any(|key| key.starts_with("a2a.")))
        };
        self.request_format.is_none()
            && self.response_format.is_none()
            && self.metadata.as_ref().is_some_and(ours)
    }
}

/// The schemas of a function: of its payload and of its result.
type Schemas = (Option<Value>, Option<Value>);

/// How the engine can be asked about functions. Older ones know less.
#[derive(Debug, Clone, Copy)]
enum Asking {
    Together,
    OneByOne,
    NotAtAll,
}

/// Why to look again.
enum Next {
    /// The connection is gone.
    Gone,
    /// The engine said that something changed.
    Told,
    /// It is time.
    Due,
}

struct Follower {
    inner: Arc<Inner>,
    catalog: watch::Sender<Option<Arc<Catalog>>>,
    asking: Asking,
    /// What is known about functions that were asked about, and how they were listed then.
    known: HashMap<String, (Listed, Schemas)>,
    failing: bool,
}

impl Follower {
    async fn run(mut self, changed: Arc<Notify>) {
        let mut state = self.inner.state.subscribe();
        loop {
            let there = |state: &Connection| match state {
                Connection::Connected { .. } | Connection::Closed => true,
                Connection::Connecting | Connection::Rejected(_) => false,
            };
            let Ok(connection) = state.wait_for(there).await.map(|state| state.clone()) else { return };
            if connection == Connection::Closed {
                return;
            }
            self.asking = Asking::Together;
            self.known.clear();
            self.attend(&connection, &mut state, &changed).await;
            self.publish(None);
        }
    }

    /// Follows one connection to its end.
    async fn attend(
        &mut self,
        connection: &Connection,
        state: &mut watch::Receiver<Connection>,
        changed: &Notify,
    ) {
        let options = &self.inner.options;
        let poll = options.poll_interval;
        let mut pauses = Pauses::new(options.reconnect_min, options.reconnect_max);
        let mut next = Next::Told;
        loop {
            let wait = match self.look(&next).await {
                Ok(catalog) => {
                    self.failing = false;
                    self.publish(Some(catalog));
                    pauses.reset();
                    poll
                }
                Err(error) => {
                    self.complain(&error);
                    self.publish(None);
                    pauses.next()
                }
            };
            next = tokio::select! {
                _ = state.wait_for(|state| state != connection) => Next::Gone,
                next = next_look(changed, wait) => next,
            };
            if let Next::Gone = next {
                return;
            }
        }
    }

    fn publish(&self, catalog: Option<Catalog>) {
        self.catalog.send_if_modified(|published| {
            let same = published.as_deref() == catalog.as_ref();
            if !same {
                *published = catalog.map(Arc::new);
            }
            !same
        });
    }

    fn complain(&mut self, error: &CallError) {
        if !self.failing && *error != CallError::Disconnected {
            let hint = "where the engine's listener has `rbac`, it must expose `engine::functions::list`";
            tracing::warn!(%error, hint, "the engine does not list its functions; none are offered until it does");
            self.failing = true;
        }
    }

    /// Asks what there is. What was known of functions that are listed as before is used again, unless the engine said that
    /// something changed.
    async fn look(&mut self, why: &Next) -> Result<Catalog, CallError> {
        let listed = self.list().await?;
        match why {
            Next::Told => self.known.clear(),
            Next::Gone | Next::Due => {
                let listed: HashMap<_, _> = listed.iter().map(|l| (l.function_id.as_str(), l)).collect();
                self.known.retain(|id, (before, _)| listed.get(id.as_str()) == Some(&&*before));
            }
        }
        let unknown: Vec<&Listed> = listed
            .iter()
            .filter(|listed| listed.wants_schemas() && !self.known.contains_key(&listed.function_id))
            .collect();
        let (mut asking, mut found) = (self.asking, Vec::new());
        for some in unknown.chunks(TOGETHER) {
            found.extend(self.ask(&mut asking, some).await?);
        }
        self.asking = asking;
        self.known.extend(found);
        let infos = listed.into_iter().map(|listed| {
            let known = self.known.get(&listed.function_id).map(|(_, schemas)| schemas.clone());
            let (request_format, response_format) =
                known.unwrap_or((listed.request_format, listed.response_format));
            let id: Arc<str> = listed.function_id.into();
            let info = FunctionInfo {
                id: id.clone(),
                worker: listed.worker_name.map(Into::into),
                description: listed.description,
                request_format,
                response_format,
                metadata: listed.metadata,
            };
            (id, Arc::new(info))
        });
        Ok(infos.collect::<BTreeMap<_, _>>())
    }

    async fn list(&self) -> Result<Vec<Listed>, CallError> {
        let listed: Several = self.call("engine::functions::list", &json!({})).await?;
        // A call that names no namespace goes there, wherever it comes from.
        let here =
            |listed: &Listed| listed.namespace.as_deref().is_none_or(|namespace| namespace == "default");
        Ok(listed.read().filter(here).collect())
    }

    /// Asks about some functions. What the engine does not want to tell is as good as not there, except for a connection that
    /// is gone.
    async fn ask(
        &self,
        asking: &mut Asking,
        functions: &[&Listed],
    ) -> Result<Vec<(String, (Listed, Schemas))>, CallError> {
        const INFO: &str = "engine::functions::info";
        let mut told: Vec<Listed> = Vec::new();
        if let Asking::Together = asking {
            let ids: Vec<&str> = functions.iter().map(|listed| listed.function_id.as_str()).collect();
            match self.call::<Several>(INFO, &json!({"function_ids": ids})).await {
                Ok(several) => told.extend(several.read()),
                Err(CallError::Disconnected) => return Err(CallError::Disconnected),
                Err(CallError::TimedOut) => return Ok(Vec::new()),
                Err(CallError::Remote { code, .. }) => *asking = without(&code, Asking::OneByOne),
            }
        }
        for listed in functions {
            let Asking::OneByOne = asking else { break };
            match self.call::<Listed>(INFO, &json!({"function_id": listed.function_id})).await {
                Ok(one) => told.push(one),
                Err(CallError::Disconnected) => return Err(CallError::Disconnected),
                Err(CallError::TimedOut) => return Ok(Vec::new()),
                Err(CallError::Remote { code, .. }) => *asking = without(&code, Asking::OneByOne),
            }
        }
        let mut told: HashMap<String, Listed> =
            told.into_iter().map(|told| (told.function_id.clone(), told)).collect();
        let known = functions.iter().map(|&listed| {
            let schemas = told.remove(&listed.function_id);
            let schemas = schemas.map_or((None, None), |told| (told.request_format, told.response_format));
            (listed.function_id.clone(), (listed.clone(), schemas))
        });
        Ok(known.collect())
    }

    async fn call<T: for<'a> Deserialize<'a>>(&self, function: &str, data: &Value) -> Result<T, CallError> {
        let bad = |error: serde_json::Error| {
            CallError::remote("bad_result", format!("`{function}` gave something else: {error}"))
        };
        let payload = serde_json::value::to_raw_value(data).map_err(bad)?;
        let call = FunctionCall { function, payload: &payload, timeout: ANSWER };
        serde_json::from_str(self.inner.invoke(call, None).await?.get()).map_err(bad)
    }
}

/// Several functions, each of which may be something that is not understood.
#[derive(Deserialize)]
struct Several {
    functions: Vec<Value>,
}

impl Several {
    fn read(self) -> impl Iterator<Item = Listed> {
        self.functions.into_iter().filter_map(|function| serde_json::from_value(function).ok())
    }
}

/// How to ask from now on, after a no: not at all, if it was not about the functions.
fn without(code: &str, otherwise: Asking) -> Asking {
    if matches!(code, "function_not_found" | "FORBIDDEN") { Asking::NotAtAll } else { otherwise }
}

async fn next_look(changed: &Notify, wait: Duration) -> Next {
    tokio::select! {
        () = changed.notified() => {
            tokio::time::sleep(SETTLE).await;
            // What came meanwhile is seen by the look that is now due.
            let _ = changed.notified().now_or_never();
            Next::Told
        }
        () = tokio::time::sleep(wait) => Next::Due,
    }
}
