//! Deliveries that were given up, in the dead stream of the push queue.

use attache::server::{DeadJob, DeadJobDetails, PushQueue};
use serde_json::json;

use super::Common;
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
                    Some(DeadJobDetails { id, task, webhook, url, attempts, .. }) => {
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
