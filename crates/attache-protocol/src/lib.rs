//! The A2A protocol as Rust types.
//!
//! Everything here is pure: no async, no I/O, no clock. The serde representation of a type *is* its wire format
//! (the ProtoJSON of A2A 1.0), so a message is parsed once and written once.
//!
//! - [`Task`], [`Message`], [`Part`], [`Artifact`]: what agents and clients exchange.
//! - [`AgentCard`] and the security types: how an agent describes itself.
//! - [`Request`] and [`Operation`]: the operations of the protocol.
//! - [`Error`]: all errors, with their codes on each binding.
//! - [`jsonrpc`]: the envelope of the JSON-RPC binding.
//! - [`limits`]: the maximum lengths of identifiers and names.
//! - [`tolerant`]: the responses of servers that do not follow the protocol exactly.
//!
//! Parsing is as lenient as ProtoJSON requires: snake_case names, numbers for enums, both base64 alphabets. It is strict where
//! leniency would hide a mistake: unknown enum names, two members of a oneof. [`Request::validate`] checks all other rules. It
//! reports several violations at once.

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
pub mod tolerant;
mod validate;
mod version;

pub use card::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider,
    AgentSkill, binding,
};
pub use dialect::Dialect;
pub use error::{ERROR_DOMAIN, Error, ErrorClass, ErrorKind, FieldViolation, GrpcCode};
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

/// The extension for safe retries of a send; see [`Extensions`].
///
/// The key is in the `Idempotency-Key` header, or in the metadata of the request or of the message under this URI. Bindings
/// without headers use the metadata.
pub const IDEMPOTENCY_EXTENSION: &str = "urn:attache:extension:idempotency-key:v1";

/// The extension with which a client that fetches a card gets the transports that the specification does not know: WebSocket, JSON-RPC over
/// gRPC, and others. Other clients do not, because some reject a card with an interface of another origin.
pub const TRANSPORTS_EXTENSION: &str = "urn:attache:extension:transports:v1";

/// The extension that enables the task generations of protocol 1.1 for a client of 1.0.
pub const GENERATION_EXTENSION: &str = "urn:attache:extension:generation:v1";

/// The extension with which a webhook gets every event. Without it, the webhook only gets status changes.
pub const PUSH_EVERY_EVENT_EXTENSION: &str = "urn:attache:extension:push-every-event:v1";

/// The media type of A2A over HTTP+JSON.
pub const MEDIA_TYPE: &str = "application/a2a+json";
