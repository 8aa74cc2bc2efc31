//! Receivers on real sockets, resolvers with scripted results, and running a test again in another environment.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use attache_outbound::{Outbound, OutboundRequest, Policy, Resolver};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::HeaderMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Long enough that it never expires.
pub(crate) const AMPLE: Duration = Duration::from_secs(30);

/// Returns the results in order, then repeats the last one.
pub(crate) struct Scripted(Mutex<(VecDeque<Vec<IpAddr>>, usize)>);

impl Scripted {
    pub(crate) fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        Arc::new(Self(Mutex::new((answers.iter().map(parse).collect(), 0))))
    }

    pub(crate) fn asked(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

impl Resolver for Scripted {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let mut script = self.0.lock().unwrap();
        script.1 += 1;
        let answer = if script.0.len() > 1 { script.0.pop_front().unwrap() } else { script.0[0].clone() };
        async move { Ok(answer) }.boxed()
    }
}

/// A client that may call this machine. Every name resolves to `127.0.0.1`.
pub(crate) fn local() -> Outbound {
    client(Policy::default().allow_loopback(true), Scripted::new(&[&["127.0.0.1"]]))
}

pub(crate) fn client(policy: Policy, resolver: Arc<dyn Resolver>) -> Outbound {
    Outbound::new(policy, resolver).unwrap()
}

pub(crate) fn request(url: impl Into<String>) -> OutboundRequest {
    OutboundRequest {
        url: url.into(),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
        timeout: AMPLE,
    }
}

/// A port on `127.0.0.1` without a connection so far.
pub(crate) async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Whether no connection, or no further connection, was made.
pub(crate) fn is_untouched(listener: TcpListener) -> bool {
    // Asks the system, because the runtime may not know a new connection yet.
    listener.into_std().unwrap().accept().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Reads a request with a body of two bytes, as [`request`] makes it.
pub(crate) async fn read(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n{}") {
        assert!(stream.read_buf(&mut read).await.unwrap() > 0, "the request broke off");
    }
    String::from_utf8(read).unwrap()
}

/// Responds to each request on each connection with the same bytes, forever.
pub(crate) fn answer(listener: TcpListener, bytes: &'static str) {
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                loop {
                    read(&mut stream).await;
                    stream.write_all(bytes.as_bytes()).await.unwrap();
                }
            });
        }
    });
}

/// Runs one test of this program alone, with these variables set. Returns true inside that run, where the test does its work.
pub(crate) fn with_environment(test: &str, variables: &[(&str, String)]) -> bool {
    const INSIDE: &str = "ATTACHE_OUTBOUND_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact"])
        .env(INSIDE, "1")
        .envs(variables.iter().map(|(name, value)| (name, value)));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}
