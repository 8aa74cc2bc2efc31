//! The sessions that are kept between turns: at most so many, each used by one prompt at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::peer::LiveSession;
use super::records::ContextKey;

/// The sessions by conversation.
pub(super) struct Pool {
    max: usize,
    idle: Duration,
    slots: Mutex<Slots>,
    changed: Notify,
}

#[derive(Default)]
struct Slots {
    by_context: HashMap<ContextKey, Slot>,
    /// Counts uses, to find the least recent one and to tell whether a session was used again.
    uses: u64,
}

enum Slot {
    InUse,
    Unused { session: LiveSession, use_number: u64 },
}

/// The right to use the session of a conversation. The session goes back to the pool when this is dropped.
pub(super) struct Lease {
    pool: Arc<Pool>,
    key: ContextKey,
    /// The session, if there is one.
    pub(super) session: Option<LiveSession>,
    /// The session that had to go. It keeps the program running until the new session is there.
    replaced: Option<LiveSession>,
}

impl Pool {
    pub(super) fn new(max: usize, idle: Duration) -> Self {
        Self { max, idle, slots: Mutex::default(), changed: Notify::new() }
    }

    /// Waits until the session of a conversation is not in use, and until another session may exist.
    pub(super) async fn acquire(self: &Arc<Self>, key: &ContextKey) -> Lease {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From now on no change is missed.
            changed.as_mut().enable();
            if let Some(lease) = self.try_acquire(key) {
                return lease;
            }
            changed.await;
        }
    }

    fn try_acquire(self: &Arc<Self>, key: &ContextKey) -> Option<Lease> {
        let mut slots = self.slots.lock();
        let (session, replaced) = match slots.by_context.get(key) {
            Some(Slot::InUse) => return None,
            Some(Slot::Unused { .. }) => (slots.by_context.remove(key).and_then(Slot::into_session), None),
            None if slots.by_context.len() < self.max => (None, None),
            None => {
                let unused = slots.by_context.iter().filter_map(|(key, slot)| match slot {
                    Slot::Unused { use_number, .. } => Some((*use_number, key)),
                    Slot::InUse => None,
                });
                let (_, oldest) = unused.min_by_key(|(use_number, _)| *use_number)?;
                let oldest = oldest.clone();
                (None, slots.by_context.remove(&oldest).and_then(Slot::into_session))
            }
        };
        slots.by_context.insert(key.clone(), Slot::InUse);
        Some(Lease { pool: self.clone(), key: key.clone(), session, replaced })
    }

    /// Removes a session that was not used since.
    fn expire(&self, key: &ContextKey, number: u64) {
        let expired = {
            let mut slots = self.slots.lock();
            let is_same = matches!(slots.by_context.get(key), Some(Slot::Unused { use_number, .. }) if *use_number == number);
            if is_same { slots.by_context.remove(key) } else { None }
        };
        if expired.is_some() {
            drop(expired);
            self.changed.notify_waiters();
        }
    }
}

impl Slot {
    fn into_session(self) -> Option<LiveSession> {
        match self {
            Self::InUse => None,
            Self::Unused { session, .. } => Some(session),
        }
    }
}

impl Lease {
    /// Sets the new session.
    pub(super) fn set(&mut self, session: LiveSession) {
        self.session = Some(session);
        self.replaced = None;
    }

    /// Gives up a session whose prompt does not end. If no other session is in use, the program is stopped: it may hang as a whole.
    pub(super) fn abandon(mut self) {
        let Some(session) = self.session.take() else { return };
        let in_use = {
            let slots = self.pool.slots.lock();
            slots.by_context.values().filter(|slot| matches!(slot, Slot::InUse)).count()
        };
        if in_use <= 1 {
            session.peer.stop();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let session = self.session.take().filter(|session| !session.peer.is_closed());
        let returned = session.is_some();
        let number = {
            let mut slots = self.pool.slots.lock();
            slots.uses += 1;
            let use_number = slots.uses;
            match session {
                Some(session) => {
                    slots.by_context.insert(self.key.clone(), Slot::Unused { session, use_number });
                }
                None => {
                    slots.by_context.remove(&self.key);
                }
            }
            use_number
        };
        self.pool.changed.notify_waiters();
        if returned && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (pool, key, idle) = (Arc::downgrade(&self.pool), self.key.clone(), self.pool.idle);
            runtime.spawn(async move {
                tokio::time::sleep(idle).await;
                if let Some(pool) = pool.upgrade() {
                    pool.expire(&key, number);
                }
            });
        }
    }
}
