//! Unix sockets: JSON-RPC in lines.

use std::path::PathBuf;

use futures::future::BoxFuture;
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use tokio::net::UnixStream;

use super::lines::{LineLimits, LineSink, LineSource};
use super::multiplexer::{Dial, Duplex, Traits};
use crate::agent_address::socket_path;
use crate::http::display_url;
use crate::{ClientError, ClientOptions, ConnectFailure};

/// Connects to a Unix socket.
pub(super) struct UnixDialer {
    path: PathBuf,
    shown: String,
    limits: LineLimits,
}

impl UnixDialer {
    pub(super) fn new(url: &Url, options: &ClientOptions) -> Self {
        Self { path: socket_path(url), shown: display_url(url), limits: LineLimits::new(options) }
    }
}

impl Dial for UnixDialer {
    const TRAITS: Traits = Traits { auth_per_connection: false, is_replaceable: true, has_pings: false };

    fn dial<'a>(&'a self, _: &'a [(HeaderName, HeaderValue)]) -> BoxFuture<'a, Result<Duplex, ClientError>> {
        Box::pin(async move {
            let stream = UnixStream::connect(&self.path).await.map_err(|error| {
                let why = ConnectFailure::of_socket(&error);
                ClientError::Connect { url: self.shown.clone(), why }
            })?;
            let (reader, writer) = stream.into_split();
            Ok(Duplex {
                source: Box::new(LineSource::new(reader, self.limits)),
                sink: Box::new(LineSink(writer)),
            })
        })
    }
}
