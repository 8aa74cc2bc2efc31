//! Tasks, messages, events and webhooks of any version.

use serde_json::value::RawValue;

use super::members::{Members, text};
use super::part::metadata;
use super::{Event, Reader, excerpt, missing, object};
use crate::{
    Artifact, AuthenticationInfo, ContextId, Error, ListTaskPushNotificationConfigsResponse,
    ListTasksResponse, Message, Part, Role, SendMessageResponse, StreamResponse, Task,
    TaskArtifactUpdateEvent, TaskId, TaskPushNotificationConfig, TaskState, TaskStatus,
    TaskStatusUpdateEvent, Timestamp,
};

/// The type of an object.
enum Kind {
    Task,
    Message,
    StatusUpdate,
    ArtifactUpdate,
}

/// The members that wrap an object of a type.
const WRAPPERS: [(&str, Kind); 5] = [
    ("statusUpdate", Kind::StatusUpdate),
    ("artifactUpdate", Kind::ArtifactUpdate),
    ("task", Kind::Task),
    ("message", Kind::Message),
    ("msg", Kind::Message),
];

/// The letters and digits of a name, in lower case: `status-update` and `statusUpdate` are the same.
fn letters(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

impl Kind {
    fn of(members: &Members<'_>) -> Option<Self> {
        let tag = members.text(&["kind"]).map(|kind| letters(&kind));
        match tag.as_deref() {
            Some("task") => return Some(Self::Task),
            Some("message") => return Some(Self::Message),
            Some("statusupdate" | "taskstatusupdate" | "taskstatusupdateevent") => {
                return Some(Self::StatusUpdate);
            }
            Some("artifactupdate" | "taskartifactupdate" | "taskartifactupdateevent") => {
                return Some(Self::ArtifactUpdate);
            }
            Some(_) | None => {}
        }
        let has = |name| members.has(&[name]);
        if has("artifact") {
            Some(Self::ArtifactUpdate)
        } else if has("status") && (has("taskId") || has("final")) {
            Some(Self::StatusUpdate)
        } else if has("id") && (has("status") || has("artifacts") || has("history")) {
            Some(Self::Task)
        } else if has("parts") || has("content") && has("role") {
            Some(Self::Message)
        } else {
            None
        }
    }
}

/// The object of a type, and the type. An object that is not wrapped comes first: it may have a member of such a name.
fn unwrapped<'a>(json: &'a RawValue) -> Result<(Kind, Members<'a>), Error> {
    let members = object(json)?;
    if let Some(kind) = Kind::of(&members) {
        return Ok((kind, members));
    }
    let wrapped = |(name, kind)| Some((kind, members.object(&[name])?));
    WRAPPERS.into_iter().find_map(wrapped).ok_or_else(|| {
        missing("kind", "is missing, and the members fit neither a task, a message nor an update of a task")
    })
}

impl Reader {
    /// The response to a message.
    pub(super) fn reply(&mut self, json: &RawValue) -> Result<SendMessageResponse, Error> {
        match unwrapped(json)? {
            (Kind::Task, task) => self.task_of(&task).map(SendMessageResponse::Task),
            (Kind::Message, message) => Ok(SendMessageResponse::Message(self.message(&message, Role::Agent))),
            (Kind::StatusUpdate | Kind::ArtifactUpdate, _) => {
                Err(missing("kind", "expected a task or a message, not an update"))
            }
        }
    }

    pub(super) fn event(&mut self, json: &RawValue) -> Result<Event, Error> {
        let (kind, members) = unwrapped(json)?;
        let response = match kind {
            Kind::Task => StreamResponse::Task(self.task_of(&members)?),
            Kind::Message => StreamResponse::Message(self.message(&members, Role::Agent)),
            Kind::StatusUpdate => StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
                task_id: self.task_id(&members),
                context_id: self.context_id(&members).unwrap_or_default(),
                status: self.status(&members),
                metadata: metadata(&members),
                generation: members.number(&["generation"]),
            }),
            Kind::ArtifactUpdate => {
                let artifact =
                    members.object(&["artifact"]).ok_or_else(|| missing("artifact", "expected an object"))?;
                StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
                    task_id: self.task_id(&members),
                    context_id: self.context_id(&members).unwrap_or_default(),
                    // 0.1 has these two members in the artifact.
                    append: members.flag("append") || artifact.flag("append"),
                    last_chunk: members.flag("lastChunk") || artifact.flag("lastChunk"),
                    artifact: self.artifact(&artifact, 0),
                    metadata: metadata(&members),
                    generation: members.number(&["generation"]),
                })
            }
        };
        Ok(Event { response, is_last: members.flag("final") })
    }

    /// A task, which may be wrapped.
    pub(super) fn task(&mut self, json: &RawValue) -> Result<Task, Error> {
        let members = object(json)?;
        match members.object(&["task"]) {
            Some(task) if !members.has(&["id"]) => self.task_of(&task),
            Some(_) | None => self.task_of(&members),
        }
    }

    fn task_of(&mut self, members: &Members<'_>) -> Result<Task, Error> {
        let id = self.task_id(members);
        if id.is_empty() {
            return Err(missing("id", "expected a task's id"));
        }
        let artifacts = members.list(&["artifacts"]).into_iter().filter_map(Members::of).enumerate();
        let artifacts = artifacts.map(|(index, artifact)| self.artifact(&artifact, index)).collect();
        let history = members.list(&["history"]).into_iter().filter_map(Members::of);
        let history = history.map(|message| self.message(&message, Role::Unspecified)).collect();
        Ok(Task {
            id,
            context_id: self.context_id(members),
            status: self.status(members),
            metadata: metadata(members),
            generation: members.number(&["generation"]),
            artifacts,
            history,
        })
    }

    fn task_id(&self, members: &Members<'_>) -> TaskId {
        TaskId::from(members.text(&["taskId", "id"]).unwrap_or_default())
    }

    fn context_id(&self, members: &Members<'_>) -> Option<ContextId> {
        members.text(&["contextId", "sessionId"]).map(ContextId::from)
    }

    /// The status of a task or of an update. It may be the name of the state alone.
    fn status(&mut self, of: &Members<'_>) -> TaskStatus {
        let Some(status) = of.object(&["status"]) else {
            return TaskStatus { state: self.state(of.get(&["status", "state"])), ..TaskStatus::default() };
        };
        let message = match (status.object(&["message", "update"]), status.text(&["message"])) {
            (Some(message), _) => Some(self.message(&message, Role::Agent)),
            (None, Some(text)) => Some(Message::agent("", text)),
            (None, None) => None,
        };
        TaskStatus {
            state: self.state(status.get(&["state"])),
            message: message.map(Box::new),
            timestamp: self.time(status.get(&["timestamp"])),
        }
    }

    fn state(&mut self, json: Option<&RawValue>) -> TaskState {
        let Some(name) = json.and_then(text) else { return TaskState::Unspecified };
        if let Some(state) = name.parse().ok().and_then(TaskState::from_number) {
            return state;
        }
        let wanted = letters(&name);
        let wanted = wanted.strip_prefix("taskstate").unwrap_or(&wanted);
        let wanted = if wanted == "cancelled" { "canceled" } else { wanted };
        let is_wanted =
            |state: &&TaskState| letters(state.as_str()).strip_prefix("taskstate") == Some(wanted);
        TaskState::ALL.iter().find(is_wanted).copied().unwrap_or_else(|| {
            if wanted != "unknown" {
                self.note(format!("the unknown state `{}` is read as unspecified", excerpt(&name)));
            }
            TaskState::Unspecified
        })
    }

    fn time(&mut self, json: Option<&RawValue>) -> Option<Timestamp> {
        let written = json.and_then(text)?;
        let time = Timestamp::parse_tolerantly(&written);
        if time.is_none() {
            self.note(format!("`{}` is not a time and is left out", excerpt(&written)));
        }
        time
    }

    /// A message. One without a known role has `default`.
    fn message(&mut self, members: &Members<'_>, default: Role) -> Message {
        let role = match members.text(&["role"]) {
            None => default,
            Some(name) => match letters(&name).as_str() {
                "user" | "roleuser" | "1" => Role::User,
                "agent" | "roleagent" | "assistant" | "2" => Role::Agent,
                _ => {
                    self.note(format!("the role `{}` is unknown", excerpt(&name)));
                    default
                }
            },
        };
        Message {
            message_id: members.text(&["messageId", "id"]).unwrap_or_default(),
            context_id: self.context_id(members),
            task_id: members.text(&["taskId"]).map(TaskId::from),
            role,
            parts: self.parts(members),
            metadata: metadata(members),
            extensions: members.texts(&["extensions"]),
            reference_task_ids: members.texts(&["referenceTaskIds"]).into_iter().map(TaskId::from).collect(),
        }
    }

    /// An artifact. One without an id gets its number in 0.1, its name or its position in the task.
    fn artifact(&mut self, members: &Members<'_>, position: usize) -> Artifact {
        let id = members.text(&["artifactId", "id", "index", "name"]);
        let parts: Vec<Part> = self.parts(members);
        Artifact {
            artifact_id: id.unwrap_or_else(|| position.to_string()),
            name: members.text(&["name"]),
            description: members.text(&["description"]),
            parts,
            metadata: metadata(members),
            extensions: members.texts(&["extensions"]),
        }
    }

    /// A page of tasks, or a list of all of them. A task that cannot be read is left out.
    pub(super) fn tasks(&mut self, json: &RawValue) -> Result<ListTasksResponse, Error> {
        let (items, page) = self.items(json, &["tasks"])?;
        let mut tasks = Vec::new();
        for item in items {
            match self.task(item) {
                Ok(task) => tasks.push(task),
                Err(error) => self.note(format!("a task is left out: {error}")),
            }
        }
        let count = i32::try_from(tasks.len()).unwrap_or(i32::MAX);
        let number = |name| page.as_ref().and_then(|page| page.number(&[name]));
        Ok(ListTasksResponse {
            tasks,
            next_page_token: page.as_ref().and_then(|page| page.text(&["nextPageToken"])).unwrap_or_default(),
            page_size: number("pageSize").unwrap_or_default(),
            total_size: number("totalSize").unwrap_or(count),
        })
    }

    /// The items of a list, and the page that the list is a member of.
    fn items<'a>(
        &self,
        json: &'a RawValue,
        names: &[&str],
    ) -> Result<(Vec<&'a RawValue>, Option<Members<'a>>), Error> {
        if let Ok(items) = serde_json::from_str(json.get()) {
            return Ok((items, None));
        }
        let page = object(json)?;
        if !page.has(names) {
            return Err(missing(names.first().unwrap_or(&""), "is missing"));
        }
        Ok((page.list(names), Some(page)))
    }

    /// A webhook: alone, or as a member of the object that names its task.
    pub(super) fn webhook(&mut self, json: &RawValue) -> Result<TaskPushNotificationConfig, Error> {
        let top = object(json)?;
        let config = top.object(&["config"]);
        let outer = config.as_ref().unwrap_or(&top);
        let inner = outer.object(&["pushNotificationConfig", "pushNotification"]);
        let webhook = inner.as_ref().unwrap_or(outer);
        // A resource name: `tasks/{task}/pushNotificationConfigs/{id}`.
        let name = outer.text(&["name"]).unwrap_or_default();
        let mut ids = name.split('/').skip(1).step_by(2).map(str::to_owned);
        let (named_task, named_id) = (ids.next(), ids.next());
        let task_id = top.text(&["taskId"]).or_else(|| outer.text(&["taskId"])).or(named_task);
        let authentication = webhook.object(&["authentication"]).and_then(|authentication| {
            let scheme = authentication.texts(&["scheme", "schemes"]).into_iter().next();
            let credentials = authentication.text(&["credentials"]);
            let is_empty = scheme.is_none() && credentials.is_none();
            (!is_empty).then(|| AuthenticationInfo { scheme: scheme.unwrap_or_default(), credentials })
        });
        Ok(TaskPushNotificationConfig {
            tenant: webhook.text(&["tenant"]),
            id: webhook.text(&["id"]).or_else(|| top.text(&["configId"])).or(named_id),
            task_id: task_id.map(TaskId::from),
            url: webhook.text(&["url"]).unwrap_or_default(),
            token: webhook.text(&["token"]),
            authentication,
        })
    }

    pub(super) fn webhooks(
        &mut self,
        json: &RawValue,
    ) -> Result<ListTaskPushNotificationConfigsResponse, Error> {
        let (items, page) = self.items(json, &["configs", "pushNotificationConfigs"])?;
        let configs = items.into_iter().map(|item| self.webhook(item)).collect::<Result<_, _>>()?;
        let next_page_token = page.and_then(|page| page.text(&["nextPageToken"])).unwrap_or_default();
        Ok(ListTaskPushNotificationConfigsResponse { configs, next_page_token })
    }
}
