//! What a call is answered with, as a client reads it.

use attache_protocol::{
    AgentCard, Error, ListTaskPushNotificationConfigsResponse, ListTasksResponse, SendMessageResponse, Task,
    TaskPushNotificationConfig,
};
use prost::Message;

use crate::write::no_listing;
use crate::{Package, Wire, to_model, v0_3, v1_0};

/// What can be the answer to a call.
pub trait Answer: Sized {
    /// Reads the message that it came in.
    fn read(package: Package, message: &[u8]) -> Result<Self, Error>;
}

macro_rules! answers {
    ($( $name:ident ),+) => { $(
        impl Answer for $name {
            fn read(package: Package, message: &[u8]) -> Result<Self, Error> {
                match package {
                    Package::V1_0 => read::<v1_0::proto::$name, _>(message),
                    Package::V0_3 => read::<v0_3::proto::$name, _>(message),
                }
            }
        }
    )+ };
}

answers!(SendMessageResponse, Task, TaskPushNotificationConfig, ListTaskPushNotificationConfigsResponse);

impl Answer for ListTasksResponse {
    fn read(package: Package, message: &[u8]) -> Result<Self, Error> {
        match package {
            Package::V1_0 => read::<v1_0::proto::ListTasksResponse, _>(message),
            Package::V0_3 => Err(no_listing()),
        }
    }
}

impl Answer for AgentCard {
    fn read(package: Package, message: &[u8]) -> Result<Self, Error> {
        match package {
            Package::V1_0 => read::<v1_0::proto::AgentCard, _>(message),
            Package::V0_3 => v0_3::read_card(decode(message)?),
        }
    }
}

fn read<P: Message + Default, M: Wire<P>>(message: &[u8]) -> Result<M, Error> {
    to_model(decode::<P>(message)?)
}

pub(crate) fn decode<P: Message + Default>(message: &[u8]) -> Result<P, Error> {
    P::decode(message).map_err(|error| Error::invalid_params("", error.to_string()))
}
