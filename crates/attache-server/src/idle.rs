//! Which connections are at work and which have been silent for too long.
//!
//! A timer for every request would cost as much as a small request does. Instead one clock ticks for all connections, a
//! request costs two counters, and a connection that has had nothing to do for some ticks is asked to close: one that sends its
//! headers a byte at a time as well as one that was forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// How many ticks of silence close a connection.
const TICKS: u64 = 4;

/// The connections of a server. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Inner>);

struct Inner {
    tick: Duration,
    now: AtomicU64,
    members: Mutex<Members>,
    gone: Notify,
}

#[derive(Default)]
struct Members {
    next: u64,
    open: std::collections::HashMap<u64, Arc<Activity>>,
    closing: bool,
}

/// What is known about one connection.
#[derive(Default)]
pub(crate) struct Activity {
    /// Requests being answered.
    busy: AtomicUsize,
    /// Changes whenever a request begins or ends.
    changes: AtomicU64,
    /// What the clock last saw of `changes`, and when that was new.
    seen: AtomicU64,
    since: AtomicU64,
    close: Notify,
}

impl Connections {
    /// Connections that may be silent for `limit`.
    pub(crate) fn new(limit: Duration) -> Self {
        let tick = (limit / TICKS as u32).max(Duration::from_millis(1));
        Self(Arc::new(Inner { tick, now: AtomicU64::new(0), members: Mutex::default(), gone: Notify::new() }))
    }

    /// How often [`sweep`](Self::sweep) is to be called.
    pub(crate) fn tick(&self) -> Duration {
        self.0.tick
    }

    /// Asks connections that have been silent for too long to close.
    pub(crate) fn sweep(&self) {
        let now = self.0.now.fetch_add(1, Ordering::Relaxed) + 1;
        for activity in self.0.members.lock().open.values() {
            let changes = activity.changes.load(Ordering::Relaxed);
            if activity.seen.swap(changes, Ordering::Relaxed) != changes
                || activity.busy.load(Ordering::Relaxed) > 0
            {
                activity.since.store(now, Ordering::Relaxed);
            } else if now - activity.since.load(Ordering::Relaxed) >= TICKS {
                activity.close.notify_one();
            }
        }
    }

    /// Takes a new connection in.
    pub(crate) fn join(&self) -> Member {
        let activity = Arc::new(Activity::default());
        activity.since.store(self.0.now.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut members = self.0.members.lock();
        let id = members.next;
        members.next += 1;
        members.open.insert(id, activity.clone());
        if members.closing {
            activity.close.notify_one();
        }
        Member { id, activity, connections: self.clone() }
    }

    /// Asks every connection to close once its requests are answered.
    pub(crate) fn close(&self) {
        let mut members = self.0.members.lock();
        members.closing = true;
        for activity in members.open.values() {
            activity.close.notify_one();
        }
    }

    /// Waits until no connection is left.
    pub(crate) async fn gone(&self) {
        loop {
            let mut gone = std::pin::pin!(self.0.gone.notified());
            gone.as_mut().enable();
            if self.0.members.lock().open.is_empty() {
                return;
            }
            gone.await;
        }
    }
}

/// A connection's place among the others; given up when dropped.
pub(crate) struct Member {
    id: u64,
    activity: Arc<Activity>,
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

    /// Waits until the connection should close.
    pub(crate) async fn closing(&self) {
        self.activity.close.notified().await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut members = self.connections.0.members.lock();
        members.open.remove(&self.id);
        if members.open.is_empty() {
            self.connections.0.gone.notify_waiters();
        }
    }
}

/// A request that is being answered, from its head until the last byte of the answer.
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
    use super::*;

    #[test]
    fn a_silent_connection_is_asked_to_close_and_a_busy_one_is_not() {
        let connections = Connections::new(Duration::from_secs(8));
        let (silent, busy) = (connections.join(), connections.join());
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
        let connections = Connections::new(Duration::from_secs(8));
        let member = connections.join();
        connections.close();
        member.closing().await;
        assert!(futures::FutureExt::now_or_never(connections.gone()).is_none());
        drop(member);
        connections.gone().await;
    }
}
