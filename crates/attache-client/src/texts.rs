//! The text that an agent produced, collected from its events.

use attache_protocol::{Artifact, Message, StreamResponse, Task, TaskState};

/// The text of a task's artifacts, or of a direct message, according to the events so far.
///
/// Chunks of an artifact are joined in order. A replaced artifact is replaced here too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    artifacts: Vec<(String, String)>,
    last_message: Option<String>,
    state: Option<TaskState>,
    pub(crate) unreadable_events: usize,
}

impl Texts {
    /// Adds an event.
    pub fn note(&mut self, event: &StreamResponse) {
        match event {
            StreamResponse::Task(task) => {
                *self = Self { unreadable_events: self.unreadable_events, ..Self::from(task) };
            }
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

    /// How many events of the stream could not be read, up to a limit. The texts may lack what they said.
    pub fn unreadable_events(&self) -> usize {
        self.unreadable_events
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

/// The message of the status. Some agents answer in messages that are only in the history: if a task has ended without artifacts and
/// without a message, the text of the agent's messages after the last one of the user.
fn last_message(task: &Task) -> Option<String> {
    let message = task.status.message.as_ref().map(|message| message.text());
    if message.is_some() || !task.artifacts.is_empty() || !task.status.state.is_terminal() {
        return message;
    }
    let texts: Vec<_> = task.last_answers().map(Message::text).filter(|text| !text.is_empty()).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

impl From<&Task> for Texts {
    fn from(task: &Task) -> Self {
        let mut texts = Self {
            artifacts: Vec::new(),
            last_message: last_message(task),
            state: Some(task.status.state),
            unreadable_events: 0,
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
    use attache_protocol::{Part, TaskArtifactUpdateEvent, TaskStatus};

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
    fn an_answer_that_is_only_in_the_history_is_the_text_of_an_ended_task() {
        let status = TaskStatus { state: TaskState::Completed, ..TaskStatus::default() };
        let history = vec![
            Message::user("1", "hello"),
            Message::agent("2", "old"),
            Message::user("3", "and now?"),
            Message::agent("4", "one"),
            Message::agent("5", "two"),
        ];
        let task = Task { status, history, ..Task::default() };
        assert_eq!(Texts::from(&task).all(), "one\ntwo");
        let working = TaskStatus { state: TaskState::Working, ..TaskStatus::default() };
        assert_eq!(Texts::from(&Task { status: working, ..task.clone() }).all(), "", "it has not ended");
        let message = Some(Box::new(Message::agent("6", "done")));
        let status = TaskStatus { message, ..task.status.clone() };
        assert_eq!(Texts::from(&Task { status, ..task }).all(), "done");
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
