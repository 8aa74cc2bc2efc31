//! Why a login failed.

use std::time::Duration;

use crate::ClientError;

/// How much of a server's text is shown.
const EXCERPT: usize = 200;

/// Why a login failed. No text contains a token, a code or a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The authorization server refused.
    #[error("it refused with `{code}`{}", explained(.description.as_deref()))]
    Refused {
        /// The OAuth error code, such as `access_denied`.
        code: String,
        /// The server's description, for people.
        description: Option<String>,
    },
    /// The response of the authorization server does not follow OAuth.
    #[error("its response does not follow OAuth: {0}")]
    InvalidResponse(String),
    /// The redirect came from another server than that of the login.
    #[error("the redirect in the browser came from `{0}`, which is another server: it is not used")]
    OtherServer(String),
    /// An endpoint of the server does not use TLS.
    #[error("`{0}` is neither `https` nor on this machine, so nothing secret is sent there")]
    Insecure(String),
    /// The user has not [agreed](crate::OAuth::server) to this server.
    #[error("the user has not agreed to log in there")]
    NotAgreed,
    /// The server does not support the request, or the client lacks something for it.
    #[error("{0}")]
    Unsupported(String),
    /// The login was not completed in time.
    #[error("the login was not completed within {} minutes", .limit.as_secs().div_ceil(60))]
    TooLate {
        /// The time limit.
        limit: Duration,
    },
}

impl LoginError {
    /// Converts this to an error of the client.
    pub(super) fn at(self, server: &str) -> ClientError {
        ClientError::Login { server: server.to_owned(), why: self }
    }

    /// The error of the server, shortened so that it can be shown.
    pub(super) fn refused(code: &str, description: Option<&str>) -> Self {
        Self::Refused { code: excerpt(code), description: description.map(excerpt) }
    }

    /// Whether the server says that the grant is no longer valid.
    pub(super) fn is_invalid_grant(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "invalid_grant")
    }
}

fn excerpt(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(EXCERPT).collect()
}

fn explained(description: Option<&str>) -> String {
    description.map(|text| format!(": {text}")).unwrap_or_default()
}
