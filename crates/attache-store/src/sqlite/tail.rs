//! Following a log.
//!
//! Events come from memory while they are at hand there, and from the file otherwise. Both are only ever read up to what has
//! been written, and each reader goes on right after the last event it got, so nothing is missed and nothing comes twice.

use std::sync::Arc;

use attache_core::{Seq, Snapshot, StoreError, TailItem};
use attache_protocol::TaskId;
use futures::stream::{self, BoxStream, StreamExt};

use super::live::{After, Live};
use super::read::{self, Loaded};
use super::{Inner, Place};

struct Tail {
    inner: Arc<Inner>,
    id: TaskId,
    after: Seq,
    at: At,
}

enum At {
    Unknown,
    Live(Arc<Live>),
    /// The task has ended with this event.
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
    let tail = Tail { inner, id, after, at: At::Unknown };
    stream::unfold(tail, async |mut tail| {
        let item = tail.next().await.transpose()?;
        match &item {
            Ok(TailItem::Entries(entries)) => {
                tail.after = entries.last().map_or(tail.after, |entry| entry.seq);
            }
            Ok(TailItem::Reset(snapshot)) => tail.after = snapshot.seq,
            Err(_) => tail.at = At::Over,
        }
        Some((item, tail))
    })
    .boxed()
}

impl Tail {
    async fn next(&mut self) -> Result<Option<TailItem>, StoreError> {
        loop {
            match &self.at {
                At::Over => return Ok(None),
                At::Unknown => {
                    self.at = match self.inner.locate(&self.id).await? {
                        Place::Nowhere => At::Over,
                        Place::Live(live) => At::Live(live),
                        Place::Ended(found) => {
                            At::Ended { row: found.row, end: found.end.unwrap_or(Seq::START) }
                        }
                    }
                }
                At::Ended { end, .. } if self.after >= *end => return Ok(None),
                At::Ended { row, .. } => return self.read_file(*row).await,
                At::Live(live) => {
                    let live = live.clone();
                    // Register first, look, then sleep: an append in between is not missed.
                    let mut grown = std::pin::pin!(live.grown.notified());
                    grown.as_mut().enable();
                    match live.after(self.after) {
                        After::Entries(entries) => return Ok(Some(TailItem::Entries(entries))),
                        After::Behind => return self.read_file(live.row).await,
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
            .read_much(move |_, db| {
                let db = db.unchecked_transaction()?;
                if let Some(entries) = read::log_after(&db, row, &id, after, read::STRETCH)? {
                    return Ok(Some(TailItem::Entries(entries)));
                }
                // The events are not kept any more: the task takes their place.
                let Some(found) = read::find(&db, &id)? else { return Ok(None) };
                if found.end.is_none() {
                    let unfolded = read::unfold(&db, row, &id)?;
                    return Ok(Some(TailItem::Reset(Snapshot::live(unfolded.seq, unfolded.task))));
                }
                Ok(match read::load(&db, found.owner, &id)? {
                    Loaded::Ended(snapshot) => Some(TailItem::Reset(snapshot)),
                    Loaded::Live | Loaded::Nothing => None,
                })
            })
            .await
    }
}
