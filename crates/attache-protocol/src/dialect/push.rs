//! Webhooks before 1.0, where a webhook is a member of the object that it belongs to.

use serde::{Deserialize, Serialize};

use crate::json::lenient;
use crate::{
    AuthenticationInfo, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, TaskId, TaskPushNotificationConfig,
};

/// A webhook with the id of its task.
#[derive(Default, Deserialize)]
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

/// Credentials. Only the first of several schemes is used.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Authentication {
    #[serde(deserialize_with = "lenient::null")]
    schemes: Vec<String>,
    /// The name in 1.0, which some clients of iii's dialect use.
    #[serde(deserialize_with = "lenient::string", skip_serializing)]
    scheme: Option<String>,
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    credentials: Option<String>,
}

/// The ids of a task and of one of its webhooks.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WebhookQuery {
    #[serde(deserialize_with = "lenient::null")]
    id: TaskId,
    #[serde(deserialize_with = "lenient::string")]
    push_notification_config_id: Option<String>,
}

impl From<Webhook> for TaskPushNotificationConfig {
    fn from(webhook: Webhook) -> Self {
        let Webhook { id, url, token, authentication } = webhook;
        let authentication = authentication.and_then(|Authentication { schemes, scheme, credentials }| {
            let scheme = schemes.into_iter().next().or(scheme);
            // Before 1.0 an empty object is valid. It means that there are no credentials.
            let is_empty = scheme.is_none() && credentials.is_none();
            (!is_empty).then(|| AuthenticationInfo { scheme: scheme.unwrap_or_default(), credentials })
        });
        Self { tenant: None, id, task_id: None, url, token, authentication }
    }
}

/// A webhook without an id gets the id of its task, so a task has at most one of them.
impl From<TaskWebhook> for TaskPushNotificationConfig {
    fn from(TaskWebhook { task_id, push_notification_config }: TaskWebhook) -> Self {
        push_notification_config.for_task(task_id)
    }
}

impl Webhook {
    /// The webhook of a task.
    pub(super) fn for_task(self, task_id: TaskId) -> TaskPushNotificationConfig {
        let id = self.id.clone().unwrap_or_else(|| task_id.as_str().to_owned());
        TaskPushNotificationConfig { id: Some(id), task_id: Some(task_id), ..self.into() }
    }

    /// The webhook with `id`, if it has none itself.
    pub(super) fn or_id(self, id: Option<&str>) -> Self {
        Self { id: self.id.or_else(|| id.map(str::to_owned)), ..self }
    }

    /// The webhook without its id.
    pub(super) fn without_id(self) -> Self {
        Self { id: None, ..self }
    }
}

impl From<&TaskPushNotificationConfig> for Webhook {
    fn from(config: &TaskPushNotificationConfig) -> Self {
        let TaskPushNotificationConfig { tenant: _, id, task_id: _, url, token, authentication } =
            config.clone();
        let authentication = authentication.map(|AuthenticationInfo { scheme, credentials }| {
            Authentication { schemes: vec![scheme], scheme: None, credentials }
        });
        Self { id, url, token, authentication }
    }
}

/// Without an id, the request is about the webhook that has the id of its task.
impl From<WebhookQuery> for GetTaskPushNotificationConfigRequest {
    fn from(WebhookQuery { id, push_notification_config_id }: WebhookQuery) -> Self {
        let webhook = push_notification_config_id.unwrap_or_else(|| id.as_str().to_owned());
        Self { tenant: None, task_id: id, id: webhook }
    }
}

impl From<WebhookQuery> for DeleteTaskPushNotificationConfigRequest {
    fn from(WebhookQuery { id, push_notification_config_id }: WebhookQuery) -> Self {
        let webhook = push_notification_config_id.unwrap_or_else(|| id.as_str().to_owned());
        Self { tenant: None, task_id: id, id: webhook }
    }
}

impl From<WebhookQuery> for ListTaskPushNotificationConfigsRequest {
    fn from(WebhookQuery { id, .. }: WebhookQuery) -> Self {
        Self { task_id: id, ..Self::default() }
    }
}
