//! Rate limits by the generic cell rate algorithm.
//!
//! A meter is one number: the time at which all accepted events would have happened at an even pace. An event is accepted as long as that
//! time is not too far in the future.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A rate with a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The time between two events, in nanoseconds.
    interval: u64,
    /// How far ahead of the even pace events may be, in nanoseconds.
    ahead: u64,
}

impl Pace {
    pub(crate) const fn new(per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        let interval = 1_000_000_000 / per_second.get() as u64;
        Self { interval, ahead: interval * (burst.get() as u64 - 1) }
    }
}

/// Counts events. Times are in nanoseconds since a common start.
#[derive(Debug, Default)]
pub(crate) struct Meter(AtomicU64);

impl Meter {
    /// Accepts an event, or returns how long until one would be accepted.
    pub(crate) fn pass(&self, pace: Pace, now: u64) -> Result<(), Duration> {
        let next = |at: u64| (at <= now.saturating_add(pace.ahead)).then(|| at.max(now) + pace.interval);
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Ok(()),
            Err(at) => Err(Duration::from_nanos(at - now - pace.ahead)),
        }
    }

    /// Whether the meter is as new.
    pub(crate) fn is_idle(&self, now: u64) -> bool {
        self.0.load(Ordering::Relaxed) <= now
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn pace(per_second: u32, burst: u32) -> Pace {
        Pace::new(NonZeroU32::new(per_second).unwrap(), NonZeroU32::new(burst).unwrap())
    }

    #[test]
    fn a_burst_is_let_through_and_then_one_at_a_time() {
        let (meter, pace) = (Meter::default(), pace(10, 3));
        for _ in 0..3 {
            assert_eq!(meter.pass(pace, 5 * SECOND), Ok(()));
        }
        assert_eq!(meter.pass(pace, 5 * SECOND), Err(Duration::from_millis(100)));
        assert_eq!(meter.pass(pace, 5 * SECOND + SECOND / 20), Err(Duration::from_millis(50)));
        assert_eq!(meter.pass(pace, 5 * SECOND + SECOND / 10), Ok(()));
        assert!(meter.pass(pace, 5 * SECOND + SECOND / 10).is_err());
    }

    #[test]
    fn a_caller_has_a_full_burst_after_a_pause_and_no_more() {
        let (meter, pace) = (Meter::default(), pace(1, 2));
        for begin in [0, 1_000 * SECOND] {
            assert!(meter.is_idle(begin));
            assert_eq!([0, 1, 2].map(|_| meter.pass(pace, begin).is_ok()), [true, true, false]);
            assert!(!meter.is_idle(begin));
        }
    }

    #[test]
    fn a_rejected_request_is_not_charged() {
        let (meter, pace) = (Meter::default(), pace(1, 1));
        assert_eq!(meter.pass(pace, 0), Ok(()));
        for _ in 0..100 {
            assert_eq!(meter.pass(pace, 1), Err(Duration::from_nanos(SECOND - 1)));
        }
        assert_eq!(meter.pass(pace, SECOND), Ok(()));
    }

    proptest! {
        #[test]
        fn no_window_sees_more_than_its_rate_and_a_burst(
            per_second in 1u32..2_000,
            burst in 1u32..50,
            steps in prop::collection::vec(0u64..50_000_000, 1..300),
        ) {
            let (meter, pace) = (Meter::default(), pace(per_second, burst));
            let mut now = 0;
            let mut passed = Vec::new();
            for step in steps {
                now += step;
                match meter.pass(pace, now) {
                    Ok(()) => passed.push(now),
                    Err(wait) => {
                        // The returned time is the first at which an event is accepted.
                        let then = now + u64::try_from(wait.as_nanos()).unwrap();
                        let at = meter.0.load(Ordering::Relaxed);
                        prop_assert!(at <= then + pace.ahead && at > then - 1 + pace.ahead);
                    }
                }
            }
            for (i, from) in passed.iter().enumerate() {
                for (j, to) in passed.iter().enumerate().skip(i) {
                    let allowed = u64::from(burst) + (to - from) / pace.interval;
                    prop_assert!((j - i + 1) as u64 <= allowed, "{} in {} ns", j - i + 1, to - from);
                }
            }
        }
    }
}
