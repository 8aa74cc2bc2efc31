//! The A2A protocol as Rust types.
//!
//! Everything here is pure: no async, no I/O, no clock. The serde representation of a type *is* its wire form
//! (ProtoJSON as A2A 1.0 prescribes it), so a message is parsed once and written once.
//!
//! - [`Task`], [`Message`], [`Part`], [`Artifact`]: what agents and clients exchange.
//! - [`AgentCard`] and the security types: how an agent describes itself.
//! - [`Request`] and [`Operation`]: what can be asked of an agent.
//! - [`Error`]: every way to say no, with its code on each binding.
//! - [`jsonrpc`]: the envelope of the JSON-RPC binding.
//! - [`limits`]: how long identifiers and names may be.
//!
//! Parsing is forgiving where ProtoJSON is (snake_case names, numbers for enums, both base64 alphabets) and strict
//! where silence would hide a mistake (unknown enum names, two members of a oneof). What a value must contain beyond
//! its syntax is checked by [`Request::validate`], which names the violations together.

#[macro_use]
mod oneof;

mod card;
mod chosen_id;
pub mod dialect;
mod error;
mod event;
mod ids;
pub mod json;
pub mod jsonrpc;
pub mod limits;
mod message;
mod operation;
mod part;
mod push;
mod request;
mod security;
mod task;
mod time;
mod validate;
mod version;

pub use card::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider,
    AgentSkill, binding,
};
pub use dialect::Dialect;
pub use error::{ERROR_DOMAIN, Error, ErrorKind, FieldViolation, GrpcCode};
pub use event::{SendMessageResponse, StreamResponse, TaskArtifactUpdateEvent, TaskStatusUpdateEvent};
pub use ids::{ContextId, TaskId};
pub use json::{Json, JsonObject};
pub use message::{Message, Role};
pub use operation::{Operation, Request};
pub use part::{Content, Part};
pub use push::{AuthenticationInfo, TaskPushNotificationConfig};
pub use request::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, SendMessageConfiguration,
    SendMessageRequest, SubscribeToTaskRequest,
};
pub use security::{
    ApiKeySecurityScheme, AuthorizationCodeOAuthFlow, ClientCredentialsOAuthFlow, DeviceCodeOAuthFlow,
    HttpAuthSecurityScheme, ImplicitOAuthFlow, MutualTlsSecurityScheme, OAuth2SecurityScheme, OAuthFlows,
    OpenIdConnectSecurityScheme, PasswordOAuthFlow, SecurityRequirement, SecurityScheme, StringList,
};
pub use task::{Artifact, Task, TaskState, TaskStatus};
pub use time::{Timestamp, TimestampError};
pub use validate::new_task_ids;
pub use version::{Extensions, Version};

/// The extension by which a client repeats a send safely; see [`Extensions`].
///
/// Besides the `Idempotency-Key` header, the key may travel in the request's (or the message's) metadata under this URI,
/// so that bindings without headers have it too.
pub const IDEMPOTENCY_EXTENSION: &str = "urn:attache:extension:idempotency-key:v1";

/// The extension that switches on the task generations of the coming protocol 1.1 for a 1.0 client.
pub const GENERATION_EXTENSION: &str = "urn:attache:extension:generation:v1";

/// The extension by which the creator of a webhook asks to be told of every event, not only of every new status.
pub const PUSH_EVERY_EVENT_EXTENSION: &str = "urn:attache:extension:push-every-event:v1";

/// The media type of A2A documents over HTTP.
pub const MEDIA_TYPE: &str = "application/a2a+json";
