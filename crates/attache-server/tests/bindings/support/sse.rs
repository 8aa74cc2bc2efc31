//! A reader of server-sent events that looks at every byte.

use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, Response};
use serde_json::Value;

use super::soon;

/// An open stream.
pub(crate) struct Sse {
    pub(crate) headers: HeaderMap,
    response: Response,
    buffer: Vec<u8>,
}

/// What stands between two empty lines of a stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Frame {
    pub(crate) id: Option<u64>,
    pub(crate) event: Option<String>,
    pub(crate) data: Vec<String>,
    pub(crate) comment: Option<String>,
}

impl Sse {
    /// Makes a request whose answer is a stream.
    pub(crate) async fn open(request: RequestBuilder) -> Self {
        let response = soon(request.send()).await.unwrap();
        let headers = response.headers().clone();
        if headers["content-type"] != "text/event-stream" {
            panic!("{} {}", response.status(), response.text().await.unwrap());
        }
        assert_eq!(response.status(), 200);
        Self { headers, response, buffer: Vec::new() }
    }

    /// The next frame, be it only a comment. Nothing at the end of the stream.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        loop {
            // A comment is a line by itself.
            if self.buffer.starts_with(b":")
                && let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n')
            {
                let text: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(Frame::read(std::str::from_utf8(&text[..end]).expect("UTF-8")));
            }
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\n\n") {
                let text: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Some(Frame::read(std::str::from_utf8(&text[..end]).expect("UTF-8")));
            }
            match soon(self.response.chunk()).await.expect("the stream does not break off") {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None => {
                    assert!(self.buffer.is_empty(), "the last frame is whole");
                    return None;
                }
            }
        }
    }

    /// The frames of a stream that was read to its end.
    pub(crate) fn frames(text: &str) -> Vec<Frame> {
        text.split_terminator("\n\n").map(Frame::read).filter(|frame| !frame.data.is_empty()).collect()
    }

    /// The next frame with data.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let frame = self.frame().await?;
            if !frame.data.is_empty() {
                return Some(frame);
            }
        }
    }

    /// The next event: what the frame carries, without the envelope of JSON-RPC.
    pub(crate) async fn event(&mut self) -> Value {
        self.next().await.expect("another event").event()
    }

    /// All frames with data until the end of the stream.
    pub(crate) async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}

impl Frame {
    fn read(text: &str) -> Self {
        let mut frame = Self::default();
        for line in text.split('\n') {
            assert!(!line.contains('\r'), "lines end with a line feed only: {line:?}");
            match line.split_once(": ").or_else(|| line.split_once(':')) {
                Some(("", comment)) => frame.comment = Some(comment.to_owned()),
                Some(("id", id)) => frame.id = Some(id.parse().expect("a number")),
                Some(("event", event)) => frame.event = Some(event.to_owned()),
                Some(("data", data)) => frame.data.push(data.to_owned()),
                Some(_) | None => panic!("not a field of an event stream: {line:?}"),
            }
        }
        frame
    }

    /// The data, which is one line of JSON.
    pub(crate) fn json(&self) -> Value {
        let [line] = self.data.as_slice() else { panic!("one line of data: {self:?}") };
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The event, without the envelope of JSON-RPC.
    pub(crate) fn event(&self) -> Value {
        let mut json = self.json();
        if json.get("jsonrpc").is_some() { json["result"].take() } else { json }
    }
}
