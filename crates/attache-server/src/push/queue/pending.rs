//! The jobs that are still to be delivered, for operators.

use std::collections::HashSet;
use std::io;

use attache_protocol::Timestamp;
use attache_redis::redis::{RedisError, Value, cmd};
use attache_redis::{Connection, Entry, list, pending_ids};

use super::job::{Job, timestamp};
use super::{JobDetails, PushQueue, scripts};

/// How many entries are read at once.
const PAGE: usize = 100;

/// A job of a [`PushQueue`] that is still to be delivered.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PendingJob {
    /// What it waits for.
    pub state: PendingState,
    /// Why the last attempt failed, if there was one.
    pub error: Option<String>,
    /// The job. `None` for an entry of others that is no job: a server moves it to the dead stream.
    pub job: Option<JobDetails>,
}

/// What a job waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PendingState {
    /// A server takes it as soon as it can.
    Due {
        /// Its entry in the stream.
        entry: String,
    },
    /// A server has taken it, and delivers it.
    Taken {
        /// Its entry in the stream.
        entry: String,
    },
    /// It failed, and is tried again.
    Retry {
        /// When it is tried again.
        at: Timestamp,
    },
    /// The job before it, which is for the same webhook.
    Predecessor,
}

impl PendingJob {
    fn of(job: Option<Job>, state: PendingState) -> Self {
        let error = job.as_ref().and_then(|job| job.last_error().map(str::to_owned));
        Self { state, error, job: job.map(JobDetails::of) }
    }
}

/// The jobs that were found, at most so many.
struct Found {
    limit: usize,
    jobs: Vec<PendingJob>,
    /// The ids of the jobs. A job that moves meanwhile is found twice.
    ids: HashSet<String>,
}

impl Found {
    fn is_full(&self) -> bool {
        self.jobs.len() >= self.limit
    }

    fn add(&mut self, job: Option<Job>, state: PendingState) {
        let is_new = job.as_ref().is_none_or(|job| self.ids.insert(job.job_id.clone()));
        if is_new && !self.is_full() {
            self.jobs.push(PendingJob::of(job, state));
        }
    }
}

impl PushQueue {
    /// The jobs that are still to be delivered: those in the stream, oldest first, and then those that wait for their next attempt. Each is
    /// followed by those of the same webhook that wait for it.
    pub async fn list_pending(&self, limit: usize) -> io::Result<Vec<PendingJob>> {
        let mut connection = self.connect().await?;
        let mut found = Found { limit, jobs: Vec::new(), ids: HashSet::new() };
        let mut read = async || {
            self.find_in_stream(&mut connection, &mut found).await?;
            self.find_retries(&mut connection, &mut found).await
        };
        let done: Result<(), RedisError> = read().await;
        done.map_err(io::Error::other)?;
        Ok(found.jobs)
    }

    async fn find_in_stream(&self, connection: &mut Connection, found: &mut Found) -> Result<(), RedisError> {
        let mut from = "-".to_owned();
        while !found.is_full() {
            let mut read = cmd("XRANGE");
            read.arg(&self.stream).arg(&from).arg("+").arg("COUNT").arg(PAGE);
            let entries = list(read.query_async::<Value>(connection).await?)?;
            let Some(last) = entries.last() else { return Ok(()) };
            from = format!("({}", last.id);
            let taken = self.taken(connection, &entries).await?;
            for entry in &entries {
                let id = entry.id.clone();
                let state = match taken.contains(&id) {
                    true => PendingState::Taken { entry: id },
                    false => PendingState::Due { entry: id },
                };
                self.find(connection, found, Job::parse(entry).ok(), state).await?;
            }
        }
        Ok(())
    }

    async fn find_retries(&self, connection: &mut Connection, found: &mut Found) -> Result<(), RedisError> {
        let mut from = 0;
        while !found.is_full() {
            let mut read = cmd("ZRANGE");
            read.arg(&self.retry_key).arg(from).arg(from + PAGE - 1).arg("WITHSCORES");
            let jobs: Vec<(Vec<u8>, f64)> = read.query_async(connection).await?;
            if jobs.is_empty() {
                return Ok(());
            }
            from += jobs.len();
            for (text, at) in jobs {
                let state = PendingState::Retry { at: timestamp(at) };
                self.find(connection, found, Job::read(&text).ok(), state).await?;
            }
        }
        Ok(())
    }

    /// Adds a job, and those of the same webhook that wait for it.
    async fn find(
        &self,
        connection: &mut Connection,
        found: &mut Found,
        job: Option<Job>,
        state: PendingState,
    ) -> Result<(), RedisError> {
        let order = job.as_ref().and_then(Job::order);
        found.add(job, state);
        let Some(order) = order.filter(|_| !found.is_full()) else { return Ok(()) };
        let next = scripts::waiting(self, &order, found.limit - found.jobs.len());
        let waiting: Vec<Vec<u8>> = next.query_async(connection).await?;
        for job in waiting {
            found.add(scripts::job_of_list(&job), PendingState::Predecessor);
        }
        Ok(())
    }

    /// Which of these entries a server has taken.
    async fn taken(
        &self,
        connection: &mut Connection,
        entries: &[Entry],
    ) -> Result<HashSet<String>, RedisError> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(HashSet::new()) };
        let mut read = cmd("XPENDING");
        read.arg(&self.stream).arg(&self.group).arg(&first.id).arg(&last.id).arg(entries.len());
        match read.query_async::<Value>(connection).await {
            Ok(reply) => Ok(pending_ids(reply)?.into_iter().map(|(id, _)| id).collect()),
            // No server has used the queue yet.
            Err(error) if error.code() == Some("NOGROUP") => Ok(HashSet::new()),
            Err(error) => Err(error),
        }
    }
}
