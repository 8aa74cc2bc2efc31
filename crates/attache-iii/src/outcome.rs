//! The outcome of a function call: the text for the caller, and the line in the log.

use std::time::{Duration, Instant};

use attache_core::{TraceParent, Turn};

use crate::{CallError, FunctionInfo};

/// The time limit of a call, and what set it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TimeLimit {
    /// The metadata of the function.
    Function(Duration),
    /// The settings of the gateway.
    Gateway(Duration),
}

impl TimeLimit {
    pub(crate) fn duration(self) -> Duration {
        match self {
            Self::Function(limit) | Self::Gateway(limit) => limit,
        }
    }
}

/// What the Rust SDK puts before the message of a function.
pub(crate) const RUST_PREFIX: &str = "handler error: ";

/// Describes a failed call for the caller. An error of the function has the words of the function.
pub(crate) fn failure(function: &FunctionInfo, error: &CallError, limit: TimeLimit) -> String {
    let id = &*function.id;
    match error {
        CallError::Remote { code, message } => match (code.as_str(), message.as_str()) {
            ("invocation_stopped", _) => {
                format!("The worker of the function '{id}' disconnected before the function returned")
            }
            ("function_not_found", _) => {
                format!("The function '{id}' is not registered any more: its worker may have disconnected")
            }
            (code, "") => format!("The function '{id}' failed without a message ({code})"),
            (_, message) => message.strip_prefix(RUST_PREFIX).unwrap_or(message).to_owned(),
        },
        CallError::TimedOut => {
            let (seconds, setting) = match limit {
                TimeLimit::Function(limit) => {
                    (limit.as_secs_f64(), "the time limit is `a2a.timeoutMs` in the metadata of the function")
                }
                TimeLimit::Gateway(limit) => (
                    limit.as_secs_f64(),
                    "the time limit is `--call-timeout`, or `a2a.timeoutMs` in the metadata of the function",
                ),
            };
            format!("The function '{id}' did not return within {seconds} s; {setting}")
        }
        CallError::Disconnected => {
            format!("The function '{id}' cannot be called now: the engine is not connected")
        }
    }
}

/// A call that is running. It is logged once: when it has an outcome, or as canceled when it is dropped.
pub(crate) struct RunningCall<'a> {
    turn: &'a Turn,
    function: &'a FunctionInfo,
    begun: Instant,
    ended: bool,
}

impl<'a> RunningCall<'a> {
    pub(crate) fn begin(turn: &'a Turn, function: &'a FunctionInfo) -> Self {
        Self { turn, function, begun: Instant::now(), ended: false }
    }

    /// Logs the outcome. Neither payloads nor messages of functions are logged.
    pub(crate) fn end(mut self, error: Option<&CallError>) {
        self.ended = true;
        match error {
            None => self.log("completed", None),
            Some(CallError::TimedOut) => self.log("timed out", None),
            Some(CallError::Disconnected) => self.log("not connected", None),
            Some(CallError::Remote { code, .. }) if code == "invocation_stopped" => {
                self.log("worker disconnected", None);
            }
            Some(CallError::Remote { code, .. }) => self.log("failed", Some(code)),
        }
    }

    fn log(&self, outcome: &str, code: Option<&str>) {
        let Self { turn, function, begun, .. } = self;
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (caller, task) = (turn.caller().principal(), turn.task_id());
        let (id, worker) = (&*function.id, function.worker.as_deref());
        let trace_parent = turn.trace_parent();
        let traceparent = trace_parent.as_ref().map(TraceParent::as_str);
        tracing::info!(function = id, worker, %caller, %task, outcome, code, ms, traceparent, "function call");
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.log("canceled", None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_words_of_the_function() {
        let function = FunctionInfo::new("disk::write");
        let limit = TimeLimit::Gateway(Duration::from_secs(30));
        let text = |code: &str, message: &str| failure(&function, &CallError::remote(code, message), limit);
        assert_eq!(text("invocation_failed", "disk on fire"), "disk on fire");
        assert_eq!(text("invocation_failed", "handler error: disk on fire"), "disk on fire");
        assert_eq!(text("QUOTA", ""), "The function 'disk::write' failed without a message (QUOTA)");
        assert_eq!(
            text("invocation_stopped", "Invocation stopped"),
            "The worker of the function 'disk::write' disconnected before the function returned"
        );
        assert!(text("function_not_found", "x").contains("is not registered any more"));
    }

    #[test]
    fn a_time_out_tells_the_time_and_the_setting() {
        let text = |limit| failure(&FunctionInfo::new("a::b"), &CallError::TimedOut, limit);
        assert_eq!(
            text(TimeLimit::Gateway(Duration::from_secs(30))),
            "The function 'a::b' did not return within 30 s; the time limit is `--call-timeout`, or `a2a.timeoutMs` in the \
             metadata of the function"
        );
        assert_eq!(
            text(TimeLimit::Function(Duration::from_millis(1500))),
            "The function 'a::b' did not return within 1.5 s; the time limit is `a2a.timeoutMs` in the metadata of the function"
        );
    }
}
