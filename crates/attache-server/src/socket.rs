//! The socket of a connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::idle::Activity;

/// Up to what size a head and its body are one piece.
const SMALL: usize = 1024;

/// A socket to which what is small goes in one piece: the kernel takes longer over two pieces than it takes to put them together.
///
/// It notes when bytes come and go, so that it is known which connection has waited longest.
pub(crate) struct Socket {
    stream: TcpStream,
    activity: Arc<Activity>,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    /// Notes what became of writing.
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.activity.wrote(written.is_ready());
        written
    }
}

impl AsyncRead for Socket {
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

impl AsyncWrite for Socket {
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
        let mut whole = [0; SMALL];
        let mut length = 0;
        for piece in pieces {
            whole[length..length + piece.len()].copy_from_slice(piece);
            length += piece.len();
        }
        let written = stream.poll_write(cx, &whole[..length]);
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
    use tokio::net::TcpListener;

    use super::*;
    use crate::idle::Connections;

    #[tokio::test]
    async fn what_is_written_in_pieces_arrives_in_order_whatever_its_size() {
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
