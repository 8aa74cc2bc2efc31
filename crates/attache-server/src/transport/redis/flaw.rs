//! What is wrong with options about Redis.

use std::fmt;

/// Why the options of the Redis Streams transport or of the push queue cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionFlaw {
    /// The option, as the settings of `attache serve` call it.
    pub option: &'static str,
    /// What is wrong. The text names the option.
    pub text: String,
}

impl OptionFlaw {
    pub(crate) fn new(option: &'static str, text: impl Into<String>) -> Self {
        Self { option, text: text.into() }
    }
}

impl fmt::Display for OptionFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for OptionFlaw {}
