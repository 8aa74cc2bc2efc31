//! The queue of frames for one connection.
//!
//! A sender adds a frame and does not wait. The connection writes all queued frames in one batch. The queue is limited in frames
//! and in bytes, so a peer that does not read costs a known amount of memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// Why a frame was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PushError {
    /// The queue is full.
    Full,
    /// The connection is closed.
    Closed,
    /// The frame is larger than the peer accepts.
    TooLarge {
        /// The largest frame that the peer accepts, in bytes.
        limit: usize,
    },
}

pub(super) struct Outbox {
    queue: Mutex<Queue>,
    /// Signals that there are frames to write.
    filled: Notify,
    /// Signals that frames were written.
    drained: Notify,
    max_bytes: usize,
    max_frames: usize,
    /// The largest frame that the peer accepts.
    largest: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    frames: Vec<Utf8Bytes>,
    /// The frames that are queued or being written.
    load: Load,
    closed: bool,
}

/// A number of frames and their bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    bytes: usize,
    frames: usize,
}

impl Outbox {
    pub(super) fn new(max_bytes: usize, max_frames: usize) -> Self {
        let (filled, drained) = (Notify::new(), Notify::new());
        let largest = AtomicUsize::new(usize::MAX);
        Self { queue: Mutex::default(), filled, drained, max_bytes, max_frames, largest }
    }

    /// Sets the size of the largest frame that is accepted.
    pub(super) fn limit_frames(&self, largest: usize) {
        self.largest.store(largest, Ordering::Relaxed);
    }

    /// Adds a frame to the end of the queue.
    pub(super) fn push(&self, frame: String) -> Result<(), PushError> {
        let limit = self.largest.load(Ordering::Relaxed);
        if frame.len() > limit {
            return Err(PushError::TooLarge { limit });
        }
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(PushError::Closed);
        }
        let Load { bytes, frames } = queue.load;
        if frames > 0 && (frames >= self.max_frames || bytes + frame.len() > self.max_bytes) {
            return Err(PushError::Full);
        }
        queue.load = Load { bytes: bytes + frame.len(), frames: frames + 1 };
        let first = queue.frames.is_empty();
        queue.frames.push(frame.into());
        drop(queue);
        if first {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Takes all queued frames, as soon as there is one. They count against the limits until [`written`](Self::written) is
    /// called.
    pub(super) async fn take(&self, frames: &mut Vec<Utf8Bytes>) -> Load {
        loop {
            {
                let mut queue = self.queue.lock();
                if !queue.frames.is_empty() {
                    std::mem::swap(&mut queue.frames, frames);
                    return Load {
                        bytes: frames.iter().map(|frame| frame.len()).sum(),
                        frames: frames.len(),
                    };
                }
            }
            self.filled.notified().await;
        }
    }

    pub(super) fn written(&self, load: Load) {
        let mut queue = self.queue.lock();
        queue.load.bytes = queue.load.bytes.saturating_sub(load.bytes);
        queue.load.frames = queue.load.frames.saturating_sub(load.frames);
        drop(queue);
        self.drained.notify_waiters();
    }

    /// Waits until the queue is at most half full.
    pub(super) async fn room(&self) {
        loop {
            let drained = self.drained.notified();
            if self.is_roomy() {
                return;
            }
            drained.await;
        }
    }

    fn is_roomy(&self) -> bool {
        let load = self.queue.lock().load;
        load.bytes <= self.max_bytes / 2 && load.frames <= self.max_frames / 2
    }

    /// Closes the queue. It accepts no more frames.
    pub(super) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.frames = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_limited_but_one_frame_always_fits() {
        let outbox = Outbox::new(8, 2);
        assert_eq!(outbox.push("longer than eight bytes".into()), Ok(()));
        assert_eq!(outbox.push("x".into()), Err(PushError::Full));
    }

    #[tokio::test]
    async fn taken_frames_count_until_they_are_written() {
        let outbox = Outbox::new(100, 1);
        outbox.push("a".into()).unwrap();
        let mut frames = Vec::new();
        let load = outbox.take(&mut frames).await;
        assert_eq!(outbox.push("b".into()), Err(PushError::Full));
        outbox.written(load);
        assert_eq!(outbox.push("b".into()), Ok(()));
    }
}
