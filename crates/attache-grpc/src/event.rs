//! The events of a stream, as a client reads them.

use attache_protocol::{Error, StreamResponse};

use crate::answer::decode;
use crate::v0_3::proto::{StreamPayload, StreamResponse as Older};
use crate::{Package, to_model, v1_0};

/// An event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The event itself.
    pub response: StreamResponse,
    /// Whether the server says that no other follows, whatever the state of the task.
    pub is_last: bool,
}

impl Event {
    /// Reads the message that it came in; nothing if it is of a kind that is not known.
    pub fn read(package: Package, message: &[u8]) -> Result<Option<Self>, Error> {
        match package {
            Package::V1_0 => {
                let event: v1_0::proto::StreamResponse = decode(message)?;
                if event.payload.is_none() && !message.is_empty() {
                    return Ok(None);
                }
                Ok(Some(Self { response: to_model(event)?, is_last: false }))
            }
            Package::V0_3 => {
                let event: Older = decode(message)?;
                let is_last = match &event.payload {
                    Some(StreamPayload::StatusUpdate(update)) => update.is_final,
                    Some(
                        StreamPayload::Task(_) | StreamPayload::Message(_) | StreamPayload::ArtifactUpdate(_),
                    ) => false,
                    None if message.is_empty() => false,
                    None => return Ok(None),
                };
                Ok(Some(Self { response: to_model(event)?, is_last }))
            }
        }
    }
}
