//! The engine's `state::*` functions, for the scope of the tasks.

use std::sync::Arc;
use std::time::Duration;

use attache_protocol::TaskId;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::{CallError, FunctionCall, Functions};

/// Where the older worker keeps tasks, and so do we.
const SCOPE: &str = "a2a:tasks";

/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct State(pub(super) Arc<dyn Functions>);

#[derive(Serialize)]
struct Place<'a> {
    scope: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
}

impl State {
    /// What is kept for a task.
    pub(super) async fn get(&self, task: &TaskId) -> Result<Option<Box<RawValue>>, CallError> {
        self.call("state::get", Some(task), None).await.map(something)
    }

    /// What is kept, for all tasks.
    pub(super) async fn list(&self) -> Result<Vec<Box<RawValue>>, CallError> {
        read(&self.call("state::list", None, None).await?)
    }

    /// Keeps something for a task. What was kept before.
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
        let answer = self.call("state::set", Some(task), Some(value)).await?;
        Ok(read::<Changed>(&answer).unwrap_or_default().old_value.and_then(something))
    }

    /// Keeps nothing for a task any more.
    pub(super) async fn delete(&self, task: &TaskId) -> Result<(), CallError> {
        self.call("state::delete", Some(task), None).await.map(drop)
    }

    async fn call(
        &self,
        function: &str,
        key: Option<&TaskId>,
        value: Option<&RawValue>,
    ) -> Result<Box<RawValue>, CallError> {
        let payload = to_raw_value(&Place { scope: SCOPE, key, value }).map_err(unreadable)?;
        self.0.call(FunctionCall { function, payload: &payload, timeout: TIMEOUT }).await
    }
}

fn read<'a, T: Deserialize<'a>>(answer: &'a RawValue) -> Result<T, CallError> {
    serde_json::from_str(answer.get()).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> CallError {
    CallError::remote("unreadable", error.to_string())
}

fn something(value: Box<RawValue>) -> Option<Box<RawValue>> {
    (value.get() != "null").then_some(value)
}
