//! Push notifications: the webhooks of a task.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::TaskId;
use crate::json::lenient;

/// A webhook for the events of one task.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "AnyShape")]
pub struct TaskPushNotificationConfig {
    /// The tenant, if the interface has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The id of this webhook within its task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The task. It is absent if the webhook is part of the message that creates the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The URL of the receiver.
    pub url: String,
    /// A secret that is sent with each notification, so that the receiver can verify it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The credentials for the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication: Option<AuthenticationInfo>,
}

/// A webhook as it is read: that of 1.0, or that of its drafts, which have the receiver in a member. The SDKs for .NET and Swift send the
/// latter.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AnyShape {
    #[serde(deserialize_with = "lenient::string")]
    tenant: Option<String>,
    #[serde(deserialize_with = "lenient::string")]
    id: Option<String>,
    #[serde(alias = "config_id", deserialize_with = "lenient::string")]
    config_id: Option<String>,
    #[serde(alias = "task_id", deserialize_with = "lenient::id")]
    task_id: Option<TaskId>,
    #[serde(deserialize_with = "lenient::null")]
    url: String,
    #[serde(deserialize_with = "lenient::string")]
    token: Option<String>,
    #[serde(deserialize_with = "lenient::optional_object")]
    authentication: Option<AuthenticationInfo>,
    #[serde(
        alias = "push_notification_config",
        alias = "config",
        deserialize_with = "lenient::optional_object"
    )]
    push_notification_config: Option<Box<Receiver>>,
}

/// The receiver in a webhook of the drafts.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Receiver {
    #[serde(deserialize_with = "lenient::string")]
    id: Option<String>,
    #[serde(deserialize_with = "lenient::null")]
    url: String,
    #[serde(deserialize_with = "lenient::string")]
    token: Option<String>,
    #[serde(deserialize_with = "lenient::optional_object")]
    authentication: Option<AuthenticationInfo>,
}

impl From<AnyShape> for TaskPushNotificationConfig {
    fn from(webhook: AnyShape) -> Self {
        let AnyShape { tenant, id, config_id, task_id, url, token, authentication, .. } = webhook;
        match webhook.push_notification_config {
            // Credentials never go to another URL than the one that they stand beside.
            Some(receiver) if url.is_empty() => {
                let Receiver { id: own, url, token, authentication } = *receiver;
                Self { tenant, id: id.or(config_id).or(own), task_id, url, token, authentication }
            }
            Some(_) | None => Self { tenant, id, task_id, url, token, authentication },
        }
    }
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
