//! Limits for each caller: how much at once, and how fast.
//!
//! A caller is a principal or, if it is anonymous, an address. Each caller has an account of its own, so that a caller at its limit does not
//! affect others. [Limiters](attache_core::Limiter) bound what goes on at once, [meters](meter) bound the rate.

mod accounts;
mod address;
mod admission;
pub(crate) mod load;
mod meter;

use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use attache_outbound::IpNet;

pub(crate) use self::accounts::{Account, Resource};
pub(crate) use self::admission::Admission;

/// Where a request comes from, as far as limits apply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This address.
    Address(IpAddr),
    /// This machine, or a place that only the application around the server knows.
    Local,
    /// Another machine, without anything that tells it from others.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "used for Redis only"))]
    Others,
}

impl Origin {
    /// The address, if it is known.
    pub(crate) fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address),
            Self::Local | Self::Others => None,
        }
    }
}

impl From<Option<IpAddr>> for Origin {
    fn from(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Local, Self::Address)
    }
}

/// Limits for each caller. A caller is a principal. An anonymous caller is identified by its address; for IPv6 by its network of 64 bits.
///
/// They can be changed at run time with [`HttpService::set_limits`](crate::HttpService::set_limits).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The sustained rate of requests of a principal. `None` is unlimited.
    pub requests_per_second: Option<NonZeroU32>,
    /// How many requests a principal may make at once after a pause, before the rate applies.
    pub burst: NonZeroU32,
    /// The sustained rate of requests from an address. It is checked before credentials are, so that guessing them is slow. `None` is
    /// unlimited.
    pub requests_per_second_per_address: Option<NonZeroU32>,
    /// How many requests may come from an address at once after a pause.
    pub burst_per_address: NonZeroU32,
    /// How many requests of a caller are processed at once. Open streams do not count.
    pub requests_per_caller: Option<NonZeroUsize>,
    /// How many streams of a caller are open at once.
    pub streams_per_caller: Option<NonZeroUsize>,
    /// How many turns of a caller run at once. Messages to a task that has a running turn do not count.
    pub turns_per_caller: Option<NonZeroUsize>,
    /// How many connections an address may have; more are closed at once. Connections of [`trusted_proxies`](Self::trusted_proxies) do not count.
    /// `None` is unlimited.
    pub connections_per_address: Option<NonZeroUsize>,
    /// How long a request waits for a permit before it is rejected. Permits are granted in the order of arrival, and the queue is no longer
    /// than the limit.
    pub queue_timeout: Duration,
    /// How long the first byte of a new connection may take.
    pub first_byte_timeout: Duration,
    /// The proxies whose `X-Forwarded-For` is trusted: the caller is the last address in it that is not one of these.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether limits apply to anonymous callers and connections on this machine. By default they do not: a local proxy that is not listed in
    /// [`trusted_proxies`](Self::trusted_proxies) would be limited for all its clients together.
    pub limit_loopback: bool,
}

const fn count(number: usize) -> Option<NonZeroUsize> {
    NonZeroUsize::new(number)
}

const fn rate(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(rate) => rate,
        None => NonZeroU32::MIN,
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_per_second: Some(rate(500)),
            burst: rate(1_000),
            requests_per_second_per_address: Some(rate(1_000)),
            burst_per_address: rate(2_000),
            requests_per_caller: count(256),
            streams_per_caller: count(256),
            turns_per_caller: count(256),
            connections_per_address: count(1_024),
            queue_timeout: Duration::from_secs(2),
            first_byte_timeout: Duration::from_secs(10),
            trusted_proxies: Vec::new(),
            limit_loopback: false,
        }
    }
}

impl Limits {
    /// Changes some of the fields.
    ///
    /// ```
    /// use attache_server::Limits;
    ///
    /// let limits = Limits::default().with(|limits| limits.limit_loopback = true);
    /// ```
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// No limits.
    pub fn none() -> Self {
        Self {
            requests_per_second: None,
            requests_per_second_per_address: None,
            requests_per_caller: None,
            streams_per_caller: None,
            turns_per_caller: None,
            connections_per_address: None,
            ..Self::default()
        }
    }
}
