//! The bytes of files, which the SDKs of 0.3 write in two ways.
//!
//! The SDKs for Python, Go and Java write base64 into the field of bytes, and can read nothing else. The SDK for JavaScript writes
//! and reads the plain bytes. [`to_model`](crate::to_model) and [`to_proto`](crate::to_proto) handle the first form. A [`FileForm`]
//! changes a message from or to the second.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::proto::{
    Artifact, Content, File, FilePart, Message, Part, SendMessageRequest, SendMessageResponse, SendPayload,
    StreamPayload, StreamResponse, Task, TaskStatus,
};

/// How a peer writes the bytes of files, and expects them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FileForm {
    /// In base64. Bytes that are not valid base64 are read as they are.
    #[default]
    Base64,
    /// As they are.
    Plain,
}

impl FileForm {
    /// The form of a client, according to its `user-agent`.
    pub fn of_client(user_agent: &str) -> Self {
        if user_agent.contains("grpc-node-js/") { Self::Plain } else { Self::Base64 }
    }

    /// A message of the peer, as [`to_model`](crate::to_model) expects it.
    pub fn read<M: HasFiles>(self, mut message: M) -> M {
        if self == Self::Plain {
            message.each_file(&mut |bytes| *bytes = STANDARD.encode(&*bytes).into_bytes());
        }
        message
    }

    /// A message of [`to_proto`](crate::to_proto), as the peer expects it.
    pub fn write<M: HasFiles>(self, mut message: M) -> M {
        if self == Self::Plain {
            message.each_file(&mut |bytes| {
                if let Ok(plain) = STANDARD.decode(&*bytes) {
                    *bytes = plain;
                }
            });
        }
        message
    }
}

/// A message that may have files.
pub trait HasFiles {
    /// Calls a function with the bytes of each file.
    fn each_file(&mut self, change: &mut dyn FnMut(&mut Vec<u8>));
}

macro_rules! without_files {
    ($( $name:ident ),+) => { $(
        impl HasFiles for super::proto::$name {
            fn each_file(&mut self, _: &mut dyn FnMut(&mut Vec<u8>)) {}
        }
    )+ };
}

without_files!(
    TaskPushNotificationConfig,
    ListTaskPushNotificationConfigsResponse,
    GetTaskRequest,
    CancelTaskRequest,
    TaskSubscriptionRequest,
    CreateTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    DeleteTaskPushNotificationConfigRequest
);

fn in_parts(parts: &mut [Part], change: &mut dyn FnMut(&mut Vec<u8>)) {
    for part in parts {
        if let Some(Content::File(FilePart { file: Some(File::Bytes(bytes)), .. })) = &mut part.content {
            change(bytes);
        }
    }
}

fn in_status(status: &mut Option<TaskStatus>, change: &mut dyn FnMut(&mut Vec<u8>)) {
    if let Some(message) = status.as_mut().and_then(|status| status.message.as_mut()) {
        message.each_file(change);
    }
}

impl HasFiles for Message {
    fn each_file(&mut self, change: &mut dyn FnMut(&mut Vec<u8>)) {
        in_parts(&mut self.parts, change);
    }
}

impl HasFiles for Artifact {
    fn each_file(&mut self, change: &mut dyn FnMut(&mut Vec<u8>)) {
        in_parts(&mut self.parts, change);
    }
}

impl HasFiles for Task {
    fn each_file(&mut self, change: &mut dyn FnMut(&mut Vec<u8>)) {
        in_status(&mut self.status, change);
        self.artifacts.iter_mut().for_each(|artifact| artifact.each_file(change));
        self.history.iter_mut().for_each(|message| message.each_file(change));
    }
}

impl HasFiles for SendMessageRequest {
    fn each_file(&mut self, change: &mut dyn FnMut(&mut Vec<u8>)) {
        self.message.iter_mut().for_each(|message| message.each_file(change));
    }
}

impl HasFiles for SendMessageResponse {
    fn each_file(&mut self, change: &mut dyn FnMut(&mut Vec<u8>)) {
        match &mut self.payload {
            Some(SendPayload::Task(task)) => task.each_file(change),
            Some(SendPayload::Message(message)) => message.each_file(change),
            None => {}
        }
    }
}

impl HasFiles for StreamResponse {
    fn each_file(&mut self, change: &mut dyn FnMut(&mut Vec<u8>)) {
        match &mut self.payload {
            Some(StreamPayload::Task(task)) => task.each_file(change),
            Some(StreamPayload::Message(message)) => message.each_file(change),
            Some(StreamPayload::StatusUpdate(update)) => in_status(&mut update.status, change),
            Some(StreamPayload::ArtifactUpdate(update)) => {
                update.artifact.iter_mut().for_each(|artifact| artifact.each_file(change));
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::{
        Message as ModelMessage, Part as ModelPart, SendMessageResponse as ModelResponse,
    };

    use super::*;
    use crate::{to_model, to_proto};

    fn sent(form: FileForm, bytes: &[u8]) -> Vec<u8> {
        let message = ModelMessage::agent("m", ModelPart::raw(bytes));
        let mut message: SendMessageResponse = form.write(to_proto(ModelResponse::Message(message)).unwrap());
        let mut written = Vec::new();
        message.each_file(&mut |bytes| written = bytes.clone());
        written
    }

    fn received(form: FileForm, bytes: &[u8]) -> ModelPart {
        let message = ModelMessage::agent("m", ModelPart::raw(""));
        let mut message: SendMessageResponse = to_proto(ModelResponse::Message(message)).unwrap();
        message.each_file(&mut |file| *file = bytes.to_vec());
        match to_model(form.read(message)).unwrap() {
            ModelResponse::Message(message) => message.parts[0].clone(),
            ModelResponse::Task(task) => panic!("{task:?}"),
        }
    }

    #[test]
    fn each_peer_gets_the_bytes_of_a_file_in_its_form() {
        assert_eq!(sent(FileForm::Base64, b"\x00\xffbytes"), b"AP9ieXRlcw==");
        assert_eq!(sent(FileForm::Plain, b"\x00\xffbytes"), b"\x00\xffbytes");
        assert_eq!(received(FileForm::Base64, b"AP9ieXRlcw=="), ModelPart::raw(*b"\x00\xffbytes"));
        assert_eq!(received(FileForm::Plain, b"\x00\xffbytes"), ModelPart::raw(*b"\x00\xffbytes"));
        // A plain file that happens to be base64 stays as it is.
        assert_eq!(received(FileForm::Plain, b"AP9ieXRlcw=="), ModelPart::raw(*b"AP9ieXRlcw=="));
    }

    #[test]
    fn only_the_sdk_for_javascript_has_plain_bytes() {
        for (agent, form) in [
            ("grpc-node-js/1.13.4", FileForm::Plain),
            ("my-app/1.0 grpc-node-js/1.12.0", FileForm::Plain),
            ("grpc-python-asyncio/1.71.0 grpc-c/46.0.0 (linux; chttp2)", FileForm::Base64),
            ("grpc-java-netty/1.70.0", FileForm::Base64),
            ("grpc-go/1.72.0", FileForm::Base64),
            ("", FileForm::Base64),
        ] {
            assert_eq!(FileForm::of_client(agent), form, "{agent}");
        }
    }
}
