//! Messages to send, with their options.

use std::time::Duration;

use attache_protocol::{
    ContextId, JsonObject, Message, Part, Role, SendMessageConfiguration, SendMessageRequest, Task, TaskId,
    TaskPushNotificationConfig,
};

/// A message to an agent, with its options.
///
/// Text, a [`Part`], several parts and a [`Message`] convert to it.
///
/// ```
/// use attache_client::Outgoing;
///
/// let outgoing = Outgoing::new("Something with leeks").context("dinner").accept(["text/markdown"]);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "nothing is sent until it is given to a client"]
pub struct Outgoing {
    request: SendMessageRequest,
    pub(crate) extensions: Vec<String>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) trace_parent: Option<String>,
}

impl Outgoing {
    /// A message without options.
    pub fn new(message: impl Into<Self>) -> Self {
        message.into()
    }

    /// Sets the conversation of the message.
    pub fn context(mut self, id: impl Into<ContextId>) -> Self {
        self.request.message.context_id = Some(id.into());
        self
    }

    /// Continues a task that has not ended, for example one that needs input.
    pub fn task(mut self, id: impl Into<TaskId>) -> Self {
        self.request.message.task_id = Some(id.into());
        self
    }

    /// Responds to a task that needs input: continues the task in its conversation.
    pub fn answering(self, task: &Task) -> Self {
        let answer = self.task(task.id.clone());
        match &task.context_id {
            Some(context) => answer.context(context.clone()),
            None => answer,
        }
    }

    /// Adds a reference to another task.
    pub fn reference(mut self, id: impl Into<TaskId>) -> Self {
        self.request.message.reference_task_ids.push(id.into());
        self
    }

    /// Adds media types that the response may have.
    pub fn accept<S: Into<String>>(mut self, modes: impl IntoIterator<Item = S>) -> Self {
        self.configuration().accepted_output_modes.extend(modes.into_iter().map(Into::into));
        self
    }

    /// Limits how many messages of history the response includes.
    pub fn history_length(mut self, length: u32) -> Self {
        self.configuration().history_length = Some(i32::try_from(length).unwrap_or(i32::MAX));
        self
    }

    /// Asks for a response as soon as the task exists, instead of when it has settled.
    pub fn return_immediately(mut self) -> Self {
        self.configuration().return_immediately = true;
        self
    }

    /// Sends notifications about the task to a webhook.
    pub fn webhook(mut self, webhook: TaskPushNotificationConfig) -> Self {
        self.configuration().task_push_notification_config = Some(Box::new(webhook));
        self
    }

    /// Sets the metadata of the request.
    pub fn metadata(mut self, metadata: JsonObject) -> Self {
        self.request.metadata = Some(metadata);
        self
    }

    /// Requests an extension, in addition to those of the client's options.
    pub fn extension(mut self, uri: impl Into<String>) -> Self {
        self.extensions.push(uri.into());
        self
    }

    /// Makes the message safe to repeat: an agent that supports idempotency keys executes only one message with this key.
    ///
    /// The client repeats a send only if it has a key. An agent that does not support keys may then execute it twice.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Sets the trace that the request belongs to: a `traceparent` of W3C Trace Context, which is sent as it is.
    pub fn trace_parent(mut self, trace_parent: impl Into<String>) -> Self {
        self.trace_parent = Some(trace_parent.into());
        self
    }

    /// Sets the time limit for the response, or for the end of the stream, retries and reconnects included. The task continues.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.deadline = Some(limit);
        self
    }

    fn configuration(&mut self) -> &mut SendMessageConfiguration {
        self.request.configuration.get_or_insert_default()
    }

    /// The complete request. Retries must send the same one.
    pub(crate) fn into_request(self, tenant: Option<String>) -> SendMessageRequest {
        let mut request = self.request;
        request.tenant = tenant;
        if request.message.message_id.is_empty() {
            request.message.message_id = uuid::Uuid::now_v7().to_string();
        }
        if request.message.role == Role::Unspecified {
            request.message.role = Role::User;
        }
        request
    }
}

impl From<SendMessageRequest> for Outgoing {
    /// The client sets the tenant, which comes from the agent's card.
    fn from(request: SendMessageRequest) -> Self {
        Self { request, extensions: Vec::new(), idempotency_key: None, deadline: None, trace_parent: None }
    }
}

impl From<Message> for Outgoing {
    fn from(message: Message) -> Self {
        SendMessageRequest { message, ..SendMessageRequest::default() }.into()
    }
}

impl From<Vec<Part>> for Outgoing {
    fn from(parts: Vec<Part>) -> Self {
        Message { role: Role::User, parts, ..Message::default() }.into()
    }
}

impl From<Part> for Outgoing {
    fn from(part: Part) -> Self {
        vec![part].into()
    }
}

impl From<&str> for Outgoing {
    fn from(text: &str) -> Self {
        Part::text(text).into()
    }
}

impl From<String> for Outgoing {
    fn from(text: String) -> Self {
        Part::text(text).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_filled_in() {
        let request = Outgoing::new("hi").into_request(Some("acme".to_owned()));
        assert_eq!((request.message.role, request.tenant.as_deref()), (Role::User, Some("acme")));
        assert!(!request.message.message_id.is_empty());
        assert_eq!(request.configuration, None);
        let message = Message::user("m1", "hi");
        assert_eq!(Outgoing::new(message).into_request(None).message.message_id, "m1");
    }
}
