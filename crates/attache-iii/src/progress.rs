//! Progress that functions report while they run. A function calls `a2a::progress` with the id of its task, and the text becomes the
//! status message of the task.
//!
//! Only the latest report of a call is kept, and at most ten per second are written, so that a function cannot flood the log of its
//! task.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use attache_protocol::TaskId;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::CallError;

/// The function that functions call to report progress.
pub const PROGRESS_FUNCTION: &str = "a2a::progress";

/// The time between two reports that are written.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest text, in bytes.
const MAX_TEXT: usize = 16 * 1024;

/// The calls that run, by their tasks.
#[derive(Clone, Default)]
pub(crate) struct RunningCalls(Arc<Mutex<HashMap<TaskId, watch::Sender<String>>>>);

/// The payload of [`PROGRESS_FUNCTION`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    task_id: TaskId,
    text: String,
}

impl RunningCalls {
    /// Begins to take the reports of a call.
    pub(crate) fn begin(&self, task: &TaskId) -> Reports {
        let (sender, latest) = watch::channel(String::new());
        self.0.lock().insert(task.clone(), sender);
        Reports { calls: self.clone(), task: task.clone(), latest, next: Instant::now() }
    }

    /// Passes a report to its call.
    pub(crate) fn report(&self, payload: &RawValue) -> Result<(), CallError> {
        let invalid = |text: String| CallError::remote("invalid_payload", text);
        let Report { task_id, text } = serde_json::from_str(payload.get()).map_err(|error| {
            invalid(format!(
                "expected an object such as {{\"taskId\": \"…\", \"text\": \"half done\"}}: {error}"
            ))
        })?;
        if text.len() > MAX_TEXT {
            return Err(invalid(format!("`text` has more than {MAX_TEXT} bytes")));
        }
        match self.0.lock().get(&task_id) {
            Some(call) => {
                call.send_replace(text);
                Ok(())
            }
            None => {
                let text = format!("no function of this agent runs for the task `{task_id}`");
                Err(CallError::remote("not_running", text))
            }
        }
    }
}

/// The reports of one call. Dropping this ends them.
pub(crate) struct Reports {
    calls: RunningCalls,
    task: TaskId,
    latest: watch::Receiver<String>,
    /// When the next report may be written.
    next: Instant,
}

impl Reports {
    /// The latest report, once there is a new one. It can be dropped at any time.
    pub(crate) async fn next(&mut self) -> String {
        tokio::time::sleep_until(self.next).await;
        if self.latest.changed().await.is_err() {
            // Another turn of the task has taken the place of this one.
            std::future::pending::<()>().await;
        }
        self.next = Instant::now() + PAUSE;
        self.latest.borrow_and_update().clone()
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        let mut calls = self.calls.0.lock();
        // The entry may belong to a later turn of the task.
        if calls.get(&self.task).is_some_and(|sender| sender.subscribe().same_channel(&self.latest)) {
            calls.remove(&self.task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(calls: &RunningCalls, task: &str, text: &str) -> Result<(), CallError> {
        let payload = serde_json::json!({"taskId": task, "text": text}).to_string();
        calls.report(&RawValue::from_string(payload).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_reports_the_latest_counts_and_ten_per_second_are_written() {
        let calls = RunningCalls::default();
        let mut reports = calls.begin(&"t".into());
        for number in 0..1000 {
            report(&calls, "t", &number.to_string()).unwrap();
        }
        assert_eq!(reports.next().await, "999");
        let before = Instant::now();
        report(&calls, "t", "more").unwrap();
        assert_eq!(reports.next().await, "more");
        assert!(before.elapsed() >= PAUSE);
    }

    #[test]
    fn a_report_for_a_task_that_does_not_run_is_an_error() {
        let calls = RunningCalls::default();
        drop(calls.begin(&"t".into()));
        for (task, text) in [("t", "late".to_owned()), ("other", "x".to_owned())] {
            assert!(
                report(&calls, task, &text).unwrap_err().to_string().contains("runs for the task"),
                "{task}"
            );
        }
        let _reports = calls.begin(&"t".into());
        assert_eq!(MAX_TEXT, 16 * 1024);
        report(&calls, "t", &"x".repeat(MAX_TEXT)).unwrap();
        assert!(report(&calls, "t", &"x".repeat(MAX_TEXT + 1)).is_err());
    }

    #[test]
    fn a_later_turn_keeps_its_reports_when_the_earlier_one_ends() {
        let calls = RunningCalls::default();
        let first = calls.begin(&"t".into());
        let _second = calls.begin(&"t".into());
        drop(first);
        report(&calls, "t", "half done").unwrap();
    }
}
