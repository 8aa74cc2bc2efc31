//! Tails: reading the log of a task while it grows.
//!
//! Events come from memory if they are there, otherwise from the file. Both have only durable events. Each reader continues after the
//! last event that it got, so it misses no event and gets none twice.

use std::sync::Arc;

use attache_core::{Seq, Snapshot, StoreError, TailItem};
use attache_protocol::TaskId;
use futures::stream::{self, BoxStream, StreamExt};

use super::live::{After, LiveTask};
use super::read::{self, Loaded};
use super::{Inner, Location};

struct Tail {
    inner: Arc<Inner>,
    id: TaskId,
    after: Seq,
    source: Source,
}

enum Source {
    Unknown,
    Live(Arc<LiveTask>),
    /// The task has ended. `end` is its last event.
    Ended {
        row: i64,
        end: Seq,
    },
    Over,
}

pub(super) fn tail(
    inner: Arc<Inner>,
    id: TaskId,
    after: Seq,
) -> BoxStream<'static, Result<TailItem, StoreError>> {
    let tail = Tail { inner, id, after, source: Source::Unknown };
    stream::unfold(tail, async |mut tail| {
        let item = tail.next().await.transpose()?;
        match &item {
            Ok(TailItem::Entries(entries)) => {
                tail.after = entries.last().map_or(tail.after, |entry| entry.seq);
            }
            Ok(TailItem::Reset(snapshot)) => tail.after = snapshot.seq,
            Err(_) => tail.source = Source::Over,
        }
        Some((item, tail))
    })
    .boxed()
}

impl Tail {
    async fn next(&mut self) -> Result<Option<TailItem>, StoreError> {
        loop {
            match &self.source {
                Source::Over => return Ok(None),
                Source::Unknown => {
                    self.source = match self.inner.locate(&self.id).await? {
                        Location::Missing => Source::Over,
                        Location::Live(live) => Source::Live(live),
                        Location::Ended(found) => {
                            Source::Ended { row: found.row, end: found.end.unwrap_or(Seq::START) }
                        }
                    }
                }
                Source::Ended { end, .. } if self.after >= *end => return Ok(None),
                Source::Ended { row, .. } => return self.read_file(*row).await,
                Source::Live(live) => {
                    let live = live.clone();
                    // Register before the check, so that an append between check and wait is not missed.
                    let mut grown = std::pin::pin!(live.grown.notified());
                    grown.as_mut().enable();
                    match live.after(self.after) {
                        After::Entries(entries) => return Ok(Some(TailItem::Entries(entries))),
                        After::NotInMemory => return self.read_file(live.row).await,
                        After::End => return Ok(None),
                        After::Wait => grown.await,
                    }
                }
            }
        }
    }

    async fn read_file(&self, row: i64) -> Result<Option<TailItem>, StoreError> {
        let (id, after) = (self.id.clone(), self.after);
        self.inner
            .read_blocking(move |_, db| {
                let db = db.unchecked_transaction()?;
                if let Some(entries) = read::log_after(&db, row, &id, after, read::READ_BYTES)? {
                    return Ok(Some(TailItem::Entries(entries)));
                }
                // Compacting has deleted the events. The reader gets the task instead.
                let Some(found) = read::find(&db, &id)? else { return Ok(None) };
                if found.end.is_none() {
                    let replayed = read::replay(&db, row, &id)?;
                    return Ok(Some(TailItem::Reset(Snapshot::live(replayed.seq, replayed.task))));
                }
                Ok(match read::load(&db, found.owner, &id)? {
                    Loaded::Ended(snapshot) => Some(TailItem::Reset(snapshot)),
                    Loaded::Live | Loaded::Nothing => None,
                })
            })
            .await
    }
}
