//! The jobs that were given up, for operators.

use std::io;

use attache_protocol::Timestamp;
use attache_redis::redis::{RedisError, Value};
use attache_redis::{Connection, Entry, connect, field, list};

use super::job::Job;
use super::{ANSWER, CONNECT, PushQueue, scripts};

/// How many entries are read at once.
const PAGE: usize = 100;

/// An entry of the dead stream of a [`PushQueue`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadJob {
    /// The id of the entry.
    pub entry: String,
    /// Why it is there.
    pub reason: String,
    /// When it was given up.
    pub at: Timestamp,
    /// The job, if the entry has one.
    pub job: Option<JobDetails>,
}

/// What is known about a job that was given up or is still to be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobDetails {
    /// The delivery id, which the receiver sees.
    pub id: String,
    /// The task.
    pub task: String,
    /// The id of the webhook.
    pub webhook: String,
    /// The scheme, the host and the port of the receiver. In a job of others the URL.
    pub url: String,
    /// The number of attempts.
    pub attempts: u32,
}

impl DeadJob {
    fn of(entry: &Entry) -> Self {
        let job = Job::parse(entry).ok();
        let millis = entry.id.split('-').next().and_then(|millis| millis.parse().ok());
        Self {
            entry: entry.id.clone(),
            reason: String::from_utf8_lossy(entry.get(field::REASON).unwrap_or_default()).into_owned(),
            at: Timestamp::from_millis(millis.unwrap_or_default()),
            job: job.map(JobDetails::of),
        }
    }
}

impl JobDetails {
    pub(super) fn of(job: Job) -> Self {
        Self {
            task: job.task().as_str().to_owned(),
            webhook: job.webhook().to_owned(),
            url: job.url().to_owned(),
            attempts: job.attempt,
            id: job.job_id,
        }
    }
}

impl PushQueue {
    /// The entries of the dead stream, oldest first.
    pub async fn list_dead(&self, limit: usize) -> io::Result<Vec<DeadJob>> {
        let mut connection = self.connect().await?;
        let entries = self.dead_entries(&mut connection, "-", limit).await.map_err(io::Error::other)?;
        Ok(entries.iter().map(DeadJob::of).collect())
    }

    /// Puts jobs that were given up back into the queue: that of one entry, or all. Returns their number. Entries that are no jobs stay.
    pub async fn retry_dead(&self, entry: Option<&str>) -> io::Result<usize> {
        self.for_each_dead(entry, |entry| {
            Some(scripts::revive(self, &entry.id, &Job::parse(entry).ok()?.anew()))
        })
        .await
    }

    /// Deletes entries of the dead stream: one, or all. Returns their number.
    pub async fn purge_dead(&self, entry: Option<&str>) -> io::Result<usize> {
        self.for_each_dead(entry, |entry| Some(scripts::bury(self, &entry.id))).await
    }

    /// Runs a command for one entry or for all. Returns how many of them did something.
    async fn for_each_dead(
        &self,
        only: Option<&str>,
        command: impl Fn(&Entry) -> Option<attache_redis::redis::Cmd>,
    ) -> io::Result<usize> {
        let mut connection = self.connect().await?;
        let mut run = async || -> Result<usize, RedisError> {
            let (mut count, mut from) = (0, only.unwrap_or("-").to_owned());
            loop {
                let page = if only.is_some() { 1 } else { PAGE };
                let mut entries = self.dead_entries(&mut connection, &from, page).await?;
                let is_last = entries.len() < page || only.is_some();
                from = entries.last().map(|last| format!("({}", last.id)).unwrap_or_default();
                entries.retain(|entry| only.is_none_or(|only| entry.id == only));
                for command in entries.iter().filter_map(&command) {
                    count += command.query_async::<usize>(&mut connection).await?;
                }
                if is_last {
                    return Ok(count);
                }
            }
        };
        run().await.map_err(io::Error::other)
    }

    pub(super) async fn connect(&self) -> io::Result<Connection> {
        connect(&self.url, CONNECT, ANSWER, None).await.map_err(io::Error::other)
    }

    /// At most so many entries of the dead stream, from an id on.
    async fn dead_entries(
        &self,
        connection: &mut Connection,
        from: &str,
        limit: usize,
    ) -> Result<Vec<Entry>, RedisError> {
        let mut read = attache_redis::redis::cmd("XRANGE");
        read.arg(&self.dead_stream).arg(from).arg("+").arg("COUNT").arg(limit);
        list(read.query_async::<Value>(connection).await?)
    }
}
