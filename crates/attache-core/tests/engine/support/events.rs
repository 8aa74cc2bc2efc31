//! Streams, event by event.

use std::task::Poll;

use attache_core::{EventStream, Reply, StreamItem, View};
use attache_protocol::{Error, StreamResponse, Task, TaskState};
use futures::StreamExt;

use super::{same_json, settle_down, soon};

pub(crate) fn events(reply: Reply) -> Result<Events, Error> {
    let Reply::Events(stream, view) = reply else { panic!("a stream is answered with events") };
    Ok(Events { stream, view, ready: Vec::new().into_iter() })
}

/// An event with its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) seq: Option<u64>,
    pub(crate) what: StreamResponse,
}

impl Event {
    /// The state that the event sets.
    pub(crate) fn state(&self) -> Option<TaskState> {
        match &self.what {
            StreamResponse::Task(task) => Some(task.status.state),
            StreamResponse::StatusUpdate(update) => Some(update.status.state),
            StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => None,
        }
    }

    pub(crate) fn task(&self) -> &Task {
        let StreamResponse::Task(task) = &self.what else { panic!("expected a task, got {:?}", self.what) };
        task
    }
}

/// A stream, event by event.
pub(crate) struct Events {
    stream: EventStream,
    view: View,
    ready: std::vec::IntoIter<Event>,
}

impl Events {
    /// The next event, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.next() {
                return Some(event);
            }
            let items = soon(self.stream.next()).await?.expect("events");
            self.take(items);
        }
    }

    /// The error with which the stream ends.
    pub(crate) async fn error(mut self) -> Error {
        loop {
            if let Err(error) = soon(self.stream.next()).await.expect("the stream breaks before it ends") {
                return error;
            }
        }
    }

    fn take(&mut self, items: Vec<StreamItem>) {
        let shown = items.into_iter().map(|item| {
            let what = item.to_response(self.view).expect("only what streams show");
            let mut json = Vec::new();
            item.write(self.view, &mut json);
            same_json(&what, &json);
            Event { seq: item.seq().map(|seq| seq.0), what }
        });
        self.ready = shown.collect::<Vec<_>>().into_iter();
    }

    /// All events so far.
    pub(crate) async fn so_far(&mut self) -> Vec<Event> {
        let mut all: Vec<_> = self.ready.by_ref().collect();
        settle_down().await;
        while let Poll::Ready(Some(items)) = futures::poll!(self.stream.next()) {
            self.take(items.expect("events"));
            all.extend(self.ready.by_ref());
        }
        all
    }

    /// All events up to the end of the stream.
    pub(crate) async fn rest(mut self) -> Vec<Event> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }

    /// Reads up to the event that sets this state.
    pub(crate) async fn until(&mut self, state: TaskState) -> Event {
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream ended before {state}"));
            if event.state() == Some(state) {
                return event;
            }
        }
    }
}

/// The states that the events set.
pub(crate) fn states(events: &[Event]) -> Vec<TaskState> {
    events.iter().filter_map(Event::state).collect()
}
