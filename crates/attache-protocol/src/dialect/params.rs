//! Arguments that the dialects have in common, and what is wrong with them in their own words.

use serde::Deserialize;

use super::push::Webhook;
use super::words::LowerState;
use crate::json::lenient;
use crate::{
    CancelTaskRequest, ContextId, Error, FieldViolation, GetTaskRequest, JsonObject, ListTasksRequest,
    Operation, Request, SendMessageConfiguration, SubscribeToTaskRequest, TaskId,
};

/// How many tasks are listed where nothing is said about it: as many as may be asked for, since who speaks so expects them all.
const PAGE: i32 = 100;

/// How a message is to be handled.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Configuration {
    #[serde(alias = "accepted_output_modes", deserialize_with = "lenient::null")]
    accepted_output_modes: Vec<String>,
    #[serde(alias = "history_length", deserialize_with = "lenient::int")]
    history_length: Option<i32>,
    pub(super) blocking: Option<bool>,
    /// The proto of 0.3 called it `pushNotification`.
    #[serde(
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

/// A task, and how much of it.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TaskQuery {
    #[serde(deserialize_with = "lenient::null")]
    id: TaskId,
    #[serde(deserialize_with = "lenient::int")]
    history_length: Option<i32>,
    metadata: Option<JsonObject>,
}

/// No messages at all cannot be asked for: zero was how a length that is not given was written.
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
            page_size: page_size.or(Some(PAGE)),
            page_token,
            history_length: history_length.filter(|length| *length != 0),
            include_artifacts: true,
            ..Self::default()
        }
    }
}

/// Checks a request before it is handed on, so that what is wrong with it is told in the words it was written in. `name` gives
/// the dialect's name for a field of 1.0, or none for one that the request cannot have got wrong.
pub(super) fn checked(
    request: Request,
    name: impl Fn(Operation, &str) -> Option<String>,
) -> Result<Request, Error> {
    let lower = |text: &str| text.replace("ROLE_USER", "user").replace("ROLE_AGENT", "agent");
    checked_in(request, name, lower)
}

/// The same, with `words` to say what is wrong in.
pub(super) fn checked_in(
    request: Request,
    name: impl Fn(Operation, &str) -> Option<String>,
    words: impl Fn(&str) -> String,
) -> Result<Request, Error> {
    let Err(error) = request.validate() else { return Ok(request) };
    let violations = error.field_violations().iter().filter_map(|violation| {
        let field = name(request.operation(), &violation.field)?;
        Some(FieldViolation { field, description: words(&violation.description) })
    });
    Err(Error::violations(violations.collect()))
}
