//! The constant answers of the bare server.
//!
//! The harness teaches it the subject's own answers, so that both send the same bytes. Until then, and where the bare server
//! stands in for a subject, it answers with the ones made up here.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::events;

/// The text whose stream begins and never ends.
pub(crate) const HANG: &str = "hang";

/// The work that asks for the card, which is not made up.
pub(crate) const CARD: &str = "card";

/// An answer of one kind or the other; cheap to clone.
#[derive(Clone)]
pub(crate) enum Answer {
    Complete(Bytes),
    Stream { frames: std::sync::Arc<[Bytes]>, ending: Ending },
}

/// What follows the last event of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Close,
    Never,
}

/// Answers by the work they belong to: `send`, `data`, `get`, `list`, `card`, and for a stream the text that asks for it.
#[derive(Default)]
pub(crate) struct Answers {
    known: RwLock<HashMap<String, Answer>>,
}

impl Answers {
    /// From now on `work` is answered with `body`. Works that stream are given as the whole stream.
    pub(crate) fn learn(&self, work: &str, body: Bytes) {
        let answer = if is_stream(work) { stream(work, &body) } else { Answer::Complete(body) };
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(work.to_owned(), answer);
    }

    /// The answer to `work`; `None` when there is no such work.
    pub(crate) fn to(&self, work: &str) -> Option<Answer> {
        if let Some(answer) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(work) {
            return Some(answer.clone());
        }
        self.learn(work, made_up(work)?);
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(work).cloned()
    }
}

fn is_stream(work: &str) -> bool {
    work == HANG || chunks(work).is_some()
}

/// The number of chunks that a text like `chunks:100` asks for.
fn chunks(work: &str) -> Option<usize> {
    work.strip_prefix("chunks:")?.parse().ok()
}

fn stream(work: &str, body: &Bytes) -> Answer {
    let frames = events::frames(body).into_iter().map(|frame| body.slice_ref(frame)).collect();
    Answer::Stream { frames, ending: if work == HANG { Ending::Never } else { Ending::Close } }
}

fn made_up(work: &str) -> Option<Bytes> {
    let result = match work {
        "send" | "data" => json!({ "task": task("TASK_STATE_COMPLETED") }),
        "get" => task("TASK_STATE_COMPLETED"),
        "list" => {
            let page: Vec<Value> = (0..50).map(|_| task("TASK_STATE_COMPLETED")).collect();
            json!({ "tasks": page, "nextPageToken": "bmV4dA", "pageSize": 50, "totalSize": 100_000 })
        }
        HANG => return Some(made_up_stream([json!({ "task": task("TASK_STATE_WORKING") })])),
        text => {
            let chunk = json!({ "artifactUpdate": {
                "taskId": ID, "contextId": ID, "append": true,
                "artifact": { "artifactId": "a", "parts": [{ "text": "a piece of the answer" }] },
            }});
            let end = json!({ "statusUpdate": {
                "taskId": ID, "contextId": ID, "status": status("TASK_STATE_COMPLETED"),
            }});
            let begin =
                json!({ "task": { "id": ID, "contextId": ID, "status": status("TASK_STATE_WORKING") } });
            let pieces = std::iter::repeat_n(chunk, chunks(text)?);
            return Some(made_up_stream(std::iter::once(begin).chain(pieces).chain([end])));
        }
    };
    Some(envelope(&result).into())
}

const ID: &str = "0190a5b4-7c1e-7b0a-9d6e-3f1f2f3f4f5f";

fn task(state: &str) -> Value {
    json!({
        "id": ID,
        "contextId": ID,
        "status": status(state),
        "artifacts": [{ "artifactId": "a", "parts": [{ "text": "hello" }] }],
        "history": [{ "messageId": "bench", "role": "ROLE_USER", "parts": [{ "text": "hello" }] }],
    })
}

fn status(state: &str) -> Value {
    json!({ "state": state, "timestamp": "2026-11-15T12:00:00.000Z" })
}

fn envelope(result: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "result": result }).to_string()
}

fn made_up_stream(results: impl IntoIterator<Item = Value>) -> Bytes {
    let mut stream = String::new();
    for result in results {
        // Writing to a string cannot fail.
        let _ = write!(stream, "data: {}\n\n", envelope(&result));
    }
    stream.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames_of(answer: Option<Answer>) -> (usize, Ending) {
        match answer {
            Some(Answer::Stream { frames, ending }) => (frames.len(), ending),
            Some(Answer::Complete(_)) | None => panic!("not a stream"),
        }
    }

    #[test]
    fn an_answer_that_was_taught_replaces_the_one_made_up() {
        let answers = Answers::default();
        assert!(answers.to("send").is_some());
        answers.learn("send", Bytes::from_static(b"taught"));
        assert!(matches!(answers.to("send"), Some(Answer::Complete(body)) if body == "taught"));
    }

    #[test]
    fn a_stream_has_the_chunks_its_text_asks_for_between_two_other_events() {
        let answers = Answers::default();
        assert!(frames_of(answers.to("chunks:100")) == (102, Ending::Close));
        answers.learn("chunks:100", Bytes::from_static(b"data: 1\n\ndata: 2\n\n"));
        assert!(frames_of(answers.to("chunks:100")) == (2, Ending::Close));
    }

    #[test]
    fn a_hanging_stream_never_ends() {
        assert!(frames_of(Answers::default().to(HANG)) == (1, Ending::Never));
    }

    #[test]
    fn an_unknown_work_has_no_answer() {
        assert!(Answers::default().to("chunks:many").is_none());
    }

    #[test]
    fn a_card_has_to_be_taught() {
        let answers = Answers::default();
        assert!(answers.to(CARD).is_none());
        answers.learn(CARD, Bytes::from_static(b"{}"));
        assert!(matches!(answers.to(CARD), Some(Answer::Complete(body)) if body == "{}"));
    }
}
