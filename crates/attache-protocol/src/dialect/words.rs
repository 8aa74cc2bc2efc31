//! States and roles in lower case, as all versions before 1.0 wrote them.

use serde::{Deserialize, Serialize, Serializer};

use crate::{Role, TaskState};

/// Who wrote a message.
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

/// Where a task stands.
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

/// Where a task stands, in the fewer words of 0.1: what was refused has failed, and credentials are an input like others.
pub(super) const fn oldest_state(state: TaskState) -> &'static str {
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

/// Whether a status is the last that a stream before 1.0 tells: the task has ended or waits for a message. While it waits for
/// credentials, which come another way, the stream goes on.
pub(super) const fn is_final(state: TaskState) -> bool {
    state.is_terminal() || matches!(state, TaskState::InputRequired)
}
