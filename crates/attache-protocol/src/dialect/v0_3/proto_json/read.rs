//! Reads requests from their path, query and body.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::dialect::http::HttpRequest;
use crate::dialect::params::{Configuration, checked_with, schemes_field};
use crate::dialect::part::{self, ProtoPart};
use crate::dialect::push::Webhook;
use crate::dialect::{put, v0_3};
use crate::json::lenient;
use crate::operation::{parse, without_position};
use crate::{
    ContextId, Error, ErrorKind, JsonObject, Message, Operation, Part, Request, Role,
    SendMessageConfiguration, SendMessageRequest, TaskId,
};

/// Reads a request. Arguments of the path and the query become a request over JSON-RPC. Bodies have the format of this binding.
pub(in crate::dialect) fn read(request: &HttpRequest<'_>) -> Result<Request, Error> {
    let task = request.task.unwrap_or_default();
    let webhook =
        || Params { id: Some(task), push_notification_config_id: request.config, ..Params::default() };
    match request.operation {
        Operation::SendMessage => checked_send(Request::SendMessage(Box::new(send(request.body)?))),
        Operation::SendStreamingMessage => {
            checked_send(Request::SendStreamingMessage(Box::new(send(request.body)?)))
        }
        Operation::GetTask => {
            let history_length = request.argument("historyLength", "history_length");
            read_params("tasks/get", &Params { id: Some(task), history_length, ..Params::default() })
        }
        Operation::CancelTask => {
            let Cancel { name, id, metadata } = parse(body_or_empty(request.body))?;
            expect_path_value("name", name.as_deref(), &format!("tasks/{task}"))?;
            expect_path_value("id", id.as_deref(), task)?;
            read_params(
                "tasks/cancel",
                &Params { id: Some(task), metadata: metadata.as_ref(), ..Params::default() },
            )
        }
        Operation::SubscribeToTask => {
            read_params("tasks/resubscribe", &Params { id: Some(task), ..Params::default() })
        }
        Operation::CreateTaskPushNotificationConfig => create(task, body_or_empty(request.body)),
        Operation::GetTaskPushNotificationConfig => {
            read_params("tasks/pushNotificationConfig/get", &webhook())
        }
        Operation::ListTaskPushNotificationConfigs => list(request, &webhook()),
        Operation::DeleteTaskPushNotificationConfig => {
            read_params("tasks/pushNotificationConfig/delete", &webhook())
        }
        Operation::GetExtendedAgentCard => Ok(Request::GetExtendedAgentCard(Default::default())),
        Operation::ListTasks => Err(Error::new(ErrorKind::MethodNotFound, "there is no such operation")),
    }
}

/// The arguments of a JSON-RPC request that come from a path and a query.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification_config_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

fn read_params(method: &str, params: &Params<'_>) -> Result<Request, Error> {
    let mut json = Vec::new();
    put(&mut json, params);
    v0_3::read(method, &json)
}

fn body_or_empty(body: &[u8]) -> &[u8] {
    if body.trim_ascii().is_empty() { b"{}" } else { body }
}

/// Rejects a member of the body that differs from the same argument in the path.
fn expect_path_value(field: &str, given: Option<&str>, path: &str) -> Result<(), Error> {
    match given.filter(|given| !given.is_empty() && *given != path) {
        None => Ok(()),
        Some(_) => {
            let text = format!("the body and the path disagree: expected `{path}`, or nothing");
            Err(Error::invalid_params(field, text))
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cancel {
    name: Option<String>,
    id: Option<String>,
    metadata: Option<JsonObject>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Send {
    /// The proto calls the field `request` and its JSON name is `message`.
    #[serde(alias = "request", deserialize_with = "lenient::object")]
    message: MessageJson,
    #[serde(deserialize_with = "lenient::optional_object")]
    configuration: Option<Configuration>,
    metadata: Option<JsonObject>,
}

fn send(body: &[u8]) -> Result<SendMessageRequest, Error> {
    let Send { message, configuration, metadata } = parse(body_or_empty(body))?;
    // The proto does not write `false`, so a missing `blocking` means `false`. Without any configuration the request blocks, as
    // in all other versions.
    let configuration = configuration.map(|configuration| SendMessageConfiguration {
        return_immediately: configuration.blocking != Some(true),
        ..configuration.into()
    });
    Ok(SendMessageRequest { tenant: None, message: message.into(), configuration, metadata })
}

/// Checks a message. Errors have the field names of ProtoJSON.
fn checked_send(request: Request) -> Result<Request, Error> {
    let name = |_, field: &str| {
        let field = v0_3::field(Operation::SendMessage, field)?;
        Some(
            field
                .replace("message.parts", "message.content")
                .replace("pushNotificationConfig", "pushNotification"),
        )
    };
    checked_with(request, name, str::to_owned)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct MessageJson {
    #[serde(alias = "message_id", deserialize_with = "lenient::null")]
    message_id: String,
    #[serde(alias = "context_id", deserialize_with = "lenient::id")]
    context_id: Option<ContextId>,
    #[serde(alias = "task_id", deserialize_with = "lenient::id")]
    task_id: Option<TaskId>,
    #[serde(deserialize_with = "role")]
    role: Role,
    #[serde(alias = "parts", deserialize_with = "part::parts::<_, ProtoPart>")]
    content: Vec<Part>,
    metadata: Option<JsonObject>,
    #[serde(deserialize_with = "lenient::null")]
    extensions: Vec<String>,
    #[serde(alias = "reference_task_ids", deserialize_with = "lenient::null")]
    reference_task_ids: Vec<TaskId>,
}

/// A role by its name, by its number, or by its name over JSON-RPC.
fn role<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Role, D::Error> {
    use serde::de::Error as _;
    let Some(raw) = Option::<Box<RawValue>>::deserialize(deserializer)? else { return Ok(Role::default()) };
    match raw.get() {
        r#""user""# => Ok(Role::User),
        r#""agent""# => Ok(Role::Agent),
        text => {
            serde_json::from_str(text).map_err(|error| D::Error::custom(without_position(&error.to_string())))
        }
    }
}

impl From<MessageJson> for Message {
    fn from(message: MessageJson) -> Self {
        Self {
            message_id: message.message_id,
            context_id: message.context_id,
            task_id: message.task_id,
            role: message.role,
            parts: message.content,
            metadata: message.metadata,
            extensions: message.extensions,
            reference_task_ids: message.reference_task_ids,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Create {
    #[serde(deserialize_with = "lenient::string")]
    parent: Option<String>,
    #[serde(alias = "config_id", deserialize_with = "lenient::string")]
    config_id: Option<String>,
    #[serde(deserialize_with = "lenient::optional_object")]
    config: Option<WebhookJson>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WebhookJson {
    #[serde(deserialize_with = "lenient::string")]
    name: Option<String>,
    #[serde(alias = "task_id", deserialize_with = "lenient::string")]
    task_id: Option<String>,
    #[serde(alias = "push_notification_config", deserialize_with = "lenient::optional_object")]
    push_notification_config: Option<Webhook>,
}

/// Reads a new webhook. SDKs write it as the request of the proto or as the webhook of a task. People often write it alone.
fn create(task: &str, body: &[u8]) -> Result<Request, Error> {
    let Create { parent, config_id, config } = parse(body)?;
    expect_path_value("parent", parent.as_deref(), &format!("tasks/{task}"))?;
    let (path, WebhookJson { name, task_id, push_notification_config }) = match config {
        Some(config) => ("config.", config),
        None => ("", parse(body)?),
    };
    expect_path_value(&format!("{path}taskId"), task_id.as_deref(), task)?;
    let named = match &name {
        Some(name) => {
            webhook_id(name, task).map_err(|text| Error::invalid_params(format!("{path}name"), text))?
        }
        None => None,
    };
    let (path, webhook) = match push_notification_config {
        Some(webhook) => (format!("{path}pushNotificationConfig."), webhook),
        None if path.is_empty() && name.is_none() => (String::new(), parse(body)?),
        None => (format!("{path}pushNotificationConfig."), Webhook::default()),
    };
    let config = webhook.or_id(config_id.as_deref().or(named)).for_task(TaskId::from(task));
    let name = |_, field: &str| match field {
        "taskId" => Some("parent".to_owned()),
        field => Some(format!("{path}{}", schemes_field(field))),
    };
    checked_with(Request::CreateTaskPushNotificationConfig(config), name, str::to_owned)
}

/// The id of the webhook in a resource name such as `tasks/t/pushNotificationConfigs/w`, if there is one.
pub(super) fn webhook_id<'a>(name: &'a str, task: &str) -> Result<Option<&'a str>, String> {
    let of_task = name.strip_prefix("tasks/").and_then(|name| name.strip_prefix(task));
    match of_task.map(|rest| rest.strip_prefix("/pushNotificationConfigs").unwrap_or(rest)) {
        // The Python SDK writes `None` for a webhook without an id.
        Some("" | "/" | "/None") => Ok(None),
        Some(webhook) if let Some(webhook) = webhook.strip_prefix('/') => Ok(Some(webhook)),
        Some(_) | None => {
            Err(format!("expected `tasks/{task}/pushNotificationConfigs/…`, as the path has it"))
        }
    }
}

/// Reads a request for the webhooks of a task. A page size of zero means that none was given.
fn list(request: &HttpRequest<'_>, params: &Params<'_>) -> Result<Request, Error> {
    #[derive(Default, Serialize, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Page {
        #[serde(deserialize_with = "lenient::int")]
        page_size: Option<i32>,
        #[serde(deserialize_with = "lenient::string")]
        page_token: Option<String>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Arguments<'a> {
        page_size: Option<&'a str>,
        page_token: Option<&'a str>,
    }
    let mut json = Vec::new();
    let page_size = request.argument("pageSize", "page_size");
    put(&mut json, &Arguments { page_size, page_token: request.argument("pageToken", "page_token") });
    let Page { page_size, page_token } = parse(&json)?;
    let mut list = read_params("tasks/pushNotificationConfig/list", params)?;
    if let Request::ListTaskPushNotificationConfigs(list) = &mut list {
        list.page_size = page_size.filter(|size| *size != 0);
        list.page_token = page_token;
    }
    checked_with(list, |_, field: &str| Some(field.to_owned()), str::to_owned)
}
