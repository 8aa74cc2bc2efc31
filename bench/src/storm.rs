//! Storm: what becomes of a server that gets broken requests from all sides.
//!
//! Connections send valid HTTP/1 requests with random changes, random HTTP/2 frames after a valid preface, random WebSocket frames after
//! a valid opening, JSON-RPC lines with random changes over a Unix socket, and random bytes, in pieces and with pauses, and hang up at
//! random moments. What is promised is that the server goes on, that `/health` answers meanwhile, that memory does not grow, and that a
//! valid request is answered afterwards, over HTTP, WebSocket and the Unix socket.

mod wire;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use fastrand::Rng;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use crate::machine;
use crate::overload::{Table, mebibytes, watch};
use crate::server::Server;

/// How long `/health` may take.
const HEALTH: Duration = Duration::from_secs(2);

/// How much memory may be used at the most, and how much of it may be left when all connections are gone.
const MOST_KIB: u64 = 512 * 1024;
const LEFT_KIB: u64 = 64 * 1024;

/// How long a connection waits for an answer at the most.
const PATIENCE: Duration = Duration::from_millis(500);

/// Send broken HTTP/1, HTTP/2, WebSocket frames and JSON-RPC lines from all sides, and watch `/health` and memory.
#[derive(Args)]
pub(crate) struct Storm {
    /// For how many seconds
    #[arg(long, value_name = "N", default_value_t = 60.0)]
    seconds: f64,
    /// How many connections at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    connections: usize,
    /// Where to begin: the seed that an earlier run has named
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Storm {
    /// Runs everything, prints what was seen and fails if a promise was broken.
    pub(crate) async fn run(self) -> Result<()> {
        let length = Duration::try_from_secs_f64(self.seconds).ok().filter(|length| !length.is_zero());
        let length = length.with_context(|| {
            format!("`--seconds {}` is not a length of time; use a number of seconds above 0", self.seconds)
        })?;
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
        machine::raise_open_file_limit();
        let cores = machine::pin_load_generator()?;
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("subject.sock");
        let path = socket.to_str().context("the name of the temporary folder is not text")?;
        let server = Server::subject_with(&["--unix", path], cores).await?;
        let place = Place { address: server.address(), socket: socket.clone() };
        check(&place).await.context("before the storm")?;
        let before = server.resident_kib()?;
        eprintln!("sending broken requests for {} s (seed {seed})", length.as_secs_f64());
        let storm = blow(&place, length, self.connections, seed);
        let (sent, health, memory) =
            tokio::join!(storm, watch_health(server.address(), length), watch(&server, length));
        let (most, slowest) = (memory?.most(), health?);
        let mut table = Table::default();
        table.row("seed", seed);
        table.row("connections", sent.connections);
        table.row("bytes sent", sent.bytes);
        table.row("answers", sent.answers);
        let shown = format!("{:.0} ms", slowest.as_secs_f64() * 1000.0);
        table.judge("slowest `/health`", shown, slowest <= HEALTH, "at most 2 s");
        table.judge("memory at the most", mebibytes(most), most <= MOST_KIB, "at most 512 MiB");
        let alive = check(&place).await;
        let shown = alive.as_ref().map_or_else(|error| format!("{error:#}"), |()| "yes".to_owned());
        table.judge("valid requests answered", shown, alive.is_ok(), "yes");
        let left = server.resident_kib()?.saturating_sub(before);
        table.judge("memory left", mebibytes(left), left <= LEFT_KIB, "at most 64 MiB");
        table.print()
    }
}

/// Where the server is.
#[derive(Debug, Clone)]
struct Place {
    address: SocketAddr,
    /// Its Unix socket.
    socket: PathBuf,
}

/// What was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sent {
    connections: u64,
    bytes: u64,
    answers: u64,
}

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    bytes: AtomicU64,
    answers: AtomicU64,
}

/// Sends broken requests over so many connections at once.
async fn blow(place: &Place, length: Duration, connections: usize, seed: u64) -> Sent {
    let (end, counts) = (Instant::now() + length, Arc::<Counts>::default());
    let senders: Vec<_> = (0..connections as u64)
        .map(|number| {
            let (counts, place) = (counts.clone(), place.clone());
            let mut random = Rng::with_seed(seed.wrapping_add(number));
            tokio::spawn(async move {
                while Instant::now() < end {
                    // A connection that the server closes, or never accepts, is as good as any.
                    let _ = send(&place, &mut random, &counts).await;
                }
            })
        })
        .collect();
    for sender in senders {
        // The senders do not panic; one that did has sent less.
        let _ = sender.await;
    }
    Sent {
        connections: counts.connections.load(Relaxed),
        bytes: counts.bytes.load(Relaxed),
        answers: counts.answers.load(Relaxed),
    }
}

/// One connection.
async fn send(place: &Place, random: &mut Rng, counts: &Counts) -> std::io::Result<()> {
    if random.u8(..8) == 0 {
        let stream = timeout(PATIENCE, UnixStream::connect(&place.socket)).await??;
        return deliver(stream, &wire::lines(random), random, counts).await;
    }
    let stream = timeout(PATIENCE, TcpStream::connect(place.address)).await??;
    deliver(stream, &wire::bytes(random), random, counts).await
}

/// Sends bytes in pieces, and waits for an answer or not.
async fn deliver(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    bytes: &[u8],
    random: &mut Rng,
    counts: &Counts,
) -> std::io::Result<()> {
    counts.connections.fetch_add(1, Relaxed);
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(random.usize(1..=rest.len()));
        timeout(PATIENCE, stream.write_all(piece)).await??;
        counts.bytes.fetch_add(piece.len() as u64, Relaxed);
        rest = more;
        if random.u8(..8) == 0 {
            sleep(Duration::from_millis(random.u64(..20))).await;
        }
    }
    // Some hang up without waiting, some stop sending, some do neither.
    match random.u8(..4) {
        0 => return Ok(()),
        1 => stream.shutdown().await?,
        _ => {}
    }
    let mut answer = [0; 4096];
    let read = timeout(PATIENCE, stream.read(&mut answer)).await??;
    counts.answers.fetch_add(u64::from(read > 0), Relaxed);
    Ok(())
}

/// Asks for `/health` again and again. How long the slowest answer took; an error if one was wrong or did not come.
async fn watch_health(address: SocketAddr, length: Duration) -> Result<Duration> {
    let (began, mut slowest) = (Instant::now(), Duration::ZERO);
    while began.elapsed() < length {
        let asked = Instant::now();
        let answer =
            exchange(address, b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        // Longer than the promised time, so that the actual time is reported.
        let answer = timeout(5 * HEALTH, answer).await.context("`/health` did not answer")??;
        if !answer.starts_with(b"HTTP/1.1 200") {
            bail!("`/health` answered {}", String::from_utf8_lossy(&answer[..answer.len().min(200)]));
        }
        slowest = slowest.max(asked.elapsed());
        sleep(Duration::from_millis(50)).await;
    }
    Ok(slowest)
}

/// Whether the server answers a valid request over each transport.
async fn check(place: &Place) -> Result<()> {
    let http = async {
        let answer = exchange(place.address, &wire::valid_send()).await?;
        is_task(&answer, b"HTTP/1.1 200")
    };
    timeout(5 * HEALTH, http).await.context("no answer over HTTP")?.context("over HTTP")?;
    let websocket = check_websocket(place.address);
    timeout(5 * HEALTH, websocket).await.context("no answer over WebSocket")?.context("over WebSocket")?;
    let lines = check_lines(&place.socket);
    timeout(5 * HEALTH, lines).await.context("no answer over the socket")?.context("over the socket")
}

fn is_task(answer: &[u8], beginning: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(answer);
    ensure!(answer.starts_with(beginning) && text.contains("\"task\""), "it answered {text}");
    Ok(())
}

async fn check_websocket(address: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let [opening, request] = wire::valid_websocket();
    stream.write_all(&opening).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        ensure!(stream.read_buf(&mut answer).await? > 0, "it answered {}", String::from_utf8_lossy(&answer));
    }
    ensure!(answer.starts_with(b"HTTP/1.1 101 "), "it answered {}", String::from_utf8_lossy(&answer));
    stream.write_all(&request).await?;
    let mut answer = Vec::new();
    // The response is one small JSON object.
    while !answer.ends_with(b"}") {
        ensure!(stream.read_buf(&mut answer).await? > 0, "it closed the connection");
    }
    is_task(&answer, &[0x81])?;
    stream.write_all(&wire::websocket_end()).await?;
    Ok(())
}

/// Whether the server answers a line on its Unix socket.
async fn check_lines(socket: &Path) -> Result<()> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(&wire::valid_line()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\n") {
        ensure!(stream.read_buf(&mut answer).await? > 0, "it closed the connection");
    }
    is_task(&answer, b"{")
}

async fn exchange(address: SocketAddr, request: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject;

    /// The short version.
    #[test]
    fn a_server_that_gets_broken_requests_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("subject.sock");
        let path = socket.to_str().unwrap().to_owned();
        let (ready, address) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            crate::single_threaded(async {
                let settings = subject::Settings::with_socket(path);
                let listening = subject::server(([127, 0, 0, 1], 0).into(), settings)?.listen().await?;
                ready.send(listening.address()?)?;
                listening.run_until(std::future::pending()).await?;
                Ok(())
            })
        });
        let address = address.recv().unwrap();
        let place = Place { address, socket };
        crate::single_threaded(async {
            let length = Duration::from_secs(2);
            let (sent, health) = tokio::join!(blow(&place, length, 16, 7), watch_health(address, length));
            assert!(sent.connections > 0 && sent.answers > 0, "{sent:?}");
            health?;
            check(&place).await
        })
        .unwrap();
    }
}
