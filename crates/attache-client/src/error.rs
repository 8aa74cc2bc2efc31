//! Why there is no answer.

use std::time::Duration;

use attache_outbound::Refused;
use attache_protocol::ErrorKind;
use attache_signing::Untrusted;

use crate::{LoginError, RemoteError, TokenStoreError};

/// Why there is no answer.
///
/// No text contains the query of a URL, a header, or what was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The HTTP client could not be set up.
    #[error("the HTTP client cannot be set up: {0}")]
    Setup(String),
    /// What was asked cannot be sent, whoever it is sent to.
    #[error("{0}")]
    Invalid(String),
    /// The [policy](crate::ClientOptions::policy) does not allow the address.
    #[error("`{url}` may not be called: {refused}")]
    Refused {
        /// The address.
        url: String,
        /// Why.
        refused: Refused,
    },
    /// The card leads to another origin than its own, and [no other](crate::TrustedOrigins::only) may be called.
    #[error(
        "the card at `{card}` leads to `{leads_to}`, which is another origin; trust it to have it followed"
    )]
    OtherOrigin {
        /// Where the card is.
        card: String,
        /// Where it leads.
        leads_to: String,
    },
    /// The agent asks for credentials at another origin than the one that they were given for. None were sent.
    #[error("the agent at `{given_for}` asks for credentials at `{leads_to}`, {}: none were sent", foreign(*.can_be_trusted))]
    Withheld {
        /// The origin that the credentials were given for.
        given_for: String,
        /// The origin that they would be sent to.
        leads_to: String,
        /// Whether they are sent once the origin is [trusted](crate::ClientOptions::trusted_origins). What was given for `https` never
        /// goes to `http` on another machine.
        can_be_trusted: bool,
    },
    /// The agent can be reached in no way that this client knows.
    #[error("the agent `{agent}` offers {}; {}", list(.offered), instead(.wanted))]
    NoInterface {
        /// The name of the agent.
        agent: String,
        /// What its card offers: bindings and their versions.
        offered: Vec<String>,
        /// The interfaces that the [user wants](crate::ClientOptions::interfaces); all that are spoken, if there are none.
        wanted: Vec<String>,
    },
    /// The agent asks for credentials, and of those that there are none suffice.
    #[error("the agent `{agent}` asks for credentials that there are none of: {}", .wanted.join(", or "))]
    Credentials {
        /// The name of the agent.
        agent: String,
        /// What would suffice: the names of its schemes.
        wanted: Vec<String>,
    },
    /// Nobody could log in, or stay logged in, at the authorization server of an agent.
    #[error("cannot log in at `{server}`: {why}")]
    Login {
        /// The authorization server.
        server: String,
        /// Why.
        why: LoginError,
    },
    /// The authorization server that gave out tokens has not revoked them.
    #[error("`{server}` has not revoked the tokens: {why}")]
    Revocation {
        /// The authorization server.
        server: String,
        /// Why.
        why: LoginError,
    },
    /// Tokens cannot be read or kept.
    #[error(transparent)]
    Tokens(#[from] TokenStoreError),
    /// The card is not signed by anybody who is [trusted](crate::ClientOptions::card_trust).
    #[error("the card at `{url}` is not trusted: {why}")]
    Untrusted {
        /// Where the card is.
        url: String,
        /// Why.
        why: Untrusted,
    },
    /// The name could not be resolved, or no connection came about.
    #[error("cannot connect to `{url}`: {why}")]
    Connect {
        /// Where.
        url: String,
        /// What the system said.
        why: String,
    },
    /// The connection broke before the answer was whole.
    #[error("the connection to the agent broke: {0}")]
    Broken(String),
    /// Nothing came for too long.
    #[error("the agent did not answer within {} s", .limit.as_secs_f64())]
    Timeout {
        /// What was allowed.
        limit: Duration,
    },
    /// A status of HTTP's that says no, with a body that does not say why in the words of the protocol.
    #[error("`{url}` answered with HTTP status {status}{}", excerpt(.body))]
    Http {
        /// Where.
        url: String,
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: String,
        /// How long it asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// The answer is larger than allowed.
    #[error("the agent's answer has more than the {limit} bytes that are allowed")]
    TooLarge {
        /// What is allowed, in bytes.
        limit: usize,
    },
    /// The answer does not follow the protocol.
    #[error("the agent's answer does not follow the protocol: {0}")]
    Protocol(String),
    /// The agent refused.
    #[error("the agent refused: {0}")]
    Remote(#[source] Box<RemoteError>),
    /// A stream broke off and could not be taken up again. The task, if there is one, goes on.
    #[error("the stream broke off and was not taken up again ({}): {cause}", tries(*.attempts))]
    Interrupted {
        /// How often that was tried. Never, if it is not known whether the agent has the message and it had no idempotency key.
        attempts: u32,
        /// What went wrong last.
        cause: Box<Self>,
    },
}

impl ClientError {
    /// What the agent refused with, if it did and the protocol has a name for it.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Remote(remote) => remote.kind,
            // Whoever guards the door may not speak the protocol.
            Self::Http { status: 401, .. } => Some(ErrorKind::Unauthenticated),
            Self::Http { status: 403, .. } => Some(ErrorKind::PermissionDenied),
            Self::Http { .. }
            | Self::Setup(_)
            | Self::Invalid(_)
            | Self::Refused { .. }
            | Self::OtherOrigin { .. }
            | Self::Withheld { .. }
            | Self::NoInterface { .. }
            | Self::Credentials { .. }
            | Self::Login { .. }
            | Self::Revocation { .. }
            | Self::Tokens(_)
            | Self::Untrusted { .. }
            | Self::Connect { .. }
            | Self::Broken(_)
            | Self::Timeout { .. }
            | Self::TooLarge { .. }
            | Self::Protocol(_)
            | Self::Interrupted { .. } => None,
        }
    }

    /// The agent's refusal, if it is one.
    pub fn remote(&self) -> Option<&RemoteError> {
        if let Self::Remote(remote) = self { Some(remote) } else { None }
    }

    /// How long the other side asks to be left alone, if it does.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Http { retry_after, .. } => *retry_after,
            Self::Remote(remote) => remote.retry_after,
            Self::Setup(_)
            | Self::Invalid(_)
            | Self::Refused { .. }
            | Self::OtherOrigin { .. }
            | Self::Withheld { .. }
            | Self::NoInterface { .. }
            | Self::Credentials { .. }
            | Self::Login { .. }
            | Self::Revocation { .. }
            | Self::Tokens(_)
            | Self::Untrusted { .. }
            | Self::Connect { .. }
            | Self::Broken(_)
            | Self::Timeout { .. }
            | Self::TooLarge { .. }
            | Self::Protocol(_)
            | Self::Interrupted { .. } => None,
        }
    }

    /// The same, from a side that asks to be left alone for a while.
    pub(crate) fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        if let Self::Http { retry_after, .. } = &mut self {
            *retry_after = wait;
        } else if let Self::Remote(remote) = &mut self {
            remote.retry_after = wait;
        }
        self
    }

    /// Whether the same request may get an answer a little later, as far as can be known.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Broken(_) => true,
            Self::Http { status, .. } => matches!(status, 429 | 502 | 503 | 504),
            Self::Remote(remote) => {
                matches!(remote.kind, Some(ErrorKind::Unavailable | ErrorKind::ResourceExhausted))
            }
            Self::Setup(_)
            | Self::Invalid(_)
            | Self::Refused { .. }
            | Self::OtherOrigin { .. }
            | Self::Withheld { .. }
            | Self::NoInterface { .. }
            | Self::Credentials { .. }
            | Self::Login { .. }
            | Self::Revocation { .. }
            | Self::Tokens(_)
            | Self::Untrusted { .. }
            | Self::Timeout { .. }
            | Self::TooLarge { .. }
            | Self::Protocol(_)
            | Self::Interrupted { .. } => false,
        }
    }
}

fn foreign(can_be_trusted: bool) -> &'static str {
    if can_be_trusted { "which is another origin" } else { "which is not encrypted" }
}

fn list(offered: &[String]) -> String {
    match offered {
        [] => "no interface".to_owned(),
        offered => offered.join(", "),
    }
}

fn instead(wanted: &[String]) -> String {
    match wanted {
        [] => "this client speaks `JSONRPC`, `HTTP+JSON` and `GRPC`, each 1.x and 0.3".to_owned(),
        wanted => format!("what was asked for is {}", wanted.join(", or ")),
    }
}

fn tries(attempts: u32) -> String {
    match attempts {
        0 => "not tried".to_owned(),
        1 => "1 attempt".to_owned(),
        attempts => format!("{attempts} attempts"),
    }
}

fn excerpt(body: &str) -> String {
    if body.is_empty() { String::new() } else { format!(": {body}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_is_offered_instead() {
        let error = |offered: &[&str]| {
            let offered = offered.iter().map(|text| (*text).to_owned()).collect();
            ClientError::NoInterface { agent: "Recipes".to_owned(), offered, wanted: Vec::new() }.to_string()
        };
        assert_eq!(
            error(&["`GRPC` 1.0", "`JSONRPC` 0.1"]),
            "the agent `Recipes` offers `GRPC` 1.0, `JSONRPC` 0.1; \
             this client speaks `JSONRPC`, `HTTP+JSON` and `GRPC`, each 1.x and 0.3"
        );
        assert!(error(&[]).starts_with("the agent `Recipes` offers no interface; this client speaks"));
    }
}
