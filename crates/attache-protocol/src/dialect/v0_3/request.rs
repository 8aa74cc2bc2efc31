//! Requests, as a client of 0.3 writes them.

use serde::Serialize;

use super::write::{Manner, ShownMessage};
use crate::dialect::push::{TaskWebhook, Webhook};
use crate::dialect::words::LowerState;
use crate::{
    ContextId, Error, ErrorKind, Json, JsonObject, ListTasksRequest, Request, SendMessageRequest, TaskId,
    TaskState,
};

/// A JSON-RPC request without its envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The method.
    pub method: &'static str,
    /// The arguments: an object.
    pub params: Json,
}

/// Writes a request. What 0.3 has no words for is an error where leaving it out would get another answer than was asked for.
///
/// Reading a task once it has changed is asked as reading it now: a server is free to answer at once. Tasks are listed with
/// `tasks/list`, which only some servers of the time had.
pub fn write(request: &Request) -> Result<Written, Error> {
    if request.tenant().is_some() {
        return Err(unsaid("tenant", "protocol 0.3 has no tenants"));
    }
    match request {
        Request::SendMessage(send) => {
            // What the default is was never agreed upon, so it is always said.
            let blocking = send.configuration.as_ref().is_none_or(|it| !it.return_immediately);
            written("message/send", &Send::new(send, Some(blocking))?)
        }
        Request::SendStreamingMessage(send) => written("message/stream", &Send::new(send, None)?),
        Request::GetTask(get) => {
            written("tasks/get", &Query { history_length: get.history_length, ..Query::new(&get.id) })
        }
        Request::CancelTask(cancel) => {
            written("tasks/cancel", &Query { metadata: cancel.metadata.as_ref(), ..Query::new(&cancel.id) })
        }
        Request::SubscribeToTask(subscribe) => written("tasks/resubscribe", &Query::new(&subscribe.id)),
        Request::ListTasks(list) => written("tasks/list", &List::new(list)?),
        Request::CreateTaskPushNotificationConfig(config) => {
            written("tasks/pushNotificationConfig/set", &TaskWebhook::from(config))
        }
        Request::GetTaskPushNotificationConfig(get) => {
            written("tasks/pushNotificationConfig/get", &Query::webhook(&get.task_id, &get.id))
        }
        Request::ListTaskPushNotificationConfigs(list) => {
            written("tasks/pushNotificationConfig/list", &Query::new(&list.task_id))
        }
        Request::DeleteTaskPushNotificationConfig(delete) => {
            written("tasks/pushNotificationConfig/delete", &Query::webhook(&delete.task_id, &delete.id))
        }
        Request::GetExtendedAgentCard(_) => written("agent/getAuthenticatedExtendedCard", &Nothing {}),
    }
}

fn written<T: Serialize>(method: &'static str, params: &T) -> Result<Written, Error> {
    let params = Json::new(params)
        .map_err(|error| Error::new(ErrorKind::InvalidRequest, format!("it is no JSON: {error}")))?;
    Ok(Written { method, params })
}

fn unsaid(field: &str, why: &str) -> Error {
    Error::invalid_params(field, why)
}

#[derive(Serialize)]
struct Nothing {}

#[derive(Serialize)]
struct Send<'a> {
    message: ShownMessage<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration: Option<Configuration<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Configuration<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification_config: Option<Webhook>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocking: Option<bool>,
}

impl<'a> Send<'a> {
    fn new(send: &'a SendMessageRequest, blocking: Option<bool>) -> Result<Self, Error> {
        let stated = send.configuration.as_ref();
        if stated.is_some_and(|it| it.if_generation_match.is_some()) {
            let field = "configuration.ifGenerationMatch";
            return Err(unsaid(field, "protocol 0.3 has no generations of tasks"));
        }
        let configuration = stated.map(|it| Configuration {
            accepted_output_modes: &it.accepted_output_modes,
            history_length: it.history_length,
            push_notification_config: it.task_push_notification_config.as_deref().map(Into::into),
            blocking,
        });
        let configuration = configuration
            .or_else(|| blocking.map(|_| Configuration { blocking, ..Configuration::default() }));
        let message = ShownMessage::new(&send.message, Manner::Exact);
        Ok(Self { message, configuration, metadata: send.metadata.as_ref() })
    }
}

/// A task, and what is asked about it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Query<'a> {
    id: &'a TaskId,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification_config_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

impl<'a> Query<'a> {
    fn new(id: &'a TaskId) -> Self {
        Self { id, push_notification_config_id: None, history_length: None, metadata: None }
    }

    fn webhook(task: &'a TaskId, id: &'a str) -> Self {
        Self { push_notification_config_id: Some(id), ..Self::new(task) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a ContextId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<LowerState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_size: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<i32>,
}

impl<'a> List<'a> {
    fn new(list: &'a ListTasksRequest) -> Result<Self, Error> {
        if list.status_timestamp_after.is_some() {
            return Err(unsaid("statusTimestampAfter", "protocol 0.3 cannot list tasks by their time"));
        }
        Ok(Self {
            context_id: list.context_id.as_ref(),
            status: (list.status != TaskState::Unspecified).then(|| list.status.into()),
            page_size: list.page_size,
            page_token: list.page_token.as_deref(),
            history_length: list.history_length,
        })
    }
}
