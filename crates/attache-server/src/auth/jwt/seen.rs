//! Tokens that were found good, so that one that comes again costs no more than being looked up.

use std::collections::{HashMap, VecDeque};

use attache_core::Identity;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// How many tokens are remembered.
const CAPACITY: usize = 10_000;

/// What a token is remembered by. Of the token itself nothing is kept.
pub(super) type Trace = [u8; 32];

pub(super) fn trace(token: &str) -> Trace {
    Sha256::digest(token).into()
}

/// A token that was found good.
#[derive(Debug, Clone)]
pub(super) struct Good {
    pub(super) identity: Identity,
    /// Until when it is, in milliseconds.
    pub(super) until: i64,
    /// Which issuer it is of.
    pub(super) issuer: usize,
    /// With which generation of the issuer's keys it was found good.
    pub(super) generation: u64,
}

/// The latest tokens that were found good. The oldest makes room for a new one.
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

    /// Who has a token, if it was found good and that still holds.
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
