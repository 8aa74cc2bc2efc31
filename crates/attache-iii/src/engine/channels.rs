//! Channels: what one side writes, the other reads, past the calls.
//!
//! A channel has two ends. Each is taken once, by a socket or by someone in this process. What waits between them is limited: whoever
//! writes faster than the other reads, waits.

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

/// How many items wait between the ends, unless someone asks for another number.
const BUFFER: usize = 64;
const MAX_BUFFER: usize = 1024;

/// How long an end may stay untaken.
const UNTAKEN: Duration = Duration::from_secs(5 * 60);

/// How long a writer may come too late. Some SDKs connect in the background while their function returns, and take the refusal of
/// a channel for a reason to end the whole worker.
const LATE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Channels {
    open: Mutex<HashMap<String, Arc<Channel>>>,
    gone: Mutex<Gone>,
}

/// The channels that have gone lately, of which a writer may still come.
#[derive(Default)]
struct Gone {
    keys: HashMap<String, Token>,
    /// In the order in which they went.
    since: VecDeque<(Instant, String)>,
}

impl Gone {
    fn add(&mut self, id: String, key: Token) {
        self.keys.insert(id.clone(), key);
        self.since.push_back((Instant::now(), id));
    }

    /// Forgets those that nobody is late for any more.
    fn expire(&mut self) {
        let over = |since: &Instant| since.elapsed() >= LATE;
        while let Some((_, id)) = self.since.pop_front_if(|(since, _)| over(since)) {
            self.keys.remove(&id);
        }
    }
}

struct Channel {
    key: Token,
    owner: Option<Arc<Worker>>,
    since: Instant,
    reader: Mutex<Option<Feed>>,
    writer: Mutex<Option<mpsc::Sender<ChannelItem>>>,
    /// How many ends are done.
    done: AtomicU8,
    /// Nobody is to use it any more.
    over: CancellationToken,
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            owner.channels.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What a reader gets.
pub(super) enum Feed {
    Items(mpsc::Receiver<ChannelItem>),
    Bytes(Bytes),
}

impl Feed {
    pub(super) async fn next(&mut self) -> Option<ChannelItem> {
        const PIECE: usize = 64 * 1024;
        match self {
            Self::Items(items) => items.recv().await,
            Self::Bytes(bytes) if bytes.is_empty() => None,
            Self::Bytes(bytes) => Some(ChannelItem::Bytes(bytes.split_to(bytes.len().min(PIECE)))),
        }
    }
}

/// An end that someone has taken.
pub(super) struct End<T> {
    pub(super) end: T,
    pub(super) over: CancellationToken,
    _seat: Seat,
}

/// Takes note when an end is done; when both are, the channel is forgotten.
struct Seat {
    channels: Arc<Channels>,
    id: String,
    channel: Arc<Channel>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.channel.done.fetch_add(1, Ordering::AcqRel) + 1 >= 2 {
            self.channels.forget(&self.id);
        }
    }
}

/// What someone gets who comes for an end.
pub(super) enum Joined {
    Reader(End<Feed>),
    Writer(End<mpsc::Sender<ChannelItem>>),
    /// Someone else has it.
    Taken,
    /// Nobody reads any more: what is written is dropped.
    Late,
}

impl Channels {
    /// Opens a channel of which others take both ends: its reader and its writer.
    pub(super) fn create(
        &self,
        owner: Option<&Arc<Worker>>,
        buffer: Option<usize>,
        limit: usize,
    ) -> Result<(ChannelRef, ChannelRef), CallError> {
        if let Some(owner) = owner
            && owner.channels.load(Ordering::Relaxed) >= limit
        {
            let text = format!("a worker has at most {limit} channels");
            return Err(CallError::remote("too_many_channels", text));
        }
        let (sender, receiver) = mpsc::channel(buffer.unwrap_or(BUFFER).clamp(1, MAX_BUFFER));
        Ok(self.put(owner, Some(Feed::Items(receiver)), Some(sender)))
    }

    /// Opens a channel that is read in this process.
    pub(super) fn open(&self) -> (ChannelRef, mpsc::Receiver<ChannelItem>) {
        let (sender, receiver) = mpsc::channel(BUFFER);
        let (_, writer) = self.put(None, None, Some(sender));
        (writer, receiver)
    }

    /// Opens a channel that holds some bytes to be read.
    pub(super) fn offer(&self, bytes: Bytes) -> ChannelRef {
        self.put(None, Some(Feed::Bytes(bytes)), None).0
    }

    fn put(
        &self,
        owner: Option<&Arc<Worker>>,
        reader: Option<Feed>,
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
            // An end in this process is as good as done: what it holds tells when it is gone.
            done: AtomicU8::new(u8::from(reader.is_none()) + u8::from(writer.is_none())),
            reader: Mutex::new(reader),
            writer: Mutex::new(writer),
            over: CancellationToken::new(),
        };
        self.open.lock().insert(channel_id.clone(), Arc::new(channel));
        let reader = ChannelRef { channel_id, access_key, direction: Direction::Read };
        let writer = ChannelRef { direction: Direction::Write, ..reader.clone() };
        (reader, writer)
    }

    /// Takes an end. Nothing, if there is no such channel.
    pub(super) fn join(self: &Arc<Self>, id: &str, key: &str, direction: Direction) -> Option<Joined> {
        let channel = self.open.lock().get(id).cloned();
        let Some(channel) = channel else { return self.join_late(id, key, direction) };
        if !channel.key.matches(key) {
            return None;
        }
        let (over, writer_is_useless) = (channel.over.clone(), channel.writer_is_useless());
        let seat = || Seat { channels: self.clone(), id: id.to_owned(), channel: channel.clone() };
        Some(match direction {
            Direction::Read => match channel.reader.lock().take() {
                Some(end) => Joined::Reader(End { end, over, _seat: seat() }),
                None => Joined::Taken,
            },
            Direction::Write if writer_is_useless => Joined::Late,
            Direction::Write => match channel.writer.lock().take() {
                Some(end) => Joined::Writer(End { end, over, _seat: seat() }),
                None => Joined::Taken,
            },
        })
    }

    fn join_late(&self, id: &str, key: &str, direction: Direction) -> Option<Joined> {
        let known = self.gone.lock().keys.get(id).is_some_and(|gone| gone.matches(key));
        (known && direction == Direction::Write).then_some(Joined::Late)
    }

    /// Ends a channel.
    pub(super) fn remove(&self, id: &str) {
        if let Some(channel) = self.forget(id) {
            channel.over.cancel();
        }
    }

    fn forget(&self, id: &str) -> Option<Arc<Channel>> {
        let channel = self.open.lock().remove(id)?;
        // Whoever has written already is not late.
        if channel.writer.lock().is_some() {
            self.bury(id.to_owned(), &channel);
        }
        Some(channel)
    }

    fn bury(&self, id: String, channel: &Channel) {
        let mut gone = self.gone.lock();
        gone.expire();
        gone.add(id, channel.key.clone());
    }

    /// Ends the channels that a worker opened.
    pub(super) fn remove_of(&self, worker: &Worker) {
        self.remove_where(|channel| channel.owner.as_ref().is_some_and(|owner| owner.id == worker.id));
    }

    /// Ends the channels that nobody has come for in time.
    pub(super) fn sweep(&self) {
        self.gone.lock().expire();
        self.remove_where(|channel| {
            let untaken = channel.reader.lock().is_some() || channel.writer.lock().is_some();
            channel.writer_is_useless() || untaken && channel.since.elapsed() >= UNTAKEN
        });
    }

    fn remove_where(&self, which: impl Fn(&Channel) -> bool) {
        // Dropped after the lock.
        let removed: Vec<_> = self.open.lock().extract_if(|_, channel| which(channel)).collect();
        for (id, channel) in removed {
            channel.over.cancel();
            self.bury(id, &channel);
        }
    }
}

impl Channel {
    /// Whether there is a writing end that nobody has taken and nobody will read from.
    fn writer_is_useless(&self) -> bool {
        self.writer.lock().as_ref().is_some_and(mpsc::Sender::is_closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_channel_that_nobody_comes_for_is_forgotten() {
        let channels = Arc::new(Channels::default());
        let (reader, writer) = channels.create(None, None, 1).unwrap();
        let join = |end: &ChannelRef| channels.join(&end.channel_id, &end.access_key, end.direction);
        tokio::time::advance(UNTAKEN - Duration::from_secs(1)).await;
        channels.sweep();
        let Some(Joined::Writer(end)) = join(&writer) else { panic!("the writer's end") };
        tokio::time::advance(Duration::from_secs(1)).await;
        channels.sweep();
        assert!(join(&reader).is_none());
        assert!(end.over.is_cancelled());
    }

    #[tokio::test]
    async fn a_channel_whose_ends_are_done_is_forgotten() {
        let channels = Arc::new(Channels::default());
        let (reader, writer) = channels.create(None, None, 1).unwrap();
        for end in [&writer, &reader] {
            drop(channels.join(&end.channel_id, &end.access_key, end.direction));
        }
        assert!(channels.open.lock().is_empty());
    }
}
