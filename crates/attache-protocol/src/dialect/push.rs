//! Webhooks, as the versions before 1.0 wrote them: a webhook stands inside of what it is for.

use serde::{Deserialize, Serialize};

use crate::json::lenient;
use crate::{
    AuthenticationInfo, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, TaskId, TaskPushNotificationConfig,
};

/// A webhook with the task it is for.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TaskWebhook {
    #[serde(deserialize_with = "lenient::null")]
    task_id: TaskId,
    #[serde(deserialize_with = "lenient::object")]
    push_notification_config: Webhook,
}

/// A webhook.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Webhook {
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(deserialize_with = "lenient::null")]
    url: String,
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(deserialize_with = "lenient::optional_object", skip_serializing_if = "Option::is_none")]
    authentication: Option<Authentication>,
}

/// Credentials. Of several schemes the first one counts.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Authentication {
    #[serde(deserialize_with = "lenient::null")]
    schemes: Vec<String>,
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    credentials: Option<String>,
}

/// A webhook of a task, by its id.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WebhookOfTask {
    #[serde(deserialize_with = "lenient::null")]
    id: TaskId,
    #[serde(deserialize_with = "lenient::string")]
    push_notification_config_id: Option<String>,
}

impl From<Webhook> for TaskPushNotificationConfig {
    fn from(webhook: Webhook) -> Self {
        let Webhook { id, url, token, authentication } = webhook;
        let authentication = authentication.map(|Authentication { schemes, credentials }| {
            AuthenticationInfo { scheme: schemes.into_iter().next().unwrap_or_default(), credentials }
        });
        Self { tenant: None, id, task_id: None, url, token, authentication }
    }
}

/// A webhook without a name of its own bears the id of its task: such was the rule, and so a task has one of them.
impl From<TaskWebhook> for TaskPushNotificationConfig {
    fn from(TaskWebhook { task_id, push_notification_config }: TaskWebhook) -> Self {
        push_notification_config.of(task_id)
    }
}

impl Webhook {
    /// The webhook as one of a task.
    pub(super) fn of(self, task_id: TaskId) -> TaskPushNotificationConfig {
        let id = self.id.clone().unwrap_or_else(|| task_id.as_str().to_owned());
        TaskPushNotificationConfig { id: Some(id), task_id: Some(task_id), ..self.into() }
    }

    /// The webhook with a name that was given elsewhere, if it has none itself.
    pub(super) fn or_named(self, name: Option<&str>) -> Self {
        Self { id: self.id.or_else(|| name.map(str::to_owned)), ..self }
    }

    /// The webhook as the only one of its task, which needs no name.
    pub(super) fn nameless(self) -> Self {
        Self { id: None, ..self }
    }
}

impl From<&TaskPushNotificationConfig> for TaskWebhook {
    fn from(config: &TaskPushNotificationConfig) -> Self {
        Self { task_id: config.task_id.clone().unwrap_or_default(), push_notification_config: config.into() }
    }
}

impl From<&TaskPushNotificationConfig> for Webhook {
    fn from(config: &TaskPushNotificationConfig) -> Self {
        let TaskPushNotificationConfig { tenant: _, id, task_id: _, url, token, authentication } =
            config.clone();
        let authentication = authentication.map(|AuthenticationInfo { scheme, credentials }| {
            Authentication { schemes: vec![scheme], credentials }
        });
        Self { id, url, token, authentication }
    }
}

/// Where no webhook is named, the one that bears the id of its task is meant.
impl From<WebhookOfTask> for GetTaskPushNotificationConfigRequest {
    fn from(WebhookOfTask { id, push_notification_config_id }: WebhookOfTask) -> Self {
        let webhook = push_notification_config_id.unwrap_or_else(|| id.as_str().to_owned());
        Self { tenant: None, task_id: id, id: webhook }
    }
}

impl From<WebhookOfTask> for DeleteTaskPushNotificationConfigRequest {
    fn from(WebhookOfTask { id, push_notification_config_id }: WebhookOfTask) -> Self {
        let webhook = push_notification_config_id.unwrap_or_else(|| id.as_str().to_owned());
        Self { tenant: None, task_id: id, id: webhook }
    }
}

impl From<WebhookOfTask> for ListTaskPushNotificationConfigsRequest {
    fn from(WebhookOfTask { id, .. }: WebhookOfTask) -> Self {
        Self { task_id: id, ..Self::default() }
    }
}
