//! What can be asked of an agent, and the answers that are more than one object of the model.

use serde::{Deserialize, Serialize};

use crate::json::lenient;
use crate::{ContextId, JsonObject, Message, Task, TaskId, TaskPushNotificationConfig, TaskState, Timestamp};

/// How a message is to be handled.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SendMessageConfiguration {
    /// The media types that the client can take.
    #[serde(
        alias = "accepted_output_modes",
        deserialize_with = "lenient::null",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub accepted_output_modes: Vec<String>,
    /// A webhook for the task's news. Few messages come with one, and none of the others is to be any larger for it.
    #[serde(
        alias = "task_push_notification_config",
        deserialize_with = "lenient::optional_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub task_push_notification_config: Option<Box<TaskPushNotificationConfig>>,
    /// How many messages of history to return at most.
    #[serde(
        alias = "history_length",
        deserialize_with = "lenient::int",
        skip_serializing_if = "Option::is_none"
    )]
    pub history_length: Option<i32>,
    /// Whether to answer as soon as there is a task, instead of when it has settled.
    #[serde(
        alias = "return_immediately",
        deserialize_with = "lenient::null",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub return_immediately: bool,
    /// The generation that the task must have for the message to be taken. Part of protocol 1.1.
    #[serde(
        alias = "if_generation_match",
        deserialize_with = "lenient::int",
        serialize_with = "lenient::int64_out",
        skip_serializing_if = "Option::is_none"
    )]
    pub if_generation_match: Option<u64>,
}

/// A message for the agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SendMessageRequest {
    /// The tenant, where the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The message.
    #[serde(deserialize_with = "lenient::object")]
    pub message: Message,
    /// How to handle it.
    #[serde(deserialize_with = "lenient::optional_object", skip_serializing_if = "Option::is_none")]
    pub configuration: Option<SendMessageConfiguration>,
    /// Anything else about the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}

/// Asks for a task as it is now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GetTaskRequest {
    /// The tenant, where the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(deserialize_with = "lenient::null")]
    pub id: TaskId,
    /// How many messages of history to return at most.
    #[serde(
        alias = "history_length",
        deserialize_with = "lenient::int",
        skip_serializing_if = "Option::is_none"
    )]
    pub history_length: Option<i32>,
    /// Wait until the task's generation exceeds this one. Part of protocol 1.1.
    #[serde(
        alias = "current_generation",
        deserialize_with = "lenient::int",
        serialize_with = "lenient::int64_out",
        skip_serializing_if = "Option::is_none"
    )]
    pub current_generation: Option<u64>,
}

/// Asks for a page of tasks, latest status first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListTasksRequest {
    /// The tenant, where the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only tasks of this context.
    #[serde(alias = "context_id", deserialize_with = "lenient::id", skip_serializing_if = "Option::is_none")]
    pub context_id: Option<ContextId>,
    /// Only tasks in this state; unspecified for all.
    #[serde(deserialize_with = "lenient::null", skip_serializing_if = "is_unspecified")]
    pub status: TaskState,
    /// How many tasks to return at most: 1 to 100, 50 if not given.
    #[serde(alias = "page_size", deserialize_with = "lenient::int", skip_serializing_if = "Option::is_none")]
    pub page_size: Option<i32>,
    /// Where to go on, from the page before.
    #[serde(
        alias = "page_token",
        deserialize_with = "lenient::string",
        skip_serializing_if = "Option::is_none"
    )]
    pub page_token: Option<String>,
    /// How many messages of history to return at most with each task.
    #[serde(
        alias = "history_length",
        deserialize_with = "lenient::int",
        skip_serializing_if = "Option::is_none"
    )]
    pub history_length: Option<i32>,
    /// Only tasks whose status was recorded at this time or later.
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
    /// The tasks, latest status first.
    #[serde(deserialize_with = "lenient::objects")]
    pub tasks: Vec<Task>,
    /// Where to go on; empty on the last page.
    #[serde(alias = "next_page_token", deserialize_with = "lenient::null")]
    pub next_page_token: String,
    /// The limit that was used.
    #[serde(alias = "page_size", deserialize_with = "lenient::int_or_zero")]
    pub page_size: i32,
    /// How many tasks match, on all pages together.
    #[serde(alias = "total_size", deserialize_with = "lenient::int_or_zero")]
    pub total_size: i32,
}

/// Asks to end a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CancelTaskRequest {
    /// The tenant, where the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(deserialize_with = "lenient::null")]
    pub id: TaskId,
    /// Anything else about the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}

/// Asks for the events of a task from now on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SubscribeToTaskRequest {
    /// The tenant, where the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(deserialize_with = "lenient::null")]
    pub id: TaskId,
}

/// Asks for one webhook of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GetTaskPushNotificationConfigRequest {
    /// The tenant, where the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "lenient::null")]
    pub task_id: TaskId,
    /// The webhook.
    #[serde(deserialize_with = "lenient::null")]
    pub id: String,
}

/// Asks to forget one webhook of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeleteTaskPushNotificationConfigRequest {
    /// The tenant, where the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "lenient::null")]
    pub task_id: TaskId,
    /// The webhook.
    #[serde(deserialize_with = "lenient::null")]
    pub id: String,
}

/// Asks for the webhooks of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListTaskPushNotificationConfigsRequest {
    /// The tenant, where the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "lenient::null")]
    pub task_id: TaskId,
    /// How many to return at most.
    #[serde(alias = "page_size", deserialize_with = "lenient::int", skip_serializing_if = "Option::is_none")]
    pub page_size: Option<i32>,
    /// Where to go on, from the page before.
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
    /// Where to go on; empty on the last page.
    #[serde(
        alias = "next_page_token",
        deserialize_with = "lenient::null",
        skip_serializing_if = "String::is_empty"
    )]
    pub next_page_token: String,
}

/// Asks for the card that authenticated clients get.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GetExtendedAgentCardRequest {
    /// The tenant, where the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}
