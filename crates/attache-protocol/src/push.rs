//! Push notifications: where to send the news of a task.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::TaskId;
use crate::json::lenient;

/// A webhook for the news of one task.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskPushNotificationConfig {
    /// The tenant, where the interface has one.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The id of this webhook within its task.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The task. Empty where the webhook is given together with the message that creates the task.
    #[serde(alias = "task_id", deserialize_with = "lenient::id", skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// Where to send the news.
    #[serde(deserialize_with = "lenient::null")]
    pub url: String,
    /// A secret that comes back with each notification, so that the receiver knows what it belongs to.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How to authenticate to the receiver.
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
    /// What goes after the scheme.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}

/// Secrets stay out of logs: only whether there is one is shown.
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
