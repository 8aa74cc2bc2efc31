//! Writes requests, for a client of 0.3.

use serde::Serialize;

use crate::dialect::push::Webhook;
use crate::dialect::states::LowerState;
use crate::dialect::write::{Empty, Format, Formatted};
use crate::{
    CancelTaskRequest, ContextId, Error, ErrorKind, GetTaskRequest, Json, JsonObject, ListTasksRequest,
    Message, Request, SendMessageRequest, SubscribeToTaskRequest, TaskId, TaskState,
};

/// A JSON-RPC request without its envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodCall {
    /// The method.
    pub method: &'static str,
    /// The arguments: an object.
    pub params: Json,
}

/// Writes a request. A member that 0.3 does not have is an error, if the response without it would be a different one.
///
/// A request that waits for a change of a task becomes one that reads the task now: a server may always respond at once. Tasks
/// are listed with `tasks/list`, which only some servers of 0.3 have.
pub fn write(request: &Request) -> Result<MethodCall, Error> {
    if request.tenant().is_some() {
        return Err(unsupported("tenant", "protocol 0.3 has no tenants"));
    }
    match request {
        Request::SendMessage(send) => {
            // Servers disagree on the default, so the member is always written.
            let blocking = send.configuration.as_ref().is_none_or(|it| !it.return_immediately);
            method_call("message/send", &Send::new(send, Some(blocking))?)
        }
        Request::SendStreamingMessage(send) => method_call("message/stream", &Send::new(send, None)?),
        Request::GetTask(get) => get_task(get),
        Request::CancelTask(cancel) => cancel_task(cancel),
        Request::SubscribeToTask(subscribe) => subscribe_to_task(subscribe),
        Request::ListTasks(list) => method_call("tasks/list", &List::new(list)?),
        Request::CreateTaskPushNotificationConfig(config) => {
            method_call("tasks/pushNotificationConfig/set", &Format::V0_3.json(config))
        }
        Request::GetTaskPushNotificationConfig(get) => {
            method_call("tasks/pushNotificationConfig/get", &Query::webhook(&get.task_id, &get.id))
        }
        Request::ListTaskPushNotificationConfigs(list) => {
            method_call("tasks/pushNotificationConfig/list", &Query::new(&list.task_id))
        }
        Request::DeleteTaskPushNotificationConfig(delete) => {
            method_call("tasks/pushNotificationConfig/delete", &Query::webhook(&delete.task_id, &delete.id))
        }
        Request::GetExtendedAgentCard(_) => method_call("agent/getAuthenticatedExtendedCard", &Empty {}),
    }
}

pub(in crate::dialect) fn get_task(get: &GetTaskRequest) -> Result<MethodCall, Error> {
    method_call("tasks/get", &Query { history_length: get.history_length, ..Query::new(&get.id) })
}

pub(in crate::dialect) fn cancel_task(cancel: &CancelTaskRequest) -> Result<MethodCall, Error> {
    method_call("tasks/cancel", &Query { metadata: cancel.metadata.as_ref(), ..Query::new(&cancel.id) })
}

pub(in crate::dialect) fn subscribe_to_task(subscribe: &SubscribeToTaskRequest) -> Result<MethodCall, Error> {
    method_call("tasks/resubscribe", &Query::new(&subscribe.id))
}

pub(in crate::dialect) fn method_call<T: Serialize>(
    method: &'static str,
    params: &T,
) -> Result<MethodCall, Error> {
    let params = Json::new(params).map_err(|error| {
        Error::new(ErrorKind::InvalidRequest, format!("cannot be written as JSON: {error}"))
    })?;
    Ok(MethodCall { method, params })
}

pub(in crate::dialect) fn unsupported(field: &str, why: &str) -> Error {
    Error::invalid_params(field, why)
}

#[derive(Serialize)]
struct Send<'a> {
    message: Formatted<'a, Message>,
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
            return Err(unsupported(field, "protocol 0.3 has no generations of tasks"));
        }
        let configuration = stated.map(|it| Configuration {
            accepted_output_modes: &it.accepted_output_modes,
            history_length: it.history_length,
            push_notification_config: it.task_push_notification_config.as_deref().map(Into::into),
            blocking,
        });
        let configuration = configuration
            .or_else(|| blocking.map(|_| Configuration { blocking, ..Configuration::default() }));
        let message = Format::V0_3.json(&send.message);
        Ok(Self { message, configuration, metadata: send.metadata.as_ref() })
    }
}

/// A task, and arguments about it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::dialect) struct Query<'a> {
    id: &'a TaskId,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification_config_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

impl<'a> Query<'a> {
    pub(in crate::dialect) fn new(id: &'a TaskId) -> Self {
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
            return Err(unsupported("statusTimestampAfter", "protocol 0.3 cannot list tasks by their time"));
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
