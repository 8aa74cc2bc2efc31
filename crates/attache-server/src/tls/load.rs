//! Loads the certificate files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use attache_files::Stamp;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig};

use super::TlsError;
use super::certificate::is_current;

/// The paths of the files.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    /// The authorities for client certificates, and whether every client needs one.
    pub(super) clients: Option<(PathBuf, bool)>,
}

/// Identifies a version of a file; `None` if the file does not exist.
pub(super) type Stamps = [Option<Stamp>; 3];

impl Files {
    pub(super) fn stamps(&self) -> Stamps {
        let stamp = |path: &Path| Stamp::of(path).ok();
        let clients = self.clients.as_ref().and_then(|(path, _)| stamp(path));
        [stamp(&self.certificate), stamp(&self.key), clients]
    }

    /// Loads all files and checks that they belong together.
    pub(super) fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = certificates(&self.certificate)?;
        if chain.first().and_then(|own| is_current(own)) == Some(false) {
            tracing::warn!(certificate = %self.certificate.display(), "the certificate has expired, or is not valid yet");
        }
        let key = key(&self.key)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| broken(&self.certificate, error))?;
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some((path, required)) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    roots
                        .add(authority)
                        .map_err(|_| broken(path, "what is in it is not the certificate of an authority"))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if *required { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| broken(path, error))?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| self.explain(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Explains why certificate and key were rejected.
    fn explain(&self, error: &Error) -> TlsError {
        if matches!(error, Error::InconsistentKeys(_)) {
            return TlsError::Mismatch { key: self.key.clone(), certificate: self.certificate.clone() };
        }
        if matches!(error, Error::InvalidCertificate(_)) {
            return broken(&self.certificate, "what is in it is not a certificate");
        }
        broken(&self.key, "what is in it is not a private key of RSA, ECDSA or Ed25519")
    }
}

fn broken(path: &Path, problem: impl std::fmt::Display) -> TlsError {
    TlsError::Broken { path: path.to_owned(), problem: problem.to_string() }
}

/// The content of a file.
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| TlsError::Read { path: path.to_owned(), error })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_slice_iter(&read(path)?).collect::<Result<Vec<_>, _>>();
    let certificates = read.map_err(|error| broken(path, error))?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(certificates)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| {
        if matches!(error, pem::Error::NoItemsFound) {
            return TlsError::NoKey { path: path.to_owned() };
        }
        broken(path, error)
    })
}
