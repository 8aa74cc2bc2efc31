//! Reads requests and stored tasks.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, Error as _};
use serde::{Deserialize, Deserializer};

use crate::dialect::params::{List, TaskQuery, checked, schemes_field};
use crate::dialect::part::{self, KindTag, TaggedPart};
use crate::dialect::push::{TaskWebhook, WebhookQuery};
use crate::dialect::read::{self, ReadFormat, SendJson};
use crate::json::lenient;
use crate::operation::parse;
use crate::{Artifact, Error, JsonObject, Operation, Part, Request, SendMessageRequest, Task};

/// The format of 0.3 over JSON-RPC.
#[derive(Default)]
pub(super) struct V0_3;

impl ReadFormat for V0_3 {
    type Part = TaggedPart<KindTag>;
    type Artifact = ArtifactJson;
    type MessageKind = MessageKind;
    type TaskKind = TaskKind;
}

/// Reads a request.
pub(in crate::dialect) fn read(method: &str, params: &[u8]) -> Result<Request, Error> {
    let request = match method {
        "message/send" => Request::SendMessage(Box::new(parse::<SendJson<V0_3>>(params)?.into())),
        "message/stream" => Request::SendStreamingMessage(Box::new(parse::<SendJson<V0_3>>(params)?.into())),
        "tasks/get" => Request::GetTask(parse::<TaskQuery>(params)?.into()),
        "tasks/cancel" => Request::CancelTask(parse::<TaskQuery>(params)?.into()),
        "tasks/list" => Request::ListTasks(parse::<List>(params)?.into()),
        "tasks/resubscribe" => Request::SubscribeToTask(parse::<TaskQuery>(params)?.into()),
        "tasks/pushNotificationConfig/set" => {
            Request::CreateTaskPushNotificationConfig(parse::<TaskWebhook>(params)?.into())
        }
        "tasks/pushNotificationConfig/get" => {
            Request::GetTaskPushNotificationConfig(parse::<WebhookQuery>(params)?.into())
        }
        "tasks/pushNotificationConfig/list" => {
            Request::ListTaskPushNotificationConfigs(parse::<WebhookQuery>(params)?.into())
        }
        "tasks/pushNotificationConfig/delete" => {
            Request::DeleteTaskPushNotificationConfig(parse::<WebhookQuery>(params)?.into())
        }
        "agent/getAuthenticatedExtendedCard" | "agent/authenticatedExtendedCard" => {
            Request::GetExtendedAgentCard(Default::default())
        }
        _ => return Err(Error::method_not_found(method, METHODS)),
    };
    checked(request, field)
}

/// The methods. The last one had another name before.
const METHODS: [&str; 11] = [
    "message/send",
    "message/stream",
    "tasks/get",
    "tasks/list",
    "tasks/cancel",
    "tasks/resubscribe",
    "tasks/pushNotificationConfig/set",
    "tasks/pushNotificationConfig/get",
    "tasks/pushNotificationConfig/list",
    "tasks/pushNotificationConfig/delete",
    "agent/getAuthenticatedExtendedCard",
];

/// The name that 0.3 has for a field of 1.0.
pub(in crate::dialect) fn field(operation: Operation, field: &str) -> Option<String> {
    match operation {
        Operation::SendMessage | Operation::SendStreamingMessage => {
            let field = part_field(field);
            Some(schemes_field(&field.replace("taskPushNotificationConfig", "pushNotificationConfig")))
        }
        Operation::CreateTaskPushNotificationConfig if field != "taskId" => {
            Some(format!("pushNotificationConfig.{}", schemes_field(field)))
        }
        // The id of a webhook is optional, so only the task can be missing.
        Operation::GetTaskPushNotificationConfig | Operation::DeleteTaskPushNotificationConfig => {
            (field == "taskId").then(|| "id".to_owned())
        }
        Operation::ListTaskPushNotificationConfigs if field == "taskId" => Some("id".to_owned()),
        Operation::GetTask
        | Operation::ListTasks
        | Operation::CancelTask
        | Operation::SubscribeToTask
        | Operation::CreateTaskPushNotificationConfig
        | Operation::ListTaskPushNotificationConfigs
        | Operation::GetExtendedAgentCard => Some(field.to_owned()),
    }
}

/// The name of a field of a message's part. The name and the media type of a file are members of the file.
pub(in crate::dialect) fn part_field(field: &str) -> Cow<'_, str> {
    let Some(part) = field.strip_prefix("message.parts[") else { return Cow::Borrowed(field) };
    let file = part.strip_suffix("].filename").map(|at| (at, "name"));
    match file.or_else(|| part.strip_suffix("].mediaType").map(|at| (at, "mimeType"))) {
        Some((at, member)) => Cow::Owned(format!("message.parts[{at}].file.{member}")),
        None => Cow::Borrowed(field),
    }
}

/// The two methods that send a message. Their arguments can be read together with the envelope of the request.
///
/// Parts without a `kind` are an error here. The error does not name the field; [`read`] does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TaggedSend {
    /// `message/send`.
    Send,
    /// `message/stream`.
    Streaming,
}

impl TaggedSend {
    pub(crate) fn from_method(method: &str) -> Option<Self> {
        match method {
            "message/send" => Some(Self::Send),
            "message/stream" => Some(Self::Streaming),
            _ => None,
        }
    }
}

impl<'de> DeserializeSeed<'de> for TaggedSend {
    type Value = Request;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Request, D::Error> {
        let lenient::Object(send) = lenient::Object::<SendJson<V0_3>>::deserialize(deserializer)?;
        let send = Box::new(SendMessageRequest::from(send));
        let request = match self {
            Self::Send => Request::SendMessage(send),
            Self::Streaming => Request::SendStreamingMessage(send),
        };
        checked(request, field).map_err(D::Error::custom)
    }
}

/// The `kind` of a message.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MessageKind {
    #[default]
    Message,
}

/// The `kind` of a task.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TaskKind {
    Task,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ArtifactJson {
    #[serde(deserialize_with = "lenient::null")]
    artifact_id: String,
    #[serde(deserialize_with = "lenient::string")]
    name: Option<String>,
    #[serde(deserialize_with = "lenient::string")]
    description: Option<String>,
    #[serde(deserialize_with = "part::parts::<_, TaggedPart<KindTag>>")]
    parts: Vec<Part>,
    metadata: Option<JsonObject>,
    #[serde(deserialize_with = "lenient::null")]
    extensions: Vec<String>,
}

impl From<ArtifactJson> for Artifact {
    fn from(artifact: ArtifactJson) -> Self {
        Self {
            artifact_id: artifact.artifact_id,
            name: artifact.name,
            description: artifact.description,
            parts: artifact.parts,
            metadata: artifact.metadata,
            extensions: artifact.extensions,
        }
    }
}

/// Reads a stored task.
pub(in crate::dialect) fn read_task(json: &[u8]) -> Result<Task, Error> {
    read::read_task::<V0_3>(json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn every_method_that_an_error_lists_exists() {
        for method in METHODS {
            let error = read(method, b"{}").err().map(|error| error.kind());
            assert_ne!(error, Some(ErrorKind::MethodNotFound), "{method}");
        }
        assert_eq!(read("tasks/what", b"{}").unwrap_err().kind(), ErrorKind::MethodNotFound);
    }
}
