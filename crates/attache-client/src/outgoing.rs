//! What is sent: a message and what goes with it.

use std::time::Duration;

use attache_protocol::{
    ContextId, JsonObject, Message, Part, Role, SendMessageConfiguration, SendMessageRequest, Task, TaskId,
    TaskPushNotificationConfig,
};

/// A message to an agent, and how it is to be handled.
///
/// Anything that can be sent becomes one: text, a [`Part`], several of them, or a whole [`Message`].
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
}

impl Outgoing {
    /// A message with nothing else said about it.
    pub fn new(message: impl Into<Self>) -> Self {
        message.into()
    }

    /// Makes the message part of a conversation.
    pub fn context(mut self, id: impl Into<ContextId>) -> Self {
        self.request.message.context_id = Some(id.into());
        self
    }

    /// Goes on with a task that has not ended, such as one that asked for input.
    pub fn task(mut self, id: impl Into<TaskId>) -> Self {
        self.request.message.task_id = Some(id.into());
        self
    }

    /// Answers what a task asks: goes on with it, in its conversation.
    pub fn answering(self, task: &Task) -> Self {
        let answer = self.task(task.id.clone());
        match &task.context_id {
            Some(context) => answer.context(context.clone()),
            None => answer,
        }
    }

    /// Refers to another task.
    pub fn reference(mut self, id: impl Into<TaskId>) -> Self {
        self.request.message.reference_task_ids.push(id.into());
        self
    }

    /// Says which media types the answer may have.
    pub fn accept<S: Into<String>>(mut self, modes: impl IntoIterator<Item = S>) -> Self {
        self.configuration().accepted_output_modes.extend(modes.into_iter().map(Into::into));
        self
    }

    /// Says how many messages of history are to come with the answer, at most.
    pub fn history_length(mut self, length: u32) -> Self {
        self.configuration().history_length = Some(i32::try_from(length).unwrap_or(i32::MAX));
        self
    }

    /// Asks for an answer as soon as there is a task, instead of when the task has settled.
    pub fn return_immediately(mut self) -> Self {
        self.configuration().return_immediately = true;
        self
    }

    /// Has the news of the task sent to a webhook.
    pub fn webhook(mut self, webhook: TaskPushNotificationConfig) -> Self {
        self.configuration().task_push_notification_config = Some(Box::new(webhook));
        self
    }

    /// Says something else about the request.
    pub fn metadata(mut self, metadata: JsonObject) -> Self {
        self.request.metadata = Some(metadata);
        self
    }

    /// Asks for an extension, besides those that the client asks for anyway.
    pub fn extension(mut self, uri: impl Into<String>) -> Self {
        self.extensions.push(uri.into());
        self
    }

    /// Makes the message safe to repeat: an agent that knows idempotency keys carries out only one message with this key.
    ///
    /// The client repeats a send by itself only if it has a key. Agents that do not know keys may then carry it out twice.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Gives up when the answer, or the end of the stream, has not come within this time, everything that is repeated and taken
    /// up again included. The task goes on.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.deadline = Some(limit);
        self
    }

    fn configuration(&mut self) -> &mut SendMessageConfiguration {
        self.request.configuration.get_or_insert_default()
    }

    /// The request, with everything that must be in it. Whoever repeats it repeats this one.
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
    /// The tenant is set by the client: it is what the agent's card says.
    fn from(request: SendMessageRequest) -> Self {
        Self { request, extensions: Vec::new(), idempotency_key: None, deadline: None }
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
