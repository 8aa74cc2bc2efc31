//! Why somebody could not log in.

use std::time::Duration;

use crate::ClientError;

/// How much of what an authorization server says is shown.
const EXCERPT: usize = 200;

/// Why somebody could not log in. No text contains a token, a code or a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The authorization server refused.
    #[error("it refused with `{code}`{}", explained(.description.as_deref()))]
    Refused {
        /// The code of OAuth's, such as `access_denied`.
        code: String,
        /// What the server says about it, for people.
        description: Option<String>,
    },
    /// The authorization server answered with something else than OAuth has.
    #[error("its answer does not follow OAuth: {0}")]
    Answer(String),
    /// What came back to the browser does not come from the server that was asked.
    #[error("the answer in the browser is said to come from `{0}`, which is another server: it is not used")]
    OtherServer(String),
    /// An address of it would be called without TLS.
    #[error("`{0}` is neither `https` nor on this machine, so nothing secret is sent there")]
    Insecure(String),
    /// The user has not [agreed](crate::OAuth::server) to this server.
    #[error("nobody has agreed to log in there")]
    NotAgreed,
    /// The server cannot do what was asked for, or the user has not what it takes.
    #[error("{0}")]
    Unsupported(String),
    /// Nobody logged in.
    #[error("nobody logged in within {} minutes", .limit.as_secs().div_ceil(60))]
    TooLate {
        /// What was allowed.
        limit: Duration,
    },
}

impl LoginError {
    /// The same as an error of the client.
    pub(super) fn at(self, server: &str) -> ClientError {
        ClientError::Login { server: server.to_owned(), why: self }
    }

    /// A refusal in the words of the server, as far as they can be shown.
    pub(super) fn refused(code: &str, description: Option<&str>) -> Self {
        Self::Refused { code: excerpt(code), description: description.map(excerpt) }
    }

    /// Whether the server says that what it was shown is good no longer.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "invalid_grant")
    }
}

fn excerpt(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(EXCERPT).collect()
}

fn explained(description: Option<&str>) -> String {
    description.map(|text| format!(": {text}")).unwrap_or_default()
}
