//! The audit log: who was denied what, and why.
//!
//! Every denial passes [`Admission::deny`](crate::limits::Admission::deny), which sees to it that nobody fills the log by being denied. Lines
//! have the target `attache::audit`, and fields instead of prose. What a line says is for whoever runs the server; it holds no
//! credential, and the one who was denied learns only what the answer says.

use std::fmt;
use std::net::IpAddr;

use attache_core::Principal;
use attache_protocol::{Error, ErrorKind};

/// How much of what a caller has written is logged.
const SHOWN: usize = 128;

/// Someone was denied something.
pub(crate) struct Denial<'a> {
    /// Who, as far as they were known.
    pub(crate) principal: &'a Principal,
    pub(crate) tenant: Option<&'a str>,
    /// Where they called from.
    pub(crate) address: Option<IpAddr>,
    pub(crate) binding: &'static str,
    /// What they asked for.
    pub(crate) operation: &'a dyn fmt::Display,
    pub(crate) task: Option<&'a str>,
    pub(crate) reason: &'a str,
    /// The status of the answer, in HTTP's numbers whatever the binding.
    pub(crate) status: u16,
}

/// The task that an error is about.
pub(crate) fn task_of(error: &Error) -> Option<&str> {
    error.metadata().iter().find(|(key, _)| *key == "taskId").map(|(_, id)| id.as_str())
}

/// Whether an error denies someone something that others may have.
pub(crate) fn denies(error: &Error) -> bool {
    let webhook = || error.field_violations().iter().any(|violation| violation.field.ends_with("url"));
    match error.kind() {
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied | ErrorKind::ResourceExhausted => true,
        // A webhook that may not be called.
        ErrorKind::InvalidParams => webhook(),
        ErrorKind::TaskNotFound
        | ErrorKind::TaskNotCancelable
        | ErrorKind::PushNotificationNotSupported
        | ErrorKind::UnsupportedOperation
        | ErrorKind::ContentTypeNotSupported
        | ErrorKind::InvalidAgentResponse
        | ErrorKind::ExtendedAgentCardNotConfigured
        | ErrorKind::ExtensionSupportRequired
        | ErrorKind::VersionNotSupported
        | ErrorKind::TaskGenerationMismatch
        | ErrorKind::Parse
        | ErrorKind::InvalidRequest
        | ErrorKind::MethodNotFound
        | ErrorKind::Internal
        | ErrorKind::PayloadTooLarge
        | ErrorKind::Unavailable => false,
    }
}

fn shown(text: &str) -> &str {
    text.char_indices().nth(SHOWN).map_or(text, |(end, _)| &text[..end])
}

/// Logs a denial, and how many before it were not.
pub(crate) fn tell(denial: &Denial<'_>, untold: u64) {
    let Denial { principal, tenant, address, binding, operation, task, reason, status } = denial;
    let operation = operation.to_string();
    tracing::warn!(
        target: "attache::audit",
        principal = shown(principal.name().unwrap_or("anonymous")),
        tenant = tenant.map(shown),
        address = address.map(tracing::field::display),
        binding,
        operation = shown(&operation),
        task = task.map(shown),
        reason,
        status,
        untold = (untold > 0).then_some(untold),
        "denied"
    );
}

/// Logs how many denials were not logged, when no more come.
pub(crate) fn tell_rest(address: Option<IpAddr>, untold: u64) {
    tracing::warn!(
        target: "attache::audit",
        address = address.map(tracing::field::display),
        untold,
        "more were denied"
    );
}

/// Logs that a task was asked for that is not there for who asked, without telling whether it is someone else's: that is not
/// looked up, and most often it is a task that is gone.
pub(crate) fn not_found(denial: &Denial<'_>) {
    let Denial { principal, tenant, address, binding, operation, task, reason: _, status } = denial;
    tracing::debug!(
        target: "attache::audit",
        principal = shown(principal.name().unwrap_or("anonymous")),
        tenant = tenant.map(shown),
        address = address.map(tracing::field::display),
        binding,
        %operation,
        task = task.map(shown),
        status,
        "not found"
    );
}
