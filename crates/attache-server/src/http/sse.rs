//! Server-sent events. The id of each is the number of its event. Events that are ready together share one write.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use attache_core::StreamItem;
use attache_protocol::Error;
use bytes::Bytes;
use futures::Stream;
use tokio::time::{Instant, Sleep};

use crate::dispatch::EventEncoder;

/// How much is written at once to a reader that is far behind.
const MAX_WRITE: usize = 64 * 1024;

/// The body of an event stream.
pub(crate) struct SseBody {
    encoder: EventEncoder,
    waiting: VecDeque<StreamItem>,
    heartbeat: Duration,
    next_heartbeat: Pin<Box<Sleep>>,
    is_over: bool,
}

impl SseBody {
    pub(crate) fn new(encoder: EventEncoder, heartbeat: Duration) -> Self {
        let next_heartbeat = Box::pin(tokio::time::sleep(heartbeat));
        Self { encoder, waiting: VecDeque::new(), heartbeat, next_heartbeat, is_over: false }
    }

    pub(crate) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.waiting.is_empty() && !self.is_over {
            match Pin::new(&mut self.encoder.events).poll_next(cx) {
                Poll::Ready(Some(Ok(items))) => self.waiting.extend(items),
                Poll::Ready(Some(Err(error))) => {
                    self.is_over = true;
                    return Poll::Ready(Some(self.write_error(&error)));
                }
                Poll::Ready(None) => self.is_over = true,
                Poll::Pending => {
                    if self.next_heartbeat.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    self.schedule_heartbeat();
                    // Polled once more, so that the next heartbeat wakes this task too.
                    let _ = self.next_heartbeat.as_mut().poll(cx);
                    // No empty line follows: some clients take it for an event without data, and fail to parse that.
                    return Poll::Ready(Some(Bytes::from_static(b": still here\n")));
                }
            }
        }
        if self.waiting.is_empty() {
            return Poll::Ready(None);
        }
        let encoder = &mut self.encoder;
        let out = take(&mut self.waiting, |item, out| write(encoder, item, out));
        self.schedule_heartbeat();
        Poll::Ready(Some(out.into()))
    }

    fn schedule_heartbeat(&mut self) {
        self.next_heartbeat.as_mut().reset(Instant::now() + self.heartbeat);
    }

    fn write_error(&self, error: &Error) -> Bytes {
        let mut out = b"event: error\ndata: ".to_vec();
        out.extend_from_slice(&self.encoder.error(error));
        out.extend_from_slice(b"\n\n");
        out.into()
    }
}

/// Writes items that wait, until there is enough for one write.
fn take<T>(waiting: &mut VecDeque<T>, mut write: impl FnMut(&T, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    while out.len() < MAX_WRITE
        && let Some(item) = waiting.pop_front()
    {
        write(&item, &mut out);
    }
    out
}

fn write(encoder: &mut EventEncoder, item: &StreamItem, out: &mut Vec<u8>) {
    if let Some(seq) = item.seq() {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(itoa::Buffer::new().format(seq.0).as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    encoder.write(item, out);
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_wait_are_written_up_to_64_kib_at_once() {
        assert_eq!(MAX_WRITE, 64 * 1024);
        let written = |sizes: &[usize]| {
            let mut waiting: VecDeque<usize> = sizes.iter().copied().collect();
            let out = take(&mut waiting, |size, out| out.resize(out.len() + size, b'x'));
            (out.len(), waiting.len())
        };
        assert_eq!(written(&[64 * 1024 - 1, 1, 1]), (64 * 1024, 1));
        assert_eq!(written(&[64 * 1024, 1]), (64 * 1024, 1));
        assert_eq!(written(&[100 * 1024, 1]), (100 * 1024, 1));
        assert_eq!(written(&[1; 100]), (100, 0));
    }
}
