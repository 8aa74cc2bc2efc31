//! TLS: the server's certificate, which may be replaced at run time, and client certificates.

mod certificate;
mod error;
mod load;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

pub use self::certificate::ClientCertificate;
pub use self::error::TlsError;
use self::load::{Files, Stamps};
use crate::transport::socket::Socket;

/// How often the files are checked for changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The certificate and key of a server, from PEM files, and how client certificates are handled.
///
/// The files may be replaced at any time. New ones are used within a second of the next connection; open connections are not affected.
/// Invalid files are logged and change nothing. All clones share one state.
///
/// ```no_run
/// use attache_server::{Server, Tls};
///
/// # async fn example() -> Result<(), attache_server::ServerError> {
/// let tls = Tls::files("server.crt", "server.key").client_certificates("clients-ca.crt", true);
/// Server::echo().bind("0.0.0.0:8443").tls(tls).run().await
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Tls {
    files: Files,
    current: Arc<Mutex<Option<Loaded>>>,
}

/// The configuration in use, and the file versions that were last checked.
#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    stamps: Stamps,
    looked: Instant,
}

/// Files that [`Tls::renew`] has loaded.
#[derive(Debug)]
#[must_use = "nothing changes until it is applied"]
pub struct TlsRenewal {
    current: Arc<Mutex<Option<Loaded>>>,
    loaded: Loaded,
}

impl TlsRenewal {
    /// Uses them for new connections.
    pub fn apply(self) {
        *self.current.lock() = Some(self.loaded);
    }
}

impl Tls {
    /// The certificate with its intermediate certificates in one file, and its key in another.
    pub fn files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let files = Files { certificate: certificate.into(), key: key.into(), clients: None };
        Self { files, current: Arc::default() }
    }

    /// Asks clients for certificates of these authorities. If `required`, a client without one cannot connect. Otherwise it can, and may use
    /// other credentials. A client with a certificate of another authority cannot connect in either case.
    ///
    /// [`CertificateCallers`](crate::auth::CertificateCallers) identifies the callers.
    pub fn client_certificates(mut self, authorities: impl Into<PathBuf>, required: bool) -> Self {
        self.files.clients = Some((authorities.into(), required));
        self.current = Arc::default();
        self
    }

    /// Loads the files again now. If they are invalid, the previous ones stay in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.renew().map(TlsRenewal::apply)
    }

    /// Loads the files again without using them yet.
    pub fn renew(&self) -> Result<TlsRenewal, TlsError> {
        let stamps = self.files.stamps();
        let config = self.files.load()?;
        let loaded = Loaded { config, stamps, looked: Instant::now() };
        Ok(TlsRenewal { current: self.current.clone(), loaded })
    }

    /// Performs the TLS handshake.
    pub(crate) async fn accept(
        &self,
        socket: Socket<TcpStream>,
    ) -> std::io::Result<TlsStream<Socket<TcpStream>>> {
        TlsAcceptor::from(self.config().await?).accept(socket).await
    }

    async fn config(&self) -> std::io::Result<Arc<ServerConfig>> {
        let (config, seen) = {
            let mut current = self.current.lock();
            let Some(loaded) = current.as_mut() else {
                return Err(std::io::Error::other("no certificate was read"));
            };
            if loaded.looked.elapsed() < LOOK_EVERY {
                return Ok(loaded.config.clone());
            }
            // One task checks; the others use what is loaded.
            loaded.looked = Instant::now();
            (loaded.config.clone(), loaded.stamps)
        };
        let tls = self.clone();
        let looked = tokio::task::spawn_blocking(move || tls.look(seen)).await;
        Ok(looked.ok().flatten().unwrap_or(config))
    }

    /// The new configuration, if the files have changed.
    fn look(&self, seen: Stamps) -> Option<Arc<ServerConfig>> {
        let stamps = self.files.stamps();
        if stamps == seen {
            return None;
        }
        let read = self.files.load();
        let mut current = self.current.lock();
        let loaded = current.as_mut()?;
        // Recorded for invalid files too, so that each version is logged once.
        loaded.stamps = stamps;
        match read {
            Ok(config) => {
                tracing::info!(certificate = %self.files.certificate.display(), "the certificate was replaced");
                loaded.config = config.clone();
                Some(config)
            }
            Err(error) => {
                tracing::error!(%error, "the certificate was not replaced");
                None
            }
        }
    }
}
