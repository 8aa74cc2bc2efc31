//! The resource names of 0.3: `tasks/{id}` for a task and `tasks/{id}/pushNotificationConfigs/{id}` for a webhook.

use attache_protocol::TaskId;

use crate::convert::ConvertError;

const TASKS: &str = "tasks/";
const WEBHOOKS: &str = "/pushNotificationConfigs";

/// The name of a task.
pub(super) fn of_task(task: &TaskId) -> String {
    format!("{TASKS}{}", task.as_str())
}

/// The name of a webhook.
pub(super) fn of_webhook(task: &TaskId, webhook: &str) -> String {
    format!("{TASKS}{}{WEBHOOKS}/{webhook}", task.as_str())
}

/// Parses the name of a task.
pub(super) fn task(name: &str) -> Result<TaskId, ConvertError> {
    let id = name.strip_prefix(TASKS).filter(|id| !id.is_empty());
    id.map(TaskId::from).ok_or_else(|| invalid_name(name, "`tasks/{id}`"))
}

/// Parses the parent of webhooks: the name of the task, or of all its webhooks, as in the path over HTTP.
pub(super) fn parent(name: &str) -> Result<TaskId, ConvertError> {
    task(name.strip_suffix(WEBHOOKS).unwrap_or(name))
}

/// Parses the name of a webhook. A webhook without an id has the id of its task.
pub(super) fn webhook(name: &str) -> Result<(TaskId, String), ConvertError> {
    let expected = || invalid_name(name, "`tasks/{id}/pushNotificationConfigs/{id}`");
    let (start, own) = name.split_once(WEBHOOKS).ok_or_else(expected)?;
    let task = task(start).map_err(|_| expected())?;
    let own = match own.strip_prefix('/') {
        Some(own) => given(own),
        None if own.is_empty() => None,
        None => return Err(expected()),
    };
    let own = own.unwrap_or(task.as_str()).to_owned();
    Ok((task, own))
}

/// The id of a webhook, if there is one. Without an id, the Python SDK writes `None` and the JavaScript SDK writes `undefined`.
pub(super) fn given(own: &str) -> Option<&str> {
    match own {
        "" | "None" | "undefined" => None,
        own => Some(own),
    }
}

fn invalid_name(name: &str, expected: &str) -> ConvertError {
    let name: String = name.chars().take(64).collect();
    ConvertError::new(format!("`{name}` is not a resource name, expected {expected}"))
}
