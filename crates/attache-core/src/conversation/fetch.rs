//! Reading remote URLs of messages, if the operator allows it.

use crate::BoxFuture;

/// Reads the content behind a URL. The implementation decides which addresses may be called.
pub trait Fetch: Send + Sync {
    /// The content behind a URL, at most `limit` bytes.
    fn fetch<'a>(&'a self, url: &'a str, limit: usize) -> BoxFuture<'a, Result<Fetched, FetchError>>;
}

/// The content behind a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The content.
    pub bytes: Vec<u8>,
    /// The media type that the server named.
    pub media_type: Option<String>,
}

/// Why a URL cannot be read. The text goes to the caller, so it names nothing that the caller did not send.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct FetchError(pub String);
