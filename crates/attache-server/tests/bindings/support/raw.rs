//! A client that writes bytes as it likes.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::soon;

/// A connection without any manners.
pub(crate) struct Raw(TcpStream);

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(soon(TcpStream::connect(address)).await.unwrap())
    }

    /// A connection that can hold next to nothing that is not read.
    pub(crate) async fn narrow(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(1024).unwrap();
        Self(soon(socket.connect(address)).await.unwrap())
    }

    pub(crate) async fn write(&mut self, text: impl AsRef<[u8]>) {
        soon(self.0.write_all(text.as_ref())).await.unwrap();
    }

    /// Asks for something and gives the first line of the answer, or nothing if the server has closed the connection.
    pub(crate) async fn try_get(&mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut text = Vec::new();
        if self.0.write_all(request.as_bytes()).await.is_ok() {
            while let Ok(byte) = soon(self.0.read_u8()).await
                && byte != b'\n'
            {
                text.push(byte);
            }
        }
        String::from_utf8(text).unwrap()
    }

    /// Reads up to and including `end`.
    pub(crate) async fn read_until(&mut self, end: &str) -> String {
        let mut text = Vec::new();
        while !text.ends_with(end.as_bytes()) {
            match soon(self.0.read_u8()).await {
                Ok(byte) => text.push(byte),
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&text)),
            }
        }
        String::from_utf8(text).unwrap()
    }

    /// Reads so many bytes.
    pub(crate) async fn read(&mut self, length: usize) {
        soon(self.0.read_exact(&mut vec![0; length])).await.unwrap();
    }

    /// Reads the head of a response.
    pub(crate) async fn head(&mut self) -> String {
        self.read_until("\r\n\r\n").await
    }

    /// Reads until the server closes the connection, however it does that.
    pub(crate) async fn closed(&mut self) -> String {
        let mut text = Vec::new();
        // A connection that is reset is closed as well.
        let _ = soon(self.0.read_to_end(&mut text)).await;
        String::from_utf8_lossy(&text).into_owned()
    }
}
