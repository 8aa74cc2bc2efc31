//! Addresses as they may be logged, stored and shown.

use url::Url;

/// The longest text that is shown of an address that is not a URL, in characters.
const MAX_INVALID: usize = 200;

/// An address without credentials, query and fragment.
pub(crate) fn redact(address: &str) -> String {
    match Url::parse(address) {
        Ok(url) => redact_url(&url),
        Err(_) => address.split(['?', '#']).next().unwrap_or_default().chars().take(MAX_INVALID).collect(),
    }
}

/// The same for a URL that has been parsed.
pub(crate) fn redact_url(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}
