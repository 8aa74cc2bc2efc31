//! Push notifications: the webhooks of a task.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::TaskId;
use crate::json::lenient;

/// A webhook for the events of one task.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskPushNotificationConfig {
    /// The tenant, if the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The id of this webhook within its task.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The task. It is absent if the webhook is part of the message that creates the task.
    #[serde(alias = "task_id", deserialize_with = "lenient::id", skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The URL of the receiver.
    #[serde(deserialize_with = "lenient::null")]
    pub url: String,
    /// A secret that is sent with each notification, so that the receiver can verify it.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The credentials for the receiver.
    #[serde(deserialize_with = "lenient::optional_object", skip_serializing_if = "Option::is_none")]
    pub authentication: Option<AuthenticationInfo>,
}

/// Credentials for the receiver of push notifications.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuthenticationInfo {
    /// The HTTP authentication scheme, such as `Bearer`.
    #[serde(deserialize_with = "lenient::null")]
    pub scheme: String,
    /// The text after the scheme.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}

/// Keeps secrets out of logs. Logs only show whether there is a secret.
fn hidden(secret: &Option<String>) -> &'static str {
    if secret.is_some() { "(set)" } else { "(none)" }
}

impl fmt::Debug for TaskPushNotificationConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskPushNotificationConfig")
            .field("tenant", &self.tenant)
            .field("id", &self.id)
            .field("task_id", &self.task_id)
            .field("url", &self.url)
            .field("token", &hidden(&self.token))
            .field("authentication", &self.authentication)
            .finish()
    }
}

impl fmt::Debug for AuthenticationInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticationInfo")
            .field("scheme", &self.scheme)
            .field("credentials", &hidden(&self.credentials))
            .finish()
    }
}
