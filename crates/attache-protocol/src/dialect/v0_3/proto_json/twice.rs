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
    let messages = task.history.iter().chain(task.status.message.as_deref());
    let said = messages.flat_map(|message| &message.parts);
    let made = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    if !said.chain(made).any(is_file) {
        return Cow::Borrowed(task);
    }
    let mut encoded = task.clone();
    let messages = encoded.history.iter_mut().chain(encoded.status.message.as_deref_mut());
    let said = messages.flat_map(|message| &mut message.parts);
    let made = encoded.artifacts.iter_mut().flat_map(|artifact| &mut artifact.parts);
    encode_parts(said.chain(made));
    Cow::Owned(encoded)
}

fn is_file(part: &Part) -> bool {
    matches!(part.content, Content::Raw(_))
}

/// An event with one more encoding on its files.
pub(in crate::dialect) fn encode_event(event: &StreamResponse) -> Cow<'_, StreamResponse> {
    let parts: &[Part] = match event {
        StreamResponse::Task(task) => {
            return match encode_task(task) {
                Cow::Borrowed(_) => Cow::Borrowed(event),
                Cow::Owned(task) => Cow::Owned(StreamResponse::Task(task)),
            };
        }
        StreamResponse::Message(message) => &message.parts,
        StreamResponse::StatusUpdate(update) => {
            update.status.message.as_deref().map_or(&[], |message| &message.parts)
        }
        StreamResponse::ArtifactUpdate(update) => &update.artifact.parts,
    };
    if !parts.iter().any(is_file) {
        return Cow::Borrowed(event);
    }
    let mut encoded = event.clone();
    match &mut encoded {
        StreamResponse::Task(_) => {}
        StreamResponse::Message(message) => encode_parts(message.parts.iter_mut()),
        StreamResponse::StatusUpdate(update) => {
            encode_parts(update.status.message.iter_mut().flat_map(|message| &mut message.parts));
        }
        StreamResponse::ArtifactUpdate(update) => encode_parts(update.artifact.parts.iter_mut()),
    }
    Cow::Owned(encoded)
}

pub(in crate::dialect) fn encode_parts<'a>(parts: impl Iterator<Item = &'a mut Part>) {
    for part in parts {
        if let Content::Raw(bytes) = &mut part.content {
            *bytes = STANDARD.encode(&*bytes).into_bytes();
        }
    }
}
