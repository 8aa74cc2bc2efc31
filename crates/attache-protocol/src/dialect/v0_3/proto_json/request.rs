//! The bodies of requests, as a client writes them.

use serde::Serialize;

use super::write::{ShownMessage, ShownWebhook};
use crate::dialect::push::Webhook;
use crate::{Error, ErrorKind, Json, JsonObject, Request, SendMessageRequest, TaskId};

/// Writes the body of a request, where it has one: the rest is in its path and its query. What 0.3 has no words for is an error
/// where leaving it out would get another answer than was asked for.
pub fn body(request: &Request) -> Result<Option<Json>, Error> {
    if request.tenant().is_some() {
        return Err(Error::invalid_params("tenant", "protocol 0.3 has no tenants"));
    }
    match request {
        Request::SendMessage(send) | Request::SendStreamingMessage(send) => written(&Send::new(send)?),
        Request::CancelTask(cancel) => written(&Cancel { name: format!("tasks/{}", cancel.id.as_str()) }),
        Request::CreateTaskPushNotificationConfig(config) => written(&Create {
            parent: format!("tasks/{}", config.task_id.as_ref().map_or("", TaskId::as_str)),
            config_id: config.id.as_deref(),
            config: ShownWebhook::new(config),
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

fn written<T: Serialize>(body: &T) -> Result<Option<Json>, Error> {
    let json = Json::new(body);
    json.map(Some).map_err(|error| Error::new(ErrorKind::InvalidRequest, format!("it is no JSON: {error}")))
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
    config: ShownWebhook,
}

#[derive(Serialize)]
struct Send<'a> {
    message: ShownMessage<'a>,
    configuration: Configuration<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

/// How a message is to be handled. Whether to wait is always said: the default was never agreed upon.
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
    fn new(send: &'a SendMessageRequest) -> Result<Self, Error> {
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
            message: ShownMessage::new(&send.message),
            configuration,
            metadata: send.metadata.as_ref(),
        })
    }
}
