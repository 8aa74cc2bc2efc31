//! What the log says about requests and turns: the trace that a request belongs to, states in one word, and durations.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use attache_protocol::TaskState;

/// The length of version 00: `00-<32 digits>-<16 digits>-<2 digits>`.
const LENGTH: usize = 55;

/// The trace that a request belongs to, and the span that sent it. Parsing is the only way to get one, so it is always valid.
///
/// This server has no spans of its own. It passes the header on as it came, which Trace Context allows.
///
/// ```
/// use attache_core::TraceParent;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let parent: TraceParent = text.parse()?;
/// assert_eq!(parent.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// assert_eq!(parent.as_str(), text);
/// # Ok::<(), attache_core::NotATraceParent>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent([u8; LENGTH]);

/// The state of a task as the log names it, in one word.
pub const fn state_name(state: TaskState) -> &'static str {
    match state {
        TaskState::Unspecified => "unspecified",
        TaskState::Submitted => "submitted",
        TaskState::Working => "working",
        TaskState::Completed => "completed",
        TaskState::Failed => "failed",
        TaskState::Canceled => "canceled",
        TaskState::InputRequired => "input-required",
        TaskState::Rejected => "rejected",
        TaskState::AuthRequired => "auth-required",
    }
}

/// A duration as the log has it: milliseconds with three decimals.
pub fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// The error for text that is not a [`TraceParent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a `traceparent` of W3C Trace Context")]
pub struct NotATraceParent;

impl TraceParent {
    /// The value of the header, in version 00.
    pub fn as_str(&self) -> &str {
        // Only ASCII characters get in.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The id of the trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        self.as_str().get(3..35).unwrap_or_default()
    }

    /// The id of the span that sent the request: 16 hexadecimal digits.
    pub fn parent_id(&self) -> &str {
        self.as_str().get(36..52).unwrap_or_default()
    }
}

impl FromStr for TraceParent {
    type Err = NotATraceParent;

    /// Parses the header. Of a later version, the part that version 00 defines is kept.
    fn from_str(text: &str) -> Result<Self, NotATraceParent> {
        let bytes = text.as_bytes();
        let (known, rest) = bytes.split_first_chunk::<LENGTH>().ok_or(NotATraceParent)?;
        let digits = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_id = |part: &[u8]| digits(part) && part.iter().any(|byte| *byte != b'0');
        let dashes = [2, 35, 52].into_iter().all(|at| known[at] == b'-');
        let valid = dashes && digits(&known[..2]) && is_id(&known[3..35]) && is_id(&known[36..52]);
        let version = match &known[..2] {
            b"00" => rest.is_empty(),
            b"ff" => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        if !valid || !version || !digits(&known[53..]) {
            return Err(NotATraceParent);
        }
        let mut own = *known;
        own[..2].copy_from_slice(b"00");
        Ok(Self(own))
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TraceParent").field(&self.as_str()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        for (text, kept) in [
            (format!("00-{ID}-01"), format!("00-{ID}-01")),
            (format!("00-{ID}-ff"), format!("00-{ID}-ff")),
            (format!("01-{ID}-00"), format!("00-{ID}-00")),
            (format!("cc-{ID}-01-what-comes-later"), format!("00-{ID}-01")),
        ] {
            let parent: TraceParent = text.parse().unwrap();
            assert_eq!(parent.to_string(), kept);
            assert_eq!(format!("{}-{}", parent.trace_id(), parent.parent_id()), ID);
        }
    }

    #[test]
    fn what_is_not_valid_is_refused() {
        for text in [
            String::new(),
            "nonsense".to_owned(),
            format!("00-{ID}"),
            format!("00-{ID}-1"),
            format!("00-{ID}-01-more"),
            format!("00-{ID}-01 "),
            format!("cc-{ID}-01x"),
            format!("ff-{ID}-01"),
            format!("0x-{ID}-01"),
            format!("00-{}-01", ID.to_uppercase()),
            format!("00-{}-01", ID.replace("00f067aa0ba902b7", "0000000000000000")),
            format!("00-{}-01", ID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32))),
            format!("00_{ID}-01"),
            format!("00-{ID}-0\n"),
            format!("00-{}é-01", &ID[..47]),
        ] {
            assert_eq!(text.parse::<TraceParent>(), Err(NotATraceParent), "{text:?}");
        }
    }
}
