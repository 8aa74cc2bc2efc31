//! Why there is no TLS.

use std::path::PathBuf;

/// Why the files of a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// There is no certificate in a file.
    #[error("there is no certificate in `{}`: expected PEM, with a section `BEGIN CERTIFICATE`", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// There is no key in a file.
    #[error("there is no private key in `{}`: expected PEM, with a section such as `BEGIN PRIVATE KEY`", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// A file is not what it should be.
    #[error("`{}` cannot be used: {problem}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Key and certificate do not belong together.
    #[error("the key in `{}` is not that of the certificate in `{}`", key.display(), certificate.display())]
    Mismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
}
