//! The list of the engine's functions, kept up to date.
//!
//! The engine notifies the worker when workers connect or disconnect, and shortly after that when functions change. A slow poll
//! finds changes without a notification. If the list cannot be loaded, the catalog is empty: functions that may be gone are not
//! offered.
//!
//! The list also shows whether the engine still has the functions of this worker. Engines before 0.23 remove them when another worker
//! with functions of the same ids leaves, and do not always report it. They remove routes, too, which no list shows. So a worker that
//! may not hear of other workers registers everything again with every poll.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use super::connection::Backoff;
use super::{Connection, Inner, Registration};
use crate::functions::{CallError, Catalog, FunctionCall, FunctionInfo, Updates};
use crate::wire::RegisterFunction;

/// How long a call of the engine may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// After a notification, how long to wait for further changes.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// How many functions one call can describe.
const MAX_BATCH: usize = 32;

/// How many functions a log line lists.
const MAX_LOGGED: usize = 20;

/// Starts to watch the engine's functions.
pub(super) fn watch_functions(inner: &Arc<Inner>) -> Updates {
    let (catalog, updates) = watch::channel(None);
    let (changed, workers_trigger) = subscribe(inner);
    let watcher = CatalogWatcher {
        inner: inner.clone(),
        catalog,
        workers_trigger,
        info_support: InfoSupport::Batch,
        schemas: HashMap::new(),
        own: HashSet::new(),
        failing: false,
    };
    inner.runtime.spawn(watcher.run(changed));
    updates
}

/// Registers a function that the engine calls when functions or workers change. Returns the trigger for workers, too.
fn subscribe(inner: &Arc<Inner>) -> (Arc<Notify>, Registration) {
    let changed = Arc::new(Notify::new());
    let name = inner.options.name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let id = format!("a2a::functions_changed.{name}");
    let function = RegisterFunction {
        id: id.clone(),
        description: Some("Receives changes of functions and workers".to_owned()),
        metadata: Some(json!({"internal": true})),
        ..RegisterFunction::default()
    };
    let (worker, notify) = (Arc::downgrade(inner), changed.clone());
    inner.register(
        function,
        Arc::new(move |call| {
            #[derive(Deserialize)]
            struct Event {
                event: String,
            }
            let left = call.read::<Event>().is_ok_and(|event| event.event == "worker_disconnected");
            if let Some(worker) = worker.upgrade().filter(|_| left) {
                tracing::info!(
                    "registering functions and routes again: the engine may have removed them with those of another worker"
                );
                worker.register_again_soon();
            }
            notify.notify_one();
            Box::pin(std::future::ready(Ok(RawValue::NULL.to_owned())))
        }),
    );
    inner.register_trigger("engine::functions-available".to_owned(), id.clone(), json!({}));
    let workers_trigger = inner.register_trigger("engine::workers-available".to_owned(), id, json!({}));
    (changed, workers_trigger)
}

/// A function as the engine lists or describes it. Lists may omit members.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct ListedFunction {
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

impl ListedFunction {
    /// Whether callers may see the function, as engines list it by default: it is neither internal nor in another namespace. Calls
    /// without a namespace go to the default one.
    fn is_for_others(&self) -> bool {
        let is_engines =
            self.function_id.starts_with("engine::") && !self.function_id.starts_with("engine::queue::");
        let is_internal = self.metadata.as_ref().is_some_and(|metadata| metadata["internal"] == true);
        !is_engines && !is_internal && self.namespace.as_deref().is_none_or(|name| name == "default")
    }

    /// Whether the schemas must be requested: the function has `a2a.` metadata, and the list omits its schemas.
    fn needs_schemas(&self) -> bool {
        let ours = |metadata: &Value| {
            metadata.as_object().is_some_and(|metadata| metadata.keys().any(|key| key.starts_with("a2a.")))
        };
        self.request_format.is_none()
            && self.response_format.is_none()
            && self.metadata.as_ref().is_some_and(ours)
    }
}

/// The schemas of a function's payload and result.
type Schemas = (Option<Value>, Option<Value>);

/// How the engine can describe functions. Older engines support less.
#[derive(Debug, Clone, Copy)]
enum InfoSupport {
    Batch,
    Single,
    Unsupported,
}

/// Why to load the list.
enum Reason {
    /// The connection is lost.
    Disconnected,
    /// The engine sent a notification.
    Notified,
    /// The poll interval has passed.
    Interval,
}

struct CatalogWatcher {
    inner: Arc<Inner>,
    catalog: watch::Sender<Option<Arc<Catalog>>>,
    /// The trigger for workers that connect and disconnect.
    workers_trigger: Registration,
    info_support: InfoSupport,
    /// The schemas that were requested, with the list entry at that time.
    schemas: HashMap<String, (ListedFunction, Schemas)>,
    /// The functions of this worker that the engine has listed on this connection.
    own: HashSet<String>,
    failing: bool,
}

impl CatalogWatcher {
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
            self.info_support = InfoSupport::Batch;
            self.schemas.clear();
            self.own.clear();
            self.watch_connection(&connection, &mut state, &changed).await;
            self.publish(None);
        }
    }

    /// Watches one connection until it ends.
    async fn watch_connection(
        &mut self,
        connection: &Connection,
        state: &mut watch::Receiver<Connection>,
        changed: &Notify,
    ) {
        let options = &self.inner.options;
        let poll = options.poll_interval;
        let mut backoff = Backoff::new(options.reconnect_min, options.reconnect_max);
        let mut next = Reason::Notified;
        loop {
            let wait = match self.load(&next).await {
                Ok(catalog) => {
                    self.failing = false;
                    self.publish(Some(catalog));
                    backoff.reset();
                    poll
                }
                Err(error) => {
                    self.log_failure(&error);
                    self.publish(None);
                    backoff.next()
                }
            };
            next = tokio::select! {
                _ = state.wait_for(|state| state != connection) => Reason::Disconnected,
                next = next_reason(changed, wait) => next,
            };
            if let Reason::Disconnected = next {
                return;
            }
        }
    }

    fn publish(&self, catalog: Option<Catalog>) {
        self.catalog.send_if_modified(|published| {
            let same = published.as_deref() == catalog.as_ref();
            if !same {
                log_changes(published.as_deref(), catalog.as_ref());
                *published = catalog.map(Arc::new);
            }
            !same
        });
    }

    fn log_failure(&mut self, error: &CallError) {
        if !self.failing && *error != CallError::Disconnected {
            let hint = "if the engine's listener has `rbac`, it must expose `engine::functions::list`";
            tracing::warn!(%error, hint, "cannot list the functions of the engine; none are offered until it works");
            self.failing = true;
        }
    }

    /// Loads the list. Schemas of functions whose entry did not change are reused, unless the engine sent a notification.
    async fn load(&mut self, why: &Reason) -> Result<Catalog, CallError> {
        let listed = self.list().await?;
        self.keep_registered(&listed);
        if let Reason::Interval = why
            && self.workers_trigger.rejection().borrow().is_some()
        {
            self.inner.register_again_soon();
        }
        let listed: Vec<_> = listed.into_iter().filter(ListedFunction::is_for_others).collect();
        match why {
            Reason::Notified => self.schemas.clear(),
            Reason::Disconnected | Reason::Interval => {
                let listed: HashMap<_, _> = listed.iter().map(|l| (l.function_id.as_str(), l)).collect();
                self.schemas.retain(|id, (before, _)| listed.get(id.as_str()) == Some(&&*before));
            }
        }
        let missing: Vec<&ListedFunction> = listed
            .iter()
            .filter(|listed| listed.needs_schemas() && !self.schemas.contains_key(&listed.function_id))
            .collect();
        let (mut info_support, mut found) = (self.info_support, Vec::new());
        for some in missing.chunks(MAX_BATCH) {
            found.extend(self.load_schemas(&mut info_support, some).await?);
        }
        self.info_support = info_support;
        self.schemas.extend(found);
        let infos = listed.into_iter().map(|listed| {
            let schemas = self.schemas.get(&listed.function_id).map(|(_, schemas)| schemas.clone());
            let (request_format, response_format) =
                schemas.unwrap_or((listed.request_format, listed.response_format));
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

    /// All functions of the engine, with internal ones.
    async fn list(&self) -> Result<Vec<ListedFunction>, CallError> {
        let listed: FunctionList =
            self.call("engine::functions::list", &json!({"include_internal": true})).await?;
        Ok(listed.parse().collect())
    }

    /// Registers everything again if the engine has lost a function of this worker. A function that was never listed does not count:
    /// the engine may hide it.
    fn keep_registered(&mut self, listed: &[ListedFunction]) {
        let listed: HashSet<&str> = listed.iter().map(|listed| listed.function_id.as_str()).collect();
        let own = self.inner.registry.lock().function_ids();
        if let Some(lost) = own.iter().find(|id| self.own.contains(*id) && !listed.contains(id.as_str())) {
            tracing::warn!(function = lost, "the engine has removed a function of this worker");
            self.inner.register_again_soon();
        }
        self.own.extend(own.into_iter().filter(|id| listed.contains(id.as_str())));
    }

    /// Requests the schemas of some functions. If the engine does not return a schema, the function has none. Fails only if the
    /// connection is lost.
    async fn load_schemas(
        &self,
        info_support: &mut InfoSupport,
        functions: &[&ListedFunction],
    ) -> Result<Vec<(String, (ListedFunction, Schemas))>, CallError> {
        const INFO: &str = "engine::functions::info";
        let mut described: Vec<ListedFunction> = Vec::new();
        if let InfoSupport::Batch = info_support {
            let ids: Vec<&str> = functions.iter().map(|listed| listed.function_id.as_str()).collect();
            match self.call::<FunctionList>(INFO, &json!({"function_ids": ids})).await {
                Ok(list) => described.extend(list.parse()),
                Err(CallError::Disconnected) => return Err(CallError::Disconnected),
                Err(CallError::TimedOut) => return Ok(Vec::new()),
                Err(CallError::Remote { code, .. }) => *info_support = fall_back(&code, InfoSupport::Single),
            }
        }
        for listed in functions {
            let InfoSupport::Single = info_support else { break };
            match self.call::<ListedFunction>(INFO, &json!({"function_id": listed.function_id})).await {
                Ok(one) => described.push(one),
                Err(CallError::Disconnected) => return Err(CallError::Disconnected),
                Err(CallError::TimedOut) => return Ok(Vec::new()),
                Err(CallError::Remote { code, .. }) => *info_support = fall_back(&code, InfoSupport::Single),
            }
        }
        let mut described: HashMap<String, ListedFunction> =
            described.into_iter().map(|described| (described.function_id.clone(), described)).collect();
        let schemas = functions.iter().map(|&listed| {
            let schemas = described.remove(&listed.function_id);
            let schemas = schemas
                .map_or((None, None), |described| (described.request_format, described.response_format));
            (listed.function_id.clone(), (listed.clone(), schemas))
        });
        Ok(schemas.collect())
    }

    async fn call<T: for<'a> Deserialize<'a>>(&self, function: &str, data: &Value) -> Result<T, CallError> {
        let bad = |error: serde_json::Error| {
            CallError::remote("bad_result", format!("`{function}` gave something else: {error}"))
        };
        let payload = serde_json::value::to_raw_value(data).map_err(bad)?;
        let call = FunctionCall { function, payload: &payload, timeout: CALL_TIMEOUT, trace_parent: None };
        serde_json::from_str(self.inner.invoke(call, None).await?.get()).map_err(bad)
    }
}

/// A list of functions. Entries that cannot be parsed are skipped.
#[derive(Deserialize)]
struct FunctionList {
    functions: Vec<Value>,
}

impl FunctionList {
    fn parse(self) -> impl Iterator<Item = ListedFunction> {
        self.functions.into_iter().filter_map(|function| serde_json::from_value(function).ok())
    }
}

/// What the engine supports, after an error. If the error is not about the functions, it cannot describe functions at all.
fn fall_back(code: &str, otherwise: InfoSupport) -> InfoSupport {
    if matches!(code, "function_not_found" | "FORBIDDEN") { InfoSupport::Unsupported } else { otherwise }
}

/// Logs which functions have come and gone. A lost list is logged elsewhere.
fn log_changes(before: Option<&Catalog>, now: Option<&Catalog>) {
    let Some(now) = now else { return };
    let without = |list: &Catalog, other: Option<&Catalog>| {
        let is_new = |id: &&Arc<str>| !other.is_some_and(|other| other.contains_key(&***id));
        let ids: Vec<&str> = list.keys().filter(is_new).map(|id| &**id).collect();
        let more = ids.len().saturating_sub(MAX_LOGGED);
        let listed = ids[..ids.len() - more].join(" ");
        if more == 0 { listed } else { format!("{listed} and {more} more") }
    };
    let added = without(now, before);
    let removed = before.map(|before| without(before, Some(now))).unwrap_or_default();
    if !added.is_empty() || !removed.is_empty() {
        tracing::info!(added, removed, "the functions of the engine have changed");
    }
}

async fn next_reason(changed: &Notify, wait: Duration) -> Reason {
    tokio::select! {
        () = changed.notified() => {
            tokio::time::sleep(DEBOUNCE).await;
            // The next load also covers changes that were reported in the meantime.
            let _ = changed.notified().now_or_never();
            Reason::Notified
        }
        () = tokio::time::sleep(wait) => Reason::Interval,
    }
}
