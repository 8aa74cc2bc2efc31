//! Streams of the events of a task.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use attache_protocol::{Error, Message, StreamResponse, TaskId, TaskState};
use futures::stream::{self, BoxStream, Stream, StreamExt};

use crate::event::write_json;
use crate::report::hide_reports;
use crate::service::{Inner, internal};
use crate::turn_state::TurnState;
use crate::{Entry, Permit, Seq, Snapshot, TailItem, TaskEvent, View};

/// One event of a stream.
#[derive(Debug, Clone)]
pub enum StreamItem {
    /// The current task.
    Snapshot(Snapshot),
    /// The next event of the log.
    Entry(Arc<Entry>),
    /// A direct message. It is the only event of its stream.
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

    /// The task that the event is about. `None` for a direct message.
    pub fn task_id(&self) -> Option<TaskId> {
        match self {
            Self::Snapshot(snapshot) => Some(snapshot.task().id.clone()),
            Self::Entry(entry) => match &entry.event {
                TaskEvent::Created(task) => Some(task.id.clone()),
                TaskEvent::Message(message) => message.task_id.clone(),
                TaskEvent::Status(update) => Some(update.task_id.clone()),
                TaskEvent::Artifact(update) => Some(update.task_id.clone()),
            },
            Self::Message(_) => None,
        }
    }

    /// The state of the task after this event, if the event changes it.
    pub fn state(&self) -> Option<TaskState> {
        match self {
            Self::Snapshot(snapshot) => Some(snapshot.state),
            Self::Entry(entry) => entry.event.state(),
            Self::Message(_) => None,
        }
    }

    /// Writes the event as JSON. The JSON of an entry is encoded once for all readers.
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

    /// The event as a value. `None` for events that are not part of streams.
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

/// When a stream ends.
pub(crate) enum StreamEnd {
    /// When the task has ended.
    TaskEnded,
    /// When the task has ended or asks for input.
    InputRequired,
    /// When the task has ended or this turn asks for input. A question from before the turn does not end the stream, because it is no
    /// answer to the message of the turn.
    InputRequiredIn(Arc<TurnState>),
}

/// Events in batches: all events since the last poll.
///
/// A slow reader does not slow the agent or other readers: each reads from the log at its own pace.
pub struct EventStream {
    events: BoxStream<'static, Result<Vec<StreamItem>, Error>>,
    /// Released at the end of the stream.
    permits: Vec<Permit>,
    hides_reports: bool,
}

impl EventStream {
    fn new(events: impl Stream<Item = Result<Vec<StreamItem>, Error>> + Send + 'static) -> Self {
        Self { events: events.boxed(), permits: Vec::new(), hides_reports: false }
    }

    /// The same stream, with a function that sees every event before its reader.
    pub fn observed(self, mut observe: impl FnMut(&StreamItem) + Send + 'static) -> Self {
        let events = self.events.inspect(move |batch| {
            for item in batch.iter().flatten() {
                observe(item);
            }
        });
        Self { events: events.boxed(), permits: self.permits, hides_reports: self.hides_reports }
    }

    /// The same stream without reports in our namespace, for a reader that has not activated their extension.
    pub(crate) fn without_reports(self) -> Self {
        Self { hides_reports: true, ..self }
    }

    /// The same stream, with each event replaced by what the function makes of it.
    pub(crate) fn mapped(self, mut map: impl FnMut(StreamItem) -> StreamItem + Send + 'static) -> Self {
        let events =
            self.events.map(move |batch| batch.map(|items| items.into_iter().map(&mut map).collect()));
        Self { events: events.boxed(), permits: self.permits, hides_reports: self.hides_reports }
    }

    /// The same stream, which holds permits until it ends or is dropped.
    pub fn holding(self, permits: Vec<Permit>) -> Self {
        Self { permits, ..self }
    }

    /// A stream of one direct message.
    pub(crate) fn message(message: Message) -> Self {
        Self::new(stream::iter([Ok(vec![StreamItem::Message(Arc::new(message))])]))
    }

    /// A stream of one error.
    pub(crate) fn error(error: Error) -> Self {
        Self::new(stream::iter([Err(error)]))
    }

    /// A stream that is open before its events are known.
    pub(crate) fn later(events: impl Future<Output = Self> + Send + 'static) -> Self {
        Self::new(stream::once(events).flatten())
    }

    /// The events of a task: first the snapshot, if given, then `tail`.
    pub(crate) fn follow(
        service: Arc<Inner>,
        first: Option<Snapshot>,
        tail: BoxStream<'static, Result<TailItem, crate::StoreError>>,
        until: StreamEnd,
    ) -> Self {
        let over = first.as_ref().is_some_and(|snapshot| snapshot.state.is_terminal());
        let first = stream::iter(first.map(|snapshot| Ok(vec![StreamItem::Snapshot(snapshot)])));
        // The stream keeps the service alive.
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

/// Removes events that are not part of streams, and events after the end. Returns whether the stream is over.
fn cut(items: Vec<StreamItem>, until: &StreamEnd) -> (Vec<StreamItem>, bool) {
    let ends = |item: &StreamItem| {
        let is_question = item.state() == Some(TaskState::InputRequired);
        let ends_stream = match until {
            StreamEnd::TaskEnded => false,
            StreamEnd::InputRequired => is_question,
            StreamEnd::InputRequiredIn(turn) => {
                is_question && turn.began.get().is_some_and(|began| item.seq() > Some(*began))
            }
        };
        ends_stream || item.state().is_some_and(TaskState::is_terminal)
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
        loop {
            let mut next = ready!(self.events.poll_next_unpin(cx));
            if let Some(Ok(batch)) = &mut next
                && self.hides_reports
            {
                hide_from(batch);
                if batch.is_empty() {
                    continue;
                }
            }
            if next.is_none() {
                self.permits.clear();
            }
            return Poll::Ready(next);
        }
    }
}

/// Removes reports from a batch. Batches without metadata are not touched.
fn hide_from(batch: &mut Vec<StreamItem>) {
    batch.retain_mut(|item| {
        let StreamItem::Entry(entry) = item else { return true };
        match hide_reports(&entry.event) {
            None => false,
            Some(Cow::Borrowed(_)) => true,
            Some(Cow::Owned(event)) => {
                *entry = Arc::new(Entry::new(entry.seq, event));
                true
            }
        }
    });
}
