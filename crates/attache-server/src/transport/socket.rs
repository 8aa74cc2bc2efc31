//! The socket of a connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::transport::idle::Activity;

/// Up to this size, a head and its body are written in one piece.
const SMALL: usize = 1024;

/// A socket that writes small pieces at once: for the kernel, two pieces cost more than copying them together.
///
/// It records when bytes arrive and leave, so that the server knows which connection has waited longest.
pub(crate) struct Socket<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Socket<S> {
    pub(crate) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    /// Records the result of a write.
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.activity.wrote(written.is_ready());
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.activity.moved();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.stream);
        if pieces.iter().map(|piece| piece.len()).sum::<usize>() > SMALL {
            let written = stream.poll_write_vectored(cx, pieces);
            return self.wrote(written);
        }
        let mut joined = [0; SMALL];
        let mut length = 0;
        for piece in pieces {
            joined[length..length + piece.len()].copy_from_slice(piece);
            length += piece.len();
        }
        let written = stream.poll_write(cx, &joined[..length]);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::transport::idle::Connections;

    #[tokio::test]
    async fn pieces_arrive_in_order_whatever_their_size() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut reader, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let member = Connections::new(1, std::time::Duration::from_secs(30)).join(None).unwrap();
        let mut socket = Socket::new(accepted.unwrap().0, member.activity());
        let mut expected = Vec::new();
        for (head, body) in [(0, 1), (7, 0), (200, 800), (SMALL - 1, 1), (SMALL, 1), (3, 5 * SMALL)] {
            let (head, body) = (vec![b'h'; head], vec![b'b'; body]);
            let pieces = [IoSlice::new(&head), IoSlice::new(&body)];
            assert_eq!(socket.write_vectored(&pieces).await.unwrap(), head.len() + body.len());
            expected.extend_from_slice(&[head, body].concat());
        }
        drop(socket);
        let mut arrived = Vec::new();
        reader.as_mut().unwrap().read_to_end(&mut arrived).await.unwrap();
        assert_eq!(arrived, expected);
    }
}
