//! Resource names: 0.3 calls a task `tasks/{id}`, and a webhook of it `tasks/{id}/pushNotificationConfigs/{id}`.

use attache_protocol::TaskId;

use crate::wire::Misfit;

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

/// Reads the name of a task.
pub(super) fn task(name: &str) -> Result<TaskId, Misfit> {
    let id = name.strip_prefix(TASKS).filter(|id| !id.is_empty());
    id.map(TaskId::from).ok_or_else(|| misfit(name, "`tasks/{id}`"))
}

/// Reads the name of what webhooks belong to: the task, or all of its webhooks, which is how the path of HTTP has it.
pub(super) fn parent(name: &str) -> Result<TaskId, Misfit> {
    task(name.strip_suffix(WEBHOOKS).unwrap_or(name))
}

/// Reads the name of a webhook. One without a name of its own bears the id of its task.
pub(super) fn webhook(name: &str) -> Result<(TaskId, String), Misfit> {
    let expected = || misfit(name, "`tasks/{id}/pushNotificationConfigs/{id}`");
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

/// The name that a webhook is given, if it is. Where there is none, the SDKs for Python and JavaScript write their word for
/// nothing into the name.
pub(super) fn given(own: &str) -> Option<&str> {
    match own {
        "" | "None" | "undefined" => None,
        own => Some(own),
    }
}

fn misfit(name: &str, expected: &str) -> Misfit {
    let name: String = name.chars().take(64).collect();
    Misfit::new(format!("`{name}` is not a resource name, expected {expected}"))
}
