//! Writes requests, for a client of 0.1.

use serde::Serialize;

use crate::dialect::push::Webhook;
use crate::dialect::v0_3::request::{
    MethodCall, Query, cancel_task, get_task, method_call, subscribe_to_task, unsupported,
};
use crate::dialect::write::{Format, Formatted};
use crate::{
    ContextId, Error, ErrorKind, JsonObject, Message, Operation, Request, SendMessageRequest, TaskId,
};

/// Writes a request. A member that 0.1 does not have is an error, if the response without it would be a different one.
///
/// The client chooses the ids of its tasks: see [`task_id`]. A server responds to a message when it wants to, mostly at the end of the
/// task. References to other tasks and extensions are left out.
pub fn write(request: &Request) -> Result<MethodCall, Error> {
    if request.tenant().is_some() {
        return Err(unsupported("tenant", "protocol 0.1 has no tenants"));
    }
    match request {
        Request::SendMessage(send) => method_call("tasks/send", &Send::new(send)?),
        Request::SendStreamingMessage(send) => method_call("tasks/sendSubscribe", &Send::new(send)?),
        Request::GetTask(get) => get_task(get),
        Request::CancelTask(cancel) => cancel_task(cancel),
        Request::SubscribeToTask(subscribe) => subscribe_to_task(subscribe),
        Request::CreateTaskPushNotificationConfig(config) => {
            method_call("tasks/pushNotification/set", &Format::V0_1.json(config))
        }
        Request::GetTaskPushNotificationConfig(get) => {
            method_call("tasks/pushNotification/get", &Query::new(&get.task_id))
        }
        Request::ListTasks(_)
        | Request::ListTaskPushNotificationConfigs(_)
        | Request::DeleteTaskPushNotificationConfig(_)
        | Request::GetExtendedAgentCard(_) => Err(missing(request.operation())),
    }
}

/// The id that a task of 0.1 gets by this message: that of the task that the message continues, or else the id of the message.
pub fn task_id(message: &Message) -> TaskId {
    let named = message.task_id.clone().filter(|id| !id.is_empty());
    named.unwrap_or_else(|| message.message_id.as_str().into())
}

fn missing(operation: Operation) -> Error {
    let text = format!("protocol 0.1 has no operation like `{}`", operation.name());
    Error::new(ErrorKind::UnsupportedOperation, text)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Send<'a> {
    id: TaskId,
    /// Some servers require the member.
    session_id: ContextId,
    message: Formatted<'a, Message>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification: Option<Webhook>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

impl<'a> Send<'a> {
    fn new(send: &'a SendMessageRequest) -> Result<Self, Error> {
        let stated = send.configuration.as_ref();
        if stated.is_some_and(|it| it.if_generation_match.is_some()) {
            let field = "configuration.ifGenerationMatch";
            return Err(unsupported(field, "protocol 0.1 has no generations of tasks"));
        }
        let id = task_id(&send.message);
        let session = send.message.context_id.clone().filter(|id| !id.is_empty());
        let webhook = stated.and_then(|it| it.task_push_notification_config.as_deref());
        Ok(Self {
            session_id: session.unwrap_or_else(|| id.as_str().into()),
            id,
            message: Format::V0_1.json(&send.message),
            accepted_output_modes: stated.map(|it| &*it.accepted_output_modes).unwrap_or_default(),
            push_notification: webhook.map(|webhook| Webhook::from(webhook).without_id()),
            history_length: stated.and_then(|it| it.history_length),
            metadata: send.metadata.as_ref(),
        })
    }
}
