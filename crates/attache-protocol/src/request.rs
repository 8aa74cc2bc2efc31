//! The arguments of the operations, and the responses that are lists.

use serde::{Deserialize, Serialize};

use crate::json::lenient;
use crate::{ContextId, JsonObject, Message, Task, TaskId, TaskPushNotificationConfig, TaskState, Timestamp};

/// How the server handles a message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SendMessageConfiguration {
    /// The media types that the client accepts.
    #[serde(
        alias = "accepted_output_modes",
        deserialize_with = "lenient::null",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub accepted_output_modes: Vec<String>,
    /// A webhook for the events of the task. It is boxed, since few messages have one.
    // The .NET SDK has the name of a draft of 1.0. Without the alias its webhooks would be ignored.
    #[serde(
        alias = "task_push_notification_config",
        alias = "pushNotificationConfig",
        deserialize_with = "lenient::optional_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub task_push_notification_config: Option<Box<TaskPushNotificationConfig>>,
    /// The maximum number of messages in the returned history.
    #[serde(
        alias = "history_length",
        deserialize_with = "lenient::int",
        skip_serializing_if = "Option::is_none"
    )]
    pub history_length: Option<i32>,
    /// Whether the server responds as soon as the task exists. Otherwise it waits until the task has settled.
    #[serde(
        alias = "return_immediately",
        deserialize_with = "lenient::null",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub return_immediately: bool,
    /// The message is only accepted if the task has this generation. Part of protocol 1.1.
    #[serde(
        alias = "if_generation_match",
        deserialize_with = "lenient::int",
        serialize_with = "lenient::int64_out",
        skip_serializing_if = "Option::is_none"
    )]
    pub if_generation_match: Option<u64>,
}

/// Sends a message to the agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SendMessageRequest {
    /// The tenant, if the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The message.
    #[serde(deserialize_with = "lenient::object")]
    pub message: Message,
    /// How the server handles it.
    #[serde(deserialize_with = "lenient::optional_object", skip_serializing_if = "Option::is_none")]
    pub configuration: Option<SendMessageConfiguration>,
    /// Additional data about the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}

/// Reads a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GetTaskRequest {
    /// The tenant, if the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(deserialize_with = "lenient::null")]
    pub id: TaskId,
    /// The maximum number of messages in the returned history.
    #[serde(
        alias = "history_length",
        deserialize_with = "lenient::int",
        skip_serializing_if = "Option::is_none"
    )]
    pub history_length: Option<i32>,
    /// The server waits until the generation of the task is higher than this one. Part of protocol 1.1.
    #[serde(
        alias = "current_generation",
        deserialize_with = "lenient::int",
        serialize_with = "lenient::int64_out",
        skip_serializing_if = "Option::is_none"
    )]
    pub current_generation: Option<u64>,
}

/// Lists tasks, in descending order of their status timestamps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListTasksRequest {
    /// The tenant, if the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only tasks of this context.
    #[serde(alias = "context_id", deserialize_with = "lenient::id", skip_serializing_if = "Option::is_none")]
    pub context_id: Option<ContextId>,
    /// Only tasks in this state. Unspecified means all states.
    #[serde(deserialize_with = "lenient::null", skip_serializing_if = "is_unspecified")]
    pub status: TaskState,
    /// The maximum number of tasks: 1 to 100. The default is 50.
    #[serde(alias = "page_size", deserialize_with = "lenient::int", skip_serializing_if = "Option::is_none")]
    pub page_size: Option<i32>,
    /// The token from the previous page.
    #[serde(
        alias = "page_token",
        deserialize_with = "lenient::string",
        skip_serializing_if = "Option::is_none"
    )]
    pub page_token: Option<String>,
    /// The maximum number of messages in the history of each task.
    #[serde(
        alias = "history_length",
        deserialize_with = "lenient::int",
        skip_serializing_if = "Option::is_none"
    )]
    pub history_length: Option<i32>,
    /// Only tasks with a status timestamp at or after this time.
    #[serde(alias = "status_timestamp_after", skip_serializing_if = "Option::is_none")]
    pub status_timestamp_after: Option<Timestamp>,
    /// Whether to include artifacts.
    #[serde(
        alias = "include_artifacts",
        deserialize_with = "lenient::null",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub include_artifacts: bool,
}

fn is_unspecified(state: &TaskState) -> bool {
    *state == TaskState::Unspecified
}

/// A page of tasks. All four members are always written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListTasksResponse {
    /// The tasks, in descending order of their status timestamps.
    #[serde(deserialize_with = "lenient::objects")]
    pub tasks: Vec<Task>,
    /// The token for the next page. It is empty on the last page.
    #[serde(alias = "next_page_token", deserialize_with = "lenient::null")]
    pub next_page_token: String,
    /// The page size that the server used.
    #[serde(alias = "page_size", deserialize_with = "lenient::int_or_zero")]
    pub page_size: i32,
    /// The number of matching tasks on all pages.
    #[serde(alias = "total_size", deserialize_with = "lenient::int_or_zero")]
    pub total_size: i32,
}

/// Cancels a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CancelTaskRequest {
    /// The tenant, if the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(deserialize_with = "lenient::null")]
    pub id: TaskId,
    /// Additional data about the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}

/// Subscribes to the events of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SubscribeToTaskRequest {
    /// The tenant, if the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(deserialize_with = "lenient::null")]
    pub id: TaskId,
}

/// Reads a webhook of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GetTaskPushNotificationConfigRequest {
    /// The tenant, if the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "lenient::null")]
    pub task_id: TaskId,
    /// The webhook.
    #[serde(deserialize_with = "lenient::null")]
    pub id: String,
}

/// Deletes a webhook of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeleteTaskPushNotificationConfigRequest {
    /// The tenant, if the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "lenient::null")]
    pub task_id: TaskId,
    /// The webhook.
    #[serde(deserialize_with = "lenient::null")]
    pub id: String,
}

/// Lists the webhooks of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListTaskPushNotificationConfigsRequest {
    /// The tenant, if the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "lenient::null")]
    pub task_id: TaskId,
    /// The maximum number of webhooks.
    #[serde(alias = "page_size", deserialize_with = "lenient::int", skip_serializing_if = "Option::is_none")]
    pub page_size: Option<i32>,
    /// The token from the previous page.
    #[serde(
        alias = "page_token",
        deserialize_with = "lenient::string",
        skip_serializing_if = "Option::is_none"
    )]
    pub page_token: Option<String>,
}

/// The webhooks of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListTaskPushNotificationConfigsResponse {
    /// The webhooks.
    #[serde(deserialize_with = "lenient::objects")]
    pub configs: Vec<TaskPushNotificationConfig>,
    /// The token for the next page. It is empty on the last page.
    #[serde(
        alias = "next_page_token",
        deserialize_with = "lenient::null",
        skip_serializing_if = "String::is_empty"
    )]
    pub next_page_token: String,
}

/// Reads the extended card for authenticated clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GetExtendedAgentCardRequest {
    /// The tenant, if the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}
