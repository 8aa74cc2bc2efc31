//! Reading requests: new ones, those of processes that ended, and those of this process that got lost on the way.

use std::collections::{HashSet, hash_map};
use std::sync::Arc;
use std::time::Duration;

use attache_redis::redis::RedisError;
use attache_redis::{Backoff, Connection, Entry, Whose, is_missing_group};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::answer::{self, Slot};
use super::members::MemberId;
use super::{EntryId, MAX_PENDING, Progress, Shared};

/// How long Redis waits for a request before it says that there is none.
const BLOCK: Duration = Duration::from_secs(2);

/// How many requests are read at once at most. Redis does not tell their size before they are here. With few, Redis works on the next
/// ones while these are processed: with 64 in flight, reading all of them at once took a third of the throughput.
const MAX_READ: usize = 16;

/// A process that has not asked for requests for this long, and works on none, is removed from the group.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// Reads requests until the server stops. Connects again whenever that is necessary.
pub(super) async fn run(shared: Arc<Shared>) {
    if let Some(members) = &shared.members {
        members.wait_until_known(&shared.stop).await;
    }
    let mut backoff = Backoff::default();
    loop {
        let error = match read(&shared, &mut backoff).await {
            Ok(()) => return,
            Err(error) => error,
        };
        // The group is made again at once. This happens after Redis lost its data.
        if is_missing_group(&error) {
            tracing::warn!(%error, "the consumer group does not exist any more and is made again");
        } else {
            shared.reading.failed(&error);
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.wait()) => {}
            () = shared.stop.cancelled() => return,
        }
    }
}

/// Reads requests over one connection until the server stops or the connection fails.
async fn read(shared: &Arc<Shared>, backoff: &mut Backoff) -> Result<(), RedisError> {
    let mut connection = shared.connect().await?;
    shared.consumer().create_group(&mut connection).await?;
    shared.reading.ended();
    let mut reader = Reader { shared, connection, expected: kib(shared.max_entry) };
    if !reader.recover().await? {
        return Ok(());
    }
    let (mut after, mut next_claim) = (None, Instant::now());
    loop {
        let Some(permits) = reader.capacity().await else { return Ok(()) };
        let count = permits.num_permits();
        let found = if next_claim <= Instant::now() {
            let page = reader.claim(Whose::Idle(shared.options.claim_after), after.take(), count).await?;
            if page.next.is_none() {
                next_claim = Instant::now() + (shared.options.claim_after / 2).min(Duration::from_secs(30));
            }
            after = page.next;
            page.entries
        } else {
            let block = BLOCK.min(next_claim.saturating_duration_since(Instant::now()));
            match reader.new_entries(count, block).await? {
                Some(found) => found,
                None => return Ok(()),
            }
        };
        backoff.reset();
        if !reader.take(found, permits).await? {
            return Ok(());
        }
    }
}

/// The KiB that so many bytes occupy.
pub(super) fn kib(bytes: usize) -> usize {
    bytes / 1024 + 1
}

/// Delivered requests that this process takes.
struct Page {
    entries: Vec<Entry>,
    /// The last id that was looked at, if there are further ones.
    next: Option<String>,
}

/// Reads requests over one connection.
struct Reader<'a> {
    shared: &'a Arc<Shared>,
    connection: Connection,
    /// How many KiB a request is expected to have: as many as the largest one that was read lately.
    expected: usize,
}

impl Reader<'_> {
    /// Waits until at least one request can be processed. Returns a permit for each request that may be read: as many as there are places
    /// and memory for. `None` if the server stops.
    async fn capacity(&self) -> Option<OwnedSemaphorePermit> {
        let Shared { requests, memory, memory_size, stop, .. } = &**self.shared;
        let expected = self.expected.clamp(1, *memory_size);
        let waiting = async {
            let permits = requests.clone().acquire_owned().await.ok()?;
            // Responses that wait to be written take memory meanwhile. Then requests wait before they are processed.
            drop(memory.acquire_many(u32::try_from(expected).ok()?).await.ok()?);
            Some(permits)
        };
        let mut permits = tokio::select! {
            permits = waiting => permits?,
            () = stop.cancelled() => return None,
        };
        let fitting = (memory.available_permits() / expected).min(requests.available_permits() + 1);
        for more in (1..fitting.clamp(1, MAX_READ)).rev() {
            if let Ok(others) = requests.clone().try_acquire_many_owned(u32::try_from(more).unwrap_or(1)) {
                permits.merge(others);
                break;
            }
        }
        Some(permits)
    }

    /// New requests, or none after some time. `None` if the server stops.
    async fn new_entries(&mut self, count: usize, block: Duration) -> Result<Option<Vec<Entry>>, RedisError> {
        tokio::select! {
            found = self.shared.consumer().new_entries(&mut self.connection, count, block) => found.map(Some),
            () = self.shared.stop.cancelled() => Ok(None),
        }
    }

    /// Processes the requests that Redis has delivered to this process, but that it does not work on: the connection broke on the way, or
    /// an earlier process had the same name. Returns false if the server stops.
    async fn recover(&mut self) -> Result<bool, RedisError> {
        let mut after = None;
        loop {
            let Some(permits) = self.capacity().await else { return Ok(false) };
            let page = self.claim(Whose::Own, after, permits.num_permits()).await?;
            if !self.take(page.entries, permits).await? {
                return Ok(false);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(true),
            }
        }
    }

    /// Takes delivered requests that nothing works on, at most `count`, with ids after this one. Refuses those that were delivered too often.
    async fn claim(&mut self, whose: Whose, after: Option<String>, count: usize) -> Result<Page, RedisError> {
        let shared = self.shared;
        let consumer = shared.consumer();
        // Their payloads are not read before it is certain that they are wanted.
        let (found, next) = consumer.pending(&mut self.connection, whose, after, count).await?;
        // After an outage that was longer than `claim_after`, those that this process works on are among them.
        let is_free = |id: &str| !shared.running.lock().contains_key(id);
        let (refused, wanted): (Vec<_>, Vec<_>) = found
            .into_iter()
            .filter(|(id, _)| is_free(id))
            .partition(|(_, deliveries)| *deliveries >= shared.options.max_deliveries);
        for (id, deliveries) in refused {
            self.refuse(id, deliveries, whose).await?;
        }
        let mut page = Page { entries: Vec::new(), next };
        if wanted.is_empty() {
            return Ok(page);
        }
        let ids = wanted.iter().map(|(id, _)| id.as_str());
        page.entries = consumer.claim(&mut self.connection, whose, ids).await?;
        match whose {
            Whose::Own => {}
            Whose::Idle(_) => {
                for entry in &page.entries {
                    let earlier = wanted.iter().find(|(id, _)| *id == entry.id);
                    let deliveries = earlier.map_or(0, |(_, deliveries)| *deliveries) + 1;
                    tracing::info!(
                        entry = entry.id,
                        deliveries,
                        "took over a request of a process that does not answer it"
                    );
                }
            }
        }
        Ok(page)
    }

    /// Refuses a request that was delivered too often. The first process that does so reads the request, to tell its client. If that ended
    /// the process as well, the next one refuses the request without reading it.
    async fn refuse(&mut self, id: String, deliveries: u64, whose: Whose) -> Result<(), RedisError> {
        let consumer = self.shared.consumer();
        // In the list meanwhile, so that its claim is refreshed.
        let Some(registered) = Registered::new(self.shared, id.as_str().into()) else { return Ok(()) };
        let reason = format!("the request was delivered {deliveries} times and never answered");
        let fields = if deliveries > self.shared.options.max_deliveries {
            consumer.claim_id(&mut self.connection, whose, &id).await?.then(Vec::new)
        } else {
            let found = consumer.claim(&mut self.connection, whose, [&*id]).await?;
            found.into_iter().next().map(|entry| entry.fields.unwrap_or_default())
        };
        // Without fields, another process was faster.
        if let Some(fields) = fields {
            tracing::warn!(entry = id, reason, "an entry was refused");
            answer::give_up(self.shared, &registered.id, fields, reason).await;
        }
        Ok(())
    }

    /// Processes entries, unless this process works on them already. Returns false if the server stops before there is memory for them.
    async fn take(
        &mut self,
        found: Vec<Entry>,
        mut permits: OwnedSemaphorePermit,
    ) -> Result<bool, RedisError> {
        let shared = self.shared;
        let read_at = Instant::now();
        if let Some(largest) = found.iter().map(|entry| kib(entry.size())).max() {
            self.expected = largest.max(self.expected / 2);
        }
        // An entry that waits for memory is in the list as well, so that its claim is refreshed.
        let found: Vec<_> = found
            .into_iter()
            .filter_map(|entry| Some((Registered::new(shared, entry.id.as_str().into())?, entry)))
            .collect();
        for (registered, entry) in found {
            let Some(permit) = permits.split(1) else { break };
            let size = u32::try_from(kib(entry.size()).min(shared.memory_size)).unwrap_or(u32::MAX);
            let memory = tokio::select! {
                memory = shared.memory.clone().acquire_many_owned(size) => memory,
                () = shared.stop.cancelled() => return Ok(false),
            };
            let Ok(memory) = memory else { return Ok(false) };
            let Some(fields) = entry.fields else {
                // The entry was deleted, so there is nothing to answer.
                shared.writer.acknowledge(&registered.id).await;
                continue;
            };
            // A claim that is younger than this cannot have ended.
            if read_at.elapsed() >= shared.options.claim_after / 3 && !self.owns(&registered).await? {
                tracing::info!(entry = %registered.id, "another process has taken over a request that waited for memory");
                continue;
            }
            registered.process(fields, Slot { request: Some(permit), _memory: memory }, Vec::new());
        }
        Ok(true)
    }

    /// Whether an entry that has waited still belongs to this process.
    async fn owns(&mut self, registered: &Registered) -> Result<bool, RedisError> {
        if registered.is_lost() {
            return Ok(false);
        }
        self.shared.consumer().owns(&mut self.connection, &registered.id).await
    }
}

/// An entry in the list of those that are processed, until dropped.
pub(super) struct Registered {
    shared: Arc<Shared>,
    id: EntryId,
}

impl Registered {
    /// Adds an entry to the list. `None` if it is there already.
    pub(super) fn new(shared: &Arc<Shared>, id: EntryId) -> Option<Self> {
        match shared.running.lock().entry(id.clone()) {
            hash_map::Entry::Occupied(_) => None,
            hash_map::Entry::Vacant(place) => {
                place.insert(Progress::Waiting);
                Some(Self { shared: shared.clone(), id })
            }
        }
    }

    /// Whether another process has taken the entry over.
    pub(super) fn is_lost(&self) -> bool {
        match self.shared.running.lock().get(&self.id) {
            Some(Progress::Waiting | Progress::Running(_)) => false,
            Some(Progress::Lost) | None => true,
        }
    }

    /// Processes the entry in a task of its own. `visited` are the members that have had it.
    pub(super) fn process(self, fields: Vec<(Vec<u8>, Vec<u8>)>, slot: Slot, visited: Vec<MemberId>) {
        let (shared, id) = (self.shared.clone(), self.id.clone());
        // Locked until the task is in the list, so that it cannot remove itself before.
        let mut running = shared.running.lock();
        let task = shared.tasks.spawn(async move {
            answer::answer(&self.shared, &self.id, fields, slot, visited).await;
        });
        running.insert(id, Progress::Running(task.abort_handle()));
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.running.lock().remove(&self.id);
    }
}

/// Refreshes the claim on the requests that are processed, until the task is aborted.
pub(super) async fn keep_claims(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(shared.options.claim_after / 3);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut connection = None;
    let mut cleaned = Instant::now();
    loop {
        ticks.tick().await;
        let refreshed = async {
            let connection = match &mut connection {
                Some(connection) => connection,
                none => none.insert(shared.connect().await?),
            };
            refresh(&shared, connection).await?;
            if cleaned.elapsed() >= ABANDONED {
                cleaned = Instant::now();
                shared.consumer().remove_abandoned(connection, ABANDONED).await?;
            }
            Ok::<_, RedisError>(())
        };
        if let Err(error) = refreshed.await {
            // The reader reports outages.
            tracing::debug!(%error, "claims on requests could not be refreshed");
            connection = None;
        }
    }
}

/// Refreshes the claims of this process. What another process has taken over meanwhile is not continued here.
async fn refresh(shared: &Arc<Shared>, connection: &mut Connection) -> Result<(), RedisError> {
    let running: Vec<EntryId> = shared.running.lock().keys().cloned().collect();
    if running.is_empty() {
        return Ok(());
    }
    let own = shared.consumer().own(connection, MAX_PENDING).await?;
    let own: HashSet<&str> = own.iter().map(|(id, _)| id.as_str()).collect();
    let (kept, lost): (Vec<_>, Vec<_>) = running.iter().partition(|id| own.contains(&***id));
    for id in lost {
        // Most of them have been answered since.
        if let Some(progress) = shared.running.lock().get_mut(id) {
            tracing::debug!(entry = %id, "another process has taken over a request");
            match progress {
                Progress::Running(task) => task.abort(),
                Progress::Waiting | Progress::Lost => *progress = Progress::Lost,
            }
        }
    }
    if kept.is_empty() {
        return Ok(());
    }
    shared.consumer().refresh(connection, kept.into_iter().map(|id| &**id)).await
}
