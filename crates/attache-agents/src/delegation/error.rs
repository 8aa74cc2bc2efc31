//! Why something was not delegated.

use std::time::Duration;

use attache_client::{ClientError, Refused};
use attache_core::StoreError;
use attache_iii::CallError;
use attache_protocol::ErrorKind;
use http::StatusCode;

/// What JSON-RPC calls a task that is not there, and one that cannot be canceled, in every generation.
const TASK_NOT_FOUND: i64 = -32001;
const TASK_NOT_CANCELABLE: i64 = -32002;

/// Why something was not delegated, in the words that callers of the `a2a::*` functions know.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelegationError {
    /// A member of the input is missing.
    #[error("{0} is required")]
    Required(&'static str),
    /// The input is wrong in some other way.
    #[error("{0}")]
    Invalid(String),
    /// The address may not be called.
    #[error("blocked: `{url}` may not be called: {refused}")]
    Blocked {
        /// The address.
        url: String,
        /// Why.
        refused: Refused,
    },
    /// There is no record of such a task.
    #[error("Task not found: {0}")]
    TaskNotFound(String),
    /// The task has ended, so that it cannot be canceled.
    #[error("Cannot cancel task in state: {0}")]
    Ended(String),
    /// The task has ended, so that nothing more can be said to it.
    #[error("Cannot continue task in state: {0}")]
    Over(String),
    /// The agent has not yet said what it calls the task, so that it cannot be asked about it.
    #[error("the agent has not taken the task `{0}` yet: try again in a moment")]
    NotTaken(String),
    /// The card cannot be had.
    #[error("Failed to fetch AgentCard: {0}")]
    NoCard(String),
    /// The agent cannot be reached.
    #[error("a2a fetch failed: {0}")]
    Unreachable(String),
    /// The agent did not answer in time.
    #[error("a2a fetch failed: the agent did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// What the agent answered is not of the protocol.
    #[error("a2a decode failed: {0}")]
    Unreadable(String),
    /// The agent refused.
    #[error("A2A error {code}: {message}")]
    Agent {
        /// Its code.
        code: i64,
        /// Its words.
        message: String,
    },
    /// The agent does not let in whoever asks. What would help is said with it.
    #[error("{0}")]
    Denied(String),
    /// All records are of tasks that have not ended.
    #[error(
        "there are {0} delegated tasks under way, which is the limit: cancel some, or wait until some have ended"
    )]
    Full(usize),
    /// The store does not work.
    #[error("the records of delegated tasks cannot be reached")]
    Store(#[from] StoreError),
}

impl DelegationError {
    /// The status of an HTTP response that says so.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Required(_) | Self::Invalid(_) | Self::Blocked { .. } => StatusCode::BAD_REQUEST,
            Self::TaskNotFound(_) | Self::Agent { code: TASK_NOT_FOUND, .. } => StatusCode::NOT_FOUND,
            Self::Ended(_)
            | Self::Over(_)
            | Self::NotTaken(_)
            | Self::Agent { code: TASK_NOT_CANCELABLE, .. } => StatusCode::CONFLICT,
            // What this API says with 401 and 403 is about its own callers.
            Self::NoCard(_)
            | Self::Unreachable(_)
            | Self::Unreadable(_)
            | Self::Agent { .. }
            | Self::Denied(_) => StatusCode::BAD_GATEWAY,
            Self::TimedOut(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Full(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What programs call it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Required(_) | Self::Invalid(_) => "invalid_input",
            Self::Blocked { .. } => "blocked",
            Self::TaskNotFound(_) | Self::Agent { code: TASK_NOT_FOUND, .. } => "task_not_found",
            Self::Ended(_) | Self::Agent { code: TASK_NOT_CANCELABLE, .. } => "task_not_cancelable",
            Self::Over(_) => "task_ended",
            Self::NotTaken(_) => "task_not_taken",
            Self::NoCard(_) => "no_card",
            Self::Unreachable(_) => "agent_unreachable",
            Self::TimedOut(_) => "agent_timed_out",
            Self::Unreadable(_) => "agent_unreadable",
            Self::Agent { .. } => "agent_refused",
            Self::Denied(_) => "agent_denied",
            Self::Full(_) => "too_many_tasks",
            Self::Store(_) => "store_error",
        }
    }

    /// Whether the agent says that it knows no such task.
    pub(super) fn is_unknown_task(&self) -> bool {
        matches!(self, Self::Agent { code: TASK_NOT_FOUND, .. })
    }
}

impl From<ClientError> for DelegationError {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all that is left means that there is no agent to talk to"
    )]
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused { url, refused } => Self::Blocked { url, refused },
            ClientError::Invalid(text) => Self::Invalid(text),
            ClientError::Timeout { limit } => Self::TimedOut(limit),
            ClientError::Protocol(text) => Self::Unreadable(text),
            error @ ClientError::Untrusted { .. } => Self::Unreadable(error.to_string()),
            ClientError::Remote(remote) => {
                // Over HTTP the code is a status, and callers know those of JSON-RPC.
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
        if let DelegationError::Store(cause) = &error {
            tracing::error!(error = %cause, "the records of delegated tasks cannot be reached");
        }
        Self::remote(error.code(), error.to_string())
    }
}
