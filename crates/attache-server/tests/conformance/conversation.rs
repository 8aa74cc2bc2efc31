//! Several requests over one connection, whose responses arrive interleaved.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::wire::{Got, Wire, soon};

/// A connection, and the frames that arrived while another response was read.
pub(super) struct Conversation<'a> {
    wire: &'a mut dyn Wire,
    unread: HashMap<String, VecDeque<Got>>,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(wire: &'a mut dyn Wire) -> Self {
        Self { wire, unread: HashMap::new() }
    }

    pub(super) async fn send(&mut self, request: Value) {
        soon(self.wire.send(request)).await;
    }

    /// The next frame of the response to a request.
    async fn next(&mut self, id: &str) -> Got {
        loop {
            if let Some(got) = self.unread.get_mut(id).and_then(VecDeque::pop_front) {
                return got;
            }
            let got = soon(self.wire.next()).await.expect("the connection stays open");
            let of = got.payload["id"].as_str().unwrap_or_else(|| panic!("a frame of no request: {got:?}"));
            self.unread.entry(of.to_owned()).or_default().push_back(got);
        }
    }

    /// The rest of a response. The frame that only ends a stream is left out.
    pub(super) async fn rest(&mut self, id: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let got = self.next(id).await;
            let last = got.last;
            if !got.is_end() {
                frames.push(got.payload);
            }
            if last {
                assert!(self.unread.get(id).is_none_or(VecDeque::is_empty), "frames after the last one");
                return frames;
            }
        }
    }

    /// The frames of a stream up to the first one that has a text.
    pub(super) async fn until(&mut self, id: &str, text: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let got = self.next(id).await;
            assert!(!got.last, "the stream ended before `{text}`: {got:?} after {frames:?}");
            let is_found = got.payload.to_string().contains(text);
            frames.push(got.payload);
            if is_found {
                return frames;
            }
        }
    }
}
