//! Standard input and output: JSON-RPC in lines between this process and its parent.
//!
//! The server ends with its client: at the end of standard input, when standard output is closed, or when the parent process is gone.
//! Requests that were received by then are answered as far as the time for running turns allows.
//!
//! Two threads read and write. They are not threads of the runtime, which would wait for a read that never returns when it stops.

use std::io::{self, ErrorKind, Read, Write};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::exchange::Channel;
use super::idle::{Busy, Connections};
use super::lines;
use super::socket::Socket;
use crate::{HttpService, Peer};

/// The name of the transport in the logs.
const BINDING: &str = "JSONRPC-STDIO";

/// How many bytes are passed between a thread and the server at once.
const CHUNK: usize = 64 * 1024;

/// How often the server looks whether its parent process is still there.
#[cfg(unix)]
const PARENT_CHECK: Duration = Duration::from_secs(1);

/// A stream of bytes in both directions.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// A pair of streams that a server answers on, and ends with.
pub(crate) struct Pipe {
    stream: Box<dyn Duplex>,
    peer: Peer,
    /// Completes when everything was written.
    written: Option<oneshot::Receiver<()>>,
    /// The process at the other end, if it is the parent of this one.
    parent: Option<i32>,
}

impl Pipe {
    /// A stream that is open already.
    pub(crate) fn of(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self { stream: Box::new(stream), peer: Peer::default(), written: None, parent: None }
    }

    /// Standard input and output of this process. Call it within a tokio runtime.
    pub(crate) fn stdio() -> io::Result<Self> {
        let (stream, threads) = tokio::io::duplex(CHUNK);
        let (mut to_write, mut to_read) = tokio::io::split(threads);
        let (done, written) = oneshot::channel();
        let (reading, writing) = (Handle::current(), Handle::current());
        thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            let mut chunk = vec![0; CHUNK];
            loop {
                match io::stdin().lock().read(&mut chunk) {
                    Ok(0) => break,
                    Ok(count) => {
                        if reading.block_on(to_read.write_all(&chunk[..count])).is_err() {
                            return;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            let _ = reading.block_on(to_read.shutdown());
        })?;
        thread::Builder::new().name("stdout".to_owned()).spawn(move || {
            let mut chunk = vec![0; CHUNK];
            while let Ok(count @ 1..) = writing.block_on(to_write.read(&mut chunk)) {
                let mut out = io::stdout().lock();
                if out.write_all(&chunk[..count]).and_then(|()| out.flush()).is_err() {
                    break;
                }
            }
            let _ = done.send(());
        })?;
        let (peer, written) = (parent(), Some(written));
        let parent = peer.process.and_then(|process| process.pid);
        Ok(Self { stream: Box::new(stream), peer, written, parent })
    }

    /// Answers requests until the client has ended.
    pub(crate) async fn serve(self, http: HttpService, connections: Connections) {
        let Self { stream, peer, written, parent } = self;
        let Ok(member) = connections.join(None) else { return };
        member.activity().keep();
        // The client may be silent for as long as it likes: it has no other connection.
        let _busy = Busy::new(&member.activity());
        let channel = Channel::local(http.clone(), BINDING, peer);
        let (ended, end) = oneshot::channel();
        let stream = NoticeEnd { stream, ended: Some(ended) };
        let drain = http.drain();
        {
            let mut serving = pin!(lines::serve(
                Socket::new(stream, member.activity()),
                &channel,
                &member,
                // The end of the input is the end of the client.
                std::future::pending(),
            ));
            tokio::select! {
                () = &mut serving => {}
                () = over(end, parent) => {
                    // Requests that were received are answered.
                    let _ = tokio::time::timeout(drain, serving).await;
                }
            }
        }
        if let Some(written) = written {
            let _ = tokio::time::timeout(drain, written).await;
        }
    }
}

/// The process that started this one.
#[cfg(unix)]
fn parent() -> Peer {
    let process = crate::PeerProcess { uid: rustix::process::getuid().as_raw(), pid: parent_pid() };
    Peer { process: Some(process), ..Peer::default() }
}

#[cfg(unix)]
fn parent_pid() -> Option<i32> {
    rustix::process::getppid().map(rustix::process::Pid::as_raw_pid)
}

#[cfg(not(unix))]
fn parent() -> Peer {
    Peer::default()
}

/// Waits for the end of the input. Where the other end is the parent process, its end counts too: another process may hold the pipe open.
async fn over(end: oneshot::Receiver<()>, parent: Option<i32>) {
    tokio::select! {
        Ok(()) = end => {}
        () = orphaned(parent) => {}
    }
}

/// Waits until the process has another parent than this one.
#[cfg(unix)]
async fn orphaned(parent: Option<i32>) {
    while parent.is_none() || parent_pid() == parent {
        tokio::time::sleep(PARENT_CHECK).await;
    }
}

#[cfg(not(unix))]
async fn orphaned(_: Option<i32>) {
    std::future::pending().await
}

/// A stream that reports when its input has ended or failed.
struct NoticeEnd {
    stream: Box<dyn Duplex>,
    ended: Option<oneshot::Sender<()>>,
}

impl AsyncRead for NoticeEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready()
            && buffer.filled().len() == before
            && let Some(ended) = self.ended.take()
        {
            let _ = ended.send(());
        }
        read
    }
}

impl AsyncWrite for NoticeEnd {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
