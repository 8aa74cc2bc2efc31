//! The messages of the protobuf package `a2a.v1`.
//!
//! They have no rules, as in 1.0. A field has the name that it has in the model, even if its name in protobuf is different: names
//! are not encoded.

use std::collections::BTreeMap;
use std::fmt;

use prost::{Message as ProstMessage, Oneof};
use prost_types::Timestamp;

use crate::card::proto::*;
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
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct TaskStatus {
    /// A [`TaskState`](attache_protocol::TaskState).
    #[prost(int32, tag = "1")]
    pub state: i32,
    /// `update` in protobuf, `message` in JSON.
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
    /// `content`.
    #[prost(message, repeated, tag = "5")]
    pub parts: Vec<Part>,
    #[prost(bytes, optional, tag = "6")]
    pub metadata: Option<Encoded>,
    #[prost(string, repeated, tag = "7")]
    pub extensions: Vec<String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct Part {
    #[prost(oneof = "Content", tags = "1, 2, 3")]
    pub content: Option<Content>,
    #[prost(bytes, optional, tag = "4")]
    pub metadata: Option<Encoded>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Content {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(message, tag = "2")]
    File(FilePart),
    #[prost(message, tag = "3")]
    Data(DataPart),
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct FilePart {
    #[prost(oneof = "File", tags = "1, 2")]
    pub file: Option<File>,
    #[prost(string, tag = "3")]
    pub mime_type: String,
    #[prost(string, tag = "4")]
    pub name: String,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum File {
    #[prost(string, tag = "1")]
    Uri(String),
    /// In base64, as most peers write it.
    #[prost(bytes, tag = "2")]
    Bytes(Vec<u8>),
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct DataPart {
    #[prost(bytes, optional, tag = "1")]
    pub data: Option<Encoded>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct Artifact {
    #[prost(string, tag = "1")]
    pub artifact_id: String,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub description: String,
    #[prost(message, repeated, tag = "5")]
    pub parts: Vec<Part>,
    #[prost(bytes, optional, tag = "6")]
    pub metadata: Option<Encoded>,
    #[prost(string, repeated, tag = "7")]
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
    /// `final`.
    #[prost(bool, tag = "4")]
    pub is_final: bool,
    #[prost(bytes, optional, tag = "5")]
    pub metadata: Option<Encoded>,
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
    /// `request` in protobuf, `message` in JSON.
    #[prost(message, optional, tag = "1")]
    pub message: Option<Message>,
    #[prost(message, optional, tag = "2")]
    pub configuration: Option<SendMessageConfiguration>,
    #[prost(bytes, optional, tag = "3")]
    pub metadata: Option<Encoded>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct SendMessageConfiguration {
    #[prost(string, repeated, tag = "1")]
    pub accepted_output_modes: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub push_notification: Option<PushNotificationConfig>,
    #[prost(int32, tag = "3")]
    pub history_length: i32,
    #[prost(bool, tag = "4")]
    pub blocking: bool,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct GetTaskRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int32, tag = "2")]
    pub history_length: i32,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct CancelTaskRequest {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct TaskSubscriptionRequest {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct CreateTaskPushNotificationConfigRequest {
    #[prost(string, tag = "1")]
    pub parent: String,
    #[prost(string, tag = "2")]
    pub config_id: String,
    #[prost(message, optional, tag = "3")]
    pub config: Option<TaskPushNotificationConfig>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct GetTaskPushNotificationConfigRequest {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct DeleteTaskPushNotificationConfigRequest {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// `ListTaskPushNotificationConfigRequest`.
#[derive(Clone, PartialEq, ProstMessage)]
pub struct ListTaskPushNotificationConfigsRequest {
    #[prost(string, tag = "1")]
    pub parent: String,
    #[prost(int32, tag = "2")]
    pub page_size: i32,
    #[prost(string, tag = "3")]
    pub page_token: String,
}

/// `ListTaskPushNotificationConfigResponse`.
#[derive(Clone, PartialEq, ProstMessage)]
pub struct ListTaskPushNotificationConfigsResponse {
    #[prost(message, repeated, tag = "1")]
    pub configs: Vec<TaskPushNotificationConfig>,
    #[prost(string, tag = "2")]
    pub next_page_token: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct GetAgentCardRequest {}

// Push notifications. `Debug` hides their secrets, as in the model.

#[derive(Clone, PartialEq, ProstMessage)]
pub struct TaskPushNotificationConfig {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub push_notification_config: Option<PushNotificationConfig>,
}

#[derive(Clone, PartialEq, ProstMessage)]
#[prost(skip_debug)]
pub struct PushNotificationConfig {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub url: String,
    #[prost(string, tag = "3")]
    pub token: String,
    #[prost(message, optional, tag = "4")]
    pub authentication: Option<AuthenticationInfo>,
}

impl fmt::Debug for PushNotificationConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushNotificationConfig")
            .field("id", &self.id)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, ProstMessage)]
#[prost(skip_debug)]
pub struct AuthenticationInfo {
    #[prost(string, repeated, tag = "1")]
    pub schemes: Vec<String>,
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
    #[prost(string, tag = "3")]
    pub url: String,
    #[prost(message, optional, tag = "4")]
    pub provider: Option<AgentProvider>,
    #[prost(string, tag = "5")]
    pub version: String,
    #[prost(string, tag = "6")]
    pub documentation_url: String,
    #[prost(message, optional, tag = "7")]
    pub capabilities: Option<AgentCapabilities>,
    #[prost(btree_map = "string, message", tag = "8")]
    pub security_schemes: BTreeMap<String, SecurityScheme>,
    #[prost(message, repeated, tag = "9")]
    pub security: Vec<SecurityRequirement>,
    #[prost(string, repeated, tag = "10")]
    pub default_input_modes: Vec<String>,
    #[prost(string, repeated, tag = "11")]
    pub default_output_modes: Vec<String>,
    #[prost(message, repeated, tag = "12")]
    pub skills: Vec<AgentSkill>,
    #[prost(bool, tag = "13")]
    pub supports_authenticated_extended_card: bool,
    #[prost(string, tag = "14")]
    pub preferred_transport: String,
    #[prost(message, repeated, tag = "15")]
    pub additional_interfaces: Vec<AgentInterface>,
    #[prost(string, tag = "16")]
    pub protocol_version: String,
    #[prost(message, repeated, tag = "17")]
    pub signatures: Vec<AgentCardSignature>,
    #[prost(string, tag = "18")]
    pub icon_url: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct AgentInterface {
    #[prost(string, tag = "1")]
    pub url: String,
    #[prost(string, tag = "2")]
    pub transport: String,
}
