//! The credentials for other agents, and the errors if an agent rejects a request.

use attache_client::{AddressBook, ClientError};
use attache_protocol::ErrorKind;
use url::Url;

use crate::address::redact_url;

/// How much of the message of the agent an error repeats, in characters.
const MAX_EXCERPT: usize = 200;

/// The credentials for agents that tasks are [delegated](crate::delegation) to, and for agents whose skills are
/// [imported](crate::remote). Cheap to clone. All clones share their state.
#[derive(Debug, Clone)]
pub struct AgentCredentials {
    book: AddressBook,
    setting: &'static str,
}

impl Default for AgentCredentials {
    /// No credentials.
    fn default() -> Self {
        Self::new(AddressBook::default(), "AgentCredentials")
    }
}

/// The reason of an agent for rejecting a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The agent has not authenticated the caller.
    Unauthenticated,
    /// The caller lacks the rights.
    Forbidden,
}

impl Denial {
    pub(crate) fn from_status(status: http::StatusCode) -> Option<Self> {
        match status {
            http::StatusCode::UNAUTHORIZED => Some(Self::Unauthenticated),
            http::StatusCode::FORBIDDEN => Some(Self::Forbidden),
            _ => None,
        }
    }

    fn from_kind(kind: ErrorKind) -> Option<Self> {
        if kind == ErrorKind::Unauthenticated {
            Some(Self::Unauthenticated)
        } else if kind == ErrorKind::PermissionDenied {
            Some(Self::Forbidden)
        } else {
            None
        }
    }
}

impl AgentCredentials {
    /// The credentials in a book. `setting` is the setting that they come from. Errors name it to the operator.
    pub fn new(book: AddressBook, setting: &'static str) -> Self {
        Self { book, setting }
    }

    /// The credentials by address.
    pub fn book(&self) -> &AddressBook {
        &self.book
    }

    /// The error text if the agent rejected the credentials or their lack. `None` for any other error.
    pub(crate) fn explain(&self, url: &Url, error: &ClientError) -> Option<String> {
        if let ClientError::Credentials { .. } | ClientError::Login { .. } = error {
            return Some(format!("{error}; the credentials are in `{}`", self.setting));
        }
        let message = error.remote().map(|remote| remote.message.as_str());
        error.kind().and_then(Denial::from_kind).map(|denial| self.denied(url, denial, message))
    }

    /// The error text for a rejected request. It names the setting to change, and repeats the message of the agent.
    pub(crate) fn denied(&self, url: &Url, denial: Denial, message: Option<&str>) -> String {
        let (setting, agent, origin) = (self.setting, redact_url(url), url.origin().ascii_serialization());
        let text = match (denial, self.book.address(url)) {
            (Denial::Unauthenticated, None) => format!(
                "the agent at `{agent}` requires authentication: list a credential for `{origin}` in `{setting}`"
            ),
            (Denial::Unauthenticated, Some(known)) => format!(
                "the agent at `{agent}` rejected the credential that `{setting}` has for `{known}`: it may be wrong or have expired"
            ),
            (Denial::Forbidden, None) => format!(
                "the agent at `{agent}` does not allow this request: list a credential for `{origin}` in `{setting}`"
            ),
            (Denial::Forbidden, Some(known)) => format!(
                "the agent at `{agent}` does not allow this request with the credential that `{setting}` has for `{known}`"
            ),
        };
        let message = message.unwrap_or_default().chars().filter(|it| !it.is_control());
        let excerpt: String = message.take(MAX_EXCERPT).collect();
        if excerpt.is_empty() { text } else { format!("{text} (message of the agent: {excerpt})") }
    }
}

#[cfg(test)]
mod tests {
    use attache_client::AddressEntry;

    use super::*;

    #[test]
    fn errors_name_the_setting_and_not_the_secret() {
        let entry = AddressEntry::bearer("https://a.example/x".parse().unwrap(), &"s3cret".into()).unwrap();
        let credentials = AgentCredentials::new(AddressBook::new([entry]).unwrap(), "delegation.agents");
        let mut texts = String::new();
        for url in ["https://a.example/x/a2a?s3cret", "https://b.example:8443/a2a?s3cret"] {
            for (denial, message) in
                [(Denial::Unauthenticated, None), (Denial::Forbidden, Some("not\r\nyou"))]
            {
                let text = credentials.denied(&url.parse().unwrap(), denial, message);
                texts.push_str(&format!("{text}\n"));
            }
        }
        assert!(!texts.contains("s3cret") && !format!("{credentials:?}").contains("s3cret"), "{texts}");
        insta::assert_snapshot!(texts);
    }
}
