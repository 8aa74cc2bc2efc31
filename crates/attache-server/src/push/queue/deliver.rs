//! One attempt to deliver a job.

use std::time::Duration;

use attache_core::{Outcome, Owner, Seq, StoreError, Webhook};
use attache_protocol::Timestamp;
use http::HeaderMap;

use super::Queue;
use super::job::{Job, Opened, seconds};
use super::scripts::End;
use crate::PushOptions;
use crate::push::notification::{self, Notice, Origin};
use crate::push::{PushDispatcher, verdict};

/// When a job is tried again whose receiver has as many deliveries as it may have at once: after one to five times of this, at random,
/// so that many such jobs do not come back together.
const RECEIVER_BUSY: Duration = Duration::from_millis(500);

/// When a job is tried again if the store of this process does not answer.
const STORE_BUSY: Duration = Duration::from_secs(5);

/// Makes one attempt to deliver a job.
pub(super) async fn deliver(dispatcher: &PushDispatcher, queue: &Queue, job: Job) -> End {
    let now = dispatcher.0.service.now();
    let outcome = match find_webhook(dispatcher, queue, &job).await {
        Found::Webhook(found) => attempt(dispatcher, &job, *found).await,
        Found::Deleted => return End::Done,
        Found::Later(wait) => Outcome::Postponed(now.after(wait)),
        Found::Unreadable(error) => unreadable(&job, &error, &dispatcher.0.options, now),
        Found::Useless(error) => {
            tracing::warn!(delivery = job.name(), error, "a push job cannot be delivered");
            Outcome::GivenUp { at: now, error }
        }
    };
    match outcome {
        Outcome::Delivered => End::Done,
        Outcome::Postponed(again) => End::Retry { job: job.due(again), at: seconds(again) },
        Outcome::Failed { again, error } => End::Retry { job: job.failed(again, error), at: seconds(again) },
        Outcome::GivenUp { at: _, error } => End::Dead { job: job.given_up(&error).to_json(), reason: error },
    }
}

/// A job that this process cannot open is left to others. It counts as an attempt, so that it is given up at some time.
fn unreadable(job: &Job, error: &str, options: &PushOptions, now: Timestamp) -> Outcome {
    let error = format!("a server could not open it: {error}");
    if job.attempt.saturating_add(1) >= options.attempts {
        tracing::warn!(delivery = job.name(), error, "a push job could not be opened and is given up");
        return Outcome::GivenUp { at: now, error };
    }
    tracing::debug!(
        delivery = job.name(),
        error,
        "a push job cannot be opened here and is left to other processes"
    );
    Outcome::Failed { again: now.after(verdict::back_off(job.attempt, options)), error }
}

/// The webhook of a job, with what is known about it.
struct FoundWebhook {
    owner: Owner,
    webhook: Webhook,
    seq: Option<Seq>,
    headers: HeaderMap,
    origin: Origin,
}

/// Whether a job can be delivered.
enum Found {
    Webhook(Box<FoundWebhook>),
    /// The webhook was deleted.
    Deleted,
    /// The store does not answer.
    Later(Duration),
    /// The keys are not here.
    Unreadable(String),
    /// No server can deliver it.
    Useless(String),
}

/// Finds the webhook of a job: in the store of this process, or else in the job.
async fn find_webhook(dispatcher: &PushDispatcher, queue: &Queue, job: &Job) -> Found {
    let opened = match job.open(&*queue.options.seal) {
        Some(Ok(opened)) => Some(opened),
        Some(Err(error)) => return Found::Unreadable(error),
        None => None,
    };
    let (is_own, stored) = match stored(dispatcher, queue, job, opened.as_ref()).await {
        Ok(Stored::Webhook(webhook)) => (job.store().is_some(), Some(*webhook)),
        Ok(Stored::Elsewhere) => (false, None),
        Ok(Stored::Deleted) => return Found::Deleted,
        Err(error) => {
            tracing::warn!(delivery = job.name(), %error, "the webhook of a push job cannot be read; it is tried again later");
            return Found::Later(STORE_BUSY);
        }
    };
    let found = match (opened, stored) {
        (Some(Opened { owner, webhook, seq }), stored) => {
            // The store knows the latest credentials, and the job what its body is.
            let dialect = webhook.dialect;
            let webhook = stored.filter(|_| is_own).unwrap_or(webhook);
            let headers = notification::body_headers(dialect);
            FoundWebhook { owner, webhook, seq: Some(seq), headers, origin: Origin::Ours }
        }
        (None, stored) => {
            let plain = job.plain_webhook();
            // Credentials are for the address that they were given for.
            let stored = stored.filter(|webhook| webhook.config.url == plain.config.url);
            if stored.is_none() && job.lacks_credentials() {
                return Found::Useless("its credentials are not known here".to_owned());
            }
            FoundWebhook {
                owner: Owner::default(),
                webhook: stored.unwrap_or(plain),
                seq: None,
                headers: job.plain_headers(),
                origin: Origin::Others,
            }
        }
    };
    Found::Webhook(Box::new(found))
}

/// What the store of this process knows about the webhook of a job.
enum Stored {
    Webhook(Box<Webhook>),
    /// The task is there, and the webhook is not.
    Deleted,
    /// The task is in another store, or was deleted.
    Elsewhere,
}

/// Looks for the webhook of a job in the store of this process. A copy of a store has the same id, so the task decides whether the webhook
/// was deleted.
async fn stored(
    dispatcher: &PushDispatcher,
    queue: &Queue,
    job: &Job,
    opened: Option<&Opened>,
) -> Result<Stored, StoreError> {
    let service = &dispatcher.0.service;
    if job.store().is_some() && job.store() != Some(queue.store_id(service).await?) {
        return Ok(Stored::Elsewhere);
    }
    let store = service.store();
    let webhooks = store.outbox().webhooks(&job.task()).await?;
    if let Some(found) = webhooks.into_iter().find(|webhook| webhook.id() == job.webhook()) {
        return Ok(Stored::Webhook(Box::new(found)));
    }
    match opened {
        Some(opened) if store.contains(&opened.owner, &job.task()).await? => Ok(Stored::Deleted),
        Some(_) | None => Ok(Stored::Elsewhere),
    }
}

/// Sends the notification, unless its receiver has as many as it may have at once.
async fn attempt(dispatcher: &PushDispatcher, job: &Job, found: FoundWebhook) -> Outcome {
    let FoundWebhook { owner, webhook, seq, headers, origin } = found;
    let receiver = webhook.receiver();
    let Some(_running) = dispatcher.count_if_free(&receiver) else {
        let wait = RECEIVER_BUSY.mul_f64(1.0 + 4.0 * fastrand::f64());
        return Outcome::Postponed(dispatcher.0.service.now().after(wait));
    };
    let (name, task) = (job.name(), job.task());
    let notice = Notice {
        name: &name,
        owner: &owner,
        task: task.as_str(),
        webhook: &webhook,
        id: &job.job_id,
        event: seq,
        attempts: job.attempt,
        headers,
        body: job.body(),
        origin,
    };
    dispatcher.send(notice).await
}

#[cfg(test)]
mod tests {
    use attache_redis::Entry;

    use super::*;

    #[test]
    fn a_job_that_no_server_can_open_is_given_up_after_its_attempts() {
        let after = |attempts: u32| {
            let text = format!(r#"{{"attempt":{attempts},"jobId":"1","payload":1,"taskId":"t","url":"u"}}"#);
            let entry =
                Entry { id: "1-0".to_owned(), fields: Some(vec![(b"job".to_vec(), text.into_bytes())]) };
            let job = Job::parse(&entry).unwrap();
            unreadable(&job, "no key", &PushOptions::default(), Timestamp::UNIX_EPOCH)
        };
        assert!(matches!(after(14), Outcome::Failed { again, .. } if again > Timestamp::UNIX_EPOCH));
        let Outcome::GivenUp { error, .. } = after(15) else { panic!("it is given up") };
        assert_eq!(error, "a server could not open it: no key");
    }
}
