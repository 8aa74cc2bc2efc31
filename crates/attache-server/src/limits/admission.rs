//! The admission that every request comes through: who is it charged to, and is there room for it.

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use attache_core::{Identity, Permit, Principal, Quota};
use attache_protocol::{Error, ErrorKind};
use http::HeaderMap;
use tokio::time::Instant;

use super::accounts::{Account, Accounts, Holder, Thing};
use super::meter::{Meter, Pace};
use super::{Limits, address, rate};
use crate::audit::{self, Denial};

/// How many denials of one address are logged, and how many of all.
const LINES: Pace = Pace::new(rate(2), rate(20));
const ALL_LINES: Pace = Pace::new(rate(100), rate(1_000));

/// How often it is looked which accounts are at rest.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// When there may be a place again. Nobody knows when one becomes free.
const SOON: Duration = Duration::from_secs(1);

/// Knows who has taken how much of what they may have.
pub(crate) struct Admission {
    limits: ArcSwap<Limits>,
    accounts: Accounts,
    /// The account of those whose address is not known. Only their denials are counted.
    nowhere: Arc<Account>,
    lines: Meter,
    began: Instant,
}

/// Someone who was let in, with one request.
pub(crate) struct RequestContext {
    /// Who it is.
    pub(crate) identity: Identity,
    /// Where the request comes from.
    pub(crate) address: Option<IpAddr>,
    /// What it is spoken over.
    pub(crate) binding: &'static str,
    /// What it is charged to, if it is.
    pub(crate) account: Option<Arc<Account>>,
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits: ArcSwap::from_pointee(limits),
            accounts: Accounts::default(),
            nowhere: Arc::default(),
            lines: Meter::default(),
            began: Instant::now(),
        }
    }

    pub(crate) fn limits(&self) -> Guard<Arc<Limits>> {
        self.limits.load()
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        self.limits.store(Arc::new(limits));
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Where a request comes from.
    pub(crate) fn address(&self, connection: Option<SocketAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        Some(address::of(connection?, headers, &self.limits.load().trusted_proxies))
    }

    /// The address that connections are counted for, with how many it may have. Nothing if it may have any number.
    pub(crate) fn connection_limit(&self, peer: IpAddr) -> Option<(IpAddr, NonZeroUsize)> {
        let limits = self.limits.load();
        let (peer, limit) = (peer.to_canonical(), limits.connections_per_address?);
        let exempt = peer.is_loopback() && !limits.limit_loopback;
        let proxy = limits.trusted_proxies.iter().any(|net| net.contains(&peer));
        (!exempt && !proxy).then(|| (address::network(peer), limit))
    }

    /// Counts a request from an address. Its account, if the address has one.
    pub(crate) fn check_address(&self, address: Option<IpAddr>) -> Result<Option<Arc<Account>>, Error> {
        let limits = self.limits.load();
        let Some(address) = address.filter(|address| limits.limit_loopback || !address.is_loopback()) else {
            return Ok(None);
        };
        let now = self.now();
        let account = self.accounts.of(Holder::Address(address::network(address)), now);
        if let Some(per_second) = limits.requests_per_second_per_address {
            let pace = Pace::new(per_second, limits.burst_per_address);
            let wait = account.requests.pass(pace, now);
            wait.map_err(|wait| too_fast("from your address", per_second, wait))?;
        }
        Ok(Some(account))
    }

    /// Counts a request of someone who is known by now. `from` is the account of their address.
    pub(crate) fn check_principal(
        &self,
        principal: &Principal,
        from: Option<Arc<Account>>,
    ) -> Result<Option<Arc<Account>>, Error> {
        let Principal::Named(name) = principal else { return Ok(from) };
        let (limits, now) = (self.limits.load(), self.now());
        let account = self.accounts.of(Holder::Principal(name.clone()), now);
        if let Some(per_second) = limits.requests_per_second {
            let wait = account.requests.pass(Pace::new(per_second, limits.burst), now);
            wait.map_err(|wait| too_fast("of yours", per_second, wait))?;
        }
        Ok(Some(account))
    }

    /// The way to a place for something that there is only so much of, for whom it is so.
    pub(crate) fn quota(&self, account: Option<&Arc<Account>>, thing: Thing) -> Option<Quota> {
        account?.quota(thing, &self.limits.load())
    }

    /// A place for something that there is only so much of, waited for if need be; none for whom there is no limit.
    pub(crate) async fn acquire(
        &self,
        account: Option<&Arc<Account>>,
        thing: Thing,
    ) -> Result<Option<Permit>, Error> {
        let Some(quota) = self.quota(account, thing) else { return Ok(None) };
        if let Some(permit) = quota.try_acquire() {
            return Ok(Some(permit));
        }
        let (limit, name) = (quota.limit, thing.name());
        Box::pin(quota.acquire()).await.map(Some).map_err(|_| {
            let text = format!("at most {limit} {name} of yours go on at once: wait for one to end");
            Error::new(ErrorKind::ResourceExhausted, text).with("limit", limit).retry_in(SOON)
        })
    }

    /// Logs that someone was denied something, unless the log has heard much of that already.
    pub(crate) fn deny(&self, denial: &Denial<'_>) {
        let now = self.now();
        let account = match denial.address {
            Some(address) => self.accounts.of(Holder::Address(address::network(address)), now),
            None => self.nowhere.clone(),
        };
        if account.told.pass(LINES, now).is_err() || self.lines.pass(ALL_LINES, now).is_err() {
            account.suppressed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        audit::tell(denial, account.suppressed.swap(0, Ordering::Relaxed));
    }

    /// Forgets who is gone, and logs how much was not logged, for as long as there is a admission.
    pub(crate) async fn run_maintenance(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            self.sweep();
        }
    }

    fn sweep(&self) {
        let now = self.now();
        self.accounts.sweep(now, |holder, count| {
            let address = match holder {
                Some(Holder::Address(address)) => Some(*address),
                Some(Holder::Principal(_)) | None => None,
            };
            audit::tell_rest(address, count);
        });
        let rest = self.nowhere.suppressed.swap(0, Ordering::Relaxed);
        if rest > 0 {
            audit::tell_rest(None, rest);
        }
    }
}

fn too_fast(whose: &str, per_second: NonZeroU32, wait: Duration) -> Error {
    let text = format!("more than {per_second} requests per second {whose}: try again in a moment");
    Error::new(ErrorKind::ResourceExhausted, text).with("requestsPerSecond", per_second).retry_in(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_address_but_for_proxies_and_this_machine() {
        let limited = |limits: Limits, peer: &str| {
            Admission::new(limits).connection_limit(peer.parse().unwrap()).map(|(address, _)| address.to_string())
        };
        let usual = |peer: &str| limited(Limits::default(), peer);
        assert_eq!(usual("203.0.113.9").as_deref(), Some("203.0.113.9"));
        assert_eq!(usual("::ffff:203.0.113.9").as_deref(), Some("203.0.113.9"));
        assert_eq!(usual("2001:db8:1:2:3:4:5:6").as_deref(), Some("2001:db8:1:2::"));
        assert_eq!([usual("127.0.0.1"), usual("::1"), usual("::ffff:127.0.0.1")], [None, None, None]);
        let strict = Limits { limit_loopback: true, ..Limits::default() };
        assert_eq!(limited(strict, "127.0.0.1").as_deref(), Some("127.0.0.1"));
        let proxied = Limits { trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()], ..Limits::default() };
        assert_eq!(limited(proxied.clone(), "10.1.2.3"), None);
        assert_eq!(limited(proxied, "203.0.113.9").as_deref(), Some("203.0.113.9"));
        assert_eq!(limited(Limits::none(), "203.0.113.9"), None);
    }
}
