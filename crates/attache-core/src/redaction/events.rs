//! Applies a redaction to the events of a turn.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use attache_protocol::{
    Artifact, Content, Json, JsonObject, Message, Part, Role, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use serde_json::{Map, Value};

use super::scan::{Follow, Scanner};
use super::{FileRedaction, Redaction};
use crate::{Namespace, Report, ReportOptions, TaskEvent, new_id};

/// The redaction of one turn, with the text of its artifacts that is held back.
pub(crate) struct TurnRedaction {
    redaction: Redaction,
    /// By the ids of artifacts that are not complete.
    open: HashMap<String, OpenText>,
    /// Thoughts are reported in pieces too.
    thinking: OpenText,
    /// Whether people read the thoughts as texts.
    thinking_has_text: bool,
    /// Status messages are the pieces of one text in the namespace of iac-code.
    said: OpenText,
    /// The id of the last of these messages.
    said_id: Option<String>,
    reports: ReportOptions,
}

/// A text in pieces. Secrets are masked first: a path can be part of one.
#[derive(Default)]
pub(super) struct OpenText {
    secrets: Scanner,
    paths: Scanner,
}

impl OpenText {
    /// Whether no text was added yet.
    pub(super) fn is_new(&self) -> bool {
        self.secrets.is_new() && self.paths.is_new()
    }

    pub(super) fn push(&mut self, redaction: &Redaction, piece: &str, follow: Follow) -> String {
        let masked = match &redaction.secrets {
            Some(patterns) => self.secrets.push(patterns, piece, follow),
            None => piece.to_owned(),
        };
        match &redaction.paths {
            Some(patterns) => self.paths.push(patterns, &masked, follow),
            None => masked,
        }
    }
}

impl TurnRedaction {
    pub(crate) fn new(redaction: &Redaction, reports: ReportOptions) -> Self {
        Self {
            redaction: redaction.clone(),
            open: HashMap::new(),
            thinking: OpenText::default(),
            thinking_has_text: false,
            said: OpenText::default(),
            said_id: None,
            reports,
        }
    }

    /// What can be shown of the next piece of a thought. `has_text` is whether people read it too.
    pub(crate) fn thinking(&mut self, piece: &str, has_text: bool) -> String {
        self.thinking_has_text = has_text;
        self.thinking.push(&self.redaction, piece, Follow::More)
    }

    /// Changes all texts of a report, before they are cut: a secret must not lose its end, and with it its mask.
    pub(crate) fn report(&self, report: &mut Report) {
        report.change_texts(&|text| {
            self.redaction.text(text);
        });
    }

    /// Changes the texts of a value.
    pub(crate) fn value(&self, value: &mut Value) {
        self.redaction.value(value);
    }

    /// The redaction of a file.
    pub(crate) fn file(&self) -> FileRedaction {
        FileRedaction::new(&self.redaction)
    }

    pub(crate) fn hide_path(&mut self, path: &Path, replacement: &str) {
        if let Some(more) = self.redaction.with_path(path, replacement) {
            self.redaction = more;
        }
    }

    /// The events to write for an event of the agent. Text that was held back comes before a status that ends the turn.
    pub(crate) fn apply(&mut self, event: TaskEvent) -> Vec<TaskEvent> {
        match event {
            TaskEvent::Artifact(update) => {
                vec![TaskEvent::Artifact(Arc::new(self.artifact(Arc::unwrap_or_clone(update))))]
            }
            TaskEvent::Status(update) if self.is_piece(&update) => {
                let said = self.say(Arc::unwrap_or_clone(update));
                said.into_iter().map(|update| TaskEvent::Status(Arc::new(update))).collect()
            }
            TaskEvent::Status(update) => {
                let mut events = match (update.status.state.is_settled(), &update.status.message) {
                    (true, _) => self.flush(&update),
                    (false, Some(_)) => self.flush_said(&update).into_iter().collect(),
                    (false, None) => Vec::new(),
                };
                let mut update = Arc::unwrap_or_clone(update);
                if let Some(message) = &mut update.status.message {
                    self.message(message);
                }
                self.redaction.metadata(&mut update.metadata);
                events.push(TaskEvent::Status(Arc::new(update)));
                events
            }
            TaskEvent::Message(message) => {
                let mut message = Arc::unwrap_or_clone(message);
                self.message(&mut message);
                vec![TaskEvent::Message(Arc::new(message))]
            }
            event @ TaskEvent::Created(_) => vec![event],
        }
    }

    /// Whether a status message is a piece of what the agent says.
    fn is_piece(&self, update: &TaskStatusUpdateEvent) -> bool {
        let is_text = |message: &Message| {
            !message.parts.is_empty() && message.parts.iter().all(|part| part.as_text().is_some())
        };
        self.reports.namespace == Namespace::IacCode
            && update.status.state == TaskState::Working
            && update.status.message.as_deref().is_some_and(is_text)
    }

    /// What can be shown of the next piece of what the agent says. `None` if that is nothing.
    fn say(&mut self, mut update: TaskStatusUpdateEvent) -> Option<TaskStatusUpdateEvent> {
        self.redaction.metadata(&mut update.metadata);
        let is_first = self.said_id.is_none();
        if let Some(mut message) = update.status.message.take() {
            self.redaction.parts(&mut message.parts, &mut self.said, Follow::More);
            message.parts.retain(|part| part.as_text().is_some_and(|text| !text.is_empty()));
            self.redaction.metadata(&mut message.metadata);
            self.said_id = Some(message.message_id.clone());
            update.status.message = (!message.parts.is_empty()).then_some(message);
        }
        let is_empty = update.status.message.is_none() && update.metadata.is_none();
        // The first one sets the state.
        (is_first || !is_empty).then_some(update)
    }

    /// The rest of what the agent has said.
    fn flush_said(&mut self, status: &TaskStatusUpdateEvent) -> Option<TaskEvent> {
        let id = self.said_id.take()?;
        let rest = std::mem::take(&mut self.said).push(&self.redaction, "", Follow::End);
        (!rest.is_empty()).then(|| working(status, Some((id, rest)), None))
    }

    /// Changes a message of the agent.
    pub(crate) fn message(&self, message: &mut Message) {
        let mut text = OpenText::default();
        self.redaction.parts(&mut message.parts, &mut text, Follow::End);
        self.redaction.metadata(&mut message.metadata);
    }

    fn artifact(&mut self, mut update: TaskArtifactUpdateEvent) -> TaskArtifactUpdateEvent {
        let redaction = &self.redaction;
        let Artifact { artifact_id, name, description, parts, metadata, .. } = &mut update.artifact;
        // Ids of artifacts are often their names. Equal ids stay equal.
        redaction.text(artifact_id);
        redaction.optional(name);
        redaction.optional(description);
        redaction.metadata(metadata);
        redaction.metadata(&mut update.metadata);
        if !update.append {
            self.open.remove(artifact_id.as_str());
        }
        if update.last_chunk {
            let mut text = self.open.remove(artifact_id.as_str()).unwrap_or_default();
            redaction.parts(parts, &mut text, Follow::End);
        } else {
            let text = self.open.entry(artifact_id.clone()).or_default();
            redaction.parts(parts, text, Follow::More);
        }
        update
    }

    /// The text that is held back, as further chunks.
    fn flush(&mut self, status: &TaskStatusUpdateEvent) -> Vec<TaskEvent> {
        let mut events: Vec<TaskEvent> = self.flush_said(status).into_iter().collect();
        let thought = std::mem::take(&mut self.thinking).push(&self.redaction, "", Follow::End);
        if !thought.is_empty() {
            let has_text = self.thinking_has_text && self.reports.namespace == Namespace::Attache;
            let text = has_text.then(|| (new_id(), thought.clone()));
            let metadata = self.reports.metadata(&Report::thinking(thought).allowed());
            events.push(working(status, text, metadata));
        }
        for (id, mut text) in std::mem::take(&mut self.open) {
            let rest = text.push(&self.redaction, "", Follow::End);
            if rest.is_empty() {
                continue;
            }
            let artifact = Artifact { artifact_id: id, parts: vec![Part::text(rest)], ..Artifact::default() };
            events.push(TaskEvent::Artifact(Arc::new(TaskArtifactUpdateEvent {
                task_id: status.task_id.clone(),
                context_id: status.context_id.clone(),
                artifact,
                append: true,
                ..TaskArtifactUpdateEvent::default()
            })));
        }
        events
    }
}

impl Redaction {
    fn is_clean(&self, text: &str) -> bool {
        let clean =
            |patterns: &Option<Arc<super::Patterns>>| patterns.as_ref().is_none_or(|it| it.is_clean(text));
        clean(&self.secrets) && clean(&self.paths)
    }

    /// Changes a whole text. Returns whether it had to change.
    fn text(&self, text: &mut String) -> bool {
        let is_clean = self.is_clean(text);
        if !is_clean {
            *text = OpenText::default().push(self, text, Follow::End);
        }
        !is_clean
    }

    fn optional(&self, text: &mut Option<String>) {
        if let Some(text) = text {
            self.text(text);
        }
    }

    fn metadata(&self, metadata: &mut Option<JsonObject>) {
        if let Some(object) = metadata
            && let Some(changed) = self.json(object.as_str())
        {
            *metadata = JsonObject::new(&changed).ok();
        }
    }

    /// Changed JSON, if it has to change. JSON without escapes that contains none of the texts need not be parsed.
    fn json(&self, text: &str) -> Option<Value> {
        if self.is_clean(text) && !text.contains('\\') {
            return None;
        }
        let mut value = serde_json::from_str(text).ok()?;
        self.value(&mut value).then_some(value)
    }

    /// Changes all texts of a value. Returns whether one had to change.
    fn value(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().fold(false, |changed, item| self.value(item) | changed),
            Value::Object(members) => {
                let mut is_changed = false;
                let changed = std::mem::take(members).into_iter().map(|(mut name, mut value)| {
                    is_changed |= self.text(&mut name) | self.value(&mut value);
                    (name, value)
                });
                *members = changed.collect::<Map<_, _>>();
                is_changed
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// Changes parts. Texts that follow each other are one text for readers, so they are one here.
    fn parts(&self, parts: &mut Vec<Part>, text: &mut OpenText, follow: Follow) {
        let mut changed: Vec<Part> = Vec::with_capacity(parts.len());
        for mut part in std::mem::take(parts) {
            self.optional(&mut part.filename);
            self.metadata(&mut part.metadata);
            if let Content::Text(piece) = &mut part.content {
                *piece = text.push(self, piece, Follow::More);
                changed.push(part);
                continue;
            }
            // No text goes on behind another part.
            let rest = text.push(self, "", Follow::End);
            if !rest.is_empty() {
                add_text(&mut changed, rest);
            }
            *text = OpenText::default();
            match &mut part.content {
                Content::Text(_) => {}
                Content::Url(url) => {
                    self.text(url);
                }
                Content::Data(data) => {
                    if let Some(json) = self.json(data.as_str()).and_then(|value| Json::new(&value).ok()) {
                        *data = json;
                    }
                }
                Content::Raw(bytes) => {
                    if let Some(new) = self.bytes(bytes) {
                        *bytes = new;
                    }
                }
            }
            changed.push(part);
        }
        if follow == Follow::End {
            let rest = text.push(self, "", Follow::End);
            if !rest.is_empty() {
                add_text(&mut changed, rest);
            }
        }
        *parts = changed;
    }

    /// The changed content of a file, if it has to change. In files that are not text, only secrets are hidden.
    fn bytes(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        match std::str::from_utf8(bytes) {
            Ok(text) if self.is_clean(text) => None,
            Ok(text) => Some(OpenText::default().push(self, text, Follow::End).into_bytes()),
            Err(_) => {
                let patterns = self.secrets.as_ref().filter(|it| !it.is_clean_bytes(bytes))?;
                let mut bytes = bytes.to_vec();
                patterns.overwrite(&mut bytes);
                Some(bytes)
            }
        }
    }
}

/// A status of the same task as another one, with a text that was held back.
fn working(
    status: &TaskStatusUpdateEvent,
    text: Option<(String, String)>,
    metadata: Option<JsonObject>,
) -> TaskEvent {
    let message = text.map(|(message_id, text)| {
        Box::new(Message {
            message_id,
            context_id: Some(status.context_id.clone()),
            task_id: Some(status.task_id.clone()),
            role: Role::Agent,
            parts: vec![Part::text(text)],
            ..Message::default()
        })
    });
    TaskEvent::Status(Arc::new(TaskStatusUpdateEvent {
        task_id: status.task_id.clone(),
        context_id: status.context_id.clone(),
        status: TaskStatus { state: TaskState::Working, message, timestamp: None },
        metadata,
        ..TaskStatusUpdateEvent::default()
    }))
}

/// Adds text to the last part, if that is text, or else as another part.
fn add_text(parts: &mut Vec<Part>, rest: String) {
    match parts.last_mut() {
        Some(Part { content: Content::Text(text), .. }) => text.push_str(&rest),
        Some(_) | None => parts.push(Part::text(rest)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redaction() -> TurnRedaction {
        let redaction = Redaction::new()
            .secrets(["hunter2-hunter2".to_owned(), "tab\there-it-is".to_owned(), "short".to_owned()])
            .path("/srv/project", "<workspace>");
        TurnRedaction::new(&redaction, ReportOptions::default())
    }

    fn chunk(text: &str, append: bool, last_chunk: bool) -> TaskEvent {
        TaskEvent::Artifact(Arc::new(TaskArtifactUpdateEvent {
            artifact: Artifact {
                artifact_id: "a".into(),
                parts: vec![Part::text(text)],
                ..Artifact::default()
            },
            append,
            last_chunk,
            ..TaskArtifactUpdateEvent::default()
        }))
    }

    fn status(state: TaskState, parts: Vec<Part>) -> TaskEvent {
        let message = Message { parts, ..Message::default() };
        TaskEvent::Status(Arc::new(TaskStatusUpdateEvent {
            status: TaskStatus { state, message: Some(Box::new(message)), timestamp: None },
            ..TaskStatusUpdateEvent::default()
        }))
    }

    fn texts(events: &[TaskEvent]) -> String {
        let parts = events.iter().flat_map(|event| match event {
            TaskEvent::Artifact(update) => update.artifact.parts.clone(),
            TaskEvent::Status(update) => {
                update.status.message.as_ref().map(|it| it.parts.clone()).unwrap_or_default()
            }
            TaskEvent::Created(_) | TaskEvent::Message(_) => Vec::new(),
        });
        parts.filter_map(|part| part.as_text().map(str::to_owned)).collect()
    }

    #[test]
    fn a_secret_across_chunks_is_masked_and_the_rest_comes_before_the_end() {
        let mut turn = redaction();
        let mut all = Vec::new();
        for (piece, append) in [("the key is hunter2", false), ("-hunt", true), ("er2, in /srv/pro", true)] {
            all.extend(turn.apply(chunk(piece, append, false)));
        }
        assert_eq!(texts(&all), "the key is ********, in ");
        let end = turn.apply(status(TaskState::Completed, vec![]));
        assert_eq!(end.len(), 2);
        assert_eq!(texts(&end), "/srv/pro");
        assert!(matches!(&end[0], TaskEvent::Artifact(update) if update.append));
    }

    #[test]
    fn the_last_chunk_has_what_was_held_back() {
        let mut turn = redaction();
        let first = turn.apply(chunk("a hunter2-", false, false));
        let last = turn.apply(chunk("x", true, true));
        assert_eq!(texts(&[first, last].concat()), "a hunter2-x");
        assert_eq!(turn.apply(status(TaskState::Completed, vec![])).len(), 1);
    }

    #[test]
    fn a_new_version_of_an_artifact_does_not_get_the_rest_of_the_old_one() {
        let mut turn = redaction();
        turn.apply(chunk("hunter2-", false, false));
        assert_eq!(texts(&turn.apply(chunk("new", false, true))), "new");
    }

    #[test]
    fn data_metadata_names_urls_and_files_are_changed_too() {
        let mut turn = redaction();
        let mut data =
            Part::data(&json!({"/srv/project/a": ["hunter2-hunter2", 1], "t": "tab\there-it-is"})).unwrap();
        data.metadata = JsonObject::new(&json!({"attache": {"tool": {"result": "cat /srv/project/x"}}})).ok();
        let url = Part::url("file:///srv/project/b").filename("/srv/project/b");
        let file = Part::raw("key=hunter2-hunter2\n");
        let binary = Part::raw([b"\xff".as_slice(), b"hunter2-hunter2", b"\x00"].concat());
        let event = turn.apply(status(TaskState::Failed, vec![data, url, file, binary])).remove(0);
        let TaskEvent::Status(update) = event else { panic!("it was a status") };
        let parts = &update.status.message.as_ref().unwrap().parts;
        let read: Value = parts[0].as_data().unwrap().read().unwrap();
        assert_eq!(read, json!({"<workspace>/a": ["********", 1], "t": "********"}));
        let metadata: Value = parts[0].metadata.as_ref().unwrap().read().unwrap();
        assert_eq!(metadata, json!({"attache": {"tool": {"result": "cat <workspace>/x"}}}));
        assert_eq!(parts[1].content, Content::Url("file://<workspace>/b".into()));
        assert_eq!(parts[1].filename.as_deref(), Some("<workspace>/b"));
        assert_eq!(parts[2].content, Part::raw("key=********\n").content);
        let stars = [b"\xff".as_slice(), b"***************", b"\x00"].concat();
        assert_eq!(parts[3].content, Part::raw(stars).content);
    }

    fn iac_code() -> TurnRedaction {
        let redaction = Redaction::new().secret("hunter2-hunter2").path("/srv/project", "<workspace>");
        TurnRedaction::new(&redaction, ReportOptions::default().namespace(Namespace::IacCode))
    }

    #[test]
    fn a_secret_across_status_messages_is_masked_and_the_rest_comes_before_the_end() {
        let mut turn = iac_code();
        let mut say = |text: &str| turn.apply(status(TaskState::Working, vec![Part::text(text)]));
        let said = [say("the key is hunter2"), say("-hunt"), say("er2, in /srv/pro")].concat();
        assert_eq!(texts(&said), "the key is ********, in ");
        assert_eq!(said.len(), 2, "a message without text is left out");
        let end = turn.apply(status(TaskState::InputRequired, vec![]));
        assert_eq!((texts(&end).as_str(), end.len()), ("/srv/pro", 2));
    }

    #[test]
    fn what_was_held_back_comes_before_another_kind_of_message() {
        let mut turn = iac_code();
        turn.apply(status(TaskState::Working, vec![Part::text("a hunter2-")]));
        let ack = Part::data(&json!({"kind": "permission_ack"})).unwrap();
        let events = turn.apply(status(TaskState::Working, vec![ack]));
        assert_eq!((texts(&events).as_str(), events.len()), ("hunter2-", 2));
    }

    #[test]
    fn texts_of_one_message_are_one_text() {
        let mut turn = redaction();
        let parts = vec![Part::text("hunter2-"), Part::text("hunter2 short")];
        assert_eq!(texts(&turn.apply(status(TaskState::Working, parts))), "******** short");
    }

    #[test]
    fn a_secret_across_thoughts_is_masked() {
        let mut turn = redaction();
        let shown =
            ["I use hunter", "2-hunter2 and hunter"].map(|piece| turn.thinking(piece, false)).concat();
        assert_eq!(shown, "I use ******** and ");
        let end = turn.apply(status(TaskState::Completed, vec![]));
        let TaskEvent::Status(rest) = &end[0] else { panic!("a status comes first") };
        let rest: Value = rest.metadata.as_ref().unwrap().read().unwrap();
        assert_eq!(rest, json!({"attache": {"thinking": {"type": "raw_thinking", "text": "hunter"}}}));
    }

    #[test]
    fn a_directory_of_the_turn_is_hidden_if_paths_are() {
        let mut turn = redaction();
        turn.hide_path(Path::new("/data/ws/1"), "<workspace>");
        assert_eq!(
            texts(&turn.apply(status(TaskState::Working, vec![Part::text("/data/ws/1/a")]))),
            "<workspace>/a"
        );
        let mut open =
            TurnRedaction::new(&Redaction::new().secret("hunter2-hunter2"), ReportOptions::default());
        open.hide_path(Path::new("/data/ws/1"), "<workspace>");
        assert_eq!(
            texts(&open.apply(status(TaskState::Working, vec![Part::text("/data/ws/1/a")]))),
            "/data/ws/1/a"
        );
    }
}
