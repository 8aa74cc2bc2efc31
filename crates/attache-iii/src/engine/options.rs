//! What can be set about the engine.

use std::fmt;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::wire;

/// Settings of an [`Engine`](super::Engine). The defaults suit one machine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Where workers connect.
    pub listen: String,
    /// What workers have to show. Needed wherever others than this machine can connect.
    pub token: Option<Token>,
    /// How much is taken from one worker, and from all of them.
    pub limits: EngineLimits,
    /// How long a function may take to begin its answer to an HTTP request.
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

/// How much an engine takes.
#[derive(Debug, Clone)]
pub struct EngineLimits {
    /// Connections at once; more wait.
    pub connections: usize,
    /// Bytes that wait to be written to one connection. One frame may always wait, however large.
    pub queued_bytes: usize,
    /// Frames that wait to be written to one connection.
    pub queued_frames: usize,
    /// Calls that one worker may have made and not yet got the results of.
    pub calls_by_worker: usize,
    /// Calls that one worker may be working on.
    pub calls_to_worker: usize,
    /// Functions of one worker.
    pub functions: usize,
    /// Triggers of one worker.
    pub triggers: usize,
    /// Kinds of triggers that one worker provides.
    pub trigger_types: usize,
    /// Channels that one worker may have open.
    pub channels: usize,
    /// Bytes of one registration, with its schemas and metadata.
    pub registration: usize,
    /// Bytes of all registrations of one worker.
    pub registrations: usize,
    /// Bytes of one value of the state.
    pub state_value: usize,
    /// HTTP requests at once; more are refused.
    pub http_requests: usize,
    /// Bytes of the body of an HTTP request.
    pub http_body: usize,
    /// Bytes of a JSON body that is put into the call. A larger one is `null` there and is read through `request_body`: workers in
    /// Python before 0.25 break off at frames of a megabyte.
    pub http_body_in_call: usize,
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

/// A secret that is compared but never shown. Only its digest is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 32]);

impl Token {
    /// The token `secret`.
    pub fn new(secret: &str) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// Whether `given` is it. How long that takes says nothing about how much of it is right: digests are compared.
    pub fn matches(&self, given: &str) -> bool {
        self.0 == <[u8; 32]>::from(Sha256::digest(given))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Why an engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The address is none.
    #[error("`{0}` is not an address to listen on: expected something like `127.0.0.1:{port}`", port = wire::DEFAULT_PORT)]
    Address(String),
    /// Others than this machine could connect, and anyone would be let in.
    #[error(
        "the engine would listen on `{0}`, where other machines can connect, and let everyone in: set a token, or listen on \
         `127.0.0.1`"
    )]
    Open(String),
    /// The address cannot be had.
    #[error("cannot listen on `{address}`: {error}")]
    Taken {
        /// The address.
        address: String,
        /// Why not.
        error: std::io::Error,
    },
}
