//! The audit log: which caller was denied what, and why.
//!
//! Every denial passes [`Admission::deny`](crate::limits::Admission::deny), which limits how many lines one address can cause. Lines
//! have the target `attache::audit`, and fields instead of prose. They are for the operator and hold no credentials. The caller learns
//! only what the response says.

use std::fmt;
use std::net::IpAddr;

use attache_core::Principal;
use attache_protocol::{Error, ErrorClass, ErrorKind};

/// How many characters of a value from a caller are logged.
const MAX_LOGGED: usize = 128;

/// A request that was denied.
pub(crate) struct Denial<'a> {
    /// The caller, as far as it is known.
    pub(crate) principal: &'a Principal,
    pub(crate) tenant: Option<&'a str>,
    /// The address that the request came from.
    pub(crate) address: Option<IpAddr>,
    pub(crate) binding: &'static str,
    /// The named agent that the request was for.
    pub(crate) agent: Option<&'a str>,
    /// What the request asked for.
    pub(crate) operation: &'a dyn fmt::Display,
    pub(crate) task: Option<&'a str>,
    pub(crate) reason: &'a str,
    /// The status of the response, as HTTP has it, for every binding.
    pub(crate) status: u16,
}

/// The task that an error is about.
pub(crate) fn task_of(error: &Error) -> Option<&str> {
    error.metadata().iter().find(|(key, _)| *key == "taskId").map(|(_, id)| id.as_str())
}

/// Whether an error is a denial: another caller might get what was asked for.
pub(crate) fn denies(error: &Error) -> bool {
    let webhook = || error.field_violations().iter().any(|violation| violation.field.ends_with("url"));
    // A webhook can have an address that the server must not call.
    error.kind().class() == ErrorClass::Denied || error.kind() == ErrorKind::InvalidParams && webhook()
}

/// The beginning of a value from a caller.
pub(crate) fn cut(text: &str) -> &str {
    text.char_indices().nth(MAX_LOGGED).map_or(text, |(end, _)| &text[..end])
}

/// Logs a denial, with the number of denials before it that were not logged.
pub(crate) fn log_denial(denial: &Denial<'_>, suppressed: u64) {
    let Denial { principal, tenant, address, binding, agent, operation, task, reason, status } = denial;
    let operation = operation.to_string();
    tracing::warn!(
        target: "attache::audit",
        principal = cut(principal.name().unwrap_or("anonymous")),
        tenant = tenant.map(cut),
        address = address.map(tracing::field::display),
        binding,
        agent,
        operation = cut(&operation),
        task = task.map(cut),
        reason,
        status,
        suppressed = (suppressed > 0).then_some(suppressed),
        "denied"
    );
}

/// Logs how many denials were not logged, when no more follow.
pub(crate) fn log_suppressed(address: Option<IpAddr>, suppressed: u64) {
    tracing::warn!(
        target: "attache::audit",
        address = address.map(tracing::field::display),
        suppressed,
        "denials were not logged"
    );
}

/// Logs that a task does not exist for the caller. Whether it belongs to another caller is not looked up; most often the task was
/// deleted.
pub(crate) fn not_found(denial: &Denial<'_>) {
    let Denial { principal, tenant, address, binding, agent, operation, task, reason: _, status } = denial;
    tracing::debug!(
        target: "attache::audit",
        principal = cut(principal.name().unwrap_or("anonymous")),
        tenant = tenant.map(cut),
        address = address.map(tracing::field::display),
        binding,
        agent,
        %operation,
        task = task.map(cut),
        status,
        "not found"
    );
}
