//! The socket of a connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Up to what size a head and its body are one piece.
const SMALL: usize = 1024;

/// A socket to which what is small goes in one piece: the kernel takes longer over two pieces than it takes to put them together.
pub(crate) struct Socket(TcpStream);

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(stream)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.0);
        if pieces.iter().map(|piece| piece.len()).sum::<usize>() > SMALL {
            return stream.poll_write_vectored(cx, pieces);
        }
        let mut whole = [0; SMALL];
        let mut length = 0;
        for piece in pieces {
            whole[length..length + piece.len()].copy_from_slice(piece);
            length += piece.len();
        }
        stream.poll_write(cx, &whole[..length])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn what_is_written_in_pieces_arrives_in_order_whatever_its_size() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut reader, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let mut socket = Socket::new(accepted.unwrap().0);
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
