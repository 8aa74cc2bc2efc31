//! WebSocket connections to an engine and to its channels.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_util::either::Either;
use url::Url;

use crate::wire::{ChannelRef, Direction, MAX_MESSAGE};

pub(super) type Socket = WebSocketStream<Either<TcpStream, TlsStream<TcpStream>>>;

/// The longest time to connect, from name resolution to the upgrade.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("the engine did not respond in time")]
    TimedOut,
    #[error("the engine responded with {0}")]
    Status(StatusCode),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    WebSocket(WsError),
}

/// The address of an engine, and how to connect to it.
pub(super) struct Dialer {
    pub(super) url: Url,
    headers: HeaderMap,
    tls: Option<TlsConnector>,
}

impl Dialer {
    pub(super) fn new(url: Url, headers: HeaderMap) -> Self {
        let tls = (url.scheme() == "wss").then(tls);
        Self { url, headers, tls }
    }

    /// `host:port`. Unlike the URL it is safe to log.
    pub(super) fn address(&self) -> String {
        let port = self.url.port_or_known_default().unwrap_or_default();
        format!("{}:{port}", self.url.host_str().unwrap_or_default())
    }

    /// Connects to the engine.
    pub(super) async fn engine(&self) -> Result<Socket, DialError> {
        self.dial(&self.url).await
    }

    /// Connects to one end of a channel.
    pub(super) async fn channel(&self, end: &ChannelRef) -> Result<Socket, DialError> {
        let mut url = self.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.clear().extend(["ws", "channels", &end.channel_id]);
        }
        let direction = match end.direction {
            Direction::Read => "read",
            Direction::Write => "write",
        };
        url.query_pairs_mut().clear().append_pair("key", &end.access_key).append_pair("dir", direction);
        self.dial(&url).await
    }

    async fn dial(&self, url: &Url) -> Result<Socket, DialError> {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, self.connect(url)).await;
        connected.map_err(|_| DialError::TimedOut)?
    }

    async fn connect(&self, url: &Url) -> Result<Socket, DialError> {
        let mut request = url.as_str().into_client_request().map_err(DialError::WebSocket)?;
        request.headers_mut().extend(self.headers.clone());
        // Only URLs have brackets around an IPv6 address.
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let tcp =
            TcpStream::connect((host.as_str(), url.port_or_known_default().unwrap_or_default())).await?;
        tcp.set_nodelay(true)?;
        let stream = match &self.tls {
            None => Either::Left(tcp),
            Some(tls) => {
                let name = ServerName::try_from(host).map_err(io::Error::other)?;
                Either::Right(tls.connect(name, tcp).await?)
            }
        };
        let config =
            WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
        let upgraded = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
        match upgraded {
            Ok((socket, _)) => Ok(socket),
            Err(WsError::Http(response)) => Err(DialError::Status(response.status())),
            Err(error) => Err(DialError::WebSocket(error)),
        }
    }
}

fn tls() -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}
