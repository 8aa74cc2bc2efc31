//! The keyword `pattern`, with a bound on the time of a match.
//!
//! Most patterns are matched in time that is linear in the length of the text. Patterns with look-around or back-references need
//! backtracking. Schemas of common tools contain them, so they are supported, with a limited number of steps and on short texts
//! only.

use jsonschema::{Keyword, ValidationError};
use serde_json::Value;

use super::metered::{Metered, MeteredValue, step};

/// The largest compiled pattern, in bytes.
pub(super) const MAX_SIZE: usize = 2 * 1024 * 1024;

/// The largest cache of a pattern's states during a match, in bytes.
pub(super) const MAX_CACHE: usize = 512 * 1024;

/// How often a pattern with look-around or back-references may backtrack.
pub(super) const MAX_BACKTRACKS: usize = 10_000;

/// The longest text for such a pattern, in bytes.
const MAX_TEXT: usize = 8 * 1024;

/// Compiled sizes are rounded up: to this size, or to twice, four times, … this size.
const SMALLEST: usize = 512;

/// The size that a pattern with backtracking counts as.
const BACKTRACKING: usize = 256 * 1024;

/// A compiled pattern.
pub(super) struct Pattern {
    text: String,
    engine: Engine,
}

enum Engine {
    /// Linear in the text. The number is the size of the compiled pattern.
    Linear(regex::Regex, usize),
    Backtracking(Box<fancy_regex::Regex>),
}

/// Why a pattern is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatternError {
    /// Matching would be too expensive.
    TooLarge(String),
    /// It is not a regular expression.
    Invalid(String),
}

impl Pattern {
    /// Compiles a pattern in the syntax of ECMAScript.
    pub(super) fn new(text: &str) -> Result<Self, PatternError> {
        let named = |why: &str| format!("the pattern `{}` {why}", truncated(text));
        let unusable = || PatternError::Invalid(named("is not a regular expression of ECMAScript"));
        let too_large =
            || PatternError::TooLarge(named(&format!("needs more than {MAX_SIZE} bytes when compiled")));
        let translated = jsonschema_regex::to_rust_regex(text).map_err(|()| unusable())?;
        let using = |engine| Ok(Self { text: text.to_owned(), engine });
        let mut size = SMALLEST;
        loop {
            let mut builder = regex::RegexBuilder::new(&translated);
            match builder.size_limit(size).dfa_size_limit(MAX_CACHE).build() {
                Ok(regex) => return using(Engine::Linear(regex, size)),
                Err(regex::Error::CompiledTooBig(_)) if size == MAX_SIZE => return Err(too_large()),
                Err(regex::Error::CompiledTooBig(_)) => size *= 2,
                Err(_) => break,
            }
        }
        let mut builder = fancy_regex::RegexBuilder::new(&translated);
        let builder = builder.backtrack_limit(MAX_BACKTRACKS);
        match builder.delegate_size_limit(MAX_SIZE).delegate_dfa_size_limit(MAX_CACHE).build() {
            Ok(regex) => using(Engine::Backtracking(Box::new(regex))),
            Err(fancy_regex::Error::CompileError(_)) => Err(too_large()),
            Err(_) => Err(unusable()),
        }
    }

    /// The compiled size in bytes. It is also the number of steps of a match per 256 bytes of text.
    pub(super) fn size(&self) -> u64 {
        match &self.engine {
            Engine::Linear(_, size) => *size as u64,
            Engine::Backtracking(_) => BACKTRACKING as u64,
        }
    }

    fn find(&self, text: &str) -> MatchResult {
        let matches = match &self.engine {
            Engine::Linear(regex, size) => {
                step(1 + ((text.len() as u64).saturating_mul(*size as u64) >> 8));
                Ok(regex.is_match(text))
            }
            Engine::Backtracking(_) if text.len() > MAX_TEXT => return MatchResult::TooLong,
            Engine::Backtracking(regex) => {
                // The clock must be read after a few matches, because each of them may be slow.
                step(256 + text.len() as u64);
                regex.is_match(text)
            }
        };
        match matches {
            Ok(true) => MatchResult::Match,
            Ok(false) => MatchResult::NoMatch,
            Err(_) => MatchResult::TooSlow,
        }
    }
}

/// The result of a match.
enum MatchResult {
    Match,
    NoMatch,
    /// The text is too long for a pattern with backtracking.
    TooLong,
    /// The match needed too much backtracking.
    TooSlow,
}

impl<'i> Keyword<'i, Metered> for Pattern {
    fn validate(&self, instance: MeteredValue<'i>) -> Result<(), ValidationError<'i>> {
        let Some(text) = instance.0.as_str() else { return Ok(()) };
        let pattern = Value::from(truncated(&self.text));
        let fault = match self.find(text) {
            MatchResult::Match => return Ok(()),
            MatchResult::NoMatch => format!("{} does not match {pattern}", Value::from(truncated(text))),
            MatchResult::TooLong => {
                format!("the text is longer than the {MAX_TEXT} bytes that can be matched with {pattern}")
            }
            MatchResult::TooSlow => format!("matching the text with {pattern} takes too long"),
        };
        Err(ValidationError::custom(fault))
    }

    fn is_valid(&self, instance: MeteredValue<'i>) -> bool {
        instance.0.as_str().is_none_or(|text| matches!(self.find(text), MatchResult::Match))
    }
}

/// The beginning of a text.
pub(super) fn truncated(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest number for which this holds. It holds for 1, and not for the limit.
    fn largest(limit: usize, holds: impl Fn(usize) -> bool) -> usize {
        let (mut good, mut bad) = (1, limit);
        assert!(holds(good) && !holds(bad));
        while bad - good > 1 {
            let middle = good.midpoint(bad);
            *(if holds(middle) { &mut good } else { &mut bad }) = middle;
        }
        good
    }

    #[test]
    fn a_pattern_has_2_mib_when_compiled_and_one_repetition_more_is_refused() {
        assert_eq!(MAX_SIZE, 2 * 1024 * 1024);
        let pattern = |count: usize| Pattern::new(&format!("\\p{{L}}{{{count}}}"));
        let most = largest(4_000, |count| pattern(count).is_ok());
        assert_eq!(pattern(most).map(|pattern| pattern.size()).ok(), Some(MAX_SIZE as u64));
        let Err(PatternError::TooLarge(reason)) = pattern(most + 1) else { panic!("it is accepted") };
        assert!(reason.ends_with("needs more than 2097152 bytes when compiled"), "{reason}");
    }

    #[test]
    fn a_match_may_backtrack_10_000_times_and_no_more() {
        // The engine that backtracks, with any limit.
        let matches = |pattern: &str, limit: usize, text: &str| {
            let mut builder = fancy_regex::RegexBuilder::new(pattern);
            builder.backtrack_limit(limit).build().unwrap().is_match(text).is_ok()
        };
        let text = |length: usize| "a".repeat(length);
        let expression = r"^(?:(?=a)a|b)*(?=a)c$";
        let pattern = Pattern::new(expression).unwrap();
        assert!(matches!(pattern.engine, Engine::Backtracking(_)));
        let is_fast = |length| !matches!(pattern.find(&text(length)), MatchResult::TooSlow);
        let most = largest(MAX_TEXT, is_fast);
        assert_eq!(MAX_BACKTRACKS, 10_000);
        assert!(matches(expression, MAX_BACKTRACKS, &text(most)));
        assert!(!matches(expression, MAX_BACKTRACKS, &text(most + 1)));
        assert!(matches!(pattern.find(&text(MAX_TEXT + 1)), MatchResult::TooLong));
    }
}
