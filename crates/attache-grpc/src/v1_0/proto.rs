//! The messages of the protobuf package `lf.a2a.v1`.
//!
//! They have no rules. The model documents the fields and their valid values, and `convert` converts between the two. Enums are
//! plain numbers here, since a peer may send an unknown number; the model has their names. `google.protobuf.Empty` is `()`.

use std::collections::BTreeMap;
use std::fmt;

use prost::{Message as ProstMessage, Oneof};
use prost_types::Timestamp;

pub use crate::card::proto::*;
use crate::convert::Encoded;

// Tasks, messages and events.

#[derive(Clone, PartialEq, ProstMessage)]
pub struct Task {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub context_id: String,
    #[prost(message, optional, tag = "3")]
    pub status: Option<TaskStatus>,
    #[prost(message, repeated, tag = "4")]
    pub artifacts: Vec<Artifact>,
    #[prost(message, repeated, tag = "5")]
    pub history: Vec<Message>,
    #[prost(bytes, optional, tag = "6")]
    pub metadata: Option<Encoded>,
    /// Protocol 1.1.
    #[prost(int64, tag = "7")]
    pub generation: i64,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct TaskStatus {
    /// A [`TaskState`](attache_protocol::TaskState).
    #[prost(int32, tag = "1")]
    pub state: i32,
    #[prost(message, optional, tag = "2")]
    pub message: Option<Message>,
    #[prost(message, optional, tag = "3")]
    pub timestamp: Option<Timestamp>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct Message {
    #[prost(string, tag = "1")]
    pub message_id: String,
    #[prost(string, tag = "2")]
    pub context_id: String,
    #[prost(string, tag = "3")]
    pub task_id: String,
    /// A [`Role`](attache_protocol::Role).
    #[prost(int32, tag = "4")]
    pub role: i32,
    #[prost(message, repeated, tag = "5")]
    pub parts: Vec<Part>,
    #[prost(bytes, optional, tag = "6")]
    pub metadata: Option<Encoded>,
    #[prost(string, repeated, tag = "7")]
    pub extensions: Vec<String>,
    #[prost(string, repeated, tag = "8")]
    pub reference_task_ids: Vec<String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct Part {
    #[prost(oneof = "Content", tags = "1, 2, 3, 4")]
    pub content: Option<Content>,
    #[prost(bytes, optional, tag = "5")]
    pub metadata: Option<Encoded>,
    #[prost(string, tag = "6")]
    pub filename: String,
    #[prost(string, tag = "7")]
    pub media_type: String,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Content {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bytes, tag = "2")]
    Raw(Vec<u8>),
    #[prost(string, tag = "3")]
    Url(String),
    /// A `google.protobuf.Value`.
    #[prost(bytes, tag = "4")]
    Data(Encoded),
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct Artifact {
    #[prost(string, tag = "1")]
    pub artifact_id: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub description: String,
    #[prost(message, repeated, tag = "4")]
    pub parts: Vec<Part>,
    #[prost(bytes, optional, tag = "5")]
    pub metadata: Option<Encoded>,
    #[prost(string, repeated, tag = "6")]
    pub extensions: Vec<String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct TaskStatusUpdateEvent {
    #[prost(string, tag = "1")]
    pub task_id: String,
    #[prost(string, tag = "2")]
    pub context_id: String,
    #[prost(message, optional, tag = "3")]
    pub status: Option<TaskStatus>,
    #[prost(bytes, optional, tag = "4")]
    pub metadata: Option<Encoded>,
    /// Protocol 1.1.
    #[prost(int64, tag = "5")]
    pub generation: i64,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct TaskArtifactUpdateEvent {
    #[prost(string, tag = "1")]
    pub task_id: String,
    #[prost(string, tag = "2")]
    pub context_id: String,
    #[prost(message, optional, tag = "3")]
    pub artifact: Option<Artifact>,
    #[prost(bool, tag = "4")]
    pub append: bool,
    #[prost(bool, tag = "5")]
    pub last_chunk: bool,
    #[prost(bytes, optional, tag = "6")]
    pub metadata: Option<Encoded>,
    /// Protocol 1.1.
    #[prost(int64, tag = "7")]
    pub generation: i64,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct StreamResponse {
    #[prost(oneof = "StreamPayload", tags = "1, 2, 3, 4")]
    pub payload: Option<StreamPayload>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum StreamPayload {
    #[prost(message, tag = "1")]
    Task(Task),
    #[prost(message, tag = "2")]
    Message(Message),
    #[prost(message, tag = "3")]
    StatusUpdate(TaskStatusUpdateEvent),
    #[prost(message, tag = "4")]
    ArtifactUpdate(TaskArtifactUpdateEvent),
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct SendMessageResponse {
    #[prost(oneof = "SendPayload", tags = "1, 2")]
    pub payload: Option<SendPayload>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum SendPayload {
    #[prost(message, tag = "1")]
    Task(Task),
    #[prost(message, tag = "2")]
    Message(Message),
}

// Requests.

#[derive(Clone, PartialEq, ProstMessage)]
pub struct SendMessageRequest {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(message, optional, tag = "2")]
    pub message: Option<Message>,
    #[prost(message, optional, tag = "3")]
    pub configuration: Option<SendMessageConfiguration>,
    #[prost(bytes, optional, tag = "4")]
    pub metadata: Option<Encoded>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct SendMessageConfiguration {
    #[prost(string, repeated, tag = "1")]
    pub accepted_output_modes: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub task_push_notification_config: Option<TaskPushNotificationConfig>,
    #[prost(int32, optional, tag = "3")]
    pub history_length: Option<i32>,
    #[prost(bool, tag = "4")]
    pub return_immediately: bool,
    /// Protocol 1.1.
    #[prost(int64, optional, tag = "5")]
    pub if_generation_match: Option<i64>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct GetTaskRequest {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(string, tag = "2")]
    pub id: String,
    #[prost(int32, optional, tag = "3")]
    pub history_length: Option<i32>,
    /// Protocol 1.1.
    #[prost(int64, optional, tag = "4")]
    pub current_generation: Option<i64>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct ListTasksRequest {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(string, tag = "2")]
    pub context_id: String,
    /// A [`TaskState`](attache_protocol::TaskState).
    #[prost(int32, tag = "3")]
    pub status: i32,
    #[prost(int32, optional, tag = "4")]
    pub page_size: Option<i32>,
    #[prost(string, tag = "5")]
    pub page_token: String,
    #[prost(int32, optional, tag = "6")]
    pub history_length: Option<i32>,
    #[prost(message, optional, tag = "7")]
    pub status_timestamp_after: Option<Timestamp>,
    #[prost(bool, optional, tag = "8")]
    pub include_artifacts: Option<bool>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct ListTasksResponse {
    #[prost(message, repeated, tag = "1")]
    pub tasks: Vec<Task>,
    #[prost(string, tag = "2")]
    pub next_page_token: String,
    #[prost(int32, tag = "3")]
    pub page_size: i32,
    #[prost(int32, tag = "4")]
    pub total_size: i32,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct CancelTaskRequest {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(string, tag = "2")]
    pub id: String,
    #[prost(bytes, optional, tag = "3")]
    pub metadata: Option<Encoded>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct SubscribeToTaskRequest {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(string, tag = "2")]
    pub id: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct GetTaskPushNotificationConfigRequest {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(string, tag = "2")]
    pub task_id: String,
    #[prost(string, tag = "3")]
    pub id: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct DeleteTaskPushNotificationConfigRequest {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(string, tag = "2")]
    pub task_id: String,
    #[prost(string, tag = "3")]
    pub id: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct ListTaskPushNotificationConfigsRequest {
    #[prost(string, tag = "1")]
    pub task_id: String,
    #[prost(int32, tag = "2")]
    pub page_size: i32,
    #[prost(string, tag = "3")]
    pub page_token: String,
    #[prost(string, tag = "4")]
    pub tenant: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct ListTaskPushNotificationConfigsResponse {
    #[prost(message, repeated, tag = "1")]
    pub configs: Vec<TaskPushNotificationConfig>,
    #[prost(string, tag = "2")]
    pub next_page_token: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct GetExtendedAgentCardRequest {
    #[prost(string, tag = "1")]
    pub tenant: String,
}

// Push notifications. `Debug` hides their secrets, as in the model.

#[derive(Clone, PartialEq, ProstMessage)]
#[prost(skip_debug)]
pub struct TaskPushNotificationConfig {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(string, tag = "2")]
    pub id: String,
    #[prost(string, tag = "3")]
    pub task_id: String,
    #[prost(string, tag = "4")]
    pub url: String,
    #[prost(string, tag = "5")]
    pub token: String,
    #[prost(message, optional, tag = "6")]
    pub authentication: Option<AuthenticationInfo>,
}

impl fmt::Debug for TaskPushNotificationConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskPushNotificationConfig")
            .field("tenant", &self.tenant)
            .field("id", &self.id)
            .field("task_id", &self.task_id)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, ProstMessage)]
#[prost(skip_debug)]
pub struct AuthenticationInfo {
    #[prost(string, tag = "1")]
    pub scheme: String,
    #[prost(string, tag = "2")]
    pub credentials: String,
}

// The card of an agent.

#[derive(Clone, PartialEq, ProstMessage)]
pub struct AgentCard {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub description: String,
    #[prost(message, repeated, tag = "3")]
    pub supported_interfaces: Vec<AgentInterface>,
    #[prost(message, optional, tag = "4")]
    pub provider: Option<AgentProvider>,
    #[prost(string, tag = "5")]
    pub version: String,
    #[prost(string, optional, tag = "6")]
    pub documentation_url: Option<String>,
    #[prost(message, optional, tag = "7")]
    pub capabilities: Option<AgentCapabilities>,
    #[prost(btree_map = "string, message", tag = "8")]
    pub security_schemes: BTreeMap<String, SecurityScheme>,
    #[prost(message, repeated, tag = "9")]
    pub security_requirements: Vec<SecurityRequirement>,
    #[prost(string, repeated, tag = "10")]
    pub default_input_modes: Vec<String>,
    #[prost(string, repeated, tag = "11")]
    pub default_output_modes: Vec<String>,
    #[prost(message, repeated, tag = "12")]
    pub skills: Vec<AgentSkill>,
    #[prost(message, repeated, tag = "13")]
    pub signatures: Vec<AgentCardSignature>,
    #[prost(string, optional, tag = "14")]
    pub icon_url: Option<String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct AgentInterface {
    #[prost(string, tag = "1")]
    pub url: String,
    #[prost(string, tag = "2")]
    pub protocol_binding: String,
    #[prost(string, tag = "3")]
    pub tenant: String,
    #[prost(string, tag = "4")]
    pub protocol_version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_printed() {
        let authentication =
            Some(AuthenticationInfo { scheme: "Bearer".into(), credentials: "hunter2".into() });
        let config = TaskPushNotificationConfig {
            id: "c1".into(),
            token: "hunter2".into(),
            authentication,
            ..Default::default()
        };
        let configuration =
            SendMessageConfiguration { task_push_notification_config: Some(config), ..Default::default() };
        let request = SendMessageRequest { configuration: Some(configuration), ..Default::default() };
        let printed = format!("{request:?}");
        assert!(printed.contains("c1") && !printed.contains("hunter2"), "{printed}");
    }
}
