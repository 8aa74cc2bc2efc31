//! How long the turns of an agent may take.
//!
//! The server ends a turn after an hour, and drops a canceled turn after five seconds. An agent has limits of its own, which say more
//! when they are reached. So the limits of the server are longer wherever those of the agent are.

use std::time::Duration;

use attache::core::Options;

/// What the server adds to the times of an agent, so that the agent reaches its limits first.
const MARGIN: Duration = Duration::from_secs(60);

/// How long the turns of an agent need at most, by its settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct TurnTimes {
    /// One turn.
    turn: Duration,
    /// A canceled turn.
    cancel: Duration,
}

impl TurnTimes {
    /// The times of an agent whose turn has these phases, and that gives its process `grace` to end.
    pub(super) fn new(phases: impl IntoIterator<Item = Duration>, grace: Duration) -> Self {
        Self { turn: phases.into_iter().fold(grace, Duration::saturating_add), cancel: grace }
    }

    /// The longer ones of both.
    pub(in super::super) fn max(self, other: Self) -> Self {
        Self { turn: self.turn.max(other.turn), cancel: self.cancel.max(other.cancel) }
    }

    /// Whether the server has to wait longer than for `other`.
    pub(in super::super) fn exceed(self, other: Self) -> bool {
        let limits = |times: Self| {
            let mut options = Options::default();
            times.apply(&mut options);
            (options.turn_timeout, options.cancel_grace)
        };
        let (own, other) = (limits(self), limits(other));
        own.0 > other.0 || own.1 > other.1
    }

    /// Raises the limits of the server to what the agent needs.
    pub(in super::super) fn apply(self, options: &mut Options) {
        // The operator can give the caller more time for an answer than the agent does.
        let turn = self.turn.saturating_add(options.permissions.timeout.unwrap_or_default());
        options.turn_timeout = options.turn_timeout.max(turn.saturating_add(MARGIN));
        options.cancel_grace = options.cancel_grace.max(self.cancel.saturating_add(Duration::from_secs(3)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AgentSection, sections};
    use super::*;
    use crate::config::NamedAgent;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    fn section(text: &str) -> AgentSection {
        let agent: NamedAgent = serde_json::from_str(text).unwrap();
        sections(&agent).remove(0)
    }

    fn limits(section: &AgentSection) -> (Duration, Duration) {
        let mut options = Options::default();
        section.times().apply(&mut options);
        (options.turn_timeout, options.cancel_grace)
    }

    #[test]
    fn a_timeout_and_a_grace_of_an_agent_are_reached_before_those_of_the_server() {
        for (text, longest) in [
            // It waits for a place first.
            (r#"{"program": {"command": ["a"], "timeout": "3h", "grace": "30s"}}"#, 6 * HOUR),
            (r#"{"acp": {"command": ["a"], "timeout": "3h", "grace": "30s"}}"#, 3 * HOUR),
            (r#"{"mcp": {"command": ["a"], "timeout": "3h", "grace": "30s"}}"#, 3 * HOUR),
        ] {
            let (turn, cancel) = limits(&section(text));
            assert!(turn > longest && turn < longest + HOUR, "{text}: {turn:?}");
            // A coding agent is asked to stop first, and may take as long for that.
            let bounds = Duration::from_secs(30)..Duration::from_secs(70);
            assert!(bounds.contains(&cancel), "{text}: {cancel:?}");
        }
        let (turn, _) = limits(&section(r#"{"remote": {"url": "http://127.0.0.1:1", "timeout": "3h"}}"#));
        assert!(turn > 3 * HOUR, "{turn:?}");
    }

    #[test]
    fn short_times_of_an_agent_leave_the_limits_of_the_server_as_they_are() {
        let options = Options::default();
        let usual = (options.turn_timeout, options.cancel_grace);
        for text in [r#"{"echo": true}"#, r#"{"program": {"command": ["a"], "timeout": "1s"}}"#] {
            assert_eq!(limits(&section(text)), usual, "{text}");
        }
        let (turn, _) = limits(&section(r#"{"acp": {"command": ["a"]}}"#));
        assert!(turn > HOUR, "a coding agent has an hour for the work itself: {turn:?}");
    }

    #[test]
    fn times_without_end_are_possible() {
        let huge = format!(r#"{{"program": {{"command": ["a"], "timeout": "{}ms"}}}}"#, u64::MAX);
        assert!(limits(&section(&huge)).0 > 1_000_000 * HOUR);
    }

    #[test]
    fn only_longer_times_exceed_others() {
        let times = |turn, cancel| TurnTimes::new([HOUR * turn], Duration::from_secs(cancel));
        assert!(times(3, 1).exceed(times(2, 1)) && times(1, 20).exceed(times(1, 10)));
        assert!(!times(2, 1).exceed(times(3, 1)) && !times(0, 1).exceed(times(0, 2)));
    }
}
