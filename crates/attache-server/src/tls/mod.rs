//! TLS: the server's certificate, which may change while it runs, and those of its clients.

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
use crate::listen::socket::Socket;

/// How often it is looked at whether a file has changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The certificate and key of a server, from PEM files, and whether its clients have certificates too.
///
/// The files may be replaced at any time: within a second of the next connection the new ones are in use, and connections that are
/// open go on as they are. Files that make no sense are logged and change nothing. All clones are one.
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

/// What is in use, and what was last looked at.
#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    stamps: Stamps,
    looked: Instant,
}

/// Files that were read again with [`Tls::renew`].
#[derive(Debug)]
#[must_use = "nothing changes until it is applied"]
pub struct TlsRenewal {
    current: Arc<Mutex<Option<Loaded>>>,
    loaded: Loaded,
}

impl TlsRenewal {
    /// Uses them for connections from now on.
    pub fn apply(self) {
        *self.current.lock() = Some(self.loaded);
    }
}

impl Tls {
    /// With the certificate in one file, followed by those that lead from it to its authority, and its key in another.
    pub fn files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let files = Files { certificate: certificate.into(), key: key.into(), clients: None };
        Self { files, current: Arc::default() }
    }

    /// Asks clients for certificates of these authorities. Where one is required, nobody gets a connection without; otherwise whoever
    /// has none may come with something else, and whoever has one of another authority is turned away.
    ///
    /// It is [`CertificateCallers`](crate::auth::CertificateCallers) that knows who they are.
    pub fn client_certificates(mut self, authorities: impl Into<PathBuf>, required: bool) -> Self {
        self.files.clients = Some((authorities.into(), required));
        self.current = Arc::default();
        self
    }

    /// Reads the files again, now. If they make no sense, those that were read before stay in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.renew().map(TlsRenewal::apply)
    }

    /// Reads the files again, without using what is in them yet.
    pub fn renew(&self) -> Result<TlsRenewal, TlsError> {
        let stamps = self.files.stamps();
        let config = self.files.load()?;
        let loaded = Loaded { config, stamps, looked: Instant::now() };
        Ok(TlsRenewal { current: self.current.clone(), loaded })
    }

    /// Begins TLS on a connection.
    pub(crate) async fn accept(&self, socket: Socket<TcpStream>) -> std::io::Result<TlsStream<Socket<TcpStream>>> {
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
            // Nobody else needs to look.
            loaded.looked = Instant::now();
            (loaded.config.clone(), loaded.stamps)
        };
        let tls = self.clone();
        let looked = tokio::task::spawn_blocking(move || tls.look(seen)).await;
        Ok(looked.ok().flatten().unwrap_or(config))
    }

    /// What is in use from now on, if the files have changed.
    fn look(&self, seen: Stamps) -> Option<Arc<ServerConfig>> {
        let stamps = self.files.stamps();
        if stamps == seen {
            return None;
        }
        let read = self.files.load();
        let mut current = self.current.lock();
        let loaded = current.as_mut()?;
        // Also of files that make no sense, so that they are spoken of once.
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
