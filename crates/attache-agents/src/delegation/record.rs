//! The record of a delegated task. Its JSON is a task of protocol 0.1 with the time of its creation.
//!
//! The metadata has the address of the agent and the id of the task there (`agentUrl`, `remoteTaskId`), so a caller can ask the agent
//! itself about the task.

use std::collections::BTreeMap;

use attache_client::Reply;
use attache_protocol::{Dialect, Json, JsonObject, Message, Task, TaskId, TaskState, TaskStatus, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{DelegationError, encode};

const AGENT_URL: &str = "agentUrl";
const REMOTE_ID: &str = "remoteTaskId";

/// A task that another agent works on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    /// The task, under our own id.
    pub(super) task: Task,
    /// The address of the agent, as the caller gave it.
    pub(super) agent_url: String,
    /// The id of the task at the agent. `None` until the agent has returned it.
    pub(super) remote_id: Option<TaskId>,
    pub(super) created_at: Timestamp,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordJson {
    id: String,
    session_id: String,
    status: Box<RawValue>,
    history: Box<RawValue>,
    artifacts: Box<RawValue>,
    metadata: BTreeMap<String, Json>,
    #[serde(default)]
    created_at: i64,
}

impl Record {
    pub(super) fn ended(&self) -> bool {
        self.task.status.state.is_terminal()
    }

    /// Whether the task has ended or needs input.
    pub(super) fn is_settled(&self) -> bool {
        self.task.status.state.is_settled()
    }

    /// The state as protocol 0.1 spells it.
    pub(super) fn state(&self) -> String {
        #[derive(Deserialize)]
        struct Status {
            state: String,
        }
        let json = self.with_task(&self.task).ok();
        let status = json.and_then(|json| serde_json::from_str::<Status>(json.status.get()).ok());
        status.map_or_else(String::new, |status| status.state)
    }

    /// Updates the task from a reply of the agent. Keeps the metadata, which belongs to the caller.
    pub(super) fn apply_reply(&mut self, reply: Reply, now: Timestamp) {
        match reply {
            Reply::Task(task) => {
                self.remote_id = Some(task.id);
                self.task.context_id = task.context_id.or(self.task.context_id.take());
                self.task.status = task.status;
                self.task.artifacts = task.artifacts;
                // An agent may omit the history.
                if !task.history.is_empty() {
                    self.task.history = task.history;
                }
            }
            Reply::Message(message) => {
                self.task.context_id = message.context_id.clone().or(self.task.context_id.take());
                self.task.history.push(message.clone());
                let message = Some(Box::new(message));
                self.task.status = TaskStatus { state: TaskState::Completed, message, timestamp: Some(now) };
            }
        }
        self.task.status.timestamp.get_or_insert(now);
    }

    /// Adds a message of the caller to the history, after the last status message of the agent.
    pub(super) fn add_message(&mut self, message: Message) {
        self.task.history.extend(self.task.status.message.as_deref().cloned());
        self.task.history.push(message);
    }

    /// Sets the status message to a message of the agent. The state stays as it is.
    pub(super) fn set_status_message(&mut self, message: Message, now: Timestamp) {
        self.task.status.message = Some(Box::new(message));
        self.task.status.timestamp = Some(now);
    }

    /// Marks the task as failed: no further response is expected.
    pub(super) fn fail(&mut self, reason: &str, now: Timestamp) {
        let message = Some(Box::new(Message::agent("", reason)));
        self.task.status = TaskStatus { state: TaskState::Failed, message, timestamp: Some(now) };
    }

    fn with_task(&self, task: &Task) -> Result<RecordJson, DelegationError> {
        let mut text = Vec::new();
        Dialect::V0_1.write_task(task, &mut text);
        let mut json: RecordJson =
            serde_json::from_slice(&text).map_err(|error| DelegationError::Unreadable(error.to_string()))?;
        let remote_id = self.remote_id.as_ref().map(TaskId::as_str);
        for (key, value) in [(AGENT_URL, Some(self.agent_url.as_str())), (REMOTE_ID, remote_id)] {
            if let Some(value) = value {
                json.metadata.insert(key.to_owned(), encode(value)?);
            }
        }
        json.created_at = self.created_at.to_millis();
        Ok(json)
    }

    /// The record as it is stored.
    pub(super) fn to_stored(&self) -> Result<Json, DelegationError> {
        encode(&self.with_task(&self.task)?)
    }

    /// The task for callers. A completed task without a status message has the parts of its artifacts there, since callers read the
    /// result from the status message.
    pub(super) fn to_output(&self) -> Result<Json, DelegationError> {
        let status = &self.task.status;
        if status.state != TaskState::Completed || status.message.is_some() || self.task.artifacts.is_empty()
        {
            return self.to_stored();
        }
        let mut task = self.task.clone();
        let mut message = Message { role: attache_protocol::Role::Agent, ..Message::default() };
        message.parts = task.artifacts.iter().flat_map(|artifact| artifact.parts.clone()).collect();
        task.status.message = Some(Box::new(message));
        encode(&self.with_task(&task)?)
    }

    /// Parses a stored record. `None` if the value is not a record.
    pub(super) fn from_stored(stored: &Json) -> Option<Self> {
        let json: RecordJson = stored.read().ok()?;
        let task = Dialect::V0_1.read_task(stored.as_str().as_bytes()).ok()?;
        let text = |key: &str| json.metadata.get(key)?.read::<String>().ok();
        Some(Self {
            agent_url: text(AGENT_URL)?,
            remote_id: text(REMOTE_ID).map(Into::into),
            created_at: Timestamp::from_millis(json.created_at),
            task,
        })
    }
}

/// Parses the metadata that a caller gives.
pub(super) fn parse_metadata(metadata: Option<&Json>) -> Result<Option<JsonObject>, DelegationError> {
    let Some(metadata) = metadata else { return Ok(None) };
    let object = metadata.read::<JsonObject>();
    object.map(Some).map_err(|_| DelegationError::Invalid("`metadata` must be an object".to_owned()))
}

#[cfg(test)]
mod tests {
    use attache_protocol::{Artifact, Part};

    use super::*;

    fn record() -> Record {
        Record {
            task: Task {
                id: "t1".into(),
                context_id: Some("s1".into()),
                history: vec![Message::user("m1", "Analyze this")],
                metadata: JsonObject::new(&serde_json::json!({"priority": "high"})).ok(),
                ..Task::default()
            },
            agent_url: "https://a.example/a2a/rpc".to_owned(),
            remote_id: None,
            created_at: Timestamp::from_millis(1_709_976_600_000),
        }
    }

    fn state(state: TaskState) -> TaskStatus {
        TaskStatus { state, message: None, timestamp: Some(Timestamp::from_millis(0)) }
    }

    #[test]
    fn a_record_has_the_documented_shape() {
        let mut record = record();
        record.task.status = state(TaskState::Working);
        insta::assert_snapshot!(attache_protocol::json::pretty(record.to_output().unwrap().as_str()));
    }

    #[test]
    fn the_result_of_a_completed_task_is_its_status_message() {
        let mut record = record();
        let part: Part = "42".into();
        let artifact = Artifact { artifact_id: "a".to_owned(), parts: vec![part], ..Artifact::default() };
        let done = Task {
            id: "r1".into(),
            status: state(TaskState::Completed),
            artifacts: vec![artifact],
            ..Task::default()
        };
        record.apply_reply(Reply::Task(done), Timestamp::from_millis(0));
        insta::assert_snapshot!(attache_protocol::json::pretty(record.to_output().unwrap().as_str()));
        assert!(!record.to_stored().unwrap().as_str().contains(r#""message""#), "the result is stored once");
    }

    #[test]
    fn a_stored_record_can_be_read() {
        let mut record = record();
        record.remote_id = Some("r1".into());
        record.task.status = state(TaskState::Canceled);
        let read = Record::from_stored(&record.to_stored().unwrap()).unwrap();
        assert!(read.ended());
        assert_eq!(read.state(), "cancelled");
        assert_eq!(read.to_stored().unwrap(), record.to_stored().unwrap());
        assert_eq!(Record::from_stored(&Json::parse("{}").unwrap()), None);
    }
}
