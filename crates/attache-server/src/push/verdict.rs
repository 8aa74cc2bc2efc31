//! The outcome of a delivery attempt: delivered, retry, or dead.

use std::time::{Duration, SystemTime};

use attache_core::Outcome;
use attache_outbound::{OutboundError, OutboundResponse};
use attache_protocol::Timestamp;
use http::StatusCode;

use super::PushOptions;

/// The longest time that a receiver may ask for with `Retry-After`.
const LONGEST_ASKED: Duration = Duration::from_secs(24 * 60 * 60);

/// The outcome of an attempt, after so many earlier ones.
pub(super) fn verdict(
    attempts: u32,
    answer: Result<OutboundResponse, OutboundError>,
    options: &PushOptions,
    now: Timestamp,
) -> Outcome {
    let (error, again, asked) = match answer {
        Ok(answer) if answer.status.is_success() => return Outcome::Delivered,
        Ok(answer) => {
            let asked = answer.retry_after(system_time(now)).unwrap_or_default().min(LONGEST_ASKED);
            (explain(answer.status), may_pass(answer.status), asked)
        }
        // A host name that resolved to a forbidden address is not tried again, so that it cannot be used to probe the network.
        Err(error @ OutboundError::Refused(_)) => (error.to_string(), false, Duration::ZERO),
        Err(error @ (OutboundError::TimedOut { .. } | OutboundError::Failed(_))) => {
            (error.to_string(), true, Duration::ZERO)
        }
    };
    if !again || attempts.saturating_add(1) >= options.attempts {
        return Outcome::GivenUp { at: now, error };
    }
    let wait = back_off(attempts, options).max(asked);
    Outcome::Failed { again: now.after(wait), error }
}

/// Whether a retry may succeed after a response with this status.
fn may_pass(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        )
}

fn explain(status: StatusCode) -> String {
    if status.is_redirection() {
        return format!("the receiver answered {status}; redirects are not followed");
    }
    format!("the receiver answered {status}")
}

/// How long to wait after so many earlier attempts and one more that failed.
pub(super) fn back_off(attempts: u32, options: &PushOptions) -> Duration {
    wait(attempts, options, fastrand::f64())
}

/// Doubles with each attempt up to a limit, and is shortened at random by up to half, so that receivers that failed together are not tried
/// again together.
fn wait(attempts: u32, options: &PushOptions, random: f64) -> Duration {
    let doubled = options.first_wait.saturating_mul(2u32.saturating_pow(attempts));
    doubled.min(options.longest_wait).mul_f64(1.0 - random / 2.0)
}

fn system_time(time: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(time.to_millis()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;

    fn answered(attempts: u32, status: u16, retry_after: Option<&'static str>) -> Outcome {
        let mut headers = HeaderMap::new();
        headers.extend(retry_after.map(|value| (http::header::RETRY_AFTER, value.parse().unwrap())));
        let status = StatusCode::from_u16(status).unwrap();
        let answer = OutboundResponse { status, headers, body: Bytes::new(), truncated: false };
        verdict(attempts, Ok(answer), &PushOptions::default(), Timestamp::UNIX_EPOCH)
    }

    fn waits(outcome: &Outcome) -> Option<i64> {
        match outcome {
            Outcome::Failed { again, .. } => Some(again.to_millis()),
            Outcome::Delivered | Outcome::Postponed(_) | Outcome::GivenUp { .. } => None,
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        for status in [200, 202, 204, 299] {
            assert_eq!(answered(0, status, None), Outcome::Delivered, "{status}");
        }
        for status in [301, 302, 307, 308, 400, 401, 403, 404, 405, 410, 413, 422, 451] {
            assert!(matches!(answered(0, status, None), Outcome::GivenUp { .. }), "{status}");
        }
        for status in [408, 425, 429, 500, 502, 503, 504, 599] {
            assert!(waits(&answered(0, status, None)).is_some(), "{status}");
        }
    }

    #[test]
    fn the_wait_doubles_up_to_a_limit_and_is_spread() {
        let options = PushOptions::default();
        let seconds = |attempts, random| wait(attempts, &options, random).as_secs_f64();
        assert_eq!([0, 1, 2, 3].map(|attempts| seconds(attempts, 0.0)), [1.0, 2.0, 4.0, 8.0]);
        assert_eq!(seconds(3, 1.0), 4.0);
        assert_eq!(seconds(12, 0.0), 900.0);
        assert_eq!(seconds(u32::MAX, 0.5), 675.0);
    }

    #[test]
    fn a_receiver_is_left_alone_for_as_long_as_it_asks() {
        assert_eq!(waits(&answered(0, 503, Some("120"))), Some(120_000));
        assert_eq!(waits(&answered(0, 429, Some("Thu, 01 Jan 1970 00:10:00 GMT"))), Some(600_000));
        assert_eq!(waits(&answered(0, 429, Some("99999999999"))), Some(86_400_000));
        assert!(waits(&answered(4, 429, Some("1"))).is_some_and(|millis| millis >= 8_000));
        assert!(waits(&answered(0, 429, Some("soon"))).is_some_and(|millis| (500..=1000).contains(&millis)));
    }

    #[test]
    fn a_delivery_is_given_up_after_the_last_attempt_and_at_a_forbidden_address() {
        assert!(waits(&answered(14, 500, None)).is_some());
        assert!(matches!(answered(15, 500, None), Outcome::GivenUp { .. }));
        let refused = Err(OutboundError::Refused(attache_outbound::Refused::Metadata));
        let outcome = verdict(0, refused, &PushOptions::default(), Timestamp::UNIX_EPOCH);
        assert!(matches!(outcome, Outcome::GivenUp { .. }));
        let timed_out = Err(OutboundError::TimedOut { limit: Duration::from_secs(15) });
        assert!(waits(&verdict(0, timed_out, &PushOptions::default(), Timestamp::UNIX_EPOCH)).is_some());
    }
}
