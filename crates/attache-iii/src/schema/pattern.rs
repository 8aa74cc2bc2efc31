//! The keyword `pattern`, with a bound on the time that a match takes.
//!
//! A pattern is matched in time that is linear in the length of the text. Patterns with look-around or back-references cannot be;
//! they are common in schemas that tools write, so they are matched with backtracking, a limited number of steps, on short texts.

use jsonschema::{Keyword, ValidationError};
use serde_json::Value;

use super::metered::{Metered, MeteredValue, step};

/// How many bytes a pattern may take when it is compiled.
pub(super) const MAX_SIZE: usize = 2 * 1024 * 1024;

/// How many bytes of states a pattern may keep while it is used.
pub(super) const MAX_CACHE: usize = 512 * 1024;

/// How often a pattern with look-around or back-references may backtrack.
pub(super) const MAX_BACKTRACKS: usize = 10_000;

/// How many bytes a text may have that is matched with such a pattern.
const MAX_TEXT: usize = 8 * 1024;

/// The smallest size that patterns are told apart by; the next one is twice that, and so on.
const SMALLEST: usize = 512;

/// What a pattern that is matched with backtracking counts as.
const BACKTRACKING: usize = 256 * 1024;

/// A compiled pattern.
pub(super) struct Pattern {
    text: String,
    engine: Engine,
}

enum Engine {
    /// Linear in the text, with the size of the compiled pattern.
    Linear(regex::Regex, usize),
    Backtracking(Box<fancy_regex::Regex>),
}

/// Why a pattern is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatternError {
    /// It would take too much to match a text with it.
    TooLarge(String),
    /// It is no regular expression.
    Unusable(String),
}

impl Pattern {
    /// Compiles a pattern as ECMAScript has them.
    pub(super) fn new(text: &str) -> Result<Self, PatternError> {
        let named = |why: &str| format!("the pattern `{}` {why}", shortened(text));
        let unusable = || PatternError::Unusable(named("is no regular expression of ECMAScript"));
        let too_large =
            || PatternError::TooLarge(named(&format!("takes more than {MAX_SIZE} bytes when compiled")));
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

    /// The bytes that it takes when it is compiled. So many steps a match costs for each 256 bytes of a text.
    pub(super) fn size(&self) -> u64 {
        match &self.engine {
            Engine::Linear(_, size) => *size as u64,
            Engine::Backtracking(_) => BACKTRACKING as u64,
        }
    }

    fn find(&self, text: &str) -> Found {
        let matches = match &self.engine {
            Engine::Linear(regex, size) => {
                step(1 + ((text.len() as u64).saturating_mul(*size as u64) >> 8));
                Ok(regex.is_match(text))
            }
            Engine::Backtracking(_) if text.len() > MAX_TEXT => return Found::TooLong,
            Engine::Backtracking(regex) => {
                // Enough steps for the clock to be read after a few matches, each of which may be slow.
                step(256 + text.len() as u64);
                regex.is_match(text)
            }
        };
        match matches {
            Ok(true) => Found::Match,
            Ok(false) => Found::Difference,
            Err(_) => Found::TooSlow,
        }
    }
}

/// What became of a match.
enum Found {
    Match,
    Difference,
    /// The text is too long for a pattern that is matched with backtracking.
    TooLong,
    /// There was too much backtracking.
    TooSlow,
}

impl<'i> Keyword<'i, Metered> for Pattern {
    fn validate(&self, instance: MeteredValue<'i>) -> Result<(), ValidationError<'i>> {
        let Some(text) = instance.0.as_str() else { return Ok(()) };
        let pattern = Value::from(shortened(&self.text));
        let fault = match self.find(text) {
            Found::Match => return Ok(()),
            Found::Difference => format!("{} does not match {pattern}", Value::from(shortened(text))),
            Found::TooLong => {
                format!("the text is longer than the {MAX_TEXT} bytes that can be matched with {pattern}")
            }
            Found::TooSlow => format!("it takes too long to match the text with {pattern}"),
        };
        Err(ValidationError::custom(fault))
    }

    fn is_valid(&self, instance: MeteredValue<'i>) -> bool {
        instance.0.as_str().is_none_or(|text| matches!(self.find(text), Found::Match))
    }
}

/// The beginning of a text.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
