//! Requests, from their path, query and body.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::part::ReadPart;
use crate::dialect::http::HttpRequest;
use crate::dialect::params::{Configuration, checked_in};
use crate::dialect::push::Webhook;
use crate::dialect::{put, v0_3};
use crate::json::lenient;
use crate::operation::{parse, without_position};
use crate::{
    ContextId, Error, ErrorKind, JsonObject, Message, Operation, Part, Request, Role,
    SendMessageConfiguration, SendMessageRequest, TaskId,
};

/// Reads a request. What the path says is asked as it was over JSON-RPC; the bodies are this binding's own.
pub(in crate::dialect) fn read(request: &HttpRequest<'_>) -> Result<Request, Error> {
    let task = request.task.unwrap_or_default();
    let webhook =
        || Params { id: Some(task), push_notification_config_id: request.config, ..Params::default() };
    match request.operation {
        Operation::SendMessage => sent(Request::SendMessage(Box::new(send(request.body)?))),
        Operation::SendStreamingMessage => sent(Request::SendStreamingMessage(Box::new(send(request.body)?))),
        Operation::GetTask => {
            let history_length = request.argument("historyLength", "history_length");
            ask("tasks/get", &Params { id: Some(task), history_length, ..Params::default() })
        }
        Operation::CancelTask => {
            let Cancel { name, id, metadata } = parse(body_or_empty(request.body))?;
            agree("name", name.as_deref(), &format!("tasks/{task}"))?;
            agree("id", id.as_deref(), task)?;
            ask("tasks/cancel", &Params { id: Some(task), metadata: metadata.as_ref(), ..Params::default() })
        }
        Operation::SubscribeToTask => {
            ask("tasks/resubscribe", &Params { id: Some(task), ..Params::default() })
        }
        Operation::CreateTaskPushNotificationConfig => create(task, body_or_empty(request.body)),
        Operation::GetTaskPushNotificationConfig => ask("tasks/pushNotificationConfig/get", &webhook()),
        Operation::ListTaskPushNotificationConfigs => list(request, &webhook()),
        Operation::DeleteTaskPushNotificationConfig => ask("tasks/pushNotificationConfig/delete", &webhook()),
        Operation::GetExtendedAgentCard => Ok(Request::GetExtendedAgentCard(Default::default())),
        Operation::ListTasks => Err(Error::new(ErrorKind::MethodNotFound, "there is no such operation")),
    }
}

/// The arguments of a JSON-RPC request, as far as a path and a query give them.
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

fn ask(method: &str, params: &Params<'_>) -> Result<Request, Error> {
    let mut json = Vec::new();
    put(&mut json, params);
    v0_3::read(method, &json)
}

fn body_or_empty(body: &[u8]) -> &[u8] {
    if body.trim_ascii().is_empty() { b"{}" } else { body }
}

/// What a body says once more must be what the path says.
fn agree(field: &str, given: Option<&str>, path: &str) -> Result<(), Error> {
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
    /// The proto has two names for it: that of its field, and that of its JSON.
    #[serde(alias = "request", deserialize_with = "lenient::object")]
    message: Said,
    #[serde(deserialize_with = "lenient::optional_object")]
    configuration: Option<Configuration>,
    metadata: Option<JsonObject>,
}

fn send(body: &[u8]) -> Result<SendMessageRequest, Error> {
    let Send { message, configuration, metadata } = parse(body_or_empty(body))?;
    // The proto cannot tell `false` from nothing said, and writes neither: who wants to wait says so. Without any configuration
    // the answer is waited for, as everywhere else.
    let configuration = configuration.map(|configuration| SendMessageConfiguration {
        return_immediately: configuration.blocking != Some(true),
        ..configuration.into()
    });
    Ok(SendMessageRequest { tenant: None, message: message.into(), configuration, metadata })
}

/// Checks a message, with the names that its fields have here.
fn sent(request: Request) -> Result<Request, Error> {
    let name = |_, field: &str| {
        let field = v0_3::field(Operation::SendMessage, field)?;
        Some(
            field
                .replace("message.parts", "message.content")
                .replace("pushNotificationConfig", "pushNotification"),
        )
    };
    checked_in(request, name, str::to_owned)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Said {
    #[serde(alias = "message_id", deserialize_with = "lenient::null")]
    message_id: String,
    #[serde(alias = "context_id", deserialize_with = "lenient::id")]
    context_id: Option<ContextId>,
    #[serde(alias = "task_id", deserialize_with = "lenient::id")]
    task_id: Option<TaskId>,
    #[serde(deserialize_with = "role")]
    role: Role,
    #[serde(alias = "parts", deserialize_with = "parts")]
    content: Vec<Part>,
    metadata: Option<JsonObject>,
    #[serde(deserialize_with = "lenient::null")]
    extensions: Vec<String>,
    #[serde(alias = "reference_task_ids", deserialize_with = "lenient::null")]
    reference_task_ids: Vec<TaskId>,
}

/// A role by its name or number, or by the name that it has over JSON-RPC.
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

pub(super) fn parts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Part>, D::Error> {
    let parts = lenient::null::<D, Vec<ReadPart>>(deserializer)?;
    Ok(parts.into_iter().map(Into::into).collect())
}

impl From<Said> for Message {
    fn from(said: Said) -> Self {
        Self {
            message_id: said.message_id,
            context_id: said.context_id,
            task_id: said.task_id,
            role: said.role,
            parts: said.content,
            metadata: said.metadata,
            extensions: said.extensions,
            reference_task_ids: said.reference_task_ids,
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
    config: Option<OfTask>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OfTask {
    #[serde(deserialize_with = "lenient::string")]
    name: Option<String>,
    #[serde(alias = "task_id", deserialize_with = "lenient::string")]
    task_id: Option<String>,
    #[serde(alias = "push_notification_config", deserialize_with = "lenient::optional_object")]
    push_notification_config: Option<Webhook>,
}

/// Reads a new webhook. SDKs wrote it as the request of the proto or as the webhook of a task, and people write it by itself.
fn create(task: &str, body: &[u8]) -> Result<Request, Error> {
    let Create { parent, config_id, config } = parse(body)?;
    agree("parent", parent.as_deref(), &format!("tasks/{task}"))?;
    let (path, OfTask { name, task_id, push_notification_config }) = match config {
        Some(config) => ("config.", config),
        None => ("", parse(body)?),
    };
    agree(&format!("{path}taskId"), task_id.as_deref(), task)?;
    let named = match &name {
        Some(name) => {
            webhook_in(name, task).map_err(|text| Error::invalid_params(format!("{path}name"), text))?
        }
        None => None,
    };
    let (path, webhook) = match push_notification_config {
        Some(webhook) => (format!("{path}pushNotificationConfig."), webhook),
        None if path.is_empty() && name.is_none() => (String::new(), parse(body)?),
        None => (format!("{path}pushNotificationConfig."), Webhook::default()),
    };
    let config = webhook.or_named(config_id.as_deref().or(named)).of(TaskId::from(task));
    let name = |_, field: &str| match field {
        "taskId" => Some("parent".to_owned()),
        field => Some(format!("{path}{}", field.replace("authentication.scheme", "authentication.schemes"))),
    };
    checked_in(Request::CreateTaskPushNotificationConfig(config), name, str::to_owned)
}

/// The webhook that a resource name such as `tasks/t/pushNotificationConfigs/w` names, if it names one.
pub(super) fn webhook_in<'a>(name: &'a str, task: &str) -> Result<Option<&'a str>, String> {
    let of_task = name.strip_prefix("tasks/").and_then(|name| name.strip_prefix(task));
    match of_task.map(|rest| rest.strip_prefix("/pushNotificationConfigs").unwrap_or(rest)) {
        // The Python SDK writes so where it has no name.
        Some("" | "/" | "/None") => Ok(None),
        Some(webhook) if let Some(webhook) = webhook.strip_prefix('/') => Ok(Some(webhook)),
        Some(_) | None => {
            Err(format!("expected `tasks/{task}/pushNotificationConfigs/…`, as the path has it"))
        }
    }
}

/// Reads which webhooks to list. Zero is how the proto says that no size was given.
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
    let mut asked = ask("tasks/pushNotificationConfig/list", params)?;
    if let Request::ListTaskPushNotificationConfigs(asked) = &mut asked {
        asked.page_size = page_size.filter(|size| *size != 0);
        asked.page_token = page_token;
    }
    checked_in(asked, |_, field: &str| Some(field.to_owned()), str::to_owned)
}
