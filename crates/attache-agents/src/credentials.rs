//! What other agents are shown, and what is said to whoever they do not let in.

use attache_client::{AddressBook, ClientError};
use attache_protocol::ErrorKind;
use url::Url;

/// How much of what an agent says about its refusal is repeated.
const EXCERPT: usize = 200;

/// What other agents are shown: those that tasks are [delegated](crate::delegation) to, and those whose skills are
/// [imported](crate::remote). Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct AgentCredentials {
    book: AddressBook,
    setting: &'static str,
}

impl Default for AgentCredentials {
    /// Nothing is shown to anybody.
    fn default() -> Self {
        Self::new(AddressBook::default(), "AgentCredentials")
    }
}

/// How an agent says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    /// It does not know who asks.
    Unauthenticated,
    /// It does, or does not care, and that is not enough.
    Forbidden,
}

impl Denial {
    pub(crate) fn of_status(status: http::StatusCode) -> Option<Self> {
        match status {
            http::StatusCode::UNAUTHORIZED => Some(Self::Unauthenticated),
            http::StatusCode::FORBIDDEN => Some(Self::Forbidden),
            _ => None,
        }
    }

    fn of_kind(kind: ErrorKind) -> Option<Self> {
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
    /// Those in a book. `setting` is what an operator calls the list that they come from, which errors name.
    pub fn new(book: AddressBook, setting: &'static str) -> Self {
        Self { book, setting }
    }

    /// Where each is good.
    pub fn book(&self) -> &AddressBook {
        &self.book
    }

    /// What would help against an agent that says no, if that is what an error is.
    pub(crate) fn explain(&self, url: &Url, error: &ClientError) -> Option<String> {
        if let ClientError::Credentials { .. } | ClientError::Login { .. } = error {
            return Some(format!("{error}; `{}` says what it is shown", self.setting));
        }
        let said = error.remote().map(|remote| remote.message.as_str());
        error.kind().and_then(Denial::of_kind).map(|denial| self.denied(url, denial, said))
    }

    /// What would help against an agent that says no.
    pub(crate) fn denied(&self, url: &Url, denial: Denial, said: Option<&str>) -> String {
        let (setting, agent) =
            (self.setting, format!("{}{}", url.origin().ascii_serialization(), url.path()));
        let text = match (denial, self.book.address(url)) {
            (Denial::Unauthenticated, None) => format!(
                "the agent at `{agent}` wants to know who asks: list a credential for `{}` in `{setting}`",
                url.origin().ascii_serialization()
            ),
            (Denial::Unauthenticated, Some(known)) => format!(
                "the agent at `{agent}` did not take the credential that `{setting}` has for `{known}`: it may be wrong or have expired"
            ),
            (Denial::Forbidden, None) => format!(
                "the agent at `{agent}` does not let everyone do this: list a credential for `{}` in `{setting}`",
                url.origin().ascii_serialization()
            ),
            (Denial::Forbidden, Some(known)) => format!(
                "the agent at `{agent}` does not let the owner of the credential that `{setting}` has for `{known}` do this"
            ),
        };
        let said: String =
            said.unwrap_or_default().chars().filter(|it| !it.is_control()).take(EXCERPT).collect();
        if said.is_empty() { text } else { format!("{text} (it says: {said})") }
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
        let mut said = String::new();
        for url in ["https://a.example/x/a2a?s3cret", "https://b.example:8443/a2a?s3cret"] {
            for (denial, words) in [(Denial::Unauthenticated, None), (Denial::Forbidden, Some("not\r\nyou"))]
            {
                said.push_str(&format!("{}\n", credentials.denied(&url.parse().unwrap(), denial, words)));
            }
        }
        assert!(!said.contains("s3cret") && !format!("{credentials:?}").contains("s3cret"), "{said}");
        insta::assert_snapshot!(said);
    }
}
