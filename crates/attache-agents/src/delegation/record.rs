//! The record of a delegated task, and how it is written: a task in the words of protocol 0.1, with the time of its creation.
//!
//! Where the task is, and what the agent there calls it, is part of its metadata (`agentUrl`, `remoteTaskId`), so whoever has an
//! answer can ask on with it.

use std::collections::BTreeMap;

use attache_client::Reply;
use attache_protocol::{Dialect, Json, JsonObject, Message, Task, TaskId, TaskState, TaskStatus, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::DelegationError;

const AGENT_URL: &str = "agentUrl";
const REMOTE_ID: &str = "remoteTaskId";

/// A task that another agent works on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    /// The task under the id that it has here.
    pub(super) task: Task,
    /// Where the agent is, as the caller said.
    pub(super) agent_url: String,
    /// What the agent calls the task. Nothing until it has said so.
    pub(super) remote_id: Option<TaskId>,
    pub(super) created_at: Timestamp,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Written {
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

    /// The state in the words of protocol 0.1.
    pub(super) fn state(&self) -> String {
        #[derive(Deserialize)]
        struct Status {
            state: String,
        }
        let written = self.written(&self.task).ok();
        let status = written.and_then(|written| serde_json::from_str::<Status>(written.status.get()).ok());
        status.map_or_else(String::new, |status| status.state)
    }

    /// Takes over what the agent says about the task. Its metadata is the caller's.
    pub(super) fn learn(&mut self, reply: Reply, now: Timestamp) {
        match reply {
            Reply::Task(task) => {
                self.remote_id = Some(task.id);
                self.task.context_id = task.context_id.or(self.task.context_id.take());
                self.task.status = task.status;
                self.task.artifacts = task.artifacts;
                // An agent need not give back what it was told.
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

    /// Adds what is said to the task, after what it last said itself.
    pub(super) fn answer(&mut self, message: Message) {
        self.task.history.extend(self.task.status.message.as_deref().cloned());
        self.task.history.push(message);
    }

    /// Takes over what the agent says without saying anything about the task, which goes on.
    pub(super) fn hear(&mut self, message: Message, now: Timestamp) {
        self.task.status.message = Some(Box::new(message));
        self.task.status.timestamp = Some(now);
    }

    /// Ends the task here: nothing more will be heard of it.
    pub(super) fn fail(&mut self, why: &str, now: Timestamp) {
        let message = Some(Box::new(Message::agent("", why)));
        self.task.status = TaskStatus { state: TaskState::Failed, message, timestamp: Some(now) };
    }

    fn written(&self, task: &Task) -> Result<Written, DelegationError> {
        let mut text = Vec::new();
        Dialect::V0_1.write_task(task, &mut text);
        let mut written: Written = serde_json::from_slice(&text).map_err(|error| unwritable(&error))?;
        let remote_id = self.remote_id.as_ref().map(TaskId::as_str);
        for (key, value) in [(AGENT_URL, Some(self.agent_url.as_str())), (REMOTE_ID, remote_id)] {
            if let Some(value) = value {
                let value = Json::new(value).map_err(|error| unwritable(&error))?;
                written.metadata.insert(key.to_owned(), value);
            }
        }
        written.created_at = self.created_at.to_millis();
        Ok(written)
    }

    /// The record as it is kept.
    pub(super) fn kept(&self) -> Result<Json, DelegationError> {
        Json::new(&self.written(&self.task)?).map_err(|error| unwritable(&error))
    }

    /// The task as callers see it. What a completed task produced is also what it says last: that is where callers look.
    pub(super) fn shown(&self) -> Result<Json, DelegationError> {
        let status = &self.task.status;
        if status.state != TaskState::Completed || status.message.is_some() || self.task.artifacts.is_empty()
        {
            return self.kept();
        }
        let mut task = self.task.clone();
        let mut message = Message { role: attache_protocol::Role::Agent, ..Message::default() };
        message.parts = task.artifacts.iter().flat_map(|artifact| artifact.parts.clone()).collect();
        task.status.message = Some(Box::new(message));
        Json::new(&self.written(&task)?).map_err(|error| unwritable(&error))
    }

    /// Reads a record that was kept; nothing, if it is none.
    pub(super) fn read(kept: &Json) -> Option<Self> {
        let written: Written = kept.read().ok()?;
        let task = Dialect::V0_1.read_task(kept.as_str().as_bytes()).ok()?;
        let said = |key: &str| written.metadata.get(key)?.read::<String>().ok();
        Some(Self {
            agent_url: said(AGENT_URL)?,
            remote_id: said(REMOTE_ID).map(Into::into),
            created_at: Timestamp::from_millis(written.created_at),
            task,
        })
    }
}

/// Metadata for a request: what the caller says.
pub(super) fn metadata(said: Option<&Json>) -> Result<Option<JsonObject>, DelegationError> {
    let Some(said) = said else { return Ok(None) };
    let object = said.read::<JsonObject>();
    object.map(Some).map_err(|_| DelegationError::Invalid("`metadata` must be an object".to_owned()))
}

fn unwritable(error: &serde_json::Error) -> DelegationError {
    DelegationError::Unreadable(error.to_string())
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
        insta::assert_snapshot!(attache_protocol::json::pretty(record.shown().unwrap().as_str()));
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
        record.learn(Reply::Task(done), Timestamp::from_millis(0));
        insta::assert_snapshot!(attache_protocol::json::pretty(record.shown().unwrap().as_str()));
        assert!(!record.kept().unwrap().as_str().contains(r#""message""#), "it is kept once");
    }

    #[test]
    fn a_stored_record_can_be_read() {
        let mut record = record();
        record.remote_id = Some("r1".into());
        record.task.status = state(TaskState::Canceled);
        let read = Record::read(&record.kept().unwrap()).unwrap();
        assert!(read.ended());
        assert_eq!(read.state(), "cancelled");
        assert_eq!(read.kept().unwrap(), record.kept().unwrap());
        assert_eq!(Record::read(&Json::parse("{}").unwrap()), None);
    }
}
