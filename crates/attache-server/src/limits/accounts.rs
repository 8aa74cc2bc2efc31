//! The accounts of callers: how much of its limits each caller uses.
//!
//! An idle account equals a new one, so idle accounts are removed. The number of accounts is bounded: further callers, for example
//! an attacker with many addresses, share one account.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use attache_core::{Limiter, Quota};
use foldhash::quality::RandomState;
use parking_lot::Mutex;

use super::Limits;
use super::meter::Meter;

const SHARDS: usize = 16;

/// A shard with fewer accounts than this is not swept.
const MIN_SWEPT: usize = 64;

/// The largest number of accounts in a shard.
const MAX_ACCOUNTS: usize = 8 * 1024;

/// The owner of an account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    Principal(Arc<str>),
    Address(IpAddr),
    /// All connections without an address: Unix sockets, standard input and output, Redis on this machine.
    NoAddress,
    /// All callers on other machines that cannot be told apart.
    Others,
}

/// How much of its limits one caller uses.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// The rate of requests.
    pub(super) requests: Meter,
    /// The rate of logged denials.
    pub(super) logged: Meter,
    /// How many denials were not logged since the last one that was.
    pub(super) suppressed: AtomicU64,
    limiters: OnceLock<Limiters>,
}

#[derive(Debug, Default)]
struct Limiters {
    requests: Arc<Limiter>,
    streams: Arc<Limiter>,
    turns: Arc<Limiter>,
}

impl Limiters {
    fn are_idle(&self) -> bool {
        let idle = |limiter: &Arc<Limiter>| Arc::strong_count(limiter) == 1 && limiter.is_idle();
        [&self.requests, &self.streams, &self.turns].into_iter().all(idle)
    }
}

/// What a caller may have only a limited number of at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Requests,
    Streams,
    Turns,
}

impl Resource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Streams => "streams",
            Self::Turns => "turns",
        }
    }

    fn limit(self, limits: &Limits) -> Option<NonZeroUsize> {
        match self {
            Self::Requests => limits.requests_per_caller,
            Self::Streams => limits.streams_per_caller,
            Self::Turns => limits.turns_per_caller,
        }
    }
}

impl Account {
    /// The quota for a resource, if it is limited.
    pub(crate) fn quota(&self, resource: Resource, limits: &Limits) -> Option<Quota> {
        let limit = resource.limit(limits)?.get();
        let limiters = self.limiters.get_or_init(Limiters::default);
        let limiter = match resource {
            Resource::Requests => &limiters.requests,
            Resource::Streams => &limiters.streams,
            Resource::Turns => &limiters.turns,
        };
        Some(Quota { limiter: limiter.clone(), limit, max_wait: limits.queue_timeout })
    }

    fn is_idle(&self, now: u64) -> bool {
        self.requests.is_idle(now)
            && self.logged.is_idle(now)
            && self.suppressed.load(Ordering::Relaxed) == 0
            && self.limiters.get().is_none_or(Limiters::are_idle)
    }
}

/// All accounts.
pub(super) struct Accounts {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    accounts: HashMap<Holder, Arc<Account>, RandomState>,
    /// How many accounts trigger the next sweep.
    enough: usize,
    /// The account that further callers share.
    crowd: Arc<Account>,
}

impl Default for Accounts {
    fn default() -> Self {
        Self { hasher: RandomState::default(), shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Accounts {
    /// The account of a caller.
    pub(super) fn of(&self, holder: Holder, now: u64) -> Arc<Account> {
        let mut shard = self.shards[self.hasher.hash_one(&holder) as usize % SHARDS].lock();
        if let Some(account) = shard.accounts.get(&holder) {
            return account.clone();
        }
        if shard.accounts.len() >= shard.enough.max(MIN_SWEPT) {
            shard.sweep(now);
        }
        if shard.accounts.len() >= MAX_ACCOUNTS {
            return shard.crowd.clone();
        }
        shard.accounts.entry(holder).or_default().clone()
    }

    /// Removes idle accounts. Reports the number of suppressed denials of each account that has some.
    pub(super) fn sweep(&self, now: u64, mut tell: impl FnMut(Option<&Holder>, u64)) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let crowd = shard.crowd.clone();
            let all = shard.accounts.iter().map(|(holder, account)| (Some(holder), account));
            for (holder, account) in all.chain([(None, &crowd)]) {
                if account.logged.is_idle(now) && account.suppressed.load(Ordering::Relaxed) > 0 {
                    tell(holder, account.suppressed.swap(0, Ordering::Relaxed));
                }
            }
            shard.sweep(now);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().accounts.len()).sum()
    }
}

impl Shard {
    fn sweep(&mut self, now: u64) {
        self.accounts.retain(|_, account| Arc::strong_count(account) > 1 || !account.is_idle(now));
        // The next sweep follows when the number has doubled, so that the cost per new account is constant.
        self.enough = self.accounts.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::num::NonZeroU32;

    use super::super::meter::Pace;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn holder(number: u32) -> Holder {
        Holder::Address(Ipv4Addr::from_bits(number).into())
    }

    #[test]
    fn a_caller_keeps_its_account_as_long_as_it_says_something() {
        let accounts = Accounts::default();
        let pace = Pace::new(NonZeroU32::MIN, NonZeroU32::MIN);
        accounts.of(holder(1), 0).requests.pass(pace, 0).unwrap();
        accounts.sweep(SECOND / 2, |_, _| {});
        assert!(accounts.of(holder(1), SECOND / 2).requests.pass(pace, SECOND / 2).is_err());
        accounts.sweep(SECOND, |_, _| {});
        assert_eq!(accounts.len(), 0);
    }

    #[test]
    fn an_account_with_someone_inside_stays() {
        let accounts = Accounts::default();
        let limits = Limits::default();
        let quota = accounts.of(holder(1), 0).quota(Resource::Streams, &limits).unwrap();
        let permit = quota.try_acquire();
        drop(quota);
        accounts.sweep(SECOND, |_, _| {});
        assert_eq!(accounts.len(), 1);
        drop(permit);
        accounts.sweep(SECOND, |_, _| {});
        assert_eq!(accounts.len(), 0);
    }

    #[test]
    fn many_addresses_take_no_more_room_than_there_is() {
        let accounts = Accounts::default();
        let pace = Pace::new(NonZeroU32::MIN, NonZeroU32::MIN);
        let refused = (0..400_000).filter(|i| accounts.of(holder(*i), 0).requests.pass(pace, 0).is_err());
        // Callers beyond the limit shared one account and its rate.
        assert_eq!(refused.count(), 400_000 - SHARDS * MAX_ACCOUNTS - SHARDS);
        assert_eq!(accounts.len(), SHARDS * MAX_ACCOUNTS);
        accounts.of(holder(u32::MAX), 2 * SECOND);
        accounts.sweep(2 * SECOND, |_, _| {});
        assert_eq!(accounts.len(), 0);
    }

    #[test]
    fn those_who_come_and_go_leave_no_accounts_behind() {
        let accounts = Accounts::default();
        let pace = Pace::new(NonZeroU32::new(1_000).unwrap(), NonZeroU32::MIN);
        for i in 0..200_000 {
            let now = u64::from(i) * SECOND / 1_000;
            accounts.of(holder(i), now).requests.pass(pace, now).unwrap();
        }
        assert!(accounts.len() <= SHARDS * 2 * MIN_SWEPT, "{}", accounts.len());
    }
}
