//! Errors of the TLS set-up.

use std::path::PathBuf;

/// Why the certificate files cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The file contains no certificate.
    #[error("there is no certificate in `{}`: expected PEM, with a section `BEGIN CERTIFICATE`", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The file contains no key.
    #[error("there is no private key in `{}`: expected PEM, with a section such as `BEGIN PRIVATE KEY`", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The content of a file cannot be used.
    #[error("`{}` cannot be used: {problem}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The key does not belong to the certificate.
    #[error("the key in `{}` is not that of the certificate in `{}`", key.display(), certificate.display())]
    Mismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
}
