//! Frames on their way to one connection.
//!
//! Whoever has something for a connection puts it here and goes on; the connection writes what has gathered in one go. What may
//! wait is limited, in frames and in bytes, so that a reader that does not read costs a known amount of memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// Why a frame was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Too much is waiting.
    Full,
    /// Nothing will be written any more.
    Closed,
    /// It is larger than the other side takes.
    TooLarge {
        /// How many bytes it takes.
        limit: usize,
    },
}

pub(super) struct Outbox {
    queue: Mutex<Queue>,
    /// There is something to write.
    filled: Notify,
    /// There is room again.
    drained: Notify,
    max_bytes: usize,
    max_frames: usize,
    /// The largest frame that the other side takes.
    largest: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    frames: Vec<Utf8Bytes>,
    /// Bytes and frames that wait or are being written.
    load: Load,
    closed: bool,
}

/// Some bytes in some frames.
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

    /// Takes no frames larger than this.
    pub(super) fn limit_frames(&self, largest: usize) {
        self.largest.store(largest, Ordering::Relaxed);
    }

    /// Puts a frame at the end.
    pub(super) fn push(&self, frame: String) -> Result<(), Refused> {
        let limit = self.largest.load(Ordering::Relaxed);
        if frame.len() > limit {
            return Err(Refused::TooLarge { limit });
        }
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(Refused::Closed);
        }
        let Load { bytes, frames } = queue.load;
        if frames > 0 && (frames >= self.max_frames || bytes + frame.len() > self.max_bytes) {
            return Err(Refused::Full);
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

    /// Takes all that waits, as soon as something does. It counts until it is [`written`](Self::written).
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

    /// Takes no more frames.
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
    fn what_waits_is_limited_but_one_frame_always_fits() {
        let outbox = Outbox::new(8, 2);
        assert_eq!(outbox.push("longer than eight bytes".into()), Ok(()));
        assert_eq!(outbox.push("x".into()), Err(Refused::Full));
    }

    #[tokio::test]
    async fn what_was_taken_counts_until_it_is_written() {
        let outbox = Outbox::new(100, 1);
        outbox.push("a".into()).unwrap();
        let mut frames = Vec::new();
        let load = outbox.take(&mut frames).await;
        assert_eq!(outbox.push("b".into()), Err(Refused::Full));
        outbox.written(load);
        assert_eq!(outbox.push("b".into()), Ok(()));
    }
}
