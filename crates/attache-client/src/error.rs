//! The errors of the client.

use std::time::Duration;

use attache_outbound::Refused;
use attache_protocol::ErrorKind;
#[cfg(feature = "signing")]
use attache_signing::UntrustedCard;

use crate::{ConnectFailure, RemoteError};
#[cfg(feature = "oauth")]
use crate::{LoginError, TokenStoreError};

/// Why a request failed.
///
/// No text contains the query of a URL, a header, or the content of a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The HTTP client could not be created.
    #[error("the HTTP client cannot be set up: {0}")]
    Setup(String),
    /// The request is invalid, so it was not sent.
    #[error("{0}")]
    Invalid(String),
    /// The [policy](crate::ClientOptions::policy) does not allow the address.
    #[error("`{url}` may not be called: {refused}")]
    Refused {
        /// The URL.
        url: String,
        /// The reason.
        refused: Refused,
    },
    /// The card leads to another origin, and [no other](crate::TrustedOrigins::only) may be called.
    #[error(
        "the card at `{card}` leads to `{leads_to}`, which is another origin; trust it to have it followed"
    )]
    OtherOrigin {
        /// The URL of the card.
        card: String,
        /// The URL that it leads to.
        leads_to: String,
    },
    /// The agent asks for credentials at an origin that they were not given for. None were sent.
    #[error("the agent at `{given_for}` asks for credentials at `{leads_to}`, {}: none were sent", foreign(*.can_be_trusted))]
    Withheld {
        /// The origin that the credentials were given for.
        given_for: String,
        /// The origin that asks for them.
        leads_to: String,
        /// Whether they are sent once the origin is [trusted](crate::ClientOptions::trusted_origins). Credentials for `https`
        /// are never sent to `http` on another machine.
        can_be_trusted: bool,
    },
    /// The agent has no interface that this client can use.
    #[error("the agent `{agent}` offers {}; {}", list(.offered), instead(.wanted))]
    NoInterface {
        /// The name of the agent.
        agent: String,
        /// The bindings and versions in its card.
        offered: Vec<String>,
        /// The [wanted interfaces](crate::ClientOptions::interfaces); all supported ones, if empty.
        wanted: Vec<String>,
    },
    /// The agent asks for credentials that the client does not have.
    #[error("the agent `{agent}` requires credentials that are not configured: {}", .wanted.join(", or "))]
    Credentials {
        /// The name of the agent.
        agent: String,
        /// The sufficient combinations, by the names of their schemes.
        wanted: Vec<String>,
    },
    /// The login at the authorization server of an agent failed, or could not be renewed.
    #[cfg(feature = "oauth")]
    #[error("cannot log in at `{server}`: {why}")]
    Login {
        /// The authorization server.
        server: String,
        /// The reason.
        why: LoginError,
    },
    /// The authorization server did not revoke the tokens.
    #[cfg(feature = "oauth")]
    #[error("`{server}` has not revoked the tokens: {why}")]
    Revocation {
        /// The authorization server.
        server: String,
        /// The reason.
        why: LoginError,
    },
    /// The token store failed.
    #[cfg(feature = "oauth")]
    #[error(transparent)]
    Tokens(#[from] TokenStoreError),
    /// The card has no valid signature of a [trusted](crate::ClientOptions::card_trust) key.
    #[cfg(feature = "signing")]
    #[error("the card at `{url}` is not trusted: {why}")]
    Untrusted {
        /// The URL of the card.
        url: String,
        /// The reason.
        why: UntrustedCard,
    },
    /// The name could not be resolved, or the connection failed.
    #[error("cannot connect to `{url}`: {why}")]
    Connect {
        /// The URL.
        url: String,
        /// The reason.
        why: ConnectFailure,
    },
    /// The connection broke before the response was complete.
    #[error("the connection to the agent broke: {0}")]
    Broken(String),
    /// The time limit was exceeded.
    #[error("the agent did not answer within {} s", .limit.as_secs_f64())]
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// The response has an HTTP error status, and its body is not an error of the protocol.
    #[error("`{url}` answered with HTTP status {status}{}", excerpt(.body))]
    Http {
        /// The URL.
        url: String,
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: String,
        /// How long the server asks the client to wait.
        retry_after: Option<Duration>,
    },
    /// The response is too large.
    #[error("the agent's response is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The response does not follow the protocol.
    #[error("the agent's response does not follow the protocol: {0}")]
    Protocol(String),
    /// The agent returned an error.
    #[error("the agent refused: {0}")]
    Remote(#[source] Box<RemoteError>),
    /// A stream broke and could not be resumed. The task, if there is one, continues.
    #[error("the stream broke and was not resumed ({}): {cause}", tries(*.attempts))]
    Interrupted {
        /// How often the client tried. 0 if the message had no idempotency key and the agent may have received it.
        attempts: u32,
        /// The last error.
        cause: Box<Self>,
    },
}

impl ClientError {
    /// The kind of the agent's error, if the protocol defines it.
    pub fn kind(&self) -> Option<ErrorKind> {
        if let Self::Http { status, .. } = self {
            // A proxy that authenticates callers may not know the protocol.
            return match status {
                401 => Some(ErrorKind::Unauthenticated),
                403 => Some(ErrorKind::PermissionDenied),
                _ => None,
            };
        }
        self.remote().and_then(|remote| remote.kind)
    }

    /// The agent's error, if this is one.
    pub fn remote(&self) -> Option<&RemoteError> {
        if let Self::Remote(remote) = self { Some(remote) } else { None }
    }

    /// How long the server asks the client to wait, if it does.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::Http { retry_after, .. } = self {
            return *retry_after;
        }
        self.remote().and_then(|remote| remote.retry_after)
    }

    /// Sets how long the server asks the client to wait.
    pub(crate) fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        if let Self::Http { retry_after, .. } = &mut self {
            *retry_after = wait;
        } else if let Self::Remote(remote) = &mut self {
            remote.retry_after = wait;
        }
        self
    }

    /// Whether the same request may succeed a little later.
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
            | Self::Timeout { .. }
            | Self::TooLarge { .. }
            | Self::Protocol(_)
            | Self::Interrupted { .. } => false,
            #[cfg(feature = "oauth")]
            Self::Login { .. } | Self::Revocation { .. } | Self::Tokens(_) => false,
            #[cfg(feature = "signing")]
            Self::Untrusted { .. } => false,
        }
    }
}

/// The error text if Redis is needed but was not built in.
#[cfg(not(feature = "redis"))]
pub(crate) const WITHOUT_REDIS: &str = "this client was built without the feature `redis`";

/// The error text if gRPC is needed but was not built in.
pub(crate) const WITHOUT_GRPC: &str = "this client was built without the feature `grpc`";

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
        [] if cfg!(feature = "grpc") => {
            "this client speaks `JSONRPC`, `HTTP+JSON` and `GRPC`, each 1.x and 0.3".to_owned()
        }
        [] => format!("this client speaks `JSONRPC` and `HTTP+JSON`, each 1.x and 0.3; {WITHOUT_GRPC}"),
        wanted if !cfg!(feature = "grpc") && wanted.iter().any(|it| it.starts_with("`GRPC`")) => {
            format!("the options ask for {}; {WITHOUT_GRPC}", wanted.join(", or "))
        }
        wanted => format!("the options ask for {}", wanted.join(", or ")),
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

    #[cfg(feature = "grpc")]
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
