//! Slow clients: heads that do not end, bodies that arrive byte by byte, streams without a reader.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::requests::Request;

/// How long a body takes from one byte to the next.
const TRICKLE: Duration = Duration::from_secs(10);

/// How many of the streams have so much to say that it does not fit between server and client.
const ONE_IN: usize = 16;

/// Slow clients, there until dropped.
pub(super) struct Crowd {
    silent: Vec<TcpStream>,
    trickling: Vec<AbortHandle>,
    _tasks: JoinSet<Result<()>>,
}

impl Crowd {
    /// Opens so many slow connections, a third of each kind.
    pub(super) async fn open(address: SocketAddr, count: usize) -> Result<Self> {
        let (mut silent, mut trickling, mut tasks) = (Vec::new(), Vec::new(), JoinSet::new());
        let mut bytes = Vec::new();
        for nth in 0..count {
            let mut stream =
                connect(address).await.with_context(|| format!("opening slow connection {nth}"))?;
            match nth % 3 {
                0 => {
                    stream.write_all(b"POST /a2a HTTP/1.1\r\nhost: localhost\r\ncontent-ty").await?;
                    silent.push(stream);
                }
                1 => {
                    stream
                        .write_all(b"POST /a2a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{")
                        .await?;
                    trickling.push(tasks.spawn(trickle(stream)));
                }
                _ => {
                    let text = if nth % ONE_IN == 0 { "chunks:1000" } else { "hang" };
                    Request::stream(text).write(&mut bytes);
                    stream.write_all(&bytes).await?;
                    silent.push(stream);
                }
            }
        }
        Ok(Self { silent, trickling, _tasks: tasks })
    }

    /// How many of them the server has not hung up on.
    pub(super) fn still_open(&self) -> usize {
        let mut byte = [0];
        let open = |stream: &&TcpStream| !matches!(stream.try_read(&mut byte), Ok(0));
        let trickling = self.trickling.iter().filter(|task| !task.is_finished());
        trickling.count() + self.silent.iter().filter(open).count()
    }
}

/// A connection that takes little at once.
async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_recv_buffer_size(4096)?;
    Ok(socket.connect(address).await?)
}

async fn trickle(mut stream: TcpStream) -> Result<()> {
    loop {
        sleep(TRICKLE).await;
        stream.write_all(b" ").await?;
    }
}
