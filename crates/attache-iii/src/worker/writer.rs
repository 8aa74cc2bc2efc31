//! The writing half of a connection: what has gathered goes out in one go.

use std::time::Duration;

use futures::SinkExt;
use futures::stream::SplitSink;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_util::sync::CancellationToken;

use super::socket::{Socket, feed_text};

/// How many calls and answers may wait to be written.
pub(super) const ROOM: usize = 1024;

/// How many of them go out in one go.
const BATCH: usize = 128;

/// Why writing ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("it does not read what it is sent")]
    Stuck,
    #[error(transparent)]
    WebSocket(#[from] WsError),
}

/// How writing ended: without an error where that was wanted.
pub(super) type Written = Result<(), WriteError>;

/// What is to be written.
pub(super) struct Queues {
    pub(super) frames: mpsc::Receiver<String>,
    pub(super) notes: mpsc::UnboundedReceiver<String>,
    /// Set when the worker leaves: what has gathered is written, then the connection is closed.
    pub(super) leave: CancellationToken,
}

/// Writes until told to leave.
pub(super) async fn write(
    mut sink: SplitSink<Socket, Frame>,
    mut queues: Queues,
    ping_interval: Duration,
    stuck_after: Duration,
) -> Written {
    let ping_interval = ping_interval.max(Duration::from_millis(1));
    let mut ping = tokio::time::interval_at(Instant::now() + ping_interval, ping_interval);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let mut leaving = false;
        let mut pinging = false;
        tokio::select! {
            biased;
            _ = ping.tick() => pinging = true,
            Some(note) = queues.notes.recv() => batch.push(note),
            () = queues.leave.cancelled() => leaving = true,
            Some(frame) = queues.frames.recv() => batch.push(frame),
        }
        gather(&mut queues, &mut batch, leaving);
        let written = async {
            if pinging {
                sink.feed(Frame::Ping(bytes::Bytes::new())).await?;
            }
            for text in batch.drain(..) {
                feed_text(&mut sink, text).await?;
            }
            if leaving { sink.close().await } else { sink.flush().await }
        };
        tokio::time::timeout(stuck_after, written).await.map_err(|_| WriteError::Stuck)??;
        if leaving {
            return Ok(());
        }
    }
}

/// Adds what else is there: everything, if it is the last time.
fn gather(queues: &mut Queues, batch: &mut Vec<String>, everything: bool) {
    while let Ok(note) = queues.notes.try_recv() {
        batch.push(note);
    }
    while everything || batch.len() < BATCH {
        let Ok(frame) = queues.frames.try_recv() else { return };
        batch.push(frame);
    }
}
