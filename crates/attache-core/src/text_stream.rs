//! Text that arrives in pieces, as the chunks of an artifact or as status messages.

use std::pin::pin;
use std::time::Duration;

use attache_protocol::Part;

use crate::report::pieces_id;
use crate::{AgentError, AgentResult, ArtifactStream, Namespace, Turn};

/// Sends text as the chunks of an artifact, as it arrives. The [answer](Self::answer) of an agent can be status messages instead.
///
/// The latest chunk is held back for a moment: if no other chunk follows, it is marked as the last one. So wait for more text with
/// [`wait`](Self::wait), which sends the chunk when the moment is over.
pub struct TextStream<'a> {
    target: Target<'a>,
    /// The bytes of an incomplete character.
    incomplete: Vec<u8>,
    held: Option<Part>,
}

enum Target<'a> {
    Artifact(ArtifactStream<'a>),
    /// Status messages with one id, so that they are one message in the history.
    Status {
        turn: &'a Turn,
        id: String,
    },
}

impl Target<'_> {
    async fn chunk(&mut self, part: Part) -> AgentResult {
        match self {
            Self::Artifact(artifact) => artifact.chunk(part).await,
            Self::Status { turn, id } => turn.say(id, part).await,
        }
    }

    async fn last(self, part: Part) -> AgentResult {
        match self {
            Self::Artifact(artifact) => artifact.last(part).await,
            Self::Status { turn, id } => turn.say(&id, part).await,
        }
    }
}

impl<'a> TextStream<'a> {
    /// How long a chunk is held back. It is short enough that clients do not notice.
    pub const HOLD: Duration = Duration::from_millis(10);

    /// Sends text to this artifact.
    pub fn new(artifact: ArtifactStream<'a>) -> Self {
        Self { target: Target::Artifact(artifact), incomplete: Vec::new(), held: None }
    }

    /// Sends the answer of an agent in the way that clients expect: to this artifact, or as status messages if the namespace of the
    /// [reports](crate::ReportOptions) is that of iac-code. Then the artifact gets nothing.
    pub fn answer(turn: &'a Turn, artifact: ArtifactStream<'a>) -> Self {
        let target = match turn.report_options().namespace {
            Namespace::Attache => Target::Artifact(artifact),
            Namespace::IacCode => Target::Status { turn, id: pieces_id(turn.task_id()) },
        };
        Self { target, incomplete: Vec::new(), held: None }
    }

    /// Adds text.
    pub async fn write(&mut self, text: impl Into<String>) -> AgentResult {
        let text = text.into();
        if text.is_empty() { Ok(()) } else { self.push(Part::text(text)).await }
    }

    /// Adds bytes of text in UTF-8. They can end in the middle of a character. Invalid bytes are replaced.
    pub async fn write_bytes(&mut self, bytes: &[u8]) -> AgentResult {
        self.incomplete.extend_from_slice(bytes);
        let text = take_text(&mut self.incomplete);
        self.write(text).await
    }

    /// Adds a part that is not text.
    pub async fn push(&mut self, part: Part) -> AgentResult {
        match self.held.replace(part) {
            Some(earlier) => self.target.chunk(earlier).await,
            None => Ok(()),
        }
    }

    /// Waits for a future, and sends the text that is held back if the future takes longer than a moment.
    pub async fn wait<T>(&mut self, future: impl Future<Output = T>) -> Result<T, AgentError> {
        let mut future = pin!(future);
        if self.is_holding() {
            match tokio::time::timeout(Self::HOLD, &mut future).await {
                Ok(output) => return Ok(output),
                Err(_) => self.flush().await?,
            }
        }
        Ok(future.await)
    }

    /// Whether a chunk is held back.
    pub fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Sends the chunk that is held back.
    pub async fn flush(&mut self) -> AgentResult {
        match self.held.take() {
            Some(part) => self.target.chunk(part).await,
            None => Ok(()),
        }
    }

    /// Ends the artifact.
    pub async fn finish(mut self) -> AgentResult {
        let rest = String::from_utf8_lossy(&std::mem::take(&mut self.incomplete)).into_owned();
        self.write(rest).await?;
        match self.held.take() {
            Some(last) => self.target.last(last).await,
            None => Ok(()),
        }
    }
}

/// Removes the text from the bytes, up to an incomplete character. Invalid bytes are replaced.
fn take_text(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    loop {
        match std::str::from_utf8(bytes) {
            Ok(rest) => {
                text.push_str(rest);
                bytes.clear();
                return text;
            }
            Err(error) => {
                let (good, bad) = (error.valid_up_to(), error.error_len());
                text.push_str(&String::from_utf8_lossy(&bytes[..good]));
                bytes.drain(..good + bad.unwrap_or(0));
                if bad.is_none() {
                    return text;
                }
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_survives_being_cut_anywhere(text in ".{0,40}", cuts in prop::collection::vec(0usize..200, 0..6)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut unread = Vec::new();
            let mut joined = String::new();
            for pair in cuts.windows(2) {
                unread.extend_from_slice(&bytes[pair[0]..pair[1]]);
                joined.push_str(&take_text(&mut unread));
            }
            prop_assert!(unread.is_empty());
            prop_assert_eq!(joined, text);
        }
    }

    #[test]
    fn invalid_bytes_are_replaced() {
        let mut bytes = b"a\xffb\xe2\x82".to_vec();
        assert_eq!(take_text(&mut bytes), "a\u{fffd}b");
        assert_eq!(bytes, b"\xe2\x82");
    }
}
