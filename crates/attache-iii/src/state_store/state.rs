//! The engine's `state::*` functions, for the scope of the tasks.

use std::sync::Arc;
use std::time::Duration;

use attache_protocol::TaskId;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::{CallError, FunctionCall, Functions};

/// The scope in which the older worker keeps tasks.
const SCOPE: &str = "a2a:tasks";

/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct State(pub(super) Arc<dyn Functions>);

#[derive(Serialize)]
struct StateInput<'a> {
    scope: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
}

impl State {
    /// The value of a task.
    pub(super) async fn get(&self, task: &TaskId) -> Result<Option<Box<RawValue>>, CallError> {
        self.call("state::get", Some(task), None).await.map(non_null)
    }

    /// The values of all tasks.
    pub(super) async fn list(&self) -> Result<Vec<Box<RawValue>>, CallError> {
        parse(&self.call("state::list", None, None).await?)
    }

    /// Sets the value of a task. Returns the previous value.
    pub(super) async fn set(
        &self,
        task: &TaskId,
        value: &RawValue,
    ) -> Result<Option<Box<RawValue>>, CallError> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Changed {
            old_value: Option<Box<RawValue>>,
        }
        let result = self.call("state::set", Some(task), Some(value)).await?;
        Ok(parse::<Changed>(&result).unwrap_or_default().old_value.and_then(non_null))
    }

    /// Deletes the value of a task.
    pub(super) async fn delete(&self, task: &TaskId) -> Result<(), CallError> {
        self.call("state::delete", Some(task), None).await.map(drop)
    }

    async fn call(
        &self,
        function: &str,
        key: Option<&TaskId>,
        value: Option<&RawValue>,
    ) -> Result<Box<RawValue>, CallError> {
        let payload = to_raw_value(&StateInput { scope: SCOPE, key, value }).map_err(invalid)?;
        self.0.call(FunctionCall { function, payload: &payload, timeout: TIMEOUT, trace_parent: None }).await
    }
}

fn parse<'a, T: Deserialize<'a>>(result: &'a RawValue) -> Result<T, CallError> {
    serde_json::from_str(result.get()).map_err(invalid)
}

fn invalid(error: serde_json::Error) -> CallError {
    CallError::remote("unreadable", error.to_string())
}

fn non_null(value: Box<RawValue>) -> Option<Box<RawValue>> {
    (value.get() != "null").then_some(value)
}
