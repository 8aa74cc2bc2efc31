//! Channels: one side writes items, the other side reads them, separately from calls.
//!
//! A channel has two ends. Each end is opened once, by a socket or by code in this process. The number of buffered items is
//! limited: a writer that is faster than the reader waits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::options::Token;
use super::worker::Worker;
use crate::wire::{ChannelRef, Direction};
use crate::{CallError, ChannelItem};

/// How many items a channel buffers by default.
const BUFFER: usize = 64;
const MAX_BUFFER: usize = 1024;

/// How long an end may stay unopened.
const UNOPENED: Duration = Duration::from_secs(5 * 60);

/// How long a writer may still connect after its channel was closed. Some SDKs connect in the background while their function
/// returns. If the engine rejects the channel then, they stop the whole worker.
const LATE_WRITER: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Channels {
    open: Mutex<HashMap<String, Arc<Channel>>>,
    recently_closed: Mutex<RecentlyClosed>,
}

/// Recently closed channels, to which a writer may still connect.
#[derive(Default)]
struct RecentlyClosed {
    keys: HashMap<String, Token>,
    /// In the order in which they were closed.
    since: VecDeque<(Instant, String)>,
}

impl RecentlyClosed {
    fn add(&mut self, id: String, key: Token) {
        self.keys.insert(id.clone(), key);
        self.since.push_back((Instant::now(), id));
    }

    /// Removes the channels to which no writer connects any more.
    fn expire(&mut self) {
        let closed = |since: &Instant| since.elapsed() >= LATE_WRITER;
        while let Some((_, id)) = self.since.pop_front_if(|(since, _)| closed(since)) {
            self.keys.remove(&id);
        }
    }
}

struct Channel {
    key: Token,
    owner: Option<Arc<Worker>>,
    since: Instant,
    reader: Mutex<Option<ReadSource>>,
    writer: Mutex<Option<mpsc::Sender<ChannelItem>>>,
    /// How many ends are finished.
    done: AtomicU8,
    /// Cancelled when the channel is closed.
    closed: CancellationToken,
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            owner.channels.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What a reader reads from.
pub(super) enum ReadSource {
    Items(mpsc::Receiver<ChannelItem>),
    Bytes(Bytes),
}

impl ReadSource {
    pub(super) async fn next(&mut self) -> Option<ChannelItem> {
        const PIECE: usize = 64 * 1024;
        match self {
            Self::Items(items) => items.recv().await,
            Self::Bytes(bytes) if bytes.is_empty() => None,
            Self::Bytes(bytes) => Some(ChannelItem::Bytes(bytes.split_to(bytes.len().min(PIECE)))),
        }
    }
}

/// An open end of a channel.
pub(super) struct End<T> {
    pub(super) end: T,
    pub(super) closed: CancellationToken,
    _guard: EndGuard,
}

/// Counts an end as finished when it is dropped. The channel is removed when both ends are finished.
struct EndGuard {
    channels: Arc<Channels>,
    id: String,
    channel: Arc<Channel>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        if self.channel.done.fetch_add(1, Ordering::AcqRel) + 1 >= 2 {
            self.channels.remove_entry(&self.id);
        }
    }
}

/// The result of opening an end.
pub(super) enum Joined {
    Reader(End<ReadSource>),
    Writer(End<mpsc::Sender<ChannelItem>>),
    /// The end is open elsewhere.
    Taken,
    /// The reader is gone. Written items are dropped.
    Late,
}

impl Channels {
    /// Creates a channel whose ends are both opened by others. Returns the references of reader and writer.
    pub(super) fn create(
        &self,
        owner: Option<&Arc<Worker>>,
        buffer: Option<usize>,
        limit: usize,
    ) -> Result<(ChannelRef, ChannelRef), CallError> {
        if let Some(owner) = owner
            && owner.channels.load(Ordering::Relaxed) >= limit
        {
            let text = format!("a worker may have at most {limit} channels");
            return Err(CallError::remote("too_many_channels", text));
        }
        let (sender, receiver) = mpsc::channel(buffer.unwrap_or(BUFFER).clamp(1, MAX_BUFFER));
        Ok(self.insert(owner, Some(ReadSource::Items(receiver)), Some(sender)))
    }

    /// Creates a channel that this process reads.
    pub(super) fn open(&self) -> (ChannelRef, mpsc::Receiver<ChannelItem>) {
        let (sender, receiver) = mpsc::channel(BUFFER);
        let (_, writer) = self.insert(None, None, Some(sender));
        (writer, receiver)
    }

    /// Creates a channel from which `bytes` can be read.
    pub(super) fn create_with_bytes(&self, bytes: Bytes) -> ChannelRef {
        self.insert(None, Some(ReadSource::Bytes(bytes)), None).0
    }

    fn insert(
        &self,
        owner: Option<&Arc<Worker>>,
        reader: Option<ReadSource>,
        writer: Option<mpsc::Sender<ChannelItem>>,
    ) -> (ChannelRef, ChannelRef) {
        let (channel_id, access_key) = (Uuid::new_v4().to_string(), Uuid::new_v4().simple().to_string());
        if let Some(owner) = owner {
            owner.channels.fetch_add(1, Ordering::Relaxed);
        }
        let channel = Channel {
            key: Token::new(&access_key),
            owner: owner.cloned(),
            since: Instant::now(),
            // An end in this process counts as finished: dropping its half of the queue closes it.
            done: AtomicU8::new(u8::from(reader.is_none()) + u8::from(writer.is_none())),
            reader: Mutex::new(reader),
            writer: Mutex::new(writer),
            closed: CancellationToken::new(),
        };
        self.open.lock().insert(channel_id.clone(), Arc::new(channel));
        let reader = ChannelRef { channel_id, access_key, direction: Direction::Read };
        let writer = ChannelRef { direction: Direction::Write, ..reader.clone() };
        (reader, writer)
    }

    /// Opens an end. Returns `None` if there is no such channel.
    pub(super) fn join(self: &Arc<Self>, id: &str, key: &str, direction: Direction) -> Option<Joined> {
        let channel = self.open.lock().get(id).cloned();
        let Some(channel) = channel else { return self.join_late(id, key, direction) };
        if !channel.key.matches(key) {
            return None;
        }
        let (closed, writer_is_useless) = (channel.closed.clone(), channel.writer_is_useless());
        let guard = || EndGuard { channels: self.clone(), id: id.to_owned(), channel: channel.clone() };
        Some(match direction {
            Direction::Read => match channel.reader.lock().take() {
                Some(end) => Joined::Reader(End { end, closed, _guard: guard() }),
                None => Joined::Taken,
            },
            Direction::Write if writer_is_useless => Joined::Late,
            Direction::Write => match channel.writer.lock().take() {
                Some(end) => Joined::Writer(End { end, closed, _guard: guard() }),
                None => Joined::Taken,
            },
        })
    }

    fn join_late(&self, id: &str, key: &str, direction: Direction) -> Option<Joined> {
        let matches_key = self
            .recently_closed
            .lock()
            .keys
            .get(id)
            .is_some_and(|recently_closed| recently_closed.matches(key));
        (matches_key && direction == Direction::Write).then_some(Joined::Late)
    }

    /// Closes a channel.
    pub(super) fn remove(&self, id: &str) {
        if let Some(channel) = self.remove_entry(id) {
            channel.closed.cancel();
        }
    }

    fn remove_entry(&self, id: &str) -> Option<Arc<Channel>> {
        let channel = self.open.lock().remove(id)?;
        // If the writer was open already, it cannot connect late.
        if channel.writer.lock().is_some() {
            self.remember_closed(id.to_owned(), &channel);
        }
        Some(channel)
    }

    fn remember_closed(&self, id: String, channel: &Channel) {
        let mut recently_closed = self.recently_closed.lock();
        recently_closed.expire();
        recently_closed.add(id, channel.key.clone());
    }

    /// Closes the channels that a worker created.
    pub(super) fn remove_channels_of(&self, worker: &Worker) {
        self.remove_where(|channel| channel.owner.as_ref().is_some_and(|owner| owner.id == worker.id));
    }

    /// Closes the channels whose ends were not opened in time.
    pub(super) fn sweep(&self) {
        self.recently_closed.lock().expire();
        self.remove_where(|channel| {
            let unopened = channel.reader.lock().is_some() || channel.writer.lock().is_some();
            channel.writer_is_useless() || unopened && channel.since.elapsed() >= UNOPENED
        });
    }

    fn remove_where(&self, which: impl Fn(&Channel) -> bool) {
        // Dropped after the lock is released.
        let removed: Vec<_> = self.open.lock().extract_if(|_, channel| which(channel)).collect();
        for (id, channel) in removed {
            channel.closed.cancel();
            self.remember_closed(id, &channel);
        }
    }
}

impl Channel {
    /// Whether the writing end is not open and has no reader any more.
    fn writer_is_useless(&self) -> bool {
        self.writer.lock().as_ref().is_some_and(mpsc::Sender::is_closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_channel_that_is_not_opened_in_time_is_removed() {
        let channels = Arc::new(Channels::default());
        let (reader, writer) = channels.create(None, None, 1).unwrap();
        let join = |end: &ChannelRef| channels.join(&end.channel_id, &end.access_key, end.direction);
        tokio::time::advance(UNOPENED - Duration::from_secs(1)).await;
        channels.sweep();
        let Some(Joined::Writer(end)) = join(&writer) else { panic!("the writer's end") };
        tokio::time::advance(Duration::from_secs(1)).await;
        channels.sweep();
        assert!(join(&reader).is_none());
        assert!(end.closed.is_cancelled());
    }

    #[tokio::test]
    async fn a_channel_whose_ends_are_finished_is_removed() {
        let channels = Arc::new(Channels::default());
        let (reader, writer) = channels.create(None, None, 1).unwrap();
        for end in [&writer, &reader] {
            drop(channels.join(&end.channel_id, &end.access_key, end.direction));
        }
        assert!(channels.open.lock().is_empty());
    }
}
