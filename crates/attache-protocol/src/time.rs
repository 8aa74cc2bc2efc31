//! Timestamps in the format of A2A: RFC 3339 in UTC, with `Z` and at least milliseconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A timestamp with nanosecond resolution.
///
/// It is formatted with `Z` and 3, 6 or 9 fraction digits. Any offset can be parsed and is converted to UTC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(jiff::Timestamp);

/// The text is not a valid timestamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an RFC 3339 timestamp with a zone, such as `2026-01-02T03:04:05.678Z`")]
pub struct TimestampError(String);

impl Timestamp {
    /// The start of 1970.
    pub const UNIX_EPOCH: Self = Self(jiff::Timestamp::UNIX_EPOCH);

    /// The time `nanos` nanoseconds after `seconds` since 1970, if it is between the years 1 and 9999.
    pub fn new(seconds: i64, nanos: i32) -> Option<Self> {
        let time = jiff::Timestamp::new(seconds, nanos).ok()?;
        Self::in_range(time).then_some(Self(time))
    }

    /// The time `millis` milliseconds after the start of 1970, clamped to the years 1 to 9999.
    pub fn from_millis(millis: i64) -> Self {
        let (low, high) = (-62_135_596_800_000, 253_402_207_199_000);
        Self(
            jiff::Timestamp::from_millisecond(millis.clamp(low, high)).unwrap_or(jiff::Timestamp::UNIX_EPOCH),
        )
    }

    /// Whole seconds since 1970. They are negative before 1970.
    pub fn seconds(self) -> i64 {
        self.0.as_second()
    }

    /// The fraction of the second, with the sign of the whole.
    pub fn subsec_nanos(self) -> i32 {
        self.0.subsec_nanosecond()
    }

    /// Nanoseconds since 1970.
    pub fn as_nanos(self) -> i128 {
        self.0.as_nanosecond()
    }

    /// The milliseconds since 1970, without the fraction.
    pub fn to_millis(self) -> i64 {
        self.0.as_millisecond()
    }

    /// The time `wait` later, in whole milliseconds.
    pub fn after(self, wait: Duration) -> Self {
        let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        Self::from_millis(self.to_millis().saturating_add(wait))
    }

    /// The time in a text of a server that does not follow RFC 3339: a time without a zone is in UTC, a number counts the seconds or
    /// the milliseconds since 1970.
    pub(crate) fn parse_tolerantly(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(time) = text.parse() {
            return Some(time);
        }
        if let Ok(number) = text.parse::<f64>() {
            /// Later than the year 5138 in seconds, and 1973 in milliseconds.
            const MILLIS_FROM: f64 = 1e11;
            let millis = if number.abs() < MILLIS_FROM { number * 1000.0 } else { number };
            return millis.is_finite().then(|| Self::from_millis(millis as i64));
        }
        let zoned = text.parse::<jiff::Timestamp>().ok();
        let time = zoned.or_else(|| {
            let time: jiff::civil::DateTime = text.parse().ok()?;
            jiff::tz::Offset::UTC.to_timestamp(time).ok()
        })?;
        Self::in_range(time).then_some(Self(time))
    }

    /// Whether a time is in the year 1 or later.
    fn in_range(time: jiff::Timestamp) -> bool {
        const YEAR_ONE: i64 = -62_135_596_800;
        time.as_second() > YEAR_ONE || time.as_second() == YEAR_ONE && time.subsec_nanosecond() >= 0
    }
}

/// The maximum length of a timestamp in bytes.
const LONGEST: usize = "0000-00-00T00:00:00.000000000Z".len();

impl Timestamp {
    /// Writes the timestamp to the start of `text`. Every response has a timestamp, so this avoids the cost of `std::fmt`.
    fn write(self, text: &mut [u8; LONGEST]) -> &str {
        let time = jiff::tz::Offset::UTC.to_datetime(self.0);
        *text = *b"0000-00-00T00:00:00.000000000Z";
        let mut place = |end: usize, digits: usize, mut value: u32| {
            for at in (end - digits..end).rev() {
                text[at] = b'0' + (value % 10) as u8;
                value /= 10;
            }
        };
        place(4, 4, time.year().unsigned_abs().into());
        place(7, 2, time.month().unsigned_abs().into());
        place(10, 2, time.day().unsigned_abs().into());
        place(13, 2, time.hour().unsigned_abs().into());
        place(16, 2, time.minute().unsigned_abs().into());
        place(19, 2, time.second().unsigned_abs().into());
        let nanos = time.subsec_nanosecond().unsigned_abs();
        place(29, 9, nanos);
        let end = match nanos {
            nanos if nanos % 1_000_000 == 0 => 23,
            nanos if nanos % 1_000 == 0 => 26,
            _ => 29,
        };
        text[end] = b'Z';
        std::str::from_utf8(&text[..=end]).unwrap_or_default()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.write(&mut [0; LONGEST]))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let error = || TimestampError(text.chars().take(64).collect());
        // jiff also accepts lower-case letters, a space instead of `T`, brackets and other offsets. ProtoJSON does not.
        let bytes = text.as_bytes();
        let strict = bytes.len() >= 20
            && bytes[..19].iter().enumerate().all(|(i, b)| match i {
                4 | 7 => *b == b'-',
                10 => *b == b'T',
                13 | 16 => *b == b':',
                _ => b.is_ascii_digit(),
            })
            && is_fraction_and_zone(&bytes[19..]);
        if !strict {
            return Err(error());
        }
        let time: jiff::Timestamp = text.parse().map_err(|_| error())?;
        Self::in_range(time).then_some(Self(time)).ok_or_else(error)
    }
}

/// Whether `text` may follow the seconds: a fraction of up to nine digits, then `Z` or an offset such as `+02:00`.
fn is_fraction_and_zone(text: &[u8]) -> bool {
    let zone = match text {
        [b'.', fraction @ ..] => {
            let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
            if !(1..=9).contains(&digits) {
                return false;
            }
            &fraction[digits..]
        }
        _ => text,
    };
    match zone {
        [b'Z'] => true,
        [b'+' | b'-', hour @ .., b':', _, _] => hour.len() == 2 && hour <= b"23".as_slice(),
        _ => false,
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.write(&mut [0; LONGEST]))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Timestamp;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 timestamp such as `2026-01-02T03:04:05.678Z`")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Timestamp, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn always_prints_utc_with_at_least_milliseconds() {
        for (text, printed) in [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"),
            ("2026-01-02T03:04:05.67Z", "2026-01-02T03:04:05.670Z"),
            ("2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.678901Z"),
            ("2026-01-02T03:04:05.000000001Z", "2026-01-02T03:04:05.000000001Z"),
            ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05.000Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
            ("9999-12-30T12:00:00.999Z", "9999-12-30T12:00:00.999Z"),
        ] {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn a_tolerant_reader_assumes_utc_and_reads_other_notations() {
        for (text, printed) in [
            ("2026-11-17T00:22:05.706878", "2026-11-17T00:22:05.706878Z"),
            ("2026-11-17T00:22:05.706878+02:00", "2026-11-16T22:22:05.706878Z"),
            ("2026-11-17 00:22:05", "2026-11-17T00:22:05.000Z"),
            ("2026-11-17t00:22:05z", "2026-11-17T00:22:05.000Z"),
            ("2026-11-17T00:22:05+0200", "2026-11-16T22:22:05.000Z"),
            ("2026-11-17", "2026-11-17T00:00:00.000Z"),
            ("1767323045", "2026-01-02T03:04:05.000Z"),
            ("1767323045678", "2026-01-02T03:04:05.678Z"),
        ] {
            let time = Timestamp::parse_tolerantly(text).map(|time| time.to_string());
            assert_eq!(time.as_deref(), Some(printed), "{text}");
        }
        for text in ["", "now", "yesterday 12:00", "2026-13-01T00:00:00", "NaN", "inf"] {
            assert_eq!(Timestamp::parse_tolerantly(text), None, "{text}");
        }
    }

    #[test]
    fn rejects_text_that_is_not_rfc_3339_with_a_zone() {
        for text in [
            "",
            "now",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "2026-01-02t03:04:05z",
            "2026-01-02 03:04:05Z",
            "2026-13-02T03:04:05Z",
            "2026-01-02T25:04:05Z",
            "2026-01-02T03:04:05Z[UTC]",
            "0000-01-01T00:00:00Z",
            "2026-01-02T03:04:05+02",
            "2026-01-02T03:04:05+0200",
            "2026-01-02T03:04:05+02:00:30",
            "2026-01-02T03:04:05+24:00",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05.0123456789Z",
            "1767323045",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }
}
