//! Frames of one connection that wait to be written. Their number and their size are bounded, so a client that does not read costs little.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::exchange::Frame;

/// How many frames may wait to be written.
const MAX_FRAMES: usize = 64;

/// How many KiB they may have together, unless one frame has more.
const MAX_KIB: usize = 256;

/// A frame that waits to be written, as the connection carries it.
pub(super) struct Unwritten<F> {
    pub(super) frame: F,
    /// Nothing for a frame that is not part of a response.
    _memory: Option<OwnedSemaphorePermit>,
}

/// Where frames wait to be written.
pub(super) struct Outgoing<F> {
    frames: mpsc::Sender<Unwritten<F>>,
    memory: Arc<Semaphore>,
    encode: fn(Frame) -> F,
}

impl<F> Clone for Outgoing<F> {
    fn clone(&self) -> Self {
        Self { frames: self.frames.clone(), memory: self.memory.clone(), encode: self.encode }
    }
}

/// The frames of one connection: where they are handed in, and where they are written from.
pub(super) fn outgoing<F>(encode: fn(Frame) -> F) -> (Outgoing<F>, mpsc::Receiver<Unwritten<F>>) {
    let (frames, unwritten) = mpsc::channel(MAX_FRAMES);
    (Outgoing { frames, memory: Arc::new(Semaphore::new(MAX_KIB)), encode }, unwritten)
}

/// The connection does not accept frames any more.
pub(super) struct Closed;

impl<F> Outgoing<F> {
    /// Hands a frame in, when there is room for it.
    pub(super) async fn send(&self, frame: Frame) -> Result<(), Closed> {
        // Most frames are small, and their number bounds them.
        let memory = match frame.payload.len() {
            0..1024 => None,
            bytes => {
                let kib = u32::try_from(bytes.div_ceil(1024).min(MAX_KIB)).unwrap_or(u32::MAX);
                Some(self.memory.clone().acquire_many_owned(kib).await.map_err(|_| Closed)?)
            }
        };
        let unwritten = Unwritten { frame: (self.encode)(frame), _memory: memory };
        self.frames.send(unwritten).await.map_err(|_| Closed)
    }

    /// How many frames wait.
    pub(super) fn waiting(&self) -> usize {
        self.frames.max_capacity() - self.frames.capacity()
    }

    /// Hands in frames that are not part of a response, as long as there are responses.
    pub(super) fn others(&self) -> Others<F> {
        Others(self.frames.downgrade())
    }
}

/// Hands in frames that are not part of a response.
pub(super) struct Others<F>(mpsc::WeakSender<Unwritten<F>>);

impl<F> Others<F> {
    /// Hands a frame in, if there is room for it now.
    pub(super) fn try_send(&self, frame: F) {
        if let Some(frames) = self.0.upgrade() {
            // A client that does not read gets no such frame.
            let _ = frames.try_send(Unwritten { frame, _memory: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::exchange::FrameKind;
    use super::*;

    fn frame(size: usize) -> Frame {
        Frame::new(vec![b'x'; size], FrameKind::Event)
    }

    /// Hands in frames of a size until one has to wait.
    fn fill(outgoing: &Outgoing<Vec<u8>>, size: usize) -> usize {
        (0..).take_while(|_| futures::FutureExt::now_or_never(outgoing.send(frame(size))).is_some()).count()
    }

    #[test]
    fn frames_that_nobody_reads_have_a_bounded_number_and_size() {
        assert_eq!((MAX_FRAMES, MAX_KIB), (64, 256));
        let kib = 1024;
        let half = 128 * kib;
        let counts =
            [(10, 64), (4 * kib, 64), (4 * kib + 1, 51), (half, 2), (half + 1, 1), (10 * kib * kib, 1)];
        for (size, count) in counts {
            let (outgoing, mut unwritten) = outgoing(|frame| frame.payload);
            assert_eq!(fill(&outgoing, size), count, "{size}");
            assert_eq!(outgoing.waiting(), count);
            // One that is written makes room for another one.
            drop(unwritten.try_recv());
            assert_eq!(fill(&outgoing, size), 1, "{size}");
        }
    }
}
