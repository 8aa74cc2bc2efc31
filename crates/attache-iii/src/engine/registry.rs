//! Who has which function, and which workers are there.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::value::RawValue;
use uuid::Uuid;

use attache_core::BoxFuture;

use super::Invocation;
use super::builtins::Builtin;
use super::worker::Worker;
use crate::wire::{RegisterFunction, RegistrationRejected};
use crate::{CallError, Catalog, FunctionInfo};

/// How many bytes the id of a function may have.
const MAX_ID: usize = 256;

/// Whether a function can have this id.
pub(super) fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID && !id.chars().any(char::is_control)
}

/// What begins like this belongs to the engine and to those who live in its process.
const RESERVED: [&str; 3] = ["engine::", "state::", "stream::"];

/// What a queue registers, though it begins like something of the engine's.
const QUEUE: &str = "engine::queue::";

/// A function and where it runs.
pub(super) struct Function {
    pub(super) info: Arc<FunctionInfo>,
    pub(super) home: Home,
}

/// A function of this process.
pub(super) type Handler =
    dyn Fn(Invocation) -> BoxFuture<'static, Result<Box<RawValue>, CallError>> + Send + Sync;

/// Where a function runs.
#[derive(Clone)]
pub(super) enum Home {
    Worker(Arc<Worker>),
    Local(Arc<Handler>),
    Builtin(Builtin),
}

impl Home {
    fn is(&self, worker: &Worker) -> bool {
        match self {
            Self::Worker(owner) => owner.id == worker.id,
            Self::Local(_) | Self::Builtin(_) => false,
        }
    }
}

impl Function {
    /// Whether lists leave it out unless asked.
    pub(super) fn is_internal(&self) -> bool {
        let flagged = self.info.metadata.as_ref().and_then(|metadata| metadata.get("internal"));
        self.info.id.starts_with("engine::") && !self.info.id.starts_with(QUEUE)
            || flagged.is_some_and(|flag| flag == true)
    }
}

/// Why a worker does not get to have a function.
pub(super) enum NotRegistered {
    /// The id is none. Nobody who means well sends one, so nobody is told.
    BadId,
    /// It is refused with this answer.
    Rejected(Box<RegistrationRejected>, Cow<'static, str>),
}

impl NotRegistered {
    fn rejected(code: &str, function: &str, owner: Option<String>, why: &'static str) -> Self {
        let answer = RegistrationRejected {
            code: code.to_owned(),
            namespace: Some("default".to_owned()),
            function_id: Some(function.to_owned()),
            worker_name: None,
            owner_worker_id: owner,
            message: None,
        };
        Self::Rejected(Box::new(answer), why.into())
    }

    /// The schema of a function asks for too much.
    pub(super) fn costly(function: &str, why: String) -> Self {
        // At any other code the SDKs give up all functions of the worker. Of this one they print the function and the owner.
        let owner = Some(format!("engine (refused: {why})"));
        match Self::rejected("FUNCTION_NAMESPACE_CONFLICT", function, owner, "") {
            Self::Rejected(mut answer, _) => {
                answer.message = Some(why.clone());
                Self::Rejected(answer, why.into())
            }
            Self::BadId => Self::BadId,
        }
    }
}

/// How much one worker may register.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    pub(super) functions: usize,
    pub(super) one: usize,
    pub(super) all: usize,
}

#[derive(Default)]
pub(super) struct Registry {
    functions: RwLock<HashMap<Arc<str>, Arc<Function>>>,
    workers: RwLock<HashMap<Uuid, Arc<Worker>>>,
}

impl Registry {
    pub(super) fn function(&self, id: &str) -> Option<Arc<Function>> {
        self.functions.read().get(id).cloned()
    }

    /// All functions, in no order.
    pub(super) fn functions(&self) -> Vec<Arc<Function>> {
        self.functions.read().values().cloned().collect()
    }

    /// The functions that are not internal.
    pub(super) fn catalog(&self) -> Catalog {
        let functions = self.functions();
        let shown = functions.iter().filter(|function| !function.is_internal());
        shown.map(|function| (function.info.id.clone(), function.info.clone())).collect()
    }

    pub(super) fn worker(&self, id: Uuid) -> Option<Arc<Worker>> {
        self.workers.read().get(&id).cloned()
    }

    pub(super) fn workers(&self) -> Vec<Arc<Worker>> {
        self.workers.read().values().cloned().collect()
    }

    pub(super) fn admit(&self, worker: &Arc<Worker>) {
        self.workers.write().insert(worker.id, worker.clone());
    }

    /// Registers a function of this process, or of the engine itself. Whoever had the id has it no more.
    pub(super) fn put(&self, info: FunctionInfo, home: Home) {
        let id = info.id.clone();
        self.functions.write().insert(id, Arc::new(Function { info: Arc::new(info), home }));
    }

    /// Removes a function of this process.
    pub(super) fn remove_local(&self, id: &str) -> bool {
        let mut functions = self.functions.write();
        match functions.get(id).map(|function| &function.home) {
            Some(Home::Local(_)) => functions.remove(id).is_some(),
            Some(Home::Worker(_) | Home::Builtin(_)) | None => false,
        }
    }

    /// Registers a function of a worker's, or says anew what it is.
    pub(super) fn register(
        &self,
        worker: &Arc<Worker>,
        function: RegisterFunction,
        size: usize,
        allowance: Allowance,
    ) -> Result<(), NotRegistered> {
        let id: Arc<str> = function.id.into();
        if !is_id(&id) {
            return Err(NotRegistered::BadId);
        }
        if RESERVED.iter().any(|prefix| id.starts_with(prefix)) && !id.starts_with(QUEUE) {
            let why = "ids that begin like this belong to the engine";
            let owner = Some("engine".to_owned());
            return Err(NotRegistered::rejected("FUNCTION_NAMESPACE_CONFLICT", &id, owner, why));
        }
        if function.invocation.is_some() {
            let why = "this engine does not call functions over HTTP: let a worker run them";
            return Err(NotRegistered::rejected("FUNCTION_INVOCATION_UNSUPPORTED", &id, None, why));
        }
        let mut functions = self.functions.write();
        // Asked under the lock under which the worker's functions are removed, so that none is left behind.
        if worker.gone.is_cancelled() {
            return Ok(());
        }
        if let Some(known) = functions.get(&id).filter(|known| !known.home.is(worker)) {
            let owner = match &known.home {
                Home::Worker(owner) => owner.name_of_id.to_string(),
                Home::Local(_) | Home::Builtin(_) => "engine".to_owned(),
            };
            let why = "another worker has it";
            return Err(NotRegistered::rejected("FUNCTION_NAMESPACE_CONFLICT", &id, Some(owner), why));
        }
        let mut owned = worker.owned.lock();
        let before = owned.functions.get(&id).copied();
        let (count, bytes) = (owned.functions.len(), owned.bytes - before.unwrap_or(0) + size);
        if before.is_none() && count >= allowance.functions || size > allowance.one || bytes > allowance.all {
            let why = "the worker has registered too much";
            return Err(NotRegistered::rejected("FUNCTION_LIMIT_EXCEEDED", &id, None, why));
        }
        owned.functions.insert(id.clone(), size);
        owned.bytes = bytes;
        drop(owned);
        let info = FunctionInfo {
            id: id.clone(),
            worker: Some(worker.name()),
            description: function.description,
            request_format: function.request_format,
            response_format: function.response_format,
            metadata: function.metadata,
        };
        functions.insert(id, Arc::new(Function { info: Arc::new(info), home: Home::Worker(worker.clone()) }));
        Ok(())
    }

    /// Removes a function of a worker's.
    pub(super) fn unregister(&self, worker: &Worker, id: &str) {
        let mut functions = self.functions.write();
        if functions.get(id).is_some_and(|function| function.home.is(worker)) {
            functions.remove(id);
        }
        let mut owned = worker.owned.lock();
        if let Some(size) = owned.functions.remove(id) {
            owned.bytes -= size;
        }
    }

    /// Puts the worker's name, which it may tell late, into what is known about its functions.
    pub(super) fn rename(&self, worker: &Arc<Worker>) {
        let name = worker.name();
        let mut functions = self.functions.write();
        for id in worker.owned.lock().functions.keys() {
            let Some(function) = functions.get_mut(id).filter(|function| function.home.is(worker)) else {
                continue;
            };
            let info = FunctionInfo { worker: Some(name.clone()), ..FunctionInfo::clone(&function.info) };
            *function = Arc::new(Function { info: Arc::new(info), home: function.home.clone() });
        }
    }

    /// Removes a worker and its functions. Whether it was still there.
    pub(super) fn dismiss(&self, worker: &Worker) -> bool {
        let mut functions = self.functions.write();
        worker.gone.cancel();
        let owned = std::mem::take(&mut worker.owned.lock().functions);
        for id in owned.into_keys() {
            if functions.get(&id).is_some_and(|function| function.home.is(worker)) {
                functions.remove(&id);
            }
        }
        drop(functions);
        self.workers.write().remove(&worker.id).is_some()
    }
}
