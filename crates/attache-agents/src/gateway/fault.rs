//! Why a turn failed, and what the caller reads about it.

use attache_client::ClientError;
use attache_core::{AgentError, AgentResult, StoreError, Turn};
use attache_protocol::ErrorKind;

use super::Inner;

/// How much of an error of the remote agent the caller reads, in characters.
const MAX_TEXT: usize = 1000;

/// Why a turn cannot go on.
#[derive(Debug)]
pub(super) enum Fault {
    /// The remote agent cannot be reached, or returned an error.
    Client(Box<ClientError>),
    /// The answer of the remote agent is larger than this limit.
    TooLarge(usize),
    /// The answer of the remote agent makes no sense.
    Invalid(&'static str),
    /// Our own task cannot be written.
    Own(AgentError),
}

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Self {
        Self::Client(Box::new(error))
    }
}

impl From<AgentError> for Fault {
    fn from(error: AgentError) -> Self {
        Self::Own(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Own(error.into())
    }
}

/// Whether the same request can succeed later.
pub(super) fn is_temporary(error: &ClientError) -> bool {
    if let ClientError::Interrupted { cause, .. } = error {
        return is_temporary(cause);
    }
    let is_server_error = matches!(error, ClientError::Http { status, .. } if *status >= 500);
    is_server_error || matches!(error, ClientError::Timeout { .. }) || error.is_transient()
}

impl Fault {
    /// Whether the remote task may still be running although this turn gives it up.
    pub(super) fn leaves_task_behind(&self) -> bool {
        match self {
            Self::TooLarge(_) | Self::Invalid(_) => true,
            Self::Client(error) => {
                matches!(**error, ClientError::TooLarge { .. } | ClientError::Protocol(_))
            }
            // The task may have been canceled, or another process continues it.
            Self::Own(_) => false,
        }
    }

    /// Ends the task of the turn. Details that are not the caller's to read go to the log.
    pub(super) async fn end(self, gateway: &Inner, turn: &Turn) -> AgentResult {
        let (task, url) = (turn.task_id(), &*gateway.address);
        let error = match self {
            Self::Own(error) => return Err(error),
            Self::TooLarge(limit) => return Err(too_large(limit)),
            Self::Invalid(why) => {
                tracing::warn!(target: super::LOG, %task, url, why, "the answer of the remote agent is invalid");
                return Err(AgentError::public(INVALID));
            }
            Self::Client(error) => *error,
        };
        if let Some(kind) = error.kind().filter(|kind| is_fault_of_caller(*kind)) {
            let text = rejection(&error, kind);
            return turn.reject(text).await;
        }
        let detail = gateway.explain(&error);
        if error.kind() == Some(ErrorKind::TaskNotFound) {
            tracing::warn!(target: super::LOG, %task, url, error = detail, "the remote agent has lost a task");
            return Err(AgentError::public("the remote agent no longer has the task: begin another"));
        }
        tracing::warn!(target: super::LOG, %task, url, error = detail, "the remote agent failed");
        if let ClientError::TooLarge { limit } = error {
            return Err(too_large(limit));
        }
        let is_other_version =
            matches!(error.kind(), Some(ErrorKind::MethodNotFound | ErrorKind::VersionNotSupported));
        let text = if is_denial(&error) {
            DENIED
        } else if is_other_version {
            OTHER_VERSION
        } else if is_temporary(&error) {
            UNREACHABLE
        } else if matches!(error, ClientError::Protocol(_)) {
            INVALID
        } else {
            // An error id: the operator finds the details in the log.
            return Err(AgentError::from(error));
        };
        Err(AgentError::public(text))
    }

    /// The question for another answer, if the remote agent did not accept the last one.
    pub(super) fn question(&self) -> Option<String> {
        let Self::Client(error) = self else { return None };
        let wrong = [ErrorKind::ContentTypeNotSupported, ErrorKind::InvalidParams];
        error.kind().filter(|kind| wrong.contains(kind)).map(|kind| rejection(error, kind))
    }
}

fn rejection(error: &ClientError, kind: ErrorKind) -> String {
    let message = error.remote().map(|remote| remote.message.as_str()).unwrap_or_default();
    format!("the remote agent rejected the message: {} ({})", excerpt(message), kind.reason())
}

const UNREACHABLE: &str = "the remote agent cannot be reached: try again later";
const INVALID: &str = "the answer of the remote agent is invalid";
const OTHER_VERSION: &str = "the remote agent speaks none of the versions 1.0, 0.3 and 0.1 of the protocol";
const DENIED: &str = "the remote agent does not accept the credentials of this server";

fn too_large(limit: usize) -> AgentError {
    AgentError::public(format!("the answer of the remote agent is larger than the limit of {limit} bytes"))
}

/// Whether the remote agent wants other credentials than this server has.
fn is_denial(error: &ClientError) -> bool {
    matches!(error.kind(), Some(ErrorKind::Unauthenticated | ErrorKind::PermissionDenied))
        || matches!(
            error,
            ClientError::Credentials { .. } | ClientError::Login { .. } | ClientError::Withheld { .. }
        )
}

/// Whether the caller can do better with another message.
fn is_fault_of_caller(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::ContentTypeNotSupported
        | ErrorKind::InvalidParams
        | ErrorKind::UnsupportedOperation
        | ErrorKind::ExtensionSupportRequired
        | ErrorKind::PayloadTooLarge => true,
        ErrorKind::TaskNotFound
        | ErrorKind::TaskNotCancelable
        | ErrorKind::PushNotificationNotSupported
        | ErrorKind::InvalidAgentResponse
        | ErrorKind::ExtendedAgentCardNotConfigured
        | ErrorKind::VersionNotSupported
        | ErrorKind::TaskGenerationMismatch
        | ErrorKind::Parse
        | ErrorKind::InvalidRequest
        | ErrorKind::MethodNotFound
        | ErrorKind::Internal
        | ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied
        | ErrorKind::ResourceExhausted
        | ErrorKind::Unavailable => false,
    }
}

/// A text of the remote agent as it may be shown: one line of limited length.
fn excerpt(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(MAX_TEXT).collect()
}
