//! A cache of verified tokens, so that a repeated token costs one lookup.

use std::collections::{HashMap, VecDeque};

use attache_core::Identity;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// The size of the cache.
const CAPACITY: usize = 10_000;

/// The digest of a token. The token itself is not stored.
pub(super) type Trace = [u8; 32];

pub(super) fn trace(token: &str) -> Trace {
    Sha256::digest(token).into()
}

/// A verified token.
#[derive(Debug, Clone)]
pub(super) struct Good {
    pub(super) identity: Identity,
    /// Until when it is valid, in milliseconds.
    pub(super) until: i64,
    /// The index of its issuer.
    pub(super) issuer: usize,
    /// The generation of the issuer's keys that verified it.
    pub(super) generation: u64,
}

/// The most recently verified tokens. A new one replaces the oldest.
pub(super) struct Seen(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    good: HashMap<Trace, Good>,
    order: VecDeque<Trace>,
}

impl Seen {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    /// The caller of a token, if the cached result is still valid.
    pub(super) fn find(&self, trace: &Trace, holds: impl FnOnce(&Good) -> bool) -> Option<Identity> {
        let inner = self.0.lock();
        inner.good.get(trace).filter(|good| holds(good)).map(|good| good.identity.clone())
    }

    pub(super) fn remember(&self, trace: Trace, good: Good) {
        let mut inner = self.0.lock();
        if inner.good.insert(trace, good).is_some() {
            return;
        }
        inner.order.push_back(trace);
        if inner.order.len() > CAPACITY
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.good.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_tokens_are_remembered() {
        let seen = Seen::new();
        let good = Good { identity: Identity::named("a"), until: 1, issuer: 0, generation: 0 };
        let traces: Vec<_> = (0..CAPACITY + 2).map(|number| trace(&number.to_string())).collect();
        for trace in &traces {
            seen.remember(*trace, good.clone());
            seen.remember(*trace, good.clone());
        }
        let there = |number: usize| seen.find(&traces[number], |_| true).is_some();
        assert_eq!((there(0), there(1), there(2), there(CAPACITY + 1)), (false, false, true, true));
        assert_eq!(seen.0.lock().order.len(), CAPACITY);
        assert!(seen.find(&traces[2], |good| good.until > 1).is_none());
    }
}
