//! The text of an agent as it arrives, in the form that clients read it.
//!
//! It is an artifact in chunks. In the namespace `iac_code` it is status messages, because clients of that system read text from these only.

use attache_core::{AgentError, AgentResult, Namespace, TextStream, Turn};
use attache_protocol::Part;

/// How many bytes of a line are held back.
const MAX_LINE: usize = 16 * 1024;

/// Sends text as it arrives.
pub(crate) struct Answer<'a>(Form<'a>);

enum Form<'a> {
    Artifact(Box<TextStream<'a>>),
    Status(StatusText<'a>),
}

/// Sends text as status messages.
///
/// A message has whole lines. Each message is searched for secrets and paths by itself, so none of them must be cut.
struct StatusText<'a> {
    turn: &'a Turn,
    /// What was not sent yet.
    text: String,
}

impl<'a> Answer<'a> {
    /// The answer of a turn. An artifact has this name, and begins with the parts of the earlier turns of its task.
    pub(crate) fn new(turn: &'a Turn, artifact: &str, earlier: Vec<Part>) -> Self {
        Self(match turn.report_options().namespace {
            Namespace::Attache => {
                let stream = turn.artifact(artifact).parts(earlier).stream();
                Form::Artifact(Box::new(TextStream::new(stream)))
            }
            Namespace::IacCode => Form::Status(StatusText { turn, text: String::new() }),
        })
    }

    /// Adds text.
    pub(crate) async fn write(&mut self, text: String) -> AgentResult {
        match &mut self.0 {
            Form::Artifact(stream) => stream.write(text).await,
            Form::Status(status) => status.write(&text).await,
        }
    }

    /// Waits for a future, and sends the text that is held back if the future takes longer than a moment.
    pub(crate) async fn wait<T>(&mut self, future: impl Future<Output = T>) -> Result<T, AgentError> {
        match &mut self.0 {
            Form::Artifact(stream) => stream.wait(future).await,
            Form::Status(status) => status.wait(future).await,
        }
    }

    /// Sends all text that is held back.
    pub(crate) async fn flush(&mut self) -> AgentResult {
        match &mut self.0 {
            Form::Artifact(stream) => stream.flush().await,
            Form::Status(status) => status.send(status.text.len()).await,
        }
    }

    /// Ends the answer.
    pub(crate) async fn finish(self) -> AgentResult {
        match self.0 {
            Form::Artifact(stream) => stream.finish().await,
            Form::Status(mut status) => status.send(status.text.len()).await,
        }
    }
}

impl StatusText<'_> {
    async fn write(&mut self, text: &str) -> AgentResult {
        self.text.push_str(text);
        while let Some(length) = overlong(&self.text) {
            self.send(length).await?;
        }
        Ok(())
    }

    async fn wait<T>(&mut self, future: impl Future<Output = T>) -> Result<T, AgentError> {
        let mut future = std::pin::pin!(future);
        let lines = self.text.rfind('\n').map_or(0, |end| end + 1);
        if lines > 0 {
            match tokio::time::timeout(TextStream::HOLD, &mut future).await {
                Ok(output) => return Ok(output),
                Err(_) => self.send(lines).await?,
            }
        }
        Ok(future.await)
    }

    /// Sends the first bytes of the text.
    async fn send(&mut self, length: usize) -> AgentResult {
        if length == 0 {
            return Ok(());
        }
        let rest = self.text.split_off(length);
        self.turn.working(std::mem::replace(&mut self.text, rest)).await
    }
}

/// How much of a text is sent before its line has ended. `None` if the line is not too long. It is cut after white space, if there is some.
fn overlong(text: &str) -> Option<usize> {
    if text.len() <= MAX_LINE {
        return None;
    }
    let limit = text.floor_char_boundary(MAX_LINE);
    let start = &text[..limit];
    let after = |found: (usize, char)| found.0 + found.1.len_utf8();
    let line = start.rfind('\n').map(|end| end + 1);
    let word = || start.char_indices().rev().find(|(_, c)| c.is_whitespace()).map(after);
    Some(line.or_else(word).unwrap_or(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_between_words_and_characters() {
        assert_eq!(overlong(&"x".repeat(MAX_LINE)), None);
        assert_eq!(overlong(&"x".repeat(MAX_LINE + 1)), Some(MAX_LINE));
        assert_eq!(overlong(&format!("ab c{}", "x".repeat(MAX_LINE))), Some(3));
        assert_eq!(overlong(&format!("ab\nc d{}", "x".repeat(MAX_LINE))), Some(3));
        assert_eq!(overlong(&"€".repeat(MAX_LINE)), Some(MAX_LINE / 3 * 3));
    }
}
