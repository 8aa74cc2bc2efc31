//! The settings of the engine.

use std::fmt;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::wire;

/// Settings of an [`Engine`](super::Engine). The defaults suit one machine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineOptions {
    /// The address that workers connect to.
    pub listen: String,
    /// The token that workers must send. It is required if other machines can connect.
    pub token: Option<Token>,
    /// The limits for one worker and for all of them.
    pub limits: EngineLimits,
    /// The longest time that a function may take to begin its response to an HTTP request.
    pub http_timeout: Duration,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            listen: format!("127.0.0.1:{}", wire::DEFAULT_PORT),
            token: None,
            limits: EngineLimits::default(),
            http_timeout: Duration::from_secs(30),
        }
    }
}

impl EngineOptions {
    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// The limits of an engine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineLimits {
    /// Simultaneous connections. More connections wait.
    pub connections: usize,
    /// Bytes that wait to be written to one connection. One frame may always wait, whatever its size.
    pub queued_bytes: usize,
    /// Frames that wait to be written to one connection.
    pub queued_frames: usize,
    /// Calls that one worker has made and that have no result yet.
    pub calls_by_worker: usize,
    /// Calls that one worker is processing.
    pub calls_to_worker: usize,
    /// Functions of one worker.
    pub functions: usize,
    /// Triggers of one worker.
    pub triggers: usize,
    /// Types of triggers that one worker provides.
    pub trigger_types: usize,
    /// Open channels of one worker.
    pub channels: usize,
    /// Bytes of one registration, including schemas and metadata.
    pub registration: usize,
    /// Bytes of all registrations of one worker.
    pub registrations: usize,
    /// Bytes of one value in the state.
    pub state_value: usize,
    /// Simultaneous HTTP requests. More requests are rejected.
    pub http_requests: usize,
    /// Bytes of the body of an HTTP request.
    pub http_body: usize,
    /// Bytes of a JSON body that the call contains. A larger body is `null` in the call, and the function reads it through
    /// `request_body`. The reason: Python workers before 0.25 disconnect at frames of more than 1 MiB.
    pub http_body_in_call: usize,
}

impl EngineLimits {
    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Default for EngineLimits {
    fn default() -> Self {
        const KIB: usize = 1024;
        const MIB: usize = 1024 * KIB;
        Self {
            connections: 4096,
            queued_bytes: 64 * MIB,
            queued_frames: 65_536,
            calls_by_worker: 16_384,
            calls_to_worker: 65_536,
            functions: 10_000,
            triggers: 10_000,
            trigger_types: 256,
            channels: 1024,
            registration: 512 * KIB,
            registrations: 64 * MIB,
            state_value: 4 * MIB,
            http_requests: 1024,
            http_body: 16 * MIB,
            http_body_in_call: 512 * KIB,
        }
    }
}

/// A secret that can be compared but not read. Only its digest is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 32]);

impl Token {
    /// Creates the token for `secret`.
    pub fn new(secret: &str) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// Whether `given` is the secret. It compares digests, so the time does not reveal how much of the secret is right.
    pub fn matches(&self, given: &str) -> bool {
        self.0 == <[u8; 32]>::from(Sha256::digest(given))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Why an engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The address is invalid.
    #[error("`{0}` is not an address to listen on: expected something like `127.0.0.1:{port}`", port = wire::DEFAULT_PORT)]
    Address(String),
    /// Other machines could connect, and no token is set.
    #[error(
        "the engine would listen on `{0}`, where other machines can connect without a token: set a token, or listen on \
         `127.0.0.1`"
    )]
    Open(String),
    /// The address cannot be bound.
    #[error("cannot listen on `{address}`: {error}")]
    Taken {
        /// The address.
        address: String,
        /// The cause.
        error: std::io::Error,
    },
}
