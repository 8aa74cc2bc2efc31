//! The deliveries of the push queue that are still to be made, and those in its dead stream.

use attache::server::{DeadJob, JobDetails, PendingJob, PendingState, PushQueue};
use serde_json::json;

use super::{Common, say_more, tried};
use crate::command::Failure;
use crate::command::client::block_on;
use crate::config;

/// The queue of the configuration file.
fn queue(common: &Common) -> Result<PushQueue, Failure> {
    config::configured_push_queue(common.file.config.as_deref())?.ok_or_else(|| {
        Failure::usage("the configuration has no push queue").hint(
            "name the file with `--config PATH`; without `--queue`, the deliveries in the store are meant",
        )
    })
}

pub(super) fn list_pending(common: &Common, limit: usize) -> Result<(), Failure> {
    let queue = queue(common)?;
    block_on(async {
        let mut pending = queue.list_pending(limit.saturating_add(1)).await.map_err(Failure::new)?;
        let has_more = pending.len() > limit;
        pending.truncate(limit);
        show_pending(common, &pending, has_more)?;
        say_more(&common.output, has_more, limit);
        Ok(())
    })
}

/// The state of a job for programs, its entry in the stream, and the time of the next attempt.
fn parts(state: &PendingState) -> (&'static str, Option<&str>, Option<attache::protocol::Timestamp>) {
    match state {
        PendingState::Due { entry } => ("due", Some(entry), None),
        PendingState::Taken { entry } => ("taken", Some(entry), None),
        PendingState::Retry { at } => ("retry", None, Some(*at)),
        PendingState::Predecessor => ("predecessor", None, None),
    }
}

fn show_pending(common: &Common, pending: &[PendingJob], has_more: bool) -> Result<(), Failure> {
    let row = |PendingJob { state, error, job, .. }: &PendingJob| {
        let (job, (state, entry, at)) = (job.as_ref(), parts(state));
        json!({
            "id": entry,
            "deliveryId": job.map(|job| &job.id),
            "taskId": job.map(|job| &job.task),
            "configId": job.map(|job| &job.webhook),
            "url": job.map(|job| &job.url),
            "attempts": job.map(|job| job.attempts),
            "state": state,
            "nextAttemptAt": at,
            "error": error,
        })
    };
    common.output.print(
        || json!({ "deliveries": pending.iter().map(row).collect::<Vec<_>>(), "hasMore": has_more }),
        |out| {
            if pending.is_empty() {
                return writeln!(out, "no delivery of the queue is pending");
            }
            for PendingJob { state, error, job, .. } in pending {
                let next = match state {
                    PendingState::Due { .. } => "due".to_owned(),
                    PendingState::Taken { .. } => "a server delivers it".to_owned(),
                    PendingState::Retry { at } => format!("next attempt {at}"),
                    PendingState::Predecessor => "after the one before it".to_owned(),
                };
                match job {
                    Some(JobDetails { id, task, webhook, url, attempts, .. }) => {
                        writeln!(out, "{task}/{webhook}, delivery {id}\n  to {url}")?;
                        writeln!(out, "  {}, {next}", tried(*attempts))?;
                    }
                    None => writeln!(
                        out,
                        "{}\n  no job: a server moves it to the dead stream",
                        parts(state).1.unwrap_or("an entry")
                    )?,
                }
                if let Some(error) = error {
                    writeln!(out, "  {error}")?;
                }
            }
            Ok(())
        },
    )
}

pub(super) fn list(common: &Common, limit: usize) -> Result<(), Failure> {
    let queue = queue(common)?;
    block_on(async { show(common, &queue.list_dead(limit).await.map_err(Failure::new)?) })
}

fn show(common: &Common, dead: &[DeadJob]) -> Result<(), Failure> {
    let row = |DeadJob { entry, reason, at, job, .. }: &DeadJob| {
        let job = job.as_ref();
        json!({
            "id": entry,
            "deliveryId": job.map(|job| &job.id),
            "taskId": job.map(|job| &job.task),
            "configId": job.map(|job| &job.webhook),
            "url": job.map(|job| &job.url),
            "attempts": job.map(|job| job.attempts),
            "givenUpAt": at,
            "error": reason,
        })
    };
    common.output.print(
        || json!({ "deliveries": dead.iter().map(row).collect::<Vec<_>>() }),
        |out| {
            if dead.is_empty() {
                return writeln!(out, "no delivery of the queue was given up");
            }
            for DeadJob { entry, reason, at, job, .. } in dead {
                match job {
                    Some(JobDetails { id, task, webhook, url, attempts, .. }) => {
                        writeln!(out, "{entry}\n  {task}/{webhook}, delivery {id}, to {url}")?;
                        writeln!(out, "  given up {at} at attempt {attempts}: {reason}")?;
                    }
                    None => writeln!(out, "{entry}\n  refused {at}: {reason}")?,
                }
            }
            Ok(())
        },
    )
}

pub(super) fn retry(common: &Common, entry: Option<&str>) -> Result<(), Failure> {
    let queue = queue(common)?;
    block_on(async {
        let count = queue.retry_dead(entry).await.map_err(Failure::new)?;
        report(common, "to be tried again", count, entry)
    })
}

pub(super) fn purge(common: &Common, entry: Option<&str>) -> Result<(), Failure> {
    let queue = queue(common)?;
    block_on(async {
        let count = queue.purge_dead(entry).await.map_err(Failure::new)?;
        report(common, "forgotten", count, entry)
    })
}

fn report(common: &Common, what: &str, count: usize, entry: Option<&str>) -> Result<(), Failure> {
    match entry {
        Some(entry) if count == 0 => Err(Failure::new(format!("the dead stream has no job `{entry}`"))
            .hint("`attache push dead list --queue` shows those that it has")),
        Some(_) | None => common
            .output
            .print(|| json!({ "count": count }), |out| writeln!(out, "{count} deliveries {what}")),
    }
}
