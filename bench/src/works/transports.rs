//! Sends over the transports beside HTTP. A Unix socket, WebSocket, and standard input and output are compared with JSON-RPC over HTTP.
//! The gRPC envelope is compared with official gRPC.
//!
//! HTTP has a connection for each request in flight, the others have one for all. The clients look at no more of a response than where it
//! ends and whether it is a result.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use memchr::{memchr, memmem};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{SMALL, send_small};
use crate::connection::excerpt;
use crate::harness::Harness;
use crate::load;
use crate::machine::{self, Cores};
use crate::report::{Reference, Row, Target, Unit};
use crate::requests::Request;
use crate::stats::Repeated;

/// How many requests are in flight.
const AT_ONCE: usize = 64;

/// How long the next response may take.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The methods that send a message, and the field of each message that has the request.
const GRPC: &str = "lf.a2a.v1.A2AService/SendMessage";
const ENVELOPE: &str = "iac_code.a2a.transports.proto.A2AJsonRpc/Send";

/// What is measured, in this order in each repetition.
const SIDES: [&str; 6] = ["HTTP", "Unix socket", "WebSocket", "stdio", "gRPC", "gRPC envelope"];

pub(super) async fn transports(harness: &mut Harness) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("subject.sock");
    let path = socket.to_str().context("the name of the temporary folder is not text")?;
    let subject = harness.guarded_subject(&["--unix", path]).await?.asleep();
    let mut child = start_stdio(harness.cores()).await.context("starting the subject with `--stdio`")?;
    let plan = send_small(AT_ONCE);
    let mut speeds: [Vec<f64>; SIDES.len()] = Default::default();
    for repetition in harness.repetitions() {
        for (side, speeds) in SIDES.into_iter().zip(&mut speeds) {
            let (address, length) = (subject.address(), harness.length());
            let speed = match side {
                "HTTP" => load::window(&subject, &plan, length).await.map(|window| {
                    harness.count(window.others_busy);
                    window.requests_per_s
                }),
                "Unix socket" => unix(&socket, length).await,
                "WebSocket" => websocket(address, length).await,
                "stdio" => stdio(&mut child, length).await,
                "gRPC" => grpc(address, GRPC, &protobuf(), length).await,
                _ => grpc(address, ENVELOPE, &field(1, Request::send(SMALL).body()), length).await,
            };
            let speed = speed.with_context(|| format!("measuring {side}"))?;
            harness.say("transports", repetition, side, &format!("{speed:>9.0} /s"));
            harness.keep("transports", side, repetition, json!({"requests_per_s": speed}));
            speeds.push(speed);
        }
    }
    let [http, unix, websocket, stdio, grpc, envelope] = speeds.map(Repeated);
    let row = |name: &str, subject, reference: &Repeated, at, ratio| Row {
        name: name.to_owned(),
        unit: Unit::RequestsPerSecond,
        subject,
        reference: Reference::Own { values: reference.clone(), at },
        target: Target::RatioAtLeast(ratio),
    };
    Ok(vec![
        row("unix/http", unix, &http, "HTTP", 1.1),
        row("websocket/http", websocket, &http, "HTTP", 1.2),
        row("stdio/http", stdio, &http, "HTTP", 0.8),
        row("envelope/grpc", envelope, &grpc, "gRPC", 0.8),
    ])
}

/// Starts a subject on the core of the server that answers on its standard input and output. It is killed when dropped.
async fn start_stdio(cores: Cores) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", "subject", "--stdio", "--listen", "127.0.0.1:0"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    Ok(machine::on_the_server_core(cores, async { command.spawn() }).await??)
}

async fn unix(socket: &Path, length: Duration) -> Result<f64> {
    multiplexed(&mut UnixStream::connect(socket).await?, &line(), next_line, length).await
}

async fn stdio(child: &mut Child, length: Duration) -> Result<f64> {
    let (output, input) = (child.stdout.as_mut().context("output")?, child.stdin.as_mut().context("input")?);
    multiplexed(&mut tokio::io::join(output, input), &line(), next_line, length).await
}

async fn websocket(address: SocketAddr, length: Duration) -> Result<f64> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let open = "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nA2A-Version: 1.0\r\n\r\n";
    stream.write_all(open.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(timeout(MAX_WAIT, stream.read_buf(&mut head)).await?? > 0, "refused: {}", excerpt(&head));
    }
    ensure!(head.starts_with(b"HTTP/1.1 101 "), "refused: {}", excerpt(&head));
    // The mask is zero, which leaves the text as it is.
    let request = Request::send(SMALL);
    let mut frame = vec![0x81, 0x80 | 126];
    frame.extend_from_slice(&u16::try_from(request.body().len())?.to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(request.body());
    multiplexed(&mut stream, &Request::of_bytes(frame), next_frame, length).await
}

/// The request as a line.
fn line() -> Request {
    let mut line = Request::send(SMALL).body().to_vec();
    line.push(b'\n');
    Request::of_bytes(line)
}

/// What a connection has delivered first: how long it is, and where its text begins, if it is a response.
struct Received {
    length: usize,
    text_at: Option<usize>,
}

fn next_line(bytes: &[u8]) -> Result<Option<Received>> {
    Ok(memchr(b'\n', bytes).map(|end| Received { length: end + 1, text_at: Some(0) }))
}

fn next_frame(bytes: &[u8]) -> Result<Option<Received>> {
    let &[kind, short, ..] = bytes else { return Ok(None) };
    let (text_at, length) = match (short, bytes.get(2..4), bytes.get(2..10)) {
        (126, Some(length), _) => (4, usize::from(u16::from_be_bytes(length.try_into()?))),
        (127, _, Some(length)) => (10, usize::try_from(u64::from_be_bytes(length.try_into()?))?),
        (126 | 127, _, _) => return Ok(None),
        (length, _, _) => (2, usize::from(length)),
    };
    let is_response = match kind {
        0x81 => true,
        // A ping, which a window is too short to be closed for.
        0x89 => false,
        kind => bail!("the server sent a frame of the kind {kind:#x}"),
    };
    let length = text_at + length;
    let is_whole = bytes.len() >= length;
    Ok(is_whole.then_some(Received { length, text_at: is_response.then_some(text_at) }))
}

/// Keeps requests in flight on one connection for a time, and returns how many were answered in a second. All are answered in the end.
async fn multiplexed(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &Request,
    next: fn(&[u8]) -> Result<Option<Received>>,
    length: Duration,
) -> Result<f64> {
    let (mut written, mut read) = (Vec::new(), Vec::with_capacity(256 * 1024));
    let clock = Clock::start(length);
    let (mut answered, mut awaited, mut missing) = (0_u64, 0, AT_ONCE);
    loop {
        written.clear();
        (0..missing).for_each(|_| request.append(&mut written));
        stream.write_all(&written).await?;
        awaited += missing;
        if awaited == 0 {
            return Ok(clock.per_second(answered));
        }
        let count = timeout(MAX_WAIT, stream.read_buf(&mut read)).await.context("nothing was answered")??;
        ensure!(count > 0, "the server closed the connection");
        let (mut at, mut arrived) = (0, 0);
        while let Some(Received { length, text_at }) = next(&read[at..])? {
            if let Some(text_at) = text_at {
                let text = &read[at + text_at..at + length];
                ensure!(memmem::find(text, b"TASK_STATE_COMPLETED").is_some(), "got {}", excerpt(text));
                arrived += 1;
            }
            at += length;
        }
        read.drain(..at);
        awaited -= arrived;
        missing = if clock.is_over() { 0 } else { arrived };
        if clock.is_measuring() {
            answered += arrived as u64;
        }
    }
}

/// A short warm-up, and then a window.
struct Clock {
    begin: Instant,
    end: Instant,
}

impl Clock {
    fn start(length: Duration) -> Self {
        let warm_up = (length / 10).clamp(Duration::from_millis(50), Duration::from_millis(500));
        let begin = Instant::now() + warm_up;
        Self { begin, end: begin + length }
    }

    fn is_measuring(&self) -> bool {
        (self.begin..self.end).contains(&Instant::now())
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    fn per_second(&self, answered: u64) -> f64 {
        answered as f64 / (self.end - self.begin).as_secs_f64()
    }
}

/// Keeps calls in flight on one connection of HTTP/2.
async fn grpc(address: SocketAddr, method: &str, message: &[u8], length: Duration) -> Result<f64> {
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build()?;
    let url = format!("http://{address}/{method}");
    let mut body = vec![0];
    body.extend_from_slice(&u32::try_from(message.len())?.to_be_bytes());
    body.extend_from_slice(message);
    let (request, clock) = (Request::of_bytes(body), Clock::start(length));
    let calls = (0..AT_ONCE).map(|_| async {
        let (mut answered, mut body) = (0, Vec::new());
        while !clock.is_over() {
            request.write(&mut body);
            let call = client.post(&url).header("content-type", "application/grpc").header("te", "trailers");
            let call = call.header("a2a-version", "1.0").timeout(MAX_WAIT).body(body.clone());
            let response = call.send().await?;
            let status = response.headers().get("grpc-status").cloned();
            let answer = response.bytes().await?;
            // The text comes back in the artifact.
            ensure!(
                memmem::find(&answer, SMALL.as_bytes()).is_some(),
                "status {status:?}, {}",
                excerpt(&answer)
            );
            answered += u64::from(clock.is_measuring());
        }
        Ok(answered)
    });
    Ok(clock.per_second(try_join_all(calls).await?.into_iter().sum()))
}

/// `SendMessageRequest` with the message of the other transports: its id, the role of a user, and one part with text.
fn protobuf() -> Vec<u8> {
    let mut message = field(1, Request::MESSAGE_ID.as_bytes());
    message.extend_from_slice(&[4 << 3, 1]);
    message.extend_from_slice(&field(5, &field(1, SMALL.as_bytes())));
    field(2, &message)
}

/// A field of a protobuf message that has a length.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = value.len();
    while length > 127 {
        out.push((length & 127) as u8 | 128);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(value);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_in_pieces_of_any_length() {
        let long = [&[0x81, 126, 1, 0][..], &[b'a'; 256]].concat();
        let all = [&[0x89, 0][..], &[0x81, 2, b'h', b'i'], &long].concat();
        let (mut at, mut texts) = (0, Vec::new());
        for end in 0..=all.len() {
            while let Some(Received { length, text_at }) = next_frame(&all[at..end]).unwrap() {
                texts.extend(text_at.map(|text_at| length - text_at));
                at += length;
            }
        }
        assert_eq!((at, texts), (all.len(), vec![2, 256]));
        assert!(next_frame(&[0x88, 0]).is_err(), "the connection is closed");
    }

    #[test]
    fn fields_have_their_length_in_front() {
        assert_eq!(field(2, b"ab"), [0x12, 2, b'a', b'b']);
        assert_eq!(field(1, &[0; 300])[..3], [0x0a, 0b1010_1100, 2]);
    }
}
