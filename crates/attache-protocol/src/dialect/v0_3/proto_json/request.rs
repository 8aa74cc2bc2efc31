//! Writes the bodies of requests, for a client.

use serde::Serialize;

use super::FileEncoding;
use crate::dialect::push::Webhook;
use crate::dialect::write::{Format, Formatted};
use crate::{
    Error, ErrorKind, Json, JsonObject, Message, Request, SendMessageRequest, TaskId,
    TaskPushNotificationConfig,
};

/// Writes the body of a request, if it has one. All other arguments are in the path and the query. A member that 0.3 does not
/// have is an error, if the response without it would be a different one.
pub fn body(request: &Request, files: FileEncoding) -> Result<Option<Json>, Error> {
    if request.tenant().is_some() {
        return Err(Error::invalid_params("tenant", "protocol 0.3 has no tenants"));
    }
    match request {
        Request::SendMessage(send) | Request::SendStreamingMessage(send) => {
            body_json(&Send::new(send, files)?)
        }
        Request::CancelTask(cancel) => body_json(&Cancel { name: format!("tasks/{}", cancel.id.as_str()) }),
        Request::CreateTaskPushNotificationConfig(config) => body_json(&Create {
            parent: format!("tasks/{}", config.task_id.as_ref().map_or("", TaskId::as_str)),
            config_id: config.id.as_deref(),
            config: Format::Proto.json(config),
        }),
        Request::ListTasks(_) => Err(Error::new(
            ErrorKind::UnsupportedOperation,
            "tasks cannot be listed over HTTP+JSON in protocol 0.3",
        )),
        Request::GetTask(_)
        | Request::SubscribeToTask(_)
        | Request::GetTaskPushNotificationConfig(_)
        | Request::ListTaskPushNotificationConfigs(_)
        | Request::DeleteTaskPushNotificationConfig(_)
        | Request::GetExtendedAgentCard(_) => Ok(None),
    }
}

fn body_json<T: Serialize>(body: &T) -> Result<Option<Json>, Error> {
    let json = Json::new(body);
    json.map(Some)
        .map_err(|error| Error::new(ErrorKind::InvalidRequest, format!("cannot be written as JSON: {error}")))
}

#[derive(Serialize)]
struct Cancel {
    name: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Create<'a> {
    parent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    config_id: Option<&'a str>,
    config: Formatted<'a, TaskPushNotificationConfig>,
}

#[derive(Serialize)]
struct Send<'a> {
    message: Formatted<'a, Message>,
    configuration: Configuration<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

/// How the server handles a message. `blocking` is always written, since servers disagree on the default.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Configuration<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification: Option<Webhook>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<i32>,
    blocking: bool,
}

impl<'a> Send<'a> {
    fn new(send: &'a SendMessageRequest, files: FileEncoding) -> Result<Self, Error> {
        let stated = send.configuration.as_ref();
        if stated.is_some_and(|it| it.if_generation_match.is_some()) {
            let field = "configuration.ifGenerationMatch";
            return Err(Error::invalid_params(field, "protocol 0.3 has no generations of tasks"));
        }
        let webhook = stated.and_then(|it| it.task_push_notification_config.as_deref());
        let configuration = Configuration {
            accepted_output_modes: stated.map_or(&[], |it| &it.accepted_output_modes),
            push_notification: webhook.map(Into::into),
            history_length: stated.and_then(|it| it.history_length),
            blocking: stated.is_none_or(|it| !it.return_immediately),
        };
        Ok(Self {
            message: files.format().json(&send.message),
            configuration,
            metadata: send.metadata.as_ref(),
        })
    }
}
