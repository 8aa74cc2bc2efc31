//! How much a caller may ask for, and how fast.
//!
//! A caller is a principal or, for those who have not said who they are, an address. Each has an account of its own, so that one
//! who is at a limit waits and is refused without anyone else noticing. What a caller may have at once is given out by
//! [limiters](attache_core::Limiter), how often they may come is told by [meters](meter).

mod accounts;
mod address;
mod admission;
pub(crate) mod load;
mod meter;

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use attache_outbound::IpNet;

pub(crate) use self::accounts::{Account, Resource};
pub(crate) use self::admission::Admission;

/// What a caller may do at once and how fast. A principal is a caller; whoever is anonymous is known by their address, of IPv6 by
/// the network of 64 bits that it is in.
///
/// They can be changed while the server runs, with [`HttpService::set_limits`](crate::HttpService::set_limits).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How many requests per second a principal may make, in the long run. Unlimited, if nothing is set.
    pub requests_per_second: Option<NonZeroU32>,
    /// How many requests a principal that has been quiet may make at once before that rate is asked of it.
    pub burst: NonZeroU32,
    /// How many requests per second may come from an address, in the long run. It is looked at before credentials are, so that
    /// guessing them takes its time. Unlimited, if nothing is set.
    pub requests_per_second_per_address: Option<NonZeroU32>,
    /// How many requests may come at once from an address that has been quiet.
    pub burst_per_address: NonZeroU32,
    /// How many requests of a caller are worked on at once. An open stream is not one of them.
    pub requests_per_caller: Option<NonZeroUsize>,
    /// How many streams of a caller are open at once.
    pub streams_per_caller: Option<NonZeroUsize>,
    /// How many turns the agent takes for a caller at once. Messages to a task that is being worked on share its turn.
    pub turns_per_caller: Option<NonZeroUsize>,
    /// How many connections may come from an address; more are closed at once. Those of
    /// [`trusted_proxies`](Self::trusted_proxies) are not counted. Unlimited, if nothing is set.
    pub connections_per_address: Option<NonZeroUsize>,
    /// How long a request waits for one of these places before it is refused. They are given out in the order of arrival, and no
    /// more wait than there are places.
    pub queue_timeout: Duration,
    /// How long the first byte of a new connection may take.
    pub first_byte_timeout: Duration,
    /// The proxies whose word on where a request comes from is taken: the last address in `X-Forwarded-For` that is not one of
    /// theirs is the caller's.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether anonymous callers on this machine, and connections from it, are limited too. They are not, since a proxy that nobody has told about in
    /// [`trusted_proxies`](Self::trusted_proxies) would be limited for all who are behind it.
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
    /// No limits on callers.
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
