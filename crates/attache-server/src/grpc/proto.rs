//! The messages of the protobuf package `lf.a2a.v1`, as they are on the wire.
//!
//! They carry no rules: what a field means and what it may hold is said by the model, and [`super::convert`] goes
//! between the two. Enums are plain numbers here, since a peer may send one that nobody knows; their names are the
//! model's. `google.protobuf.Empty` is `()`.

use std::collections::BTreeMap;
use std::fmt;

use prost::{Message as ProstMessage, Oneof};
use prost_types::Timestamp;

/// A `google.protobuf.Struct`, if nothing else is said, in its encoded form.
///
/// A field that holds a message looks the same as one that holds its bytes. As a message, prost would count the length of
/// all that is nested in it again at every level, which makes a deep value slow to write. The price is that one which
/// arrives in several pieces is its last piece, not all of them merged; nobody sends such.
pub(super) type Encoded = Vec<u8>;

// What agents and clients exchange.

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct Task {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) context_id: String,
    #[prost(message, optional, tag = "3")]
    pub(super) status: Option<TaskStatus>,
    #[prost(message, repeated, tag = "4")]
    pub(super) artifacts: Vec<Artifact>,
    #[prost(message, repeated, tag = "5")]
    pub(super) history: Vec<Message>,
    #[prost(bytes, optional, tag = "6")]
    pub(super) metadata: Option<Encoded>,
    /// Protocol 1.1.
    #[prost(int64, tag = "7")]
    pub(super) generation: i64,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct TaskStatus {
    /// A [`TaskState`](attache_protocol::TaskState).
    #[prost(int32, tag = "1")]
    pub(super) state: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) message: Option<Message>,
    #[prost(message, optional, tag = "3")]
    pub(super) timestamp: Option<Timestamp>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct Message {
    #[prost(string, tag = "1")]
    pub(super) message_id: String,
    #[prost(string, tag = "2")]
    pub(super) context_id: String,
    #[prost(string, tag = "3")]
    pub(super) task_id: String,
    /// A [`Role`](attache_protocol::Role).
    #[prost(int32, tag = "4")]
    pub(super) role: i32,
    #[prost(message, repeated, tag = "5")]
    pub(super) parts: Vec<Part>,
    #[prost(bytes, optional, tag = "6")]
    pub(super) metadata: Option<Encoded>,
    #[prost(string, repeated, tag = "7")]
    pub(super) extensions: Vec<String>,
    #[prost(string, repeated, tag = "8")]
    pub(super) reference_task_ids: Vec<String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct Part {
    #[prost(oneof = "Content", tags = "1, 2, 3, 4")]
    pub(super) content: Option<Content>,
    #[prost(bytes, optional, tag = "5")]
    pub(super) metadata: Option<Encoded>,
    #[prost(string, tag = "6")]
    pub(super) filename: String,
    #[prost(string, tag = "7")]
    pub(super) media_type: String,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Content {
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
pub(super) struct Artifact {
    #[prost(string, tag = "1")]
    pub(super) artifact_id: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) description: String,
    #[prost(message, repeated, tag = "4")]
    pub(super) parts: Vec<Part>,
    #[prost(bytes, optional, tag = "5")]
    pub(super) metadata: Option<Encoded>,
    #[prost(string, repeated, tag = "6")]
    pub(super) extensions: Vec<String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct TaskStatusUpdateEvent {
    #[prost(string, tag = "1")]
    pub(super) task_id: String,
    #[prost(string, tag = "2")]
    pub(super) context_id: String,
    #[prost(message, optional, tag = "3")]
    pub(super) status: Option<TaskStatus>,
    #[prost(bytes, optional, tag = "4")]
    pub(super) metadata: Option<Encoded>,
    /// Protocol 1.1.
    #[prost(int64, tag = "5")]
    pub(super) generation: i64,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct TaskArtifactUpdateEvent {
    #[prost(string, tag = "1")]
    pub(super) task_id: String,
    #[prost(string, tag = "2")]
    pub(super) context_id: String,
    #[prost(message, optional, tag = "3")]
    pub(super) artifact: Option<Artifact>,
    #[prost(bool, tag = "4")]
    pub(super) append: bool,
    #[prost(bool, tag = "5")]
    pub(super) last_chunk: bool,
    #[prost(bytes, optional, tag = "6")]
    pub(super) metadata: Option<Encoded>,
    /// Protocol 1.1.
    #[prost(int64, tag = "7")]
    pub(super) generation: i64,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct StreamResponse {
    #[prost(oneof = "StreamPayload", tags = "1, 2, 3, 4")]
    pub(super) payload: Option<StreamPayload>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum StreamPayload {
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
pub(super) struct SendMessageResponse {
    #[prost(oneof = "SendPayload", tags = "1, 2")]
    pub(super) payload: Option<SendPayload>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum SendPayload {
    #[prost(message, tag = "1")]
    Task(Task),
    #[prost(message, tag = "2")]
    Message(Message),
}

// What can be asked of an agent.

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct SendMessageRequest {
    #[prost(string, tag = "1")]
    pub(super) tenant: String,
    #[prost(message, optional, tag = "2")]
    pub(super) message: Option<Message>,
    #[prost(message, optional, tag = "3")]
    pub(super) configuration: Option<SendMessageConfiguration>,
    #[prost(bytes, optional, tag = "4")]
    pub(super) metadata: Option<Encoded>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct SendMessageConfiguration {
    #[prost(string, repeated, tag = "1")]
    pub(super) accepted_output_modes: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub(super) task_push_notification_config: Option<TaskPushNotificationConfig>,
    #[prost(int32, optional, tag = "3")]
    pub(super) history_length: Option<i32>,
    #[prost(bool, tag = "4")]
    pub(super) return_immediately: bool,
    /// Protocol 1.1.
    #[prost(int64, optional, tag = "5")]
    pub(super) if_generation_match: Option<i64>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct GetTaskRequest {
    #[prost(string, tag = "1")]
    pub(super) tenant: String,
    #[prost(string, tag = "2")]
    pub(super) id: String,
    #[prost(int32, optional, tag = "3")]
    pub(super) history_length: Option<i32>,
    /// Protocol 1.1.
    #[prost(int64, optional, tag = "4")]
    pub(super) current_generation: Option<i64>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct ListTasksRequest {
    #[prost(string, tag = "1")]
    pub(super) tenant: String,
    #[prost(string, tag = "2")]
    pub(super) context_id: String,
    /// A [`TaskState`](attache_protocol::TaskState).
    #[prost(int32, tag = "3")]
    pub(super) status: i32,
    #[prost(int32, optional, tag = "4")]
    pub(super) page_size: Option<i32>,
    #[prost(string, tag = "5")]
    pub(super) page_token: String,
    #[prost(int32, optional, tag = "6")]
    pub(super) history_length: Option<i32>,
    #[prost(message, optional, tag = "7")]
    pub(super) status_timestamp_after: Option<Timestamp>,
    #[prost(bool, optional, tag = "8")]
    pub(super) include_artifacts: Option<bool>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct ListTasksResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) tasks: Vec<Task>,
    #[prost(string, tag = "2")]
    pub(super) next_page_token: String,
    #[prost(int32, tag = "3")]
    pub(super) page_size: i32,
    #[prost(int32, tag = "4")]
    pub(super) total_size: i32,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct CancelTaskRequest {
    #[prost(string, tag = "1")]
    pub(super) tenant: String,
    #[prost(string, tag = "2")]
    pub(super) id: String,
    #[prost(bytes, optional, tag = "3")]
    pub(super) metadata: Option<Encoded>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct SubscribeToTaskRequest {
    #[prost(string, tag = "1")]
    pub(super) tenant: String,
    #[prost(string, tag = "2")]
    pub(super) id: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct GetTaskPushNotificationConfigRequest {
    #[prost(string, tag = "1")]
    pub(super) tenant: String,
    #[prost(string, tag = "2")]
    pub(super) task_id: String,
    #[prost(string, tag = "3")]
    pub(super) id: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct DeleteTaskPushNotificationConfigRequest {
    #[prost(string, tag = "1")]
    pub(super) tenant: String,
    #[prost(string, tag = "2")]
    pub(super) task_id: String,
    #[prost(string, tag = "3")]
    pub(super) id: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct ListTaskPushNotificationConfigsRequest {
    #[prost(string, tag = "1")]
    pub(super) task_id: String,
    #[prost(int32, tag = "2")]
    pub(super) page_size: i32,
    #[prost(string, tag = "3")]
    pub(super) page_token: String,
    #[prost(string, tag = "4")]
    pub(super) tenant: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct ListTaskPushNotificationConfigsResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) configs: Vec<TaskPushNotificationConfig>,
    #[prost(string, tag = "2")]
    pub(super) next_page_token: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct GetExtendedAgentCardRequest {
    #[prost(string, tag = "1")]
    pub(super) tenant: String,
}

// Push notifications. Their secrets stay out of logs, here as in the model.

#[derive(Clone, PartialEq, ProstMessage)]
#[prost(skip_debug)]
pub(super) struct TaskPushNotificationConfig {
    #[prost(string, tag = "1")]
    pub(super) tenant: String,
    #[prost(string, tag = "2")]
    pub(super) id: String,
    #[prost(string, tag = "3")]
    pub(super) task_id: String,
    #[prost(string, tag = "4")]
    pub(super) url: String,
    #[prost(string, tag = "5")]
    pub(super) token: String,
    #[prost(message, optional, tag = "6")]
    pub(super) authentication: Option<AuthenticationInfo>,
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
pub(super) struct AuthenticationInfo {
    #[prost(string, tag = "1")]
    pub(super) scheme: String,
    #[prost(string, tag = "2")]
    pub(super) credentials: String,
}

// How an agent describes itself.

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct AgentCard {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) description: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) supported_interfaces: Vec<AgentInterface>,
    #[prost(message, optional, tag = "4")]
    pub(super) provider: Option<AgentProvider>,
    #[prost(string, tag = "5")]
    pub(super) version: String,
    #[prost(string, optional, tag = "6")]
    pub(super) documentation_url: Option<String>,
    #[prost(message, optional, tag = "7")]
    pub(super) capabilities: Option<AgentCapabilities>,
    #[prost(btree_map = "string, message", tag = "8")]
    pub(super) security_schemes: BTreeMap<String, SecurityScheme>,
    #[prost(message, repeated, tag = "9")]
    pub(super) security_requirements: Vec<SecurityRequirement>,
    #[prost(string, repeated, tag = "10")]
    pub(super) default_input_modes: Vec<String>,
    #[prost(string, repeated, tag = "11")]
    pub(super) default_output_modes: Vec<String>,
    #[prost(message, repeated, tag = "12")]
    pub(super) skills: Vec<AgentSkill>,
    #[prost(message, repeated, tag = "13")]
    pub(super) signatures: Vec<AgentCardSignature>,
    #[prost(string, optional, tag = "14")]
    pub(super) icon_url: Option<String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct AgentInterface {
    #[prost(string, tag = "1")]
    pub(super) url: String,
    #[prost(string, tag = "2")]
    pub(super) protocol_binding: String,
    #[prost(string, tag = "3")]
    pub(super) tenant: String,
    #[prost(string, tag = "4")]
    pub(super) protocol_version: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct AgentProvider {
    #[prost(string, tag = "1")]
    pub(super) url: String,
    #[prost(string, tag = "2")]
    pub(super) organization: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct AgentCapabilities {
    #[prost(bool, optional, tag = "1")]
    pub(super) streaming: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub(super) push_notifications: Option<bool>,
    #[prost(message, repeated, tag = "3")]
    pub(super) extensions: Vec<AgentExtension>,
    #[prost(bool, optional, tag = "4")]
    pub(super) extended_agent_card: Option<bool>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct AgentExtension {
    #[prost(string, tag = "1")]
    pub(super) uri: String,
    #[prost(string, tag = "2")]
    pub(super) description: String,
    #[prost(bool, tag = "3")]
    pub(super) required: bool,
    #[prost(bytes, optional, tag = "4")]
    pub(super) params: Option<Encoded>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct AgentSkill {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) description: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) tags: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub(super) examples: Vec<String>,
    #[prost(string, repeated, tag = "6")]
    pub(super) input_modes: Vec<String>,
    #[prost(string, repeated, tag = "7")]
    pub(super) output_modes: Vec<String>,
    #[prost(message, repeated, tag = "8")]
    pub(super) security_requirements: Vec<SecurityRequirement>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct AgentCardSignature {
    #[prost(string, tag = "1")]
    pub(super) protected: String,
    #[prost(string, tag = "2")]
    pub(super) signature: String,
    #[prost(bytes, optional, tag = "3")]
    pub(super) header: Option<Encoded>,
}

// How an agent asks its callers to authenticate.

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct SecurityRequirement {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) schemes: BTreeMap<String, StringList>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct StringList {
    #[prost(string, repeated, tag = "1")]
    pub(super) list: Vec<String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct SecurityScheme {
    #[prost(oneof = "Scheme", tags = "1, 2, 3, 4, 5")]
    pub(super) scheme: Option<Scheme>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Scheme {
    #[prost(message, tag = "1")]
    ApiKey(ApiKeySecurityScheme),
    #[prost(message, tag = "2")]
    HttpAuth(HttpAuthSecurityScheme),
    #[prost(message, tag = "3")]
    OAuth2(OAuth2SecurityScheme),
    #[prost(message, tag = "4")]
    OpenIdConnect(OpenIdConnectSecurityScheme),
    #[prost(message, tag = "5")]
    MutualTls(MutualTlsSecurityScheme),
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct ApiKeySecurityScheme {
    #[prost(string, tag = "1")]
    pub(super) description: String,
    #[prost(string, tag = "2")]
    pub(super) location: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct HttpAuthSecurityScheme {
    #[prost(string, tag = "1")]
    pub(super) description: String,
    #[prost(string, tag = "2")]
    pub(super) scheme: String,
    #[prost(string, tag = "3")]
    pub(super) bearer_format: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct OAuth2SecurityScheme {
    #[prost(string, tag = "1")]
    pub(super) description: String,
    #[prost(message, optional, tag = "2")]
    pub(super) flows: Option<OAuthFlows>,
    #[prost(string, tag = "3")]
    pub(super) oauth2_metadata_url: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct OpenIdConnectSecurityScheme {
    #[prost(string, tag = "1")]
    pub(super) description: String,
    #[prost(string, tag = "2")]
    pub(super) open_id_connect_url: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct MutualTlsSecurityScheme {
    #[prost(string, tag = "1")]
    pub(super) description: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct OAuthFlows {
    #[prost(oneof = "Flow", tags = "1, 2, 3, 4, 5")]
    pub(super) flow: Option<Flow>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Flow {
    #[prost(message, tag = "1")]
    AuthorizationCode(AuthorizationCodeOAuthFlow),
    #[prost(message, tag = "2")]
    ClientCredentials(ClientCredentialsOAuthFlow),
    /// Deprecated.
    #[prost(message, tag = "3")]
    Implicit(ImplicitOAuthFlow),
    /// Deprecated.
    #[prost(message, tag = "4")]
    Password(PasswordOAuthFlow),
    #[prost(message, tag = "5")]
    DeviceCode(DeviceCodeOAuthFlow),
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct AuthorizationCodeOAuthFlow {
    #[prost(string, tag = "1")]
    pub(super) authorization_url: String,
    #[prost(string, tag = "2")]
    pub(super) token_url: String,
    #[prost(string, tag = "3")]
    pub(super) refresh_url: String,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(super) scopes: BTreeMap<String, String>,
    #[prost(bool, tag = "5")]
    pub(super) pkce_required: bool,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct ClientCredentialsOAuthFlow {
    #[prost(string, tag = "1")]
    pub(super) token_url: String,
    #[prost(string, tag = "2")]
    pub(super) refresh_url: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(super) scopes: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct ImplicitOAuthFlow {
    #[prost(string, tag = "1")]
    pub(super) authorization_url: String,
    #[prost(string, tag = "2")]
    pub(super) refresh_url: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(super) scopes: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct PasswordOAuthFlow {
    #[prost(string, tag = "1")]
    pub(super) token_url: String,
    #[prost(string, tag = "2")]
    pub(super) refresh_url: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(super) scopes: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(super) struct DeviceCodeOAuthFlow {
    #[prost(string, tag = "1")]
    pub(super) device_authorization_url: String,
    #[prost(string, tag = "2")]
    pub(super) token_url: String,
    #[prost(string, tag = "3")]
    pub(super) refresh_url: String,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(super) scopes: BTreeMap<String, String>,
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
