//! Closes connections that are idle for too long, and makes room when there are too many.
//!
//! A timer for every request would cost as much as a small request. Instead one clock ticks for all connections, and a request costs two
//! counters. A connection without a request for some ticks is closed. That includes one that sends its headers byte by byte.
//!
//! When the limit on connections is reached, a new one is still accepted. The server closes the connection that has waited longest for its
//! client, without a byte in either direction. If no connection waits for its client, a few spare connections are accepted, on which only
//! health checks are answered. So accepting never waits for clients.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// After how many ticks without a request a connection is closed.
const TICKS: u64 = 4;

/// How many connections beyond the limit are accepted for health checks.
const SPARE: usize = 16;

/// How many connections may be closing, beyond the limit and the spare ones, before accepting waits for them.
const CLOSING: usize = 16;

/// Finding the longest-waiting connections visits all connections, so that one in this many is found at a time.
const FOUND_AT_A_TIME: usize = 64;

/// The connections of a server. Cheap to clone; all clones are one set.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Inner>);

struct Inner {
    tick: Duration,
    /// The limit on open connections.
    limit: usize,
    began: Instant,
    now: AtomicU64,
    members: Mutex<Members>,
    /// Notified when a connection has ended.
    gone: Notify,
}

#[derive(Default)]
struct Members {
    next: u64,
    open: HashMap<u64, Arc<Activity>>,
    /// How many count against the limit: they are neither spare nor closing.
    placed: usize,
    spare: usize,
    /// The number of connections by address, where it is limited.
    by_address: HashMap<IpAddr, usize>,
    /// The connections that had waited longest at the last search, with the time of their last progress; the longest last.
    waiting: Vec<(u64, u64)>,
    /// How many were closed to make room since the last log line.
    evicted: usize,
    closing: bool,
}

/// The state of one connection.
pub(crate) struct Activity {
    /// Whether it is beyond the limit.
    spare: bool,
    /// The number of requests that are being answered.
    busy: AtomicUsize,
    /// How many of them wait for their bodies.
    awaited: AtomicUsize,
    /// Increases when a request begins or ends.
    changes: AtomicU64,
    /// The value of `changes` at the last tick, and the tick at which it was new.
    seen: AtomicU64,
    since: AtomicU64,
    /// When a byte was last read or written, in microseconds since `began`.
    progress: AtomicU64,
    began: Instant,
    /// Whether the client does not accept what is written.
    blocked: AtomicBool,
    /// Whether it is never closed to make room.
    is_kept: AtomicBool,
    /// Whether it must close at once to make room.
    evicted: AtomicBool,
    close: Notify,
}

impl Activity {
    fn new(began: Instant, now: u64, spare: bool) -> Self {
        let activity = Self {
            spare,
            busy: AtomicUsize::new(0),
            awaited: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            since: AtomicU64::new(now),
            progress: AtomicU64::new(0),
            began,
            blocked: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            close: Notify::new(),
        };
        activity.moved();
        activity
    }

    /// Records that a byte was read or written.
    pub(crate) fn moved(&self) {
        let now = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.progress.store(now, Ordering::Relaxed);
    }

    /// Records that the client is there, though it has sent no request: it has answered a ping.
    pub(crate) fn alive(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the result of a write: accepted, or blocked by the client.
    pub(crate) fn wrote(&self, taken: bool) {
        if self.blocked.load(Ordering::Relaxed) == taken {
            self.blocked.store(!taken, Ordering::Relaxed);
        }
        if taken {
            self.moved();
        }
    }

    /// Records that a request waits for its body.
    pub(crate) fn body_awaited(&self) {
        self.awaited.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the body has arrived.
    pub(crate) fn body_arrived(&self) {
        self.awaited.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether it is beyond the limit, so that only health checks are answered.
    pub(crate) fn is_spare(&self) -> bool {
        self.spare
    }

    /// Closes the connection after its requests were answered.
    pub(crate) fn close(&self) {
        self.close.notify_one();
    }

    /// Never closes the connection to make room: the server ends with this client.
    pub(crate) fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// The time of the last progress, if the client has to act next: send the rest of a request, or read a response.
    fn waits_since(&self) -> Option<u64> {
        if self.is_kept.load(Ordering::Relaxed) {
            return None;
        }
        let at_work = self.busy.load(Ordering::Relaxed) > self.awaited.load(Ordering::Relaxed);
        let waits = !at_work || self.blocked.load(Ordering::Relaxed);
        waits.then(|| self.progress.load(Ordering::Relaxed))
    }

    fn evict(&self) {
        self.evicted.store(true, Ordering::Relaxed);
        self.close.notify_one();
    }
}

impl Members {
    /// Closes the connection that has waited longest for its client. Returns whether there was one.
    fn evict_waiting(&mut self) -> bool {
        // Connections of the last search may have made progress since. Those of a new search have not all done so.
        for _ in 0..2 {
            while let Some((id, since)) = self.waiting.pop() {
                let still = self.open.get(&id).filter(|activity| activity.waits_since() == Some(since));
                if let Some(activity) = still.filter(|activity| !activity.evicted.load(Ordering::Relaxed)) {
                    activity.evict();
                    self.placed -= 1;
                    self.evicted += 1;
                    return true;
                }
            }
            self.find_waiting();
        }
        false
    }

    fn find_waiting(&mut self) {
        let placed = self.open.iter().filter(|(_, activity)| {
            let evicted = activity.evicted.load(Ordering::Relaxed);
            !activity.spare && !evicted
        });
        let mut waiting: Vec<_> =
            placed.filter_map(|(id, activity)| Some((*id, activity.waits_since()?))).collect();
        let count = waiting.len().div_ceil(FOUND_AT_A_TIME);
        // If the times are equal, the older connection is closed first.
        let age = |(id, since): &(u64, u64)| (*since, *id);
        if count > 0 {
            waiting.select_nth_unstable_by_key(count - 1, age);
            waiting.truncate(count);
            waiting.sort_unstable_by_key(|entry| std::cmp::Reverse(age(entry)));
        }
        self.waiting = waiting;
    }

    /// Closes the spare connection with the longest time since its last progress.
    fn evict_spare(&mut self) {
        let spare =
            self.open.values().filter(|activity| activity.spare && !activity.evicted.load(Ordering::Relaxed));
        if let Some(oldest) = spare.min_by_key(|activity| activity.progress.load(Ordering::Relaxed)) {
            oldest.evict();
            self.spare -= 1;
            self.evicted += 1;
        }
    }
}

/// An address has reached its limit of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Connections {
    /// At most `limit` connections, which are closed after `silence` without a request.
    pub(crate) fn new(limit: usize, silence: Duration) -> Self {
        let tick = (silence / TICKS as u32).max(Duration::from_millis(1));
        Self(Arc::new(Inner {
            tick,
            limit,
            began: Instant::now(),
            now: AtomicU64::new(0),
            members: Mutex::default(),
            gone: Notify::new(),
        }))
    }

    /// The interval at which [`sweep`](Self::sweep) must be called.
    pub(crate) fn tick(&self) -> Duration {
        self.0.tick
    }

    /// Closes idle connections, and logs how many were closed to make room.
    pub(crate) fn sweep(&self) {
        let now = self.0.now.fetch_add(1, Ordering::Relaxed) + 1;
        let mut members = self.0.members.lock();
        for activity in members.open.values() {
            let changes = activity.changes.load(Ordering::Relaxed);
            if activity.seen.swap(changes, Ordering::Relaxed) != changes
                || activity.busy.load(Ordering::Relaxed) > 0
            {
                activity.since.store(now, Ordering::Relaxed);
            } else if now - activity.since.load(Ordering::Relaxed) >= TICKS {
                activity.close.notify_one();
            }
        }
        let closed = std::mem::take(&mut members.evicted);
        let open = members.open.len();
        drop(members);
        if closed > 0 {
            tracing::warn!(
                closed,
                open,
                limit = self.0.limit,
                "too many connections: closed those that had waited longest for their clients"
            );
        }
    }

    /// Registers a new connection, and closes another one if there are too many. `from` is its address and how many connections that may have,
    /// if that is limited.
    pub(crate) fn join(&self, from: Option<(IpAddr, NonZeroUsize)>) -> Result<Member, TooMany> {
        let mut members = self.0.members.lock();
        if let Some((address, limit)) = from {
            let count = members.by_address.entry(address).or_default();
            if *count >= limit.get() {
                return Err(TooMany);
            }
            *count += 1;
        }
        let spare = members.placed >= self.0.limit && !members.evict_waiting();
        if spare && members.spare >= SPARE {
            members.evict_spare();
        }
        match spare {
            true => members.spare += 1,
            false => members.placed += 1,
        }
        let activity = Arc::new(Activity::new(self.0.began, self.0.now.load(Ordering::Relaxed), spare));
        let id = members.next;
        members.next += 1;
        members.open.insert(id, activity.clone());
        if members.closing {
            activity.close.notify_one();
        }
        Ok(Member { id, activity, address: from.map(|(address, _)| address), connections: self.clone() })
    }

    /// Closes the connection that has waited longest for its client, because another part of the process needs its descriptor. Waits until a
    /// connection has ended.
    pub(crate) async fn give_way(&self) {
        let before = {
            let mut members = self.0.members.lock();
            members.evict_waiting();
            members.open.len()
        };
        self.until(|open| open < before).await;
    }

    /// Waits until another connection may be accepted. It waits only if many connections are closing.
    pub(crate) async fn accepting(&self) {
        let most = self.0.limit.saturating_add(SPARE + CLOSING);
        self.until(|open| open < most).await;
    }

    /// Closes every connection after its requests were answered.
    pub(crate) fn close(&self) {
        let mut members = self.0.members.lock();
        members.closing = true;
        for activity in members.open.values() {
            activity.close.notify_one();
        }
    }

    /// Waits until all connections have ended.
    pub(crate) async fn gone(&self) {
        self.until(|open| open == 0).await;
    }

    /// Waits until the number of connections satisfies a condition.
    async fn until(&self, is_so: impl Fn(usize) -> bool) {
        loop {
            let mut gone = std::pin::pin!(self.0.gone.notified());
            gone.as_mut().enable();
            if is_so(self.0.members.lock().open.len()) {
                return;
            }
            gone.await;
        }
    }
}

/// The registration of a connection; removed when dropped.
pub(crate) struct Member {
    id: u64,
    activity: Arc<Activity>,
    /// Its address, if connections of that address are counted.
    address: Option<IpAddr>,
    connections: Connections,
}

impl Member {
    pub(crate) fn activity(&self) -> Arc<Activity> {
        self.activity.clone()
    }

    /// Whether no request is being answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.activity.busy.load(Ordering::Relaxed) == 0
    }

    /// Whether it must close at once.
    pub(crate) fn is_evicted(&self) -> bool {
        self.activity.evicted.load(Ordering::Relaxed)
    }

    /// Waits until the connection should close.
    pub(crate) async fn closing(&self) {
        self.activity.close.notified().await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut members = self.connections.0.members.lock();
        members.open.remove(&self.id);
        // The flag changes only under the lock.
        match (self.is_evicted(), self.activity.spare) {
            (true, _) => {}
            (false, true) => members.spare -= 1,
            (false, false) => members.placed -= 1,
        }
        if let Some(address) = self.address
            && let Some(count) = members.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                members.by_address.remove(&address);
            }
        }
        drop(members);
        self.connections.0.gone.notify_waiters();
    }
}

/// A request that is being answered, from its head until the last byte of the response.
pub(crate) struct Busy(Arc<Activity>);

impl Busy {
    pub(crate) fn new(activity: &Arc<Activity>) -> Self {
        activity.busy.fetch_add(1, Ordering::Relaxed);
        activity.changes.fetch_add(1, Ordering::Relaxed);
        Self(activity.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.changes.fetch_add(1, Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn joined(connections: &Connections) -> Member {
        connections.join(None).unwrap()
    }

    /// Joins after all others.
    async fn later(connections: &Connections) -> Member {
        tokio::time::advance(Duration::from_millis(1)).await;
        joined(connections)
    }

    fn evicted(members: &[&Member]) -> Vec<bool> {
        members.iter().map(|member| member.is_evicted()).collect()
    }

    #[test]
    fn a_silent_connection_is_asked_to_close_and_a_busy_one_is_not() {
        let connections = Connections::new(100, Duration::from_secs(8));
        assert_eq!(connections.tick() * u32::try_from(TICKS).unwrap(), Duration::from_secs(8));
        let (silent, busy) = (joined(&connections), joined(&connections));
        let request = Busy::new(&busy.activity());
        let closes = |member: &Member, ticks: u64| {
            (0..ticks).for_each(|_| connections.sweep());
            futures::FutureExt::now_or_never(member.closing()).is_some()
        };
        assert!(!closes(&silent, TICKS - 1));
        assert!(closes(&silent, 1));
        assert!(!closes(&busy, 10 * TICKS));
        drop(request);
        assert!(!closes(&busy, TICKS));
        assert!(closes(&busy, 1));
    }

    #[tokio::test]
    async fn closing_waits_until_every_connection_is_gone() {
        let connections = Connections::new(100, Duration::from_secs(8));
        let member = joined(&connections);
        connections.close();
        member.closing().await;
        assert!(futures::FutureExt::now_or_never(connections.gone()).is_none());
        drop(member);
        connections.gone().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_the_server_ends_with_is_not_closed_for_a_new_one() {
        let connections = Connections::new(2, Duration::from_secs(30));
        let (kept, other) = (later(&connections).await, later(&connections).await);
        kept.activity().keep();
        kept.activity().wrote(false);
        let third = later(&connections).await;
        assert_eq!(evicted(&[&kept, &other, &third]), [false, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_has_waited_longest_is_closed_for_a_new_one() {
        let connections = Connections::new(3, Duration::from_secs(30));
        let (first, second) = (later(&connections).await, later(&connections).await);
        let third = later(&connections).await;
        assert_eq!(evicted(&[&first, &second, &third]), [false; 3], "there is room for three");
        tokio::time::advance(Duration::from_millis(1)).await;
        first.activity.moved();
        let fourth = later(&connections).await;
        assert_eq!(evicted(&[&first, &second, &third, &fourth]), [false, true, false, false]);
        second.closing().await;
        let fifth = later(&connections).await;
        assert_eq!(evicted(&[&first, &third, &fourth, &fifth]), [false, true, false, false]);
        assert!(!fifth.activity.is_spare());
        drop((second, third));
        let sixth = later(&connections).await;
        assert_eq!(evicted(&[&first, &fourth, &fifth, &sixth]), [true, false, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_at_work_is_not_closed_for_another_and_one_that_waits_for_a_body_is() {
        let connections = Connections::new(2, Duration::from_secs(30));
        let (working, uploading) = (later(&connections).await, later(&connections).await);
        let _requests = [&working, &uploading].map(|member| Busy::new(&member.activity));
        let first = later(&connections).await;
        assert!(first.activity.is_spare(), "nobody waits for a client");
        drop(first);
        uploading.activity.body_awaited();
        let second = later(&connections).await;
        assert_eq!(evicted(&[&working, &uploading, &second]), [false, true, false]);
        assert!(!second.activity.is_spare());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_take_its_answer_keeps_no_connection_from_others() {
        let connections = Connections::new(2, Duration::from_secs(30));
        let (stuck, read) = (later(&connections).await, later(&connections).await);
        let _requests = [&stuck, &read].map(|member| Busy::new(&member.activity));
        for member in [&stuck, &read] {
            member.activity.wrote(false);
        }
        read.activity.wrote(true);
        let next = later(&connections).await;
        assert_eq!(evicted(&[&stuck, &read, &next]), [true, false, false]);
        let spare = later(&connections).await;
        assert_eq!(
            (spare.activity.is_spare(), next.is_evicted()),
            (false, true),
            "the one that says nothing goes"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_waits_go_first_however_many_there_are() {
        let connections = Connections::new(1000, Duration::from_secs(30));
        let mut members = Vec::new();
        for _ in 0..1000 {
            members.push(later(&connections).await);
        }
        let mut newer = Vec::new();
        for gone in 0..500 {
            newer.push(later(&connections).await);
            let expected: Vec<_> = (0..1000).map(|index| index <= gone).collect();
            assert_eq!(evicted(&members.iter().collect::<Vec<_>>()), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_spare_connections_are_few_and_the_oldest_of_them_goes() {
        let connections = Connections::new(1, Duration::from_secs(30));
        let working = later(&connections).await;
        let _request = Busy::new(&working.activity);
        let mut spare = Vec::new();
        for _ in 0..SPARE {
            spare.push(later(&connections).await);
        }
        assert!(spare.iter().all(|member| member.activity.is_spare() && !member.is_evicted()));
        let one_more = later(&connections).await;
        assert_eq!(evicted(&[&working, &spare[0], &spare[1], &one_more]), [false, true, false, false]);
        drop(working);
        assert!(!later(&connections).await.activity.is_spare());
    }

    #[tokio::test(start_paused = true)]
    async fn accepting_waits_until_those_that_were_closed_are_gone() {
        let connections = Connections::new(1, Duration::from_secs(30));
        let mut members: Vec<_> = (0..SPARE + CLOSING).map(|_| joined(&connections)).collect();
        connections.accepting().await;
        members.push(joined(&connections));
        let mut accepting = std::pin::pin!(connections.accepting());
        assert!(futures::poll!(&mut accepting).is_pending());
        members.remove(0);
        accepting.await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_gives_way_to_what_else_needs_a_descriptor() {
        let connections = Connections::new(100, Duration::from_secs(30));
        let (first, second) = (later(&connections).await, later(&connections).await);
        let mut giving_way = std::pin::pin!(connections.give_way());
        assert!(futures::poll!(&mut giving_way).is_pending());
        assert_eq!(evicted(&[&first, &second]), [true, false]);
        drop(first);
        giving_way.await;
    }

    #[test]
    fn an_address_has_as_many_connections_as_it_may_and_no_more() {
        let connections = Connections::new(100, Duration::from_secs(30));
        let limit = NonZeroUsize::new(2).unwrap();
        let [one, other] = [1, 2].map(|last| Some((Ipv4Addr::new(203, 0, 113, last).into(), limit)));
        let (first, _second) = (connections.join(one).unwrap(), connections.join(one).unwrap());
        assert_eq!(connections.join(one).err(), Some(TooMany));
        let _elsewhere = connections.join(other).unwrap();
        let _unlimited = joined(&connections);
        drop(first);
        let _third = connections.join(one).unwrap();
        assert_eq!(connections.join(one).err(), Some(TooMany));
    }
}
