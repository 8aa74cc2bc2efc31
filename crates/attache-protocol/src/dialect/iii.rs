//! The dialect of the iii-a2a worker.
//!
//! Its methods are those of 0.3 and its parts those of 1.0: `{"text": …}` without a `kind`. The missing `kind` distinguishes it
//! from 0.3. States and roles are in lower case. Every method that responds with a task wraps it in `{"task": …}`. The results of
//! functions are indented text.

use serde::de::IgnoredAny;

use super::params::checked;
use super::read::{self, ReadFormat, SendJson};
use super::v0_3;
use crate::operation::parse;
use crate::{Artifact, Error, Part, Request, Task};

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

/// Reads a stored task.
pub(super) fn read_task(json: &[u8]) -> Result<Task, Error> {
    read::read_task::<Iii>(json)
}
