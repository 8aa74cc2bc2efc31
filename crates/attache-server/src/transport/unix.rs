//! Unix sockets: HTTP and line-framed JSON-RPC on one path, told apart by the first byte.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};

use super::exchange::Channel;
use super::idle::Member;
use super::socket::Socket;
use super::{lines, serve_http};
use crate::peer::PeerProcess;
use crate::{HttpService, Peer};

/// The name of JSON-RPC in lines over Unix sockets in the logs.
const BINDING: &str = "JSONRPC-LINES";

/// A listening Unix socket. Only the user of the process can connect. The file is removed when the socket is dropped.
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// The file at `path`, to remove no other.
    inode: (u64, u64),
    /// Held as long as the socket exists, so that no two servers use one path.
    _lock: Lock,
}

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

impl UnixSocket {
    /// Binds the socket. A socket that another server has left behind is removed. Everything else at the path is an error.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let error = |kind, text: String| io::Error::new(kind, text);
        let shown = path.display();
        if path.as_os_str().is_empty() {
            return Err(error(ErrorKind::InvalidInput, "the path is empty: expected `unix:PATH`".to_owned()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            let text = format!("the folder `{}` does not exist: create it first", folder.display());
            return Err(error(ErrorKind::NotFound, text));
        }
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            Err(missing) if missing.kind() == ErrorKind::NotFound => {}
            Err(other) => return Err(other),
            Ok(found) if !found.file_type().is_socket() => {
                let text =
                    format!("`{shown}` exists and is not a Unix socket: choose another path, or remove it");
                return Err(error(ErrorKind::AlreadyExists, text));
            }
            // A program that does not take the lock may listen here.
            Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
                return Err(in_use(path));
            }
            Ok(_) => fs::remove_file(path)?,
        }
        // No one can connect before `listen`, so no other user does before the permissions are set.
        let socket = tokio::net::UnixSocket::new_stream()?;
        socket.bind(path)?;
        let listening = fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .and_then(|()| socket.listen(BACKLOG));
        let listener = match listening {
            Ok(listener) => listener,
            Err(error) => {
                let _ = fs::remove_file(path);
                return Err(error);
            }
        };
        let found = fs::symlink_metadata(path)?;
        Ok(Self { listener, path: path.to_owned(), inode: (found.dev(), found.ino()), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        self.listener.poll_accept(cx).map_ok(|(stream, _)| stream)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        let own =
            fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.inode);
        if own && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the Unix socket could not be removed");
        }
    }
}

/// A locked file beside the socket; removed when dropped.
struct Lock {
    path: PathBuf,
    _file: File,
}

/// Locks a file beside the socket.
fn lock(socket: &Path) -> io::Result<Lock> {
    let path = socket.with_added_extension("lock");
    loop {
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(socket)),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The server that had the lock may have removed the file after it was opened here. Then another one can have a new file.
        let own = file.metadata()?;
        if fs::symlink_metadata(&path).is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()))
        {
            return Ok(Lock { path, _file: file });
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still locked, so this is the file of this server.
        let _ = fs::remove_file(&self.path);
    }
}

fn in_use(path: &Path) -> io::Error {
    let text = format!("another process listens on `{}`: stop it, or choose another path", path.display());
    io::Error::new(ErrorKind::AddrInUse, text)
}

/// Serves one connection: JSON-RPC in lines if the first byte begins a JSON object, HTTP otherwise.
pub(super) async fn serve(
    mut stream: UnixStream,
    server: (auto::Builder<TokioExecutor>, HttpService),
    member: Member,
) {
    let process =
        stream.peer_cred().ok().map(|process| PeerProcess { uid: process.uid(), pid: process.pid() });
    let peer = Peer { process, ..Peer::default() };
    let mut first = [0];
    let timeout = server.1.first_byte_timeout();
    let read = tokio::select! {
        read = tokio::time::timeout(timeout, stream.read(&mut first)) => read,
        () = member.closing() => return,
    };
    if !matches!(read, Ok(Ok(1))) {
        return;
    }
    let stream = Arc::new(stream);
    let socket = Socket::new(Unread { first: Some(first[0]), stream: stream.clone() }, member.activity());
    match first[0] {
        b'{' | b'[' | b' ' | b'\t' | b'\r' | b'\n' => {
            let channel = Channel::local(server.1, BINDING, peer);
            lines::serve(socket, &channel, &member, hung_up(stream)).await;
        }
        _ => serve_http(socket, peer, server, member).await,
    }
}

/// How often the server looks whether a client that sends no more still reads.
const HANG_UP_CHECK: Duration = Duration::from_secs(1);

/// Waits until the client has closed both directions. A client that has only stopped sending may still read its responses.
///
/// The runtime reports that end as one of the reading side only, so the kernel is asked.
async fn hung_up(stream: Arc<UnixStream>) {
    loop {
        let mut state = [PollFd::new(&stream, PollFlags::empty())];
        let is_polled = rustix::event::poll(&mut state, Some(&Timespec::default())).is_ok();
        if is_polled && state[0].revents().contains(PollFlags::HUP) {
            return;
        }
        tokio::time::sleep(HANG_UP_CHECK).await;
    }
}

/// A stream whose first byte was read already.
struct Unread {
    first: Option<u8>,
    stream: Arc<UnixStream>,
}

impl AsyncRead for Unread {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0
            && let Some(first) = self.first.take()
        {
            buffer.put_slice(&[first]);
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read_buf(buffer) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Unread {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(rustix::net::shutdown(&self.stream, Shutdown::Write)?))
    }
}
