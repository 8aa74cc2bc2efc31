//! Many requests on one connection: reads frames, answers them at the same time, and writes the frames of all responses.
//!
//! - A request is answered while others run, so that a client can cancel a task that another request waits for.
//! - A client that does not read holds up its own requests only: at most a few frames wait to be written.
//! - When a connection ends, its requests and streams end. Tasks go on.

use std::pin::pin;
use std::time::Duration;

use attache_protocol::jsonrpc::{Call, Id};
use attache_protocol::{Error, ErrorKind};
use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::exchange::{Answer, Channel, Frame};
use super::idle::{Busy, Member};

/// How many frames may wait to be written.
pub(super) const MAX_UNWRITTEN: usize = 64;

/// How long a request beyond the limit of a connection waits for another one to end, before it is refused.
const MAX_WAIT: Duration = Duration::from_secs(1);

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
    frames: mpsc::Sender<F>,
    encode: fn(Frame) -> F,
) {
    let limit = usize::try_from(channel.http.options().streams_per_connection()).unwrap_or(usize::MAX);
    let activity = member.map(Member::activity);
    let mut received = pin!(received.fuse());
    let mut gone = pin!(gone);
    let mut running = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !running.is_empty() {
        // An error for which the client has no request in progress, and whether the connection ends with it.
        let (error, is_last) = tokio::select! {
            next = received.next(), if is_open => match next {
                Some(Received::Nothing) => continue,
                Some(Received::Request(request)) => {
                    let deadline = Instant::now() + MAX_WAIT;
                    while running.len() >= limit {
                        match tokio::time::timeout_at(deadline, running.next()).await {
                            Ok(_) => {}
                            Err(_) => break,
                        }
                    }
                    if running.len() >= limit {
                        (Answer::error(&Call::peek_id(&request), &too_many(limit)), false)
                    } else {
                        let (busy, frames) = (activity.as_ref().map(Busy::new), frames.clone());
                        running.push(async move {
                            write(channel.answer(&request).await, &frames, encode).await;
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
            Some(()) = running.next(), if !running.is_empty() => continue,
            () = &mut gone, if !is_open => return,
            () = closing(member) => {
                if member.is_some_and(Member::is_evicted) {
                    return;
                }
                is_open = false;
                continue;
            }
        };
        tokio::select! {
            () = write(error, &frames, encode) => is_open = !is_last,
            // A client that does not read its errors holds up neither the end of the server nor another client.
            () = closing(member) => {
                if member.is_some_and(Member::is_evicted) {
                    return;
                }
                is_open = false;
            }
        }
    }
}

/// Writes the frames of a response, until the client does not accept them any more.
async fn write<F>(mut answer: Answer, frames: &mpsc::Sender<F>, encode: fn(Frame) -> F) {
    while let Some(frame) = answer.next().await {
        if frames.send(encode(frame)).await.is_err() {
            return;
        }
    }
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
    use attache_core::Echo;
    use futures::stream;
    use http::HeaderMap;

    use super::super::exchange::EstablishedCaller;
    use super::super::idle::Connections;
    use super::*;
    use crate::{Peer, Server};

    async fn channel() -> Channel {
        let listening = Server::new(Echo).bind("127.0.0.1:0").listen().await.unwrap();
        Channel {
            http: listening.http_service(),
            binding: "TEST",
            peer: Peer::default(),
            address: None,
            headers: HeaderMap::new(),
            query: None,
            caller: EstablishedCaller::Outer(Default::default()),
            is_local: true,
        }
    }

    #[tokio::test]
    async fn a_connection_whose_client_does_not_read_its_error_makes_room_for_another() {
        let channel = channel().await;
        let connections = Connections::new(1, Duration::from_secs(60));
        let member = connections.join(None).unwrap();
        // There is no room for a frame, as if the client did not read.
        let (frames, mut unread) = mpsc::channel(1);
        frames.send(Vec::new()).await.unwrap();
        let received = stream::iter([Received::Broken(Error::new(ErrorKind::InvalidRequest, "wrong"))])
            .chain(stream::pending());
        let mut answering =
            pin!(answer_all(&channel, Some(&member), received, std::future::pending(), frames, |frame| {
                frame.payload
            }));
        assert!(futures::poll!(&mut answering).is_pending());
        let _other = connections.join(None).unwrap();
        answering.await;
        assert_eq!(unread.try_recv(), Ok(Vec::new()));
    }
}
