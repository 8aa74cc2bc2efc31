//! The functions of the engine itself.

mod functions;
mod triggers;
mod workers;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use super::registry::Executor;
use super::worker::Worker;
use crate::{CallError, FunctionInfo};

/// A function of the engine itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Builtin {
    WorkersRegister,
    WorkersList,
    WorkersInfo,
    FunctionsList,
    FunctionsInfo,
    TriggerTypesList,
    TriggerTypesInfo,
    RegisteredTriggersList,
    RegisteredTriggersInfo,
    RegisterTrigger,
    UnregisterTrigger,
    ChannelsCreate,
    Log(Level),
    Baggage,
    StateSet,
    StateGet,
    StateDelete,
    StateList,
    StateListGroups,
    StateUpdate,
}

/// The level of a log line of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

const ALL: [(&str, Builtin, &str); 29] = [
    ("engine::workers::register", Builtin::WorkersRegister, "Sends the metadata of a worker"),
    ("engine::workers::list", Builtin::WorkersList, "Lists the workers"),
    ("engine::workers::info", Builtin::WorkersInfo, "Describes a worker"),
    ("engine::functions::list", Builtin::FunctionsList, "Lists the functions"),
    ("engine::functions::info", Builtin::FunctionsInfo, "Describes functions with their schemas"),
    ("engine::triggers::list", Builtin::TriggerTypesList, "Lists the types of triggers"),
    ("engine::trigger-types::list", Builtin::TriggerTypesList, "Lists the types of triggers"),
    ("engine::triggers::info", Builtin::TriggerTypesInfo, "Describes a type of trigger"),
    ("engine::registered-triggers::list", Builtin::RegisteredTriggersList, "Lists the triggers"),
    ("engine::registered-triggers::info", Builtin::RegisteredTriggersInfo, "Describes a trigger"),
    ("engine::register_trigger", Builtin::RegisterTrigger, "Registers a trigger that outlives its worker"),
    ("engine::unregister_trigger", Builtin::UnregisterTrigger, "Removes such a trigger"),
    ("engine::channels::create", Builtin::ChannelsCreate, "Opens a channel"),
    ("engine::log::error", Builtin::Log(Level::Error), "Logs an error"),
    ("engine::log::warn", Builtin::Log(Level::Warn), "Logs a warning"),
    ("engine::log::info", Builtin::Log(Level::Info), "Logs a line"),
    ("engine::log::debug", Builtin::Log(Level::Debug), "Logs a detail"),
    ("engine::log::trace", Builtin::Log(Level::Trace), "Logs a small detail"),
    ("engine::baggage::get", Builtin::Baggage, "Reads from the baggage of a trace: always empty"),
    ("engine::baggage::set", Builtin::Baggage, "Adds to the baggage of a trace: ignored"),
    ("engine::baggage::get_all", Builtin::Baggage, "Reads the baggage of a trace: always empty"),
    ("engine::baggage::clear", Builtin::Baggage, "Empties the baggage of a trace"),
    ("engine::baggage::remove", Builtin::Baggage, "Removes from the baggage of a trace"),
    ("state::set", Builtin::StateSet, "Sets a value"),
    ("state::get", Builtin::StateGet, "Gets a value"),
    ("state::delete", Builtin::StateDelete, "Deletes a value"),
    ("state::list", Builtin::StateList, "Lists the values of a scope"),
    ("state::list_groups", Builtin::StateListGroups, "Lists the scopes that have values"),
    ("state::update", Builtin::StateUpdate, "Changes parts of a value at once"),
];

impl Builtin {
    /// Whether it is a function of the state. These need the store, and run in the order of the calls.
    pub(super) fn is_state(self) -> bool {
        matches!(
            self,
            Self::StateSet
                | Self::StateGet
                | Self::StateDelete
                | Self::StateList
                | Self::StateListGroups
                | Self::StateUpdate
        )
    }

    pub(super) fn id(self) -> &'static str {
        ALL.iter().find(|(_, builtin, _)| *builtin == self).map_or("", |(id, _, _)| id)
    }
}

/// The largest input of a function of the engine, in bytes. Functions of the state have their own limit.
const MAX_INPUT: usize = 256 * 1024;

/// Parses the input of a function.
pub(super) fn parse_input<'a, T: Deserialize<'a>>(function: &str, data: &'a str) -> Result<T, CallError> {
    let data = if data == "null" { "{}" } else { data };
    serde_json::from_str(data).map_err(|error| {
        let text = error.to_string();
        let text = text.split(" at line ").next().unwrap_or_default();
        CallError::remote(
            "deserialization_error",
            format!("Failed to deserialize input for {function}: {text}"),
        )
    })
}

fn not_registered(what: &str, id: &str) -> CallError {
    CallError::remote("NOT_FOUND", format!("{what} '{id}' is not registered."))
}

impl Shared {
    pub(super) fn install_builtins(&self) {
        for (id, builtin, description) in ALL {
            let info = FunctionInfo {
                id: id.into(),
                worker: Some("engine".into()),
                description: Some(description.to_owned()),
                request_format: None,
                response_format: None,
                metadata: None,
            };
            self.registry.insert(info, Executor::Builtin(builtin));
        }
    }

    /// Runs a function of the engine that does not wait. The result is JSON.
    pub(super) fn builtin(
        self: &Arc<Self>,
        builtin: Builtin,
        data: &str,
        caller: Option<&Arc<Worker>>,
    ) -> Result<String, CallError> {
        if data.len() > MAX_INPUT {
            let text =
                format!("The input of {} has {} bytes, more than {MAX_INPUT}", builtin.id(), data.len());
            return Err(CallError::remote("INPUT_TOO_LARGE", text));
        }
        match builtin {
            Builtin::WorkersRegister => self.set_worker_metadata(data, caller),
            Builtin::WorkersList => Ok(self.list_workers()),
            Builtin::WorkersInfo => self.describe_worker(data),
            Builtin::FunctionsList => self.list_functions(data),
            Builtin::FunctionsInfo => self.describe_functions(data),
            Builtin::TriggerTypesList => Ok(self.list_trigger_types()),
            Builtin::TriggerTypesInfo => self.describe_trigger_type(data),
            Builtin::RegisteredTriggersList => self.list_triggers(data),
            Builtin::RegisteredTriggersInfo => self.describe_trigger(data),
            Builtin::RegisterTrigger => self.register_permanent_trigger(data),
            Builtin::UnregisterTrigger => self.unregister_permanent_trigger(data),
            Builtin::ChannelsCreate => self.create_channel(data, caller),
            Builtin::Log(level) => log(level, data, caller),
            Builtin::Baggage => Ok("null".to_owned()),
            Builtin::StateSet
            | Builtin::StateGet
            | Builtin::StateDelete
            | Builtin::StateList
            | Builtin::StateListGroups
            | Builtin::StateUpdate => Err(CallError::remote(
                "function_not_invokable",
                "this function reads the store and cannot run here",
            )),
        }
    }

    fn create_channel(&self, data: &str, caller: Option<&Arc<Worker>>) -> Result<String, CallError> {
        #[derive(Deserialize)]
        struct Input {
            buffer_size: Option<usize>,
        }
        let input: Input = parse_input("engine::channels::create", data)?;
        let (reader, writer) =
            self.channels.create(caller, input.buffer_size, self.options.limits.channels)?;
        Ok(json!({ "writer": writer, "reader": reader }).to_string())
    }
}

/// Writes a log line of a worker to the log of this process.
fn log(level: Level, data: &str, caller: Option<&Arc<Worker>>) -> Result<String, CallError> {
    #[derive(Deserialize)]
    struct Input {
        #[serde(default)]
        message: String,
        service_name: Option<String>,
        data: Option<Value>,
    }
    let input: Input = parse_input("engine::log", data)?;
    let worker = caller.map(|caller| caller.name());
    let worker = input.service_name.as_deref().or(worker.as_deref()).unwrap_or_default();
    let data = input.data.map(|data| data.to_string()).unwrap_or_default();
    let text = input.message;
    match level {
        Level::Error => tracing::error!(target: "iii", worker, data, "{text}"),
        Level::Warn => tracing::warn!(target: "iii", worker, data, "{text}"),
        Level::Info => tracing::info!(target: "iii", worker, data, "{text}"),
        Level::Debug => tracing::debug!(target: "iii", worker, data, "{text}"),
        Level::Trace => tracing::trace!(target: "iii", worker, data, "{text}"),
    }
    Ok("null".to_owned())
}
