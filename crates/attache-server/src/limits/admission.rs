//! Admission: the limits that a request must keep before it is processed, and the account that it is charged to.

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use attache_core::{Permit, Principal, Quota};
use attache_protocol::{Error, ErrorKind};
use http::HeaderMap;
use tokio::time::Instant;

use super::accounts::{Account, Accounts, Holder, Resource};
use super::meter::{Meter, Pace};
use super::{Limits, Origin, address, rate};
use crate::audit::{self, Denial};

/// How many denials of one address are logged, and how many of all.
const LINES: Pace = Pace::new(rate(2), rate(20));
const ALL_LINES: Pace = Pace::new(rate(100), rate(1_000));

/// How often idle accounts are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// When a caller without a permit should try again. The server cannot know when a permit is released.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Applies the limits on callers.
pub(crate) struct Admission {
    limits: ArcSwap<Limits>,
    accounts: Accounts,
    /// The account of callers whose address is unknown. It counts their denials only.
    unknown_address: Arc<Account>,
    lines: Meter,
    began: Instant,
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits: ArcSwap::from_pointee(limits),
            accounts: Accounts::default(),
            unknown_address: Arc::default(),
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

    /// The address that a request comes from: the peer, or the address that a trusted proxy names.
    pub(crate) fn address(&self, connection: Option<SocketAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        Some(address::of(connection?, headers, &self.limits.load().trusted_proxies))
    }

    /// The address that connections are counted for, and how many it may have. `None` if its connections are not limited.
    pub(crate) fn connection_limit(&self, peer: IpAddr) -> Option<(IpAddr, NonZeroUsize)> {
        let limits = self.limits.load();
        let (peer, limit) = (peer.to_canonical(), limits.connections_per_address?);
        let exempt = peer.is_loopback() && !limits.limit_loopback;
        let proxy = limits.trusted_proxies.iter().any(|net| net.contains(&peer));
        (!exempt && !proxy).then(|| (address::network(peer), limit))
    }

    /// Charges a request to where it comes from. Returns the account of that place, if limits apply to it.
    pub(crate) fn check_origin(&self, origin: Origin) -> Result<Option<Arc<Account>>, Error> {
        let limits = self.limits.load();
        let is_local = match origin {
            Origin::Address(address) => address.is_loopback(),
            Origin::Local => true,
            Origin::Others => false,
        };
        if is_local && !limits.limit_loopback {
            return Ok(None);
        }
        let holder = match origin {
            Origin::Address(address) => Holder::Address(address::network(address)),
            Origin::Local => Holder::NoAddress,
            Origin::Others => Holder::Others,
        };
        let now = self.now();
        let account = self.accounts.of(holder, now);
        if let Some(per_second) = limits.requests_per_second_per_address {
            let pace = Pace::new(per_second, limits.burst_per_address);
            let wait = account.requests.pass(pace, now);
            wait.map_err(|wait| too_fast("from your address", per_second, wait))?;
        }
        Ok(Some(account))
    }

    /// Charges a request to its caller, and returns the account that its permits count against. An anonymous caller has the account
    /// of its address, `address_account`.
    pub(crate) fn check_principal(
        &self,
        principal: &Principal,
        address_account: Option<Arc<Account>>,
    ) -> Result<Option<Arc<Account>>, Error> {
        let Principal::Named(name) = principal else { return Ok(address_account) };
        let (limits, now) = (self.limits.load(), self.now());
        let account = self.accounts.of(Holder::Principal(name.clone()), now);
        if let Some(per_second) = limits.requests_per_second {
            let wait = account.requests.pass(Pace::new(per_second, limits.burst), now);
            wait.map_err(|wait| too_fast("of yours", per_second, wait))?;
        }
        Ok(Some(account))
    }

    /// The quota of a caller for a resource, if it is limited.
    pub(crate) fn quota(&self, account: Option<&Arc<Account>>, resource: Resource) -> Option<Quota> {
        account?.quota(resource, &self.limits.load())
    }

    /// Takes a permit for a resource, and waits for one if necessary. `None` if the caller has no quota.
    pub(crate) async fn acquire(
        &self,
        account: Option<&Arc<Account>>,
        resource: Resource,
    ) -> Result<Option<Permit>, Error> {
        let Some(quota) = self.quota(account, resource) else { return Ok(None) };
        if let Some(permit) = quota.try_acquire() {
            return Ok(Some(permit));
        }
        let (limit, name) = (quota.limit, resource.name());
        Box::pin(quota.acquire()).await.map(Some).map_err(|_| {
            let text =
                format!("at most {limit} concurrent {name} are allowed for each caller: wait for one to end");
            Error::new(ErrorKind::ResourceExhausted, text).with("limit", limit).retry_in(RETRY_AFTER)
        })
    }

    /// Logs a denial, unless the address has caused too many lines already. Suppressed lines are counted.
    pub(crate) fn deny(&self, denial: &Denial<'_>) {
        let now = self.now();
        let account = match denial.address {
            Some(address) => self.accounts.of(Holder::Address(address::network(address)), now),
            None => self.unknown_address.clone(),
        };
        if account.logged.pass(LINES, now).is_err() || self.lines.pass(ALL_LINES, now).is_err() {
            account.suppressed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        audit::log_denial(denial, account.suppressed.swap(0, Ordering::Relaxed));
    }

    /// Removes idle accounts and logs how many denials were suppressed, for as long as the server runs.
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
                Some(Holder::Principal(_) | Holder::NoAddress | Holder::Others) | None => None,
            };
            audit::log_suppressed(address, count);
        });
        let suppressed = self.unknown_address.suppressed.swap(0, Ordering::Relaxed);
        if suppressed > 0 {
            audit::log_suppressed(None, suppressed);
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
    fn connections_are_counted_by_address_except_for_proxies_and_loopback() {
        let limited = |limits: Limits, peer: &str| {
            Admission::new(limits)
                .connection_limit(peer.parse().unwrap())
                .map(|(address, _)| address.to_string())
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
