//! The errors of delegation.

use std::time::Duration;

use attache_client::{ClientError, Refused};
use attache_core::StoreError;
use attache_iii::CallError;
use attache_protocol::ErrorKind;
use http::StatusCode;

/// JSON-RPC error codes that are the same in all protocol versions.
const TASK_NOT_FOUND: i64 = -32001;
const TASK_NOT_CANCELABLE: i64 = -32002;

/// An error of delegation. The texts are part of the interface of the `a2a::*` functions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelegationError {
    /// A member of the input is missing.
    #[error("{0} is required")]
    Required(&'static str),
    /// The input is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The policy does not allow requests to the address.
    #[error("blocked: `{url}` may not be called: {refused}{}", loopback_hint(.refused))]
    Blocked {
        /// The address.
        url: String,
        /// The reason.
        refused: Refused,
    },
    /// There is no record of the task.
    #[error("Task not found: {0}")]
    TaskNotFound(String),
    /// The task has ended and cannot be canceled.
    #[error("Cannot cancel task in state: {0}")]
    NotCancelable(String),
    /// The task has ended and cannot be continued.
    #[error("Cannot continue task in state: {0}")]
    NotContinuable(String),
    /// The agent has not yet returned its id of the task, so that no request about the task is possible.
    #[error("the agent has not accepted the task `{0}` yet: try again in a moment")]
    NotAccepted(String),
    /// No card was found.
    #[error("Failed to fetch AgentCard: {0}")]
    NoCard(String),
    /// The signatures of the card are not valid, or not of trusted keys.
    #[error("the card is not trusted: {0}")]
    Untrusted(String),
    /// The agent cannot be reached.
    #[error("a2a fetch failed: {0}")]
    Unreachable(String),
    /// The agent did not respond in time.
    #[error("a2a fetch failed: the agent did not respond within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The response of the agent is invalid.
    #[error("a2a decode failed: {0}")]
    Unreadable(String),
    /// The agent returned an error.
    #[error("A2A error {code}: {message}")]
    Agent {
        /// The JSON-RPC code.
        code: i64,
        /// The message.
        message: String,
    },
    /// The agent rejected the credentials, or the lack of them. The text names the setting to change.
    #[error("{0}")]
    Denied(String),
    /// The table is full of tasks that have not ended.
    #[error(
        "there are {0} delegated tasks under way, which is the limit: cancel some, or wait until some have ended"
    )]
    TooManyTasks(usize),
    /// The store failed.
    #[error("the records of delegated tasks cannot be accessed")]
    Store(#[from] StoreError),
}

/// Names the setting that allows agents on this machine.
fn loopback_hint(refused: &Refused) -> &'static str {
    if refused.is_loopback() { " (`--allow-loopback-agents` allows this machine)" } else { "" }
}

impl DelegationError {
    /// The status of the HTTP response.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Required(_) | Self::Invalid(_) | Self::Blocked { .. } => StatusCode::BAD_REQUEST,
            Self::TaskNotFound(_) | Self::Agent { code: TASK_NOT_FOUND, .. } => StatusCode::NOT_FOUND,
            Self::NotCancelable(_)
            | Self::NotContinuable(_)
            | Self::NotAccepted(_)
            | Self::Agent { code: TASK_NOT_CANCELABLE, .. } => StatusCode::CONFLICT,
            // 401 and 403 are for the callers of this API.
            Self::NoCard(_)
            | Self::Untrusted(_)
            | Self::Unreachable(_)
            | Self::Unreadable(_)
            | Self::Agent { .. }
            | Self::Denied(_) => StatusCode::BAD_GATEWAY,
            Self::TimedOut(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::TooManyTasks(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The error code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Required(_) | Self::Invalid(_) => "invalid_input",
            Self::Blocked { .. } => "blocked",
            Self::TaskNotFound(_) | Self::Agent { code: TASK_NOT_FOUND, .. } => "task_not_found",
            Self::NotCancelable(_) | Self::Agent { code: TASK_NOT_CANCELABLE, .. } => "task_not_cancelable",
            Self::NotContinuable(_) => "task_ended",
            Self::NotAccepted(_) => "task_not_taken",
            Self::NoCard(_) => "no_card",
            Self::Untrusted(_) => "card_untrusted",
            Self::Unreachable(_) => "agent_unreachable",
            Self::TimedOut(_) => "agent_timed_out",
            Self::Unreadable(_) => "agent_unreadable",
            Self::Agent { .. } => "agent_refused",
            Self::Denied(_) => "agent_denied",
            Self::TooManyTasks(_) => "too_many_tasks",
            Self::Store(_) => "store_error",
        }
    }

    /// Logs the cause of a store failure, which the caller does not see.
    pub(super) fn log_store_failure(&self) {
        if let Self::Store(cause) = self {
            tracing::error!(error = %cause, "cannot access the records of delegated tasks");
        }
    }

    /// Whether the agent does not know the task.
    pub(super) fn is_unknown_task(&self) -> bool {
        matches!(self, Self::Agent { code: TASK_NOT_FOUND, .. })
    }
}

impl From<ClientError> for DelegationError {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other errors mean that the agent cannot be reached"
    )]
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused { url, refused } => Self::Blocked { url, refused },
            ClientError::Invalid(text) => Self::Invalid(text),
            ClientError::Timeout { limit } => Self::TimedOut(limit),
            ClientError::Protocol(text) => Self::Unreadable(text),
            error @ ClientError::Untrusted { .. } => Self::Untrusted(error.to_string()),
            ClientError::Remote(remote) => {
                // Over HTTP+JSON the code is an HTTP status, and callers expect a JSON-RPC code.
                let code = match remote.kind {
                    Some(ErrorKind::TaskNotFound) => TASK_NOT_FOUND,
                    Some(ErrorKind::TaskNotCancelable) => TASK_NOT_CANCELABLE,
                    Some(_) | None => remote.code,
                };
                Self::Agent { code, message: remote.message }
            }
            other => Self::Unreachable(other.to_string()),
        }
    }
}

impl From<DelegationError> for CallError {
    fn from(error: DelegationError) -> Self {
        error.log_store_failure();
        Self::remote(error.code(), error.to_string())
    }
}
