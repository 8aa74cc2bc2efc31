//! Decodes the events of a stream, for a client.

use attache_protocol::{Error, StreamResponse};

use crate::response::tolerated;
use crate::v0_3::FileForm;
use crate::v0_3::proto::{StreamPayload, StreamResponse as ResponseV0_3};
use crate::{Package, to_model, v1_0};

/// An event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The event itself.
    pub response: StreamResponse,
    /// Whether the server marked the event as the last one. It may do so in any state of the task.
    pub is_last: bool,
}

impl Event {
    /// Decodes an event from its message. `None` if its type is unknown. `files` is the form of files in 0.3.
    pub fn read(package: Package, files: FileForm, message: &[u8]) -> Result<Option<Self>, Error> {
        match package {
            Package::V1_0 => {
                let event: v1_0::proto::StreamResponse = tolerated(message)?;
                if event.payload.is_none() && !message.is_empty() {
                    return Ok(None);
                }
                Ok(Some(Self { response: to_model(event)?, is_last: false }))
            }
            Package::V0_3 => {
                let event: ResponseV0_3 = tolerated(message)?;
                let is_last = match &event.payload {
                    Some(StreamPayload::StatusUpdate(update)) => update.is_final,
                    Some(
                        StreamPayload::Task(_) | StreamPayload::Message(_) | StreamPayload::ArtifactUpdate(_),
                    ) => false,
                    None if message.is_empty() => false,
                    None => return Ok(None),
                };
                Ok(Some(Self { response: to_model(files.read(event))?, is_last }))
            }
        }
    }
}
