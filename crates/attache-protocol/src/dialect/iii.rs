//! The dialect of the iii-a2a worker.
//!
//! Its methods are those of 0.3 and its parts those of 1.0: `{"text": …}` without a `kind`. The missing `kind` distinguishes it
//! from 0.3. States and roles are in lower case. Every method that responds with a task wraps it in `{"task": …}`. The results of
//! functions are indented text.
//!
//! The client of fasta2a (pydantic-ai) writes the same requests. It expects the events of a stream wrapped as well, in a member
//! `task`, `message`, `statusUpdate` or `artifactUpdate`. Clients of iii-a2a expect the members of the event itself. So an event has
//! both.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::params::checked;
use super::read::{self, ReadFormat, SendJson};
use super::v0_3;
use crate::operation::parse;
use crate::{Artifact, Error, ErrorKind, Part, Request, Task};

#[derive(Default)]
struct Iii;

impl ReadFormat for Iii {
    type Part = Part;
    type Artifact = Artifact;
    type MessageKind = IgnoredAny;
    type TaskKind = IgnoredAny;
}

/// Reads a request. All methods except the two that send a message are those of 0.3.
pub(super) fn read(method: &str, params: &[u8]) -> Result<Request, Error> {
    let send = || parse::<SendJson<Iii>>(params).map(|send| Box::new(send.into()));
    let request = match method {
        "message/send" => Request::SendMessage(send()?),
        "message/stream" => Request::SendStreamingMessage(send()?),
        _ => return v0_3::read(method, params),
    };
    // The fields of a message are called as in 1.0.
    let field = |operation, field: &str| match field.starts_with("message.") {
        true => Some(field.to_owned()),
        false => v0_3::field(operation, field),
    };
    checked(request, field)
}

/// Whether the role of a message is in lower case.
pub(super) fn has_lower_case_role(params: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        message: Sent<'a>,
    }
    #[derive(Deserialize)]
    struct Sent<'a> {
        #[serde(borrow)]
        role: Cow<'a, str>,
    }
    serde_json::from_slice(params).is_ok_and(|Params { message }| matches!(&*message.role, "user" | "agent"))
}

/// An error with the message that clients of the worker know. Its details stay the same.
pub(super) fn worded(error: &Error) -> Cow<'_, Error> {
    let message: Cow<'static, str> = match error.kind() {
        ErrorKind::TaskNotFound => match error.metadata().iter().find(|(key, _)| *key == "taskId") {
            Some((_, id)) => format!("Task not found: {id}").into(),
            None => return Cow::Borrowed(error),
        },
        ErrorKind::TaskNotCancelable => "Task not cancelable (terminal state)".into(),
        ErrorKind::UnsupportedOperation if *error == Error::streaming_not_supported() => {
            "Streaming not supported".into()
        }
        ErrorKind::PushNotificationNotSupported => "Push notifications not supported".into(),
        ErrorKind::InvalidParams => match error.message().strip_prefix("invalid parameters") {
            Some(rest) => format!("Invalid params{rest}").into(),
            None => return Cow::Borrowed(error),
        },
        ErrorKind::MethodNotFound
        | ErrorKind::UnsupportedOperation
        | ErrorKind::ContentTypeNotSupported
        | ErrorKind::InvalidAgentResponse
        | ErrorKind::ExtendedAgentCardNotConfigured
        | ErrorKind::ExtensionSupportRequired
        | ErrorKind::VersionNotSupported
        | ErrorKind::TaskGenerationMismatch
        | ErrorKind::Parse
        | ErrorKind::InvalidRequest
        | ErrorKind::Internal
        | ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied
        | ErrorKind::ResourceExhausted
        | ErrorKind::PayloadTooLarge
        | ErrorKind::Unavailable => return Cow::Borrowed(error),
    };
    Cow::Owned(error.clone().reworded(message))
}

/// Reads a stored task.
pub(super) fn read_task(json: &[u8]) -> Result<Task, Error> {
    read::read_task::<Iii>(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_words_that_clients_of_the_worker_know() {
        for (error, words) in [
            (Error::task_not_found("nope"), "Task not found: nope"),
            (Error::streaming_not_supported(), "Streaming not supported"),
            (Error::new(ErrorKind::PushNotificationNotSupported, "x"), "Push notifications not supported"),
            (Error::new(ErrorKind::UnsupportedOperation, "the task has ended"), "the task has ended"),
        ] {
            assert_eq!(worded(&error).message(), words);
        }
    }
}
