//! Many requests on one connection: reads frames, answers them at the same time, and writes the frames of all responses.
//!
//! - A request is answered while others run, so that a client can cancel a task that another request waits for.
//! - A client that does not read holds up its own requests only: at most a few frames wait to be written.
//! - The notification `$/cancelRequest` ends a stream that the client does not read any more. The task goes on.
//! - When a connection ends, its requests and streams end. Tasks go on.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use attache_protocol::jsonrpc::{Call, Id};
use attache_protocol::{Error, ErrorKind};
use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use memchr::memmem::Finder;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::exchange::{Answer, Channel};
use super::idle::{Busy, Member};
use super::outgoing::Outgoing;
use super::yield_once;

/// How many frames are written before further requests are processed, so that the client reads the first responses meanwhile.
const WRITE_AT: usize = 16;

/// How long a request beyond the limit of a connection waits for another one to end, before it is refused.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The notification that ends a stream. The Language Server Protocol has the same.
const CANCEL_REQUEST: &str = "$/cancelRequest";

static CANCEL_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(CANCEL_REQUEST));

/// What a connection delivers.
pub(super) enum Received {
    /// A request.
    Request(Bytes),
    /// Nothing to answer.
    Nothing,
    /// Something that cannot be told from what follows. The client gets the error, and the connection ends.
    Broken(Error),
    /// The client has closed the connection, and reads no more.
    Closed,
}

/// Answers the requests of one connection until the client sends no more, the server stops, or it needs the connection for another client.
///
/// A client that sends no more may go on reading: requests that were received are answered. `gone` completes when it does not read either.
///
/// Dropping it ends the requests and streams that are not answered yet.
pub(super) async fn answer_all<F>(
    channel: &Channel,
    member: Option<&Member>,
    received: impl Stream<Item = Received>,
    gone: impl Future<Output = ()>,
    frames: Outgoing<F>,
) {
    let limit = usize::try_from(channel.http.options().streams_per_connection()).unwrap_or(usize::MAX);
    let activity = member.map(Member::activity);
    let streams = Streams::default();
    let mut received = pin!(received.fuse());
    let mut gone = pin!(gone);
    let mut closed = pin!(closing(member));
    let mut running = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !running.is_empty() {
        // An error for which the client has no request in progress, and whether the connection ends with it.
        let (error, is_last) = tokio::select! {
            biased;
            // What is ready is finished before more is read. Requests that wait for something do not hold up reading.
            Some(()) = running.next(), if !running.is_empty() => {
                if frames.waiting() >= WRITE_AT {
                    yield_once().await;
                }
                continue;
            }
            () = &mut closed => {
                if member.is_some_and(Member::is_evicted) {
                    return;
                }
                closed.set(closing(member));
                is_open = false;
                continue;
            }
            next = received.next(), if is_open => match next {
                Some(Received::Nothing) => continue,
                Some(Received::Request(request)) => {
                    if let Some(id) = canceled_request(&request) {
                        streams.end(id.get());
                        continue;
                    }
                    let deadline = Instant::now() + MAX_WAIT;
                    while running.len() >= limit {
                        match tokio::time::timeout_at(deadline, running.next()).await {
                            Ok(_) => {}
                            Err(_) => break,
                        }
                    }
                    if running.len() >= limit {
                        (Answer::refused(&request, &too_many(limit)), false)
                    } else {
                        let (busy, frames) = (activity.as_ref().map(Busy::new), frames.clone());
                        let streams = &streams;
                        running.push(async move {
                            write(channel.answer(&request).await, streams, &frames).await;
                            drop(busy);
                        });
                        continue;
                    }
                }
                Some(Received::Broken(error)) => (Answer::error(&Id::NULL, &error), true),
                Some(Received::Closed) => return,
                None => {
                    is_open = false;
                    continue;
                }
            },
            () = &mut gone, if !is_open => return,
        };
        tokio::select! {
            () = write(error, &streams, &frames) => is_open = !is_last,
            // A client that does not read its errors holds up neither the end of the server nor another client.
            () = &mut closed => {
                if member.is_some_and(Member::is_evicted) {
                    return;
                }
                closed.set(closing(member));
                is_open = false;
            }
        }
    }
}

/// Writes the frames of a response, until the client does not accept them any more or ends the stream.
async fn write<F>(mut answer: Answer, streams: &Streams, frames: &Outgoing<F>) {
    let Some(open) = answer.stream_id().map(|id| streams.open(id)) else {
        while let Some(frame) = answer.next().await {
            if frames.send(frame).await.is_err() {
                return;
            }
        }
        return;
    };
    let mut ended = pin!(open.ended.notified());
    loop {
        let writing = async {
            let Some(frame) = answer.next().await else { return false };
            frames.send(frame).await.is_ok()
        };
        tokio::select! {
            biased;
            () = &mut ended => break,
            goes_on = writing => if !goes_on {
                return;
            },
        }
    }
    if let Some(end) = answer.end() {
        let _ = frames.send(end).await;
    }
}

/// The streams of a connection, by the ids of their requests.
#[derive(Default)]
struct Streams(Mutex<HashMap<Box<str>, Arc<Notify>>>);

/// A stream that can be ended by its client; removed when dropped.
struct OpenStream<'a> {
    streams: &'a Streams,
    id: Box<str>,
    ended: Arc<Notify>,
}

impl Streams {
    fn open(&self, id: &Id) -> OpenStream<'_> {
        let (id, ended) = (Box::<str>::from(id.as_json()), Arc::new(Notify::new()));
        self.0.lock().insert(id.clone(), ended.clone());
        OpenStream { streams: self, id, ended }
    }

    /// Ends the stream with this id, if there is one.
    fn end(&self, id: &str) {
        if let Some(ended) = self.0.lock().get(id) {
            ended.notify_one();
        }
    }
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        let mut streams = self.streams.0.lock();
        // A client that uses an id twice at the same time has replaced the first one.
        if streams.get(&self.id).is_some_and(|ended| Arc::ptr_eq(ended, &self.ended)) {
            streams.remove(&self.id);
        }
    }
}

/// The id of the stream that a notification ends, if it is such a notification.
fn canceled_request(request: &[u8]) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    CANCEL_FINDER.find(request)?;
    let call = Call::parse(request).ok().filter(|call| call.method == CANCEL_REQUEST && call.id.is_none())?;
    serde_json::from_slice::<Params<'_>>(call.params).ok().map(|params| params.id)
}

/// Waits until the connection should close.
pub(super) async fn closing(member: Option<&Member>) {
    match member {
        Some(member) => member.closing().await,
        None => std::future::pending().await,
    }
}

fn too_many(limit: usize) -> Error {
    let text =
        format!("at most {limit} concurrent requests are allowed on one connection: wait for one to end");
    Error::new(ErrorKind::ResourceExhausted, text).with("limit", limit).retry_in(MAX_WAIT)
}

#[cfg(test)]
mod tests {
    use attache_core::{Agent, Echo, Turn, agent_fn};
    use futures::stream;
    use tokio::sync::Semaphore;

    use futures::FutureExt;

    use super::super::exchange::{Frame, FrameKind};
    use super::super::idle::Connections;
    use super::super::outgoing::outgoing;
    use super::*;
    use crate::{Peer, Server};

    async fn channel() -> Channel {
        channel_to(Server::new(Echo)).await
    }

    async fn channel_to(server: Server<impl Agent>) -> Channel {
        let listening = server.bind("127.0.0.1:0").listen().await.unwrap();
        Channel::local(listening.http_service(), "TEST", Peer::default())
    }

    #[tokio::test]
    async fn a_connection_whose_client_does_not_read_its_error_makes_room_for_another() {
        let channel = channel().await;
        let connections = Connections::new(1, Duration::from_secs(60));
        let member = connections.join(None).unwrap();
        // There is no room for a frame, as if the client did not read.
        let (frames, mut unread) = outgoing(|frame| frame.payload);
        let filler = || Frame::new(Vec::new(), FrameKind::Response);
        while frames.send(filler()).now_or_never().is_some() {}
        let received = stream::iter([Received::Broken(Error::new(ErrorKind::InvalidRequest, "wrong"))])
            .chain(stream::pending());
        let mut answering =
            pin!(answer_all(&channel, Some(&member), received, std::future::pending(), frames));
        assert!(futures::poll!(&mut answering).is_pending());
        let _other = connections.join(None).unwrap();
        answering.await;
        while let Ok(unread) = unread.try_recv() {
            assert_eq!(unread.frame, Vec::<u8>::new());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_over_the_limit_of_a_connection_waits_for_a_second() {
        assert_eq!(MAX_WAIT, Duration::from_secs(1));
        let moment = Duration::from_millis(1);
        for (wait, is_answered) in [(MAX_WAIT - moment, true), (MAX_WAIT + moment, false)] {
            let permits = Arc::new(Semaphore::new(0));
            let held = permits.clone();
            let agent = agent_fn(move |turn: Turn| {
                let held = held.clone();
                async move {
                    held.acquire().await?.forget();
                    turn.complete().await
                }
            });
            let server = Server::new(agent).options(|options| options.max_streams_per_connection = 1);
            let channel = channel_to(server).await;
            let send = |id: u8| {
                let message = r#"{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}"#;
                let params = format!(r#"{{"message":{message}}}"#);
                let text =
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"SendMessage","params":{params}}}"#);
                Received::Request(text.into())
            };
            let (frames, mut written) = outgoing(|frame| frame.payload);
            let received = stream::iter([send(1), send(2)]);
            let release = async {
                tokio::time::sleep(wait).await;
                permits.add_permits(2);
            };
            tokio::join!(answer_all(&channel, None, received, std::future::pending(), frames), release);
            let mut answers = Vec::new();
            while let Ok(unwritten) = written.try_recv() {
                answers.push(String::from_utf8(unwritten.frame).unwrap());
            }
            assert_eq!(answers.len(), 2, "{answers:?}");
            let refused = "at most 1 concurrent requests are allowed on one connection";
            assert_eq!(answers.iter().any(|answer| answer.contains(refused)), !is_answered, "{answers:?}");
        }
    }

    #[test]
    fn only_a_notification_with_an_id_ends_a_stream() {
        let id = |text: &'static str| canceled_request(text.as_bytes()).map(RawValue::get);
        let cancel = r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"a"}}"#;
        assert_eq!(id(cancel), Some(r#""a""#));
        for other in [
            r#"{"jsonrpc":"2.0","id":1,"method":"$/cancelRequest","params":{"id":"a"}}"#,
            r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{}}"#,
            r#"{"jsonrpc":"2.0","method":"SendMessage","params":{"id":"$/cancelRequest"}}"#,
            "$/cancelRequest",
        ] {
            assert_eq!(id(other), None, "{other}");
        }
    }
}
