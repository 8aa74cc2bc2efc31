//! The events of a task as a reader follows them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use attache_protocol::{Error, Message, StreamResponse, TaskState};
use futures::stream::{self, BoxStream, Stream, StreamExt};

use crate::event::write_json;
use crate::service::{Inner, internal};
use crate::shared::Shared;
use crate::{Entry, Permit, Seq, Snapshot, TailItem, TaskEvent, View};

/// One event of a stream.
#[derive(Debug, Clone)]
pub enum StreamItem {
    /// The task as it is now.
    Snapshot(Snapshot),
    /// The next event of the log.
    Entry(Arc<Entry>),
    /// A direct answer; the only event of its stream.
    Message(Arc<Message>),
}

impl StreamItem {
    /// The position in the log that the reader has reached with this event.
    pub fn seq(&self) -> Option<Seq> {
        match self {
            Self::Snapshot(snapshot) => Some(snapshot.seq),
            Self::Entry(entry) => Some(entry.seq),
            Self::Message(_) => None,
        }
    }

    fn state(&self) -> Option<TaskState> {
        match self {
            Self::Snapshot(snapshot) => Some(snapshot.state),
            Self::Entry(entry) => entry.event.state(),
            Self::Message(_) => None,
        }
    }

    /// Writes the event as JSON. Bytes that other readers need too are made only once.
    pub fn write(&self, view: View, out: &mut Vec<u8>) {
        match self {
            Self::Snapshot(snapshot) => {
                out.extend_from_slice(b"{\"task\":");
                snapshot.write(view, out);
                out.push(b'}');
            }
            Self::Message(message) => {
                out.extend_from_slice(b"{\"message\":");
                write_json(out, &**message);
                out.push(b'}');
            }
            Self::Entry(entry) if view.generation || view.history.is_some() => {
                write_json(
                    out,
                    &self.to_response(view).unwrap_or(StreamResponse::Message(Message::default())),
                );
                debug_assert!(entry.event.to_stream().is_some());
            }
            Self::Entry(entry) => out.extend_from_slice(entry.json()),
        }
    }

    /// The event as a value; nothing for what streams do not show.
    pub fn to_response(&self, view: View) -> Option<StreamResponse> {
        let mut response = match self {
            Self::Snapshot(snapshot) => {
                return Some(StreamResponse::Task(snapshot.viewed(view).into_owned()));
            }
            Self::Message(message) => return Some(StreamResponse::Message((**message).clone())),
            Self::Entry(entry) => entry.event.to_stream()?,
        };
        let generation = self.seq().filter(|_| view.generation).map(|seq| seq.0);
        match &mut response {
            StreamResponse::Task(task) => {
                if let Some(limit) = view.history {
                    task.history.drain(..task.history.len().saturating_sub(limit));
                }
                task.generation = generation;
            }
            StreamResponse::StatusUpdate(update) => update.generation = generation,
            StreamResponse::ArtifactUpdate(update) => update.generation = generation,
            StreamResponse::Message(_) => {}
        }
        Some(response)
    }
}

/// When a stream is over, besides when the task is.
pub(crate) enum Until {
    Ended,
    EndedOrAsking,
    /// What was asked before the turn began does not answer its message.
    EndedOrAskingIn(Arc<Shared>),
}

/// Events in batches: whatever has happened since the reader last looked.
///
/// A reader that is slow slows nobody: it reads from the log, at its own pace.
pub struct EventStream {
    events: BoxStream<'static, Result<Vec<StreamItem>, Error>>,
    /// Given up when nobody reads any more.
    permit: Option<Permit>,
}

impl EventStream {
    fn new(events: impl Stream<Item = Result<Vec<StreamItem>, Error>> + Send + 'static) -> Self {
        Self { events: events.boxed(), permit: None }
    }

    /// The same stream, with a place that is taken until it ends or is dropped.
    pub fn holding(self, permit: Permit) -> Self {
        Self { permit: Some(permit), ..self }
    }

    /// A stream of one direct answer.
    pub(crate) fn message(message: Message) -> Self {
        Self::new(stream::iter([Ok(vec![StreamItem::Message(Arc::new(message))])]))
    }

    /// A stream that breaks off at once.
    pub(crate) fn broken(error: Error) -> Self {
        Self::new(stream::iter([Err(error)]))
    }

    /// A stream that is open before it is known what comes of it.
    pub(crate) fn later(events: impl Future<Output = Self> + Send + 'static) -> Self {
        Self::new(stream::once(events).flatten())
    }

    /// What happens to a task: the snapshot if there is one, then the log after it or after `after`.
    pub(crate) fn follow(
        service: Arc<Inner>,
        first: Option<Snapshot>,
        tail: BoxStream<'static, Result<TailItem, crate::StoreError>>,
        until: Until,
    ) -> Self {
        let over = first.as_ref().is_some_and(|snapshot| snapshot.state.is_terminal());
        let first = stream::iter(first.map(|snapshot| Ok(vec![StreamItem::Snapshot(snapshot)])));
        // The service is kept alive as long as someone reads.
        let state = (!over).then_some((service, tail, until));
        let rest = stream::unfold(state, |state| async {
            let (service, mut tail, until) = state?;
            loop {
                let items = match tail.next().await? {
                    Err(error) => return Some((Err(internal(&error)), None)),
                    Ok(TailItem::Reset(snapshot)) => vec![StreamItem::Snapshot(snapshot)],
                    Ok(TailItem::Entries(entries)) => entries.into_iter().map(StreamItem::Entry).collect(),
                };
                let (shown, over) = cut(items, &until);
                if over {
                    return Some((Ok(shown), None));
                }
                if !shown.is_empty() {
                    return Some((Ok(shown), Some((service, tail, until))));
                }
            }
        });
        Self::new(first.chain(rest))
    }
}

/// Leaves out what streams do not show and what comes after the end.
fn cut(items: Vec<StreamItem>, until: &Until) -> (Vec<StreamItem>, bool) {
    let ends = |item: &StreamItem| {
        let asks = item.state() == Some(TaskState::InputRequired);
        let answers = match until {
            Until::Ended => false,
            Until::EndedOrAsking => asks,
            Until::EndedOrAskingIn(turn) => {
                asks && turn.began.get().is_some_and(|began| item.seq() > Some(*began))
            }
        };
        answers || item.state().is_some_and(TaskState::is_terminal)
    };
    let mut shown = Vec::with_capacity(items.len());
    for item in items {
        let over = ends(&item);
        if !matches!(&item, StreamItem::Entry(entry) if matches!(entry.event, TaskEvent::Message(_))) {
            shown.push(item);
        }
        if over {
            return (shown, true);
        }
    }
    (shown, false)
}

impl Stream for EventStream {
    type Item = Result<Vec<StreamItem>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.events.poll_next_unpin(cx);
        if matches!(next, Poll::Ready(None)) {
            self.permit = None;
        }
        next
    }
}
