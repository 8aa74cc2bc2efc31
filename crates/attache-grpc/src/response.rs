//! Decodes responses, for a client.

use attache_protocol::{
    AgentCard, Error, ListTaskPushNotificationConfigsResponse, ListTasksResponse, SendMessageResponse, Task,
    TaskPushNotificationConfig,
};
use prost::Message;

use crate::tolerant::Tolerate;
use crate::v0_3::FileForm;
use crate::write::no_listing;
use crate::{Package, ProtoConvert, to_model, v0_3, v1_0};

/// A type that can be the response to a call.
pub trait DecodeResponse: Sized {
    /// Decodes the response from its message. `files` is the form of files in 0.3.
    fn decode(package: Package, files: FileForm, message: &[u8]) -> Result<Self, Error>;
}

macro_rules! responses {
    ($( $name:ident ),+) => { $(
        impl DecodeResponse for $name {
            fn decode(package: Package, files: FileForm, message: &[u8]) -> Result<Self, Error> {
                match package {
                    Package::V1_0 => convert::<v1_0::proto::$name, _>(message),
                    Package::V0_3 => to_model(files.read(tolerated::<v0_3::proto::$name>(message)?)),
                }
            }
        }
    )+ };
}

responses!(SendMessageResponse, Task, TaskPushNotificationConfig, ListTaskPushNotificationConfigsResponse);

impl DecodeResponse for ListTasksResponse {
    fn decode(package: Package, _: FileForm, message: &[u8]) -> Result<Self, Error> {
        match package {
            Package::V1_0 => convert::<v1_0::proto::ListTasksResponse, _>(message),
            Package::V0_3 => Err(no_listing()),
        }
    }
}

impl DecodeResponse for AgentCard {
    fn decode(package: Package, _: FileForm, message: &[u8]) -> Result<Self, Error> {
        match package {
            Package::V1_0 => convert::<v1_0::proto::AgentCard, _>(message),
            Package::V0_3 => v0_3::read_card(decode_message(message)?),
        }
    }
}

fn convert<P: Message + Default + Tolerate, M: ProtoConvert<P>>(message: &[u8]) -> Result<M, Error> {
    to_model(tolerated::<P>(message)?)
}

pub(crate) fn tolerated<P: Message + Default + Tolerate>(message: &[u8]) -> Result<P, Error> {
    let mut message: P = decode_message(message)?;
    message.tolerate();
    Ok(message)
}

pub(crate) fn decode_message<P: Message + Default>(message: &[u8]) -> Result<P, Error> {
    P::decode(message).map_err(|error| Error::invalid_params("", error.to_string()))
}
