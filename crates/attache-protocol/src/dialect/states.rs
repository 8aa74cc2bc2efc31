//! The names of states and roles before 1.0, which are in lower case.

use serde::{Deserialize, Serialize, Serializer};

use crate::{Role, TaskState};

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LowerRole {
    User,
    Agent,
}

impl From<LowerRole> for Role {
    fn from(role: LowerRole) -> Self {
        match role {
            LowerRole::User => Self::User,
            LowerRole::Agent => Self::Agent,
        }
    }
}

impl From<Role> for LowerRole {
    fn from(role: Role) -> Self {
        match role {
            Role::User | Role::Unspecified => Self::User,
            Role::Agent => Self::Agent,
        }
    }
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LowerState {
    Submitted,
    Working,
    InputRequired,
    Completed,
    #[serde(alias = "cancelled")]
    Canceled,
    Failed,
    Rejected,
    AuthRequired,
    Unknown,
}

impl LowerState {
    const fn name(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Working => "working",
            Self::InputRequired => "input-required",
            Self::Completed => "completed",
            Self::Canceled => "canceled",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::AuthRequired => "auth-required",
            Self::Unknown => "unknown",
        }
    }
}

impl Serialize for LowerState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl From<TaskState> for LowerState {
    fn from(state: TaskState) -> Self {
        match state {
            TaskState::Unspecified => Self::Unknown,
            TaskState::Submitted => Self::Submitted,
            TaskState::Working => Self::Working,
            TaskState::Completed => Self::Completed,
            TaskState::Failed => Self::Failed,
            TaskState::Canceled => Self::Canceled,
            TaskState::InputRequired => Self::InputRequired,
            TaskState::Rejected => Self::Rejected,
            TaskState::AuthRequired => Self::AuthRequired,
        }
    }
}

impl From<LowerState> for TaskState {
    fn from(state: LowerState) -> Self {
        match state {
            LowerState::Unknown => Self::Unspecified,
            LowerState::Submitted => Self::Submitted,
            LowerState::Working => Self::Working,
            LowerState::Completed => Self::Completed,
            LowerState::Failed => Self::Failed,
            LowerState::Canceled => Self::Canceled,
            LowerState::InputRequired => Self::InputRequired,
            LowerState::Rejected => Self::Rejected,
            LowerState::AuthRequired => Self::AuthRequired,
        }
    }
}

/// The state of a task in 0.1, which has fewer states: a rejected task has failed, and missing credentials are missing input.
pub(super) const fn v0_1_state(state: TaskState) -> &'static str {
    match state {
        TaskState::Unspecified => "unknown",
        TaskState::Submitted => "submitted",
        TaskState::Working => "working",
        TaskState::Completed => "completed",
        TaskState::Failed | TaskState::Rejected => "failed",
        TaskState::Canceled => "cancelled",
        TaskState::InputRequired | TaskState::AuthRequired => "input-required",
    }
}

/// Whether a status is the last one of a stream before 1.0: the task has ended or waits for a message. The stream continues while
/// the task waits for credentials, since the client does not send those in a message.
pub(super) const fn is_final(state: TaskState) -> bool {
    state.is_terminal() || matches!(state, TaskState::InputRequired)
}
