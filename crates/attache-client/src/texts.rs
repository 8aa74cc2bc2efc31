//! The text that an agent produced, collected from its events.

use attache_protocol::{Artifact, StreamResponse, Task, TaskState};

/// The text of a task's artifacts, or of a direct message, according to the events so far.
///
/// Chunks of an artifact are joined in order. A replaced artifact is replaced here too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    artifacts: Vec<(String, String)>,
    last_message: Option<String>,
    state: Option<TaskState>,
}

impl Texts {
    /// Adds an event.
    pub fn note(&mut self, event: &StreamResponse) {
        match event {
            StreamResponse::Task(task) => *self = Self::from(task),
            StreamResponse::Message(message) => self.last_message = Some(message.text()),
            StreamResponse::StatusUpdate(update) => {
                self.state = Some(update.status.state);
                if let Some(message) = &update.status.message {
                    self.last_message = Some(message.text());
                }
            }
            StreamResponse::ArtifactUpdate(update) => self.piece(&update.artifact, update.append),
        }
    }

    fn piece(&mut self, artifact: &Artifact, append: bool) {
        let id = &artifact.artifact_id;
        match self.artifacts.iter_mut().find(|(known, _)| known == id) {
            Some((_, text)) if append => text.push_str(&artifact.text()),
            Some((_, text)) => *text = artifact.text(),
            None => self.artifacts.push((id.clone(), artifact.text())),
        }
    }

    /// The text of the artifact with this id.
    pub fn artifact(&self, id: &str) -> Option<&str> {
        self.artifacts.iter().find(|(known, _)| known == id).map(|(_, text)| text.as_str())
    }

    /// The text of all artifacts in order, each on its own lines. If there are none, the last message of the agent.
    pub fn all(&self) -> String {
        if self.artifacts.is_empty() {
            return self.last_message.clone().unwrap_or_default();
        }
        self.artifacts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// The last message of the agent: a direct message, or that of the task's status.
    pub fn last_message(&self) -> Option<&str> {
        self.last_message.as_deref()
    }

    /// The state of the task; nothing if there is no task.
    pub fn state(&self) -> Option<TaskState> {
        self.state
    }

    pub(crate) fn size(&self) -> usize {
        let artifacts = self.artifacts.iter().map(|(id, text)| id.len() + text.len());
        artifacts.sum::<usize>() + self.last_message.as_ref().map_or(0, String::len)
    }
}

impl From<&Task> for Texts {
    fn from(task: &Task) -> Self {
        let mut texts = Self {
            artifacts: Vec::new(),
            last_message: task.status.message.as_ref().map(|message| message.text()),
            state: Some(task.status.state),
        };
        for artifact in &task.artifacts {
            texts.piece(artifact, true);
        }
        texts
    }
}

impl From<&crate::Reply> for Texts {
    fn from(reply: &crate::Reply) -> Self {
        match reply {
            crate::Reply::Task(task) => task.into(),
            crate::Reply::Message(message) => Self { last_message: Some(message.text()), ..Self::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::{Message, Part, TaskArtifactUpdateEvent};

    use super::*;

    fn piece(id: &str, text: &str, append: bool) -> StreamResponse {
        let artifact =
            Artifact { artifact_id: id.to_owned(), parts: vec![Part::text(text)], ..Artifact::default() };
        StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            artifact,
            append,
            ..TaskArtifactUpdateEvent::default()
        })
    }

    #[test]
    fn pieces_are_put_together_and_replaced() {
        let mut texts = Texts::default();
        for event in [
            piece("a", "one ", false),
            piece("b", "x", true),
            piece("a", "two", true),
            piece("b", "y", false),
        ] {
            texts.note(&event);
        }
        assert_eq!(
            (texts.artifact("a"), texts.artifact("b"), texts.artifact("c")),
            (Some("one two"), Some("y"), None)
        );
        assert_eq!((texts.all().as_str(), texts.size()), ("one two\ny", 10));
        texts.note(&StreamResponse::Task(Task::default()));
        assert_eq!(
            (texts.all().as_str(), texts.state()),
            ("", Some(TaskState::Unspecified)),
            "a task says everything"
        );
        texts.note(&StreamResponse::Message(Message::agent("m", "hi")));
        assert_eq!(texts.all(), "hi");
    }
}
