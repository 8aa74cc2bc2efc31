//! The bytes of files as the Python SDK writes them: the text of their base64 stands where the bytes belong, and is encoded once
//! more. It reads nothing else, so what it is sent must be written the same way.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::{Content, Part, Request, StreamResponse, Task};

/// Takes one encoding off the files of a message. What has only one, as from a client that is no SDK, is left as it is.
pub(in crate::dialect) fn decode(request: &mut Request) {
    let (Request::SendMessage(send) | Request::SendStreamingMessage(send)) = request else { return };
    for part in &mut send.message.parts {
        if let Content::Raw(bytes) = &mut part.content
            && let Ok(decoded) = STANDARD.decode(&*bytes)
        {
            *bytes = decoded;
        }
    }
}

/// A task with one more encoding on its files.
pub(in crate::dialect) fn encode_task(task: &Task) -> Cow<'_, Task> {
    let mut encoded = task.clone();
    let messages = encoded.history.iter_mut().chain(encoded.status.message.as_deref_mut());
    let said = messages.flat_map(|message| &mut message.parts);
    let made = encoded.artifacts.iter_mut().flat_map(|artifact| &mut artifact.parts);
    match encode_parts(said.chain(made)) {
        true => Cow::Owned(encoded),
        false => Cow::Borrowed(task),
    }
}

/// An event with one more encoding on its files.
pub(in crate::dialect) fn encode_event(event: &StreamResponse) -> Cow<'_, StreamResponse> {
    if let StreamResponse::Task(task) = event {
        return Cow::Owned(StreamResponse::Task(encode_task(task).into_owned()));
    }
    let mut encoded = event.clone();
    let changed = match &mut encoded {
        StreamResponse::Task(_) => false,
        StreamResponse::Message(message) => encode_parts(message.parts.iter_mut()),
        StreamResponse::StatusUpdate(update) => {
            encode_parts(update.status.message.iter_mut().flat_map(|message| &mut message.parts))
        }
        StreamResponse::ArtifactUpdate(update) => encode_parts(update.artifact.parts.iter_mut()),
    };
    if changed { Cow::Owned(encoded) } else { Cow::Borrowed(event) }
}

/// Whether there was a file among them.
pub(in crate::dialect) fn encode_parts<'a>(parts: impl Iterator<Item = &'a mut Part>) -> bool {
    let mut changed = false;
    for part in parts {
        if let Content::Raw(bytes) = &mut part.content {
            *bytes = STANDARD.encode(&*bytes).into_bytes();
            changed = true;
        }
    }
    changed
}
