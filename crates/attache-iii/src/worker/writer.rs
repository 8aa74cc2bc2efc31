//! The writing half of a connection. Queued frames are written in batches.

use std::time::Duration;

use futures::SinkExt;
use futures::stream::SplitSink;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_util::sync::CancellationToken;

use super::socket::Socket;
use crate::socket::feed_text;

/// How many calls and results may be queued.
pub(super) const QUEUE_SIZE: usize = 1024;

/// How many of them are written in one batch.
const BATCH: usize = 128;

/// Why writing failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("the engine does not read from the connection")]
    Stuck,
    #[error(transparent)]
    WebSocket(#[from] WsError),
}

/// The result of writing. It is `Ok` after a regular close.
pub(super) type WriteResult = Result<(), WriteError>;

/// The queues to write from.
pub(super) struct Queues {
    pub(super) frames: mpsc::Receiver<String>,
    pub(super) control: mpsc::UnboundedReceiver<String>,
    /// Cancelled when the worker disconnects. The queued frames are written, then the connection is closed.
    pub(super) leave: CancellationToken,
}

/// Writes until `leave` is cancelled.
pub(super) async fn write(
    mut sink: SplitSink<Socket, Frame>,
    mut queues: Queues,
    ping_interval: Duration,
    stuck_after: Duration,
) -> WriteResult {
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
            Some(control_frame) = queues.control.recv() => batch.push(control_frame),
            () = queues.leave.cancelled() => leaving = true,
            Some(frame) = queues.frames.recv() => batch.push(frame),
        }
        fill_batch(&mut queues, &mut batch, leaving);
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

/// Adds queued frames to the batch: all of them if it is the last batch.
fn fill_batch(queues: &mut Queues, batch: &mut Vec<String>, all: bool) {
    while let Ok(control_frame) = queues.control.try_recv() {
        batch.push(control_frame);
    }
    while all || batch.len() < BATCH {
        let Ok(frame) = queues.frames.try_recv() else { return };
        batch.push(frame);
    }
}
