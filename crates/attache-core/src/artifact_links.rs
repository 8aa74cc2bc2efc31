//! References to stored content, and the URLs that clients get instead.
//!
//! An event in the store refers to content by a URL with a scheme of its own, such as `attache-artifact:9f86….0a1b2c3d`. It names neither
//! the server nor the task, so it stays right when the base URL changes, and it cannot refer to content of another task. Before a reply, an
//! event or a push notification leaves the server, [`ArtifactLinks`] replaces each reference by a URL that the client can use.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use attache_protocol::{
    Artifact, Content, JsonObject, Message, Part, Role, Task, TaskArtifactUpdateEvent, TaskId,
    TaskStatusUpdateEvent,
};
use serde_json::{Map, Value};

use crate::{ArtifactStore, ContentId, Entry, Reply, Snapshot, StoredContent, StreamItem, TaskEvent};

/// The scheme of references in stored events.
const SCHEME: &str = "attache-artifact:";

/// The first segment of the path of content, below the base URL of an agent.
pub const ARTIFACTS_PATH: &str = "/artifacts";

/// A part that refers to stored content. It keeps the name and media type, and says size and hash in its metadata.
pub(crate) fn reference(
    stored: &StoredContent,
    filename: Option<String>,
    media_type: Option<String>,
    metadata: Option<JsonObject>,
) -> Part {
    let mut members: Map<String, Value> =
        metadata.as_ref().and_then(|metadata| metadata.read().ok()).unwrap_or_default();
    if let Some(media_type) = &media_type {
        members.insert("mediaType".to_owned(), media_type.as_str().into());
    }
    members.insert("byteSize".to_owned(), stored.size.into());
    members.insert("sha256".to_owned(), stored.id.hash().to_string().into());
    // A map of strings to values is always an object.
    let metadata = JsonObject::new(&members).ok().or(metadata);
    Part { content: Content::Url(format!("{SCHEME}{}", stored.id)), filename, media_type, metadata }
}

/// The id of the stored content that a part of a stored event refers to.
pub fn referenced_content(part: &Part) -> Option<ContentId> {
    match &part.content {
        Content::Url(url) => ContentId::parse(url.strip_prefix(SCHEME)?),
        Content::Text(_) | Content::Raw(_) | Content::Data(_) => None,
    }
}

/// The parts of a task that agents have written: of its artifacts, its status and its history.
pub fn agent_parts(task: &Task) -> impl Iterator<Item = &Part> {
    let messages = task.status.message.as_deref().into_iter().chain(&task.history);
    let messages = messages.filter(|message| is_of_agent(message));
    let artifacts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    artifacts.chain(messages.flat_map(|message| &message.parts))
}

/// Only agents refer to stored content. A client that sends such a reference gets it back as it is.
fn is_of_agent(message: &Message) -> bool {
    match message.role {
        Role::Agent => true,
        Role::User | Role::Unspecified => false,
    }
}

/// Replaces references to stored content by URLs for one client. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ArtifactLinks {
    /// The base URL of the agent, as the client knows it, without a slash at its end.
    base: Arc<str>,
    tenant: Option<Arc<str>>,
    /// The store whose files clients read themselves.
    files: Option<Arc<dyn ArtifactStore>>,
}

impl ArtifactLinks {
    pub(crate) fn new(
        base: Arc<str>,
        tenant: Option<Arc<str>>,
        files: Option<Arc<dyn ArtifactStore>>,
    ) -> Self {
        Self { base, tenant, files }
    }

    /// The same for requests of a tenant.
    pub(crate) fn for_tenant(self, tenant: Option<Arc<str>>) -> Self {
        Self { tenant, ..self }
    }

    fn url(&self, task: &TaskId, id: &ContentId, filename: Option<&str>) -> String {
        if let Some(path) = self.files.as_ref().and_then(|files| files.path(task, id, filename)) {
            return file_url(&path);
        }
        let mut url = format!("{}{ARTIFACTS_PATH}/{}/{id}", self.base, escaped(task.as_str()));
        if let Some(tenant) = &self.tenant {
            url.push_str("?tenant=");
            url.push_str(&escaped(tenant));
        }
        url
    }

    fn parts(&self, task: &TaskId, parts: &mut [Part]) {
        for part in parts {
            if let Some(id) = referenced_content(part) {
                part.content = Content::Url(self.url(task, &id, part.filename.as_deref()));
            }
        }
    }

    fn message(&self, task: &TaskId, message: &mut Message) {
        if is_of_agent(message) {
            self.parts(task, &mut message.parts);
        }
    }

    /// Replaces the references of a task.
    pub fn resolve_task(&self, task: &mut Task) {
        let id = task.id.clone();
        task.artifacts.iter_mut().for_each(|artifact| self.parts(&id, &mut artifact.parts));
        task.history.iter_mut().for_each(|message| self.message(&id, message));
        if let Some(message) = &mut task.status.message {
            self.message(&id, message);
        }
    }

    /// The task with URLs instead of references. The same snapshot if it has none.
    pub fn resolve_snapshot(&self, snapshot: Snapshot) -> Snapshot {
        if !snapshot.may_contain(SCHEME) {
            return snapshot;
        }
        // A task that has ended may be JSON, which is parsed here once.
        let task = snapshot.task();
        if !agent_parts(&task).any(is_reference) {
            drop(task);
            return snapshot;
        }
        let mut task = task.into_owned();
        self.resolve_task(&mut task);
        Snapshot::live(snapshot.seq, task)
    }

    /// The event with URLs instead of references. `None` if it has no references.
    pub fn resolve_event(&self, event: &TaskEvent) -> Option<TaskEvent> {
        match event {
            TaskEvent::Created(task) if agent_parts(task).any(is_reference) => {
                let mut task = Task::clone(task);
                self.resolve_task(&mut task);
                Some(TaskEvent::Created(Arc::new(task)))
            }
            TaskEvent::Status(update) if has_reference(update.status.message.as_deref()) => {
                let mut update = TaskStatusUpdateEvent::clone(update);
                if let Some(message) = &mut update.status.message {
                    self.message(&update.task_id, message);
                }
                Some(TaskEvent::Status(Arc::new(update)))
            }
            TaskEvent::Artifact(update) if update.artifact.parts.iter().any(is_reference) => {
                let mut update = TaskArtifactUpdateEvent::clone(update);
                self.parts(&update.task_id, &mut update.artifact.parts);
                Some(TaskEvent::Artifact(Arc::new(update)))
            }
            TaskEvent::Created(_) | TaskEvent::Message(_) | TaskEvent::Status(_) | TaskEvent::Artifact(_) => {
                None
            }
        }
    }

    /// The entry with URLs instead of references. The same entry if it has none.
    pub fn resolve_entry(&self, entry: &Arc<Entry>) -> Arc<Entry> {
        match self.resolve_event(&entry.event) {
            Some(event) => Arc::new(Entry::new(entry.seq, event)),
            None => entry.clone(),
        }
    }

    fn resolve_item(&self, item: StreamItem) -> StreamItem {
        match item {
            StreamItem::Snapshot(snapshot) => StreamItem::Snapshot(self.resolve_snapshot(snapshot)),
            StreamItem::Entry(entry) => StreamItem::Entry(self.resolve_entry(&entry)),
            // A direct message has no task, and stored content belongs to a task.
            StreamItem::Message(message) => StreamItem::Message(message),
        }
    }

    /// The reply with URLs instead of references.
    pub fn resolve(&self, reply: Reply) -> Reply {
        match reply {
            Reply::Sent(snapshot, view) => Reply::Sent(self.resolve_snapshot(snapshot), view),
            Reply::Task(snapshot, view) => Reply::Task(self.resolve_snapshot(snapshot), view),
            Reply::Tasks(mut page) => {
                page.tasks = page.tasks.into_iter().map(|task| self.resolve_snapshot(task)).collect();
                Reply::Tasks(page)
            }
            Reply::Events(events, view) => {
                let links = self.clone();
                Reply::Events(events.mapped(move |item| links.resolve_item(item)), view)
            }
            Reply::Message(_) | Reply::Push(_) | Reply::Pushes(_) | Reply::Done | Reply::Card(_) => reply,
        }
    }
}

fn is_reference(part: &Part) -> bool {
    referenced_content(part).is_some()
}

fn has_reference(message: Option<&Message>) -> bool {
    message.is_some_and(|message| is_of_agent(message) && message.parts.iter().any(is_reference))
}

/// The parts of an event of an agent, so that they can be changed. The event is copied if it is shared.
pub(crate) fn parts_of_event(event: &mut TaskEvent) -> Option<&mut Vec<Part>> {
    match event {
        TaskEvent::Artifact(update) => {
            let Artifact { parts, .. } = &mut Arc::make_mut(update).artifact;
            Some(parts)
        }
        TaskEvent::Status(update) => {
            let message = Arc::make_mut(update).status.message.as_mut();
            message.filter(|message| is_of_agent(message)).map(|message| &mut message.parts)
        }
        TaskEvent::Created(_) | TaskEvent::Message(_) => None,
    }
}

/// A path as a URL.
fn file_url(path: &Path) -> String {
    let text = path.to_string_lossy();
    let text: Cow<'_, str> = match std::path::MAIN_SEPARATOR {
        '/' => text,
        separator => text.replace(separator, "/").into(),
    };
    let segments: Vec<_> = text.split('/').map(escaped).collect();
    let path = segments.join("/");
    // A path that begins with a drive needs a slash in front.
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("file://{slash}{path}")
}

/// A segment of a URL, with all but letters, digits and `-._~` escaped.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
