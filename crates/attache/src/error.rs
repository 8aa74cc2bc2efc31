//! The error that every part of the SDK can be turned into with `?`.

/// Why something could not be done, by the part of the SDK that failed.
///
/// The text is that of the error inside, and so is the [source](std::error::Error::source). A program that uses several parts
/// returns [`attache::Result`](crate::Result) and writes `?` behind each call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is against the protocol, or an agent answered with an error of the protocol.
    #[error(transparent)]
    Protocol(#[from] attache_protocol::Error),
    /// The system refused something, such as an address or a file.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A server could not start, or it stopped.
    #[cfg(feature = "server")]
    #[error(transparent)]
    Server(#[from] attache_server::ServerError),
    /// A request to an agent failed.
    #[cfg(feature = "client")]
    #[error(transparent)]
    Client(#[from] attache_client::ClientError),
    /// A store could not read or write.
    #[cfg(any(feature = "server", feature = "sqlite"))]
    #[error(transparent)]
    Store(#[from] attache_core::StoreError),
    /// The store of a URL could not be opened.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    OpenStore(#[from] attache_store::StoreOpenError),
    /// An SQLite store could not be opened.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    OpenSqlite(#[from] attache_store::SqliteOpenError),
    /// The keys that a store encrypts with could not be read or written.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Keyring(#[from] attache_store::KeyringError),
    /// The keys that cards are signed with could not be read or written.
    #[cfg(feature = "signing")]
    #[error(transparent)]
    SigningKeys(#[from] attache_signing::KeysError),
}

/// The result of anything that can fail with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(all(test, feature = "server", feature = "client"))]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn an_error_has_the_text_and_the_source_of_the_part_that_failed() {
        let refused = std::io::Error::from(std::io::ErrorKind::AddrInUse);
        let inner =
            attache_server::ServerError::Listen { address: "127.0.0.1:1".to_owned(), source: refused };
        let text = inner.to_string();
        let error = Error::from(inner);
        assert_eq!(error.to_string(), text);
        assert!(error.source().is_some_and(|source| source.is::<std::io::Error>()));
    }

    #[test]
    fn question_marks_turn_the_errors_of_all_parts_into_one() {
        fn fails(client: bool) -> Result<()> {
            if client {
                Err(attache_client::ClientError::Invalid("a".to_owned()))?;
            }
            Err(attache_core::StoreError("b".to_owned()))?
        }
        assert!(matches!(fails(true), Err(Error::Client(_))));
        assert!(matches!(fails(false), Err(Error::Store(_))));
    }
}
