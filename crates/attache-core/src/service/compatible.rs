//! The rules of a peer that are stricter than the specification: its ids, and what it refuses for tasks that do not run.

use attache_protocol::{Error, ErrorKind, Request, SendMessageRequest, TaskId, limits};

use crate::{PeerRules, Seq, Snapshot};

/// Checks the ids of a request.
pub(super) fn check_ids(peer: PeerRules, request: &Request) -> Result<(), Error> {
    if peer == PeerRules::Standard {
        return Ok(());
    }
    match request {
        Request::SendMessage(send) | Request::SendStreamingMessage(send) => check_send(send),
        Request::GetTask(request) => check("id", request.id.as_str()),
        Request::ListTasks(request) => {
            request.context_id.as_ref().map_or(Ok(()), |id| check("contextId", id.as_str()))
        }
        Request::CancelTask(request) => check("id", request.id.as_str()),
        Request::SubscribeToTask(request) => check("id", request.id.as_str()),
        Request::CreateTaskPushNotificationConfig(config) => {
            config.task_id.as_ref().map_or(Ok(()), |id| check("taskId", id.as_str()))
        }
        Request::GetTaskPushNotificationConfig(request) => check("taskId", request.task_id.as_str()),
        Request::ListTaskPushNotificationConfigs(request) => check("taskId", request.task_id.as_str()),
        Request::DeleteTaskPushNotificationConfig(request) => check("taskId", request.task_id.as_str()),
        Request::GetExtendedAgentCard(_) => Ok(()),
    }
}

fn check_send(send: &SendMessageRequest) -> Result<(), Error> {
    if let Some(id) = &send.message.context_id {
        check("message.contextId", id.as_str())?;
    }
    send.message.task_id.as_ref().map_or(Ok(()), |id| check("message.taskId", id.as_str()))
}

fn check(field: &str, id: &str) -> Result<(), Error> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
    if !id.is_empty() && id.len() <= limits::ID && id.chars().all(is_allowed) {
        return Ok(());
    }
    let limit = limits::ID;
    Err(Error::invalid_params(field, format!("expected 1 to {limit} letters, digits and `_`, `.`, `:`, `-`")))
}

/// Refuses the cancel of a task that does not run. `is_held` says whether the task waits for an answer in the middle of its work.
pub(super) fn check_cancel(
    peer: PeerRules,
    snapshot: &Snapshot,
    id: &TaskId,
    is_held: impl Fn() -> bool,
) -> Result<(), Error> {
    if peer == PeerRules::Standard || !snapshot.state.is_settled() || is_held() {
        return Ok(());
    }
    let error = Error::new(ErrorKind::TaskNotCancelable, "Task cannot be canceled");
    Err(error.with("taskId", id).with("state", snapshot.state))
}

/// Refuses a subscription to a task that does not run, unless the reader has missed events.
pub(super) fn check_subscription(
    peer: PeerRules,
    snapshot: &Snapshot,
    id: &TaskId,
    resume: Option<Seq>,
) -> Result<(), Error> {
    let has_missed = resume.is_some_and(|seen| seen < snapshot.seq);
    if peer == PeerRules::Standard || !snapshot.state.is_settled() || has_missed {
        return Ok(());
    }
    let error = Error::new(ErrorKind::TaskNotFound, format!("Task {id} is not active"));
    Err(error.with("taskId", id).with("state", snapshot.state))
}
