//! One keep-alive connection to a server, and a single question asked over it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::requests::Request;
use crate::response::Decoder;

const READ_BUFFER: usize = 64 * 1024;
const SINGLE_ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A connection that has at most one request under way.
pub(crate) struct Connection {
    stream: TcpStream,
    decoder: Decoder,
    buffer: Vec<u8>,
    filled: usize,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, decoder: Decoder::new(), buffer: vec![0; READ_BUFFER], filled: 0 })
    }

    /// Writes `request` and reads until its response ends, giving the body to `body` as it arrives.
    pub(crate) async fn exchange(&mut self, request: &[u8], body: impl FnMut(&[u8])) -> Result<()> {
        let Answer { status, .. } = self.answer(request, body).await?;
        if status != 200 {
            bail!("the server answered with status {status}");
        }
        Ok(())
    }

    /// The same for a server that may refuse.
    pub(crate) async fn answer(&mut self, request: &[u8], mut body: impl FnMut(&[u8])) -> Result<Answer> {
        self.stream.write_all(request).await.context("writing a request")?;
        while !self.read(&mut body).await? {}
        Ok(Answer { status: self.decoder.status(), says_when: self.decoder.says_when() })
    }

    /// Writes `request` and reads until `enough` accepts the body so far. The response may continue.
    pub(crate) async fn exchange_until(
        mut self,
        request: &[u8],
        enough: impl Fn(&[u8]) -> bool,
    ) -> Result<OpenStream> {
        self.stream.write_all(request).await.context("writing a request")?;
        let mut body = Vec::new();
        while !enough(&body) {
            if self.read(|piece| body.extend_from_slice(piece)).await? {
                bail!("a stream that should stay open ended with {}", excerpt(&body));
            }
        }
        Ok(OpenStream { received: body, _stream: self.stream })
    }

    /// Reads once; true when that was the end of the response.
    async fn read(&mut self, body: impl FnMut(&[u8])) -> Result<bool> {
        let count = self.stream.read(&mut self.buffer[self.filled..]).await.context("reading a response")?;
        if count == 0 {
            bail!("the server closed the connection before its response was complete");
        }
        self.filled += count;
        let step = self.decoder.decode(&self.buffer[..self.filled], body)?;
        self.buffer.copy_within(step.consumed..self.filled, 0);
        self.filled -= step.consumed;
        Ok(step.done)
    }
}

/// How a server answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whether it said when to try again.
    pub(crate) says_when: bool,
}

/// A response that has begun and not ended. Dropping it closes the connection.
pub(crate) struct OpenStream {
    /// The body up to where reading stopped.
    pub(crate) received: Vec<u8>,
    _stream: TcpStream,
}

/// Asks one question over a connection of its own and returns the whole body.
pub(crate) async fn ask(address: SocketAddr, request: &Request) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    let mut bytes = Vec::new();
    request.write(&mut bytes);
    let mut connection = Connection::open(address).await?;
    let exchange = connection.exchange(&bytes, |piece| body.extend_from_slice(piece));
    timeout(SINGLE_ANSWER_LIMIT, exchange).await.context("a single question got no answer in time")??;
    Ok(body)
}

/// The beginning of a body, for an error message.
pub(crate) fn excerpt(body: &[u8]) -> String {
    const LENGTH: usize = 300;
    let shown = String::from_utf8_lossy(&body[..body.len().min(LENGTH)]);
    if body.len() > LENGTH { format!("`{shown}…`") } else { format!("`{shown}`") }
}
