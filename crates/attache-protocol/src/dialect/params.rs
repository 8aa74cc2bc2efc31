//! Arguments that the dialects have in common, and the check of requests.

use serde::Deserialize;

use super::push::Webhook;
use super::states::LowerState;
use crate::json::lenient;
use crate::{
    CancelTaskRequest, ContextId, Error, FieldViolation, GetTaskRequest, JsonObject, ListTasksRequest,
    Operation, Request, SendMessageConfiguration, SubscribeToTaskRequest, TaskId,
};

/// The default page size: the largest one, since clients before 1.0 expect all tasks.
pub(super) const PAGE_SIZE: i32 = 100;

/// How the server handles a message.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Configuration {
    #[serde(alias = "accepted_output_modes", deserialize_with = "lenient::null")]
    accepted_output_modes: Vec<String>,
    #[serde(alias = "history_length", deserialize_with = "lenient::int")]
    history_length: Option<i32>,
    pub(super) blocking: Option<bool>,
    /// `pushNotification` in the proto of 0.3. fasta2a has the name of 1.0.
    #[serde(
        alias = "taskPushNotificationConfig",
        alias = "pushNotification",
        alias = "push_notification",
        deserialize_with = "lenient::optional_object"
    )]
    push_notification_config: Option<Webhook>,
}

impl From<Configuration> for SendMessageConfiguration {
    fn from(configuration: Configuration) -> Self {
        Self {
            accepted_output_modes: configuration.accepted_output_modes,
            task_push_notification_config: configuration
                .push_notification_config
                .map(|webhook| Box::new(webhook.into())),
            history_length: configuration.history_length.filter(|length| *length != 0),
            return_immediately: configuration.blocking == Some(false),
            if_generation_match: None,
        }
    }
}

/// A task, and the length of its history.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TaskQuery {
    #[serde(deserialize_with = "lenient::null")]
    id: TaskId,
    #[serde(deserialize_with = "lenient::int")]
    history_length: Option<i32>,
    metadata: Option<JsonObject>,
}

/// A length of zero means that none was given, so a client cannot ask for an empty history.
impl From<TaskQuery> for GetTaskRequest {
    fn from(TaskQuery { id, history_length, metadata: _ }: TaskQuery) -> Self {
        let history_length = history_length.filter(|length| *length != 0);
        Self { tenant: None, id, history_length, current_generation: None }
    }
}

impl From<TaskQuery> for CancelTaskRequest {
    fn from(TaskQuery { id, history_length: _, metadata }: TaskQuery) -> Self {
        Self { tenant: None, id, metadata }
    }
}

impl From<TaskQuery> for SubscribeToTaskRequest {
    fn from(TaskQuery { id, .. }: TaskQuery) -> Self {
        Self { tenant: None, id }
    }
}

/// Which tasks to list.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct List {
    #[serde(deserialize_with = "lenient::id")]
    context_id: Option<ContextId>,
    status: Option<LowerState>,
    #[serde(deserialize_with = "lenient::int")]
    page_size: Option<i32>,
    #[serde(deserialize_with = "lenient::string")]
    page_token: Option<String>,
    #[serde(deserialize_with = "lenient::int")]
    history_length: Option<i32>,
}

impl From<List> for ListTasksRequest {
    fn from(List { context_id, status, page_size, page_token, history_length }: List) -> Self {
        Self {
            context_id,
            status: status.map(Into::into).unwrap_or_default(),
            page_size,
            page_token,
            history_length: history_length.filter(|length| *length != 0),
            include_artifacts: true,
            ..Self::default()
        }
    }
}

/// The name of the field `scheme` of 1.0, which is a list before 1.0.
pub(super) fn schemes_field(field: &str) -> String {
    field.replace("authentication.scheme", "authentication.schemes")
}

/// Checks a request here, so that errors have the names of the dialect. `name` returns the dialect's name for a field of 1.0, or
/// `None` if the dialect sets the field itself.
pub(super) fn checked(
    request: Request,
    name: impl Fn(Operation, &str) -> Option<String>,
) -> Result<Request, Error> {
    let lower = |text: &str| text.replace("ROLE_USER", "user").replace("ROLE_AGENT", "agent");
    checked_with(request, name, lower)
}

/// The same, with a function that translates the descriptions of errors.
pub(super) fn checked_with(
    request: Request,
    name: impl Fn(Operation, &str) -> Option<String>,
    translate: impl Fn(&str) -> String,
) -> Result<Request, Error> {
    let Err(error) = request.validate() else { return Ok(request) };
    let violations = error.field_violations().iter().filter_map(|violation| {
        let field = name(request.operation(), &violation.field)?;
        Some(FieldViolation { field, description: translate(&violation.description) })
    });
    Err(Error::violations(violations.collect()))
}
