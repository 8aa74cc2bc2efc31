//! Jobs, for fuzzing. Not part of the public API.

use attache_core::{Delivery, Owner, Seal, Seq, Webhook};
use attache_protocol::{TaskId, Timestamp};
use attache_redis::Entry;
use bytes::Bytes;
use http::HeaderMap;

use super::job::{FIELD, Job, Opened};

/// A job of an entry.
#[derive(Debug)]
pub struct ParsedJob {
    /// The job as it is written again.
    pub json: String,
    /// Its name in the log.
    pub name: String,
    /// The id that the receiver sees.
    pub id: String,
    /// The id of the store, if the job has something sealed.
    pub store: Option<String>,
    /// The task.
    pub task: TaskId,
    /// The id of the webhook.
    pub webhook: String,
    /// The body of the notification.
    pub body: Bytes,
    /// The headers that are sent if nothing is sealed.
    pub plain_headers: HeaderMap,
    /// The owner, the webhook and the event number that were sealed. `None` if nothing is sealed.
    pub opened: Option<Result<(Owner, Webhook, Seq), String>>,
}

/// Parses the job in the text of an entry.
pub fn parse_job(text: &[u8], seal: &dyn Seal) -> Result<ParsedJob, String> {
    let fields = vec![(FIELD.as_bytes().to_vec(), text.to_vec())];
    let job = Job::parse(&Entry { id: String::new(), fields: Some(fields) })?;
    let opened = job.open(seal);
    Ok(ParsedJob {
        json: job.to_json(),
        name: job.name(),
        store: job.store().map(str::to_owned),
        task: job.task(),
        webhook: job.webhook().to_owned(),
        body: job.body(),
        plain_headers: job.plain_headers(),
        opened: opened.map(|opened| opened.map(|Opened { owner, webhook, seq }| (owner, webhook, seq))),
        id: job.job_id,
    })
}

/// The text of the job of a delivery with this body.
pub fn seal_job(
    delivery: &Delivery,
    body: &Bytes,
    store: &str,
    seal: &dyn Seal,
    now: Timestamp,
) -> Result<String, String> {
    Job::of(delivery, body, store, seal, now).map(|job| job.to_json()).map_err(|error| error.to_string())
}
