//! The registry of functions and workers.

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

/// The longest id of a function, in bytes.
const MAX_ID: usize = 256;

/// Whether this is a valid function id.
pub(super) fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID && !id.chars().any(char::is_control)
}

/// Ids with these prefixes are reserved for the engine and for functions in its process.
const RESERVED: [&str; 3] = ["engine::", "state::", "stream::"];

/// A worker that provides a queue may register ids with this prefix.
const QUEUE: &str = "engine::queue::";

/// A function and its executor.
pub(super) struct Function {
    pub(super) info: Arc<FunctionInfo>,
    pub(super) executor: Executor,
}

/// The handler of a function in this process.
pub(super) type Handler =
    dyn Fn(Invocation) -> BoxFuture<'static, Result<Box<RawValue>, CallError>> + Send + Sync;

/// What runs a function.
#[derive(Clone)]
pub(super) enum Executor {
    Worker(Arc<Worker>),
    Local(Arc<Handler>),
    Builtin(Builtin),
}

impl Executor {
    fn is(&self, worker: &Worker) -> bool {
        match self {
            Self::Worker(owner) => owner.id == worker.id,
            Self::Local(_) | Self::Builtin(_) => false,
        }
    }
}

impl Function {
    /// Whether lists omit the function by default.
    pub(super) fn is_internal(&self) -> bool {
        let flagged = self.info.metadata.as_ref().and_then(|metadata| metadata.get("internal"));
        self.info.id.starts_with("engine::") && !self.info.id.starts_with(QUEUE)
            || flagged.is_some_and(|flag| flag == true)
    }
}

/// Why a function was not registered.
pub(super) enum RegisterError {
    /// The id is invalid. SDKs never send such an id, so there is no response.
    BadId,
    /// The response to the worker, and the reason.
    Rejected(Box<RegistrationRejected>, Cow<'static, str>),
}

impl RegisterError {
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

    /// The schema of the function is too expensive to check.
    pub(super) fn schema_rejected(function: &str, why: String) -> Self {
        // At any other code the SDKs remove all functions of the worker. For this code they print the function and the owner.
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
pub(super) struct RegistrationLimits {
    pub(super) functions: usize,
    pub(super) one_function: usize,
    pub(super) all_functions: usize,
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

    /// All functions, in no particular order.
    pub(super) fn functions(&self) -> Vec<Arc<Function>> {
        self.functions.read().values().cloned().collect()
    }

    /// The functions that are not internal.
    pub(super) fn catalog(&self) -> Catalog {
        let functions = self.functions();
        let listed = functions.iter().filter(|function| !function.is_internal());
        listed.map(|function| (function.info.id.clone(), function.info.clone())).collect()
    }

    pub(super) fn worker(&self, id: Uuid) -> Option<Arc<Worker>> {
        self.workers.read().get(&id).cloned()
    }

    pub(super) fn workers(&self) -> Vec<Arc<Worker>> {
        self.workers.read().values().cloned().collect()
    }

    pub(super) fn add_worker(&self, worker: &Arc<Worker>) {
        self.workers.write().insert(worker.id, worker.clone());
    }

    /// Registers a function of this process or of the engine. It replaces a function with the same id.
    pub(super) fn insert(&self, info: FunctionInfo, executor: Executor) {
        let id = info.id.clone();
        self.functions.write().insert(id, Arc::new(Function { info: Arc::new(info), executor }));
    }

    /// Removes a function of this process.
    pub(super) fn remove_local(&self, id: &str) -> bool {
        let mut functions = self.functions.write();
        match functions.get(id).map(|function| &function.executor) {
            Some(Executor::Local(_)) => functions.remove(id).is_some(),
            Some(Executor::Worker(_) | Executor::Builtin(_)) | None => false,
        }
    }

    /// Registers or updates a function of a worker.
    pub(super) fn register(
        &self,
        worker: &Arc<Worker>,
        function: RegisterFunction,
        size: usize,
        limits: RegistrationLimits,
    ) -> Result<(), RegisterError> {
        let id: Arc<str> = function.id.into();
        if !is_id(&id) {
            return Err(RegisterError::BadId);
        }
        if RESERVED.iter().any(|prefix| id.starts_with(prefix)) && !id.starts_with(QUEUE) {
            let why = "ids with this prefix are reserved for the engine";
            let owner = Some("engine".to_owned());
            return Err(RegisterError::rejected("FUNCTION_NAMESPACE_CONFLICT", &id, owner, why));
        }
        if function.invocation.is_some() {
            let why = "this engine does not call functions over HTTP: let a worker run them";
            return Err(RegisterError::rejected("FUNCTION_INVOCATION_UNSUPPORTED", &id, None, why));
        }
        let mut functions = self.functions.write();
        // Checked under the lock that also guards the removal of a worker's functions. So no function stays behind.
        if worker.gone.is_cancelled() {
            return Ok(());
        }
        if let Some(known) = functions.get(&id).filter(|known| !known.executor.is(worker)) {
            let owner = match &known.executor {
                Executor::Worker(owner) => owner.id_text.to_string(),
                Executor::Local(_) | Executor::Builtin(_) => "engine".to_owned(),
            };
            let why = "another worker has registered it";
            return Err(RegisterError::rejected("FUNCTION_NAMESPACE_CONFLICT", &id, Some(owner), why));
        }
        let mut owned = worker.owned.lock();
        let before = owned.functions.get(&id).copied();
        let (count, bytes) = (owned.functions.len(), owned.bytes - before.unwrap_or(0) + size);
        if before.is_none() && count >= limits.functions
            || size > limits.one_function
            || bytes > limits.all_functions
        {
            let why = "the worker has registered too much";
            return Err(RegisterError::rejected("FUNCTION_LIMIT_EXCEEDED", &id, None, why));
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
        functions.insert(
            id,
            Arc::new(Function { info: Arc::new(info), executor: Executor::Worker(worker.clone()) }),
        );
        Ok(())
    }

    /// Removes a function of a worker.
    pub(super) fn unregister(&self, worker: &Worker, id: &str) {
        let mut functions = self.functions.write();
        if functions.get(id).is_some_and(|function| function.executor.is(worker)) {
            functions.remove(id);
        }
        let mut owned = worker.owned.lock();
        if let Some(size) = owned.functions.remove(id) {
            owned.bytes -= size;
        }
    }

    /// Updates the worker's name in the entries of its functions. A worker may send its name after its functions.
    pub(super) fn rename(&self, worker: &Arc<Worker>) {
        let name = worker.name();
        let mut functions = self.functions.write();
        for id in worker.owned.lock().functions.keys() {
            let Some(function) = functions.get_mut(id).filter(|function| function.executor.is(worker)) else {
                continue;
            };
            let info = FunctionInfo { worker: Some(name.clone()), ..FunctionInfo::clone(&function.info) };
            *function = Arc::new(Function { info: Arc::new(info), executor: function.executor.clone() });
        }
    }

    /// Removes a worker and its functions. Returns whether the worker was registered.
    pub(super) fn remove_worker(&self, worker: &Worker) -> bool {
        let mut functions = self.functions.write();
        worker.gone.cancel();
        let owned = std::mem::take(&mut worker.owned.lock().functions);
        for id in owned.into_keys() {
            if functions.get(&id).is_some_and(|function| function.executor.is(worker)) {
                functions.remove(&id);
            }
        }
        drop(functions);
        self.workers.write().remove(&worker.id).is_some()
    }
}
