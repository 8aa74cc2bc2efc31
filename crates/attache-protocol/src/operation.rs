//! The operations of the protocol, and requests for them.

use serde::de::{DeserializeOwned, DeserializeSeed};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::lenient::Object;
use crate::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Error, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig,
};

macro_rules! operations {
    ($( $(#[$meta:meta])* $name:ident($request:ty) ),+ $(,)?) => {
        /// What can be asked of an agent. The names are those of the JSON-RPC methods and gRPC calls.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Operation { $( $(#[$meta])* $name ),+ }

        /// An operation with its arguments.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Request { $( $(#[$meta])* $name($request) ),+ }

        impl Operation {
            /// Every operation.
            pub const ALL: &[Self] = &[$( Self::$name ),+];

            /// The name as a JSON-RPC method and as a gRPC call.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name) ),+ }
            }

            /// The operation of this name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $( stringify!($name) => Some(Self::$name), )+ _ => None }
            }

            /// Reads the operation's arguments from ProtoJSON.
            pub fn parse(self, json: &[u8]) -> Result<Request, Error> {
                match self { $( Self::$name => parse::<$request>(json).map(Request::$name) ),+ }
            }
        }

        /// Reads the operation's arguments in the middle of something else.
        impl<'de> DeserializeSeed<'de> for Operation {
            type Value = Request;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Request, D::Error> {
                match self {
                    $( Self::$name => Object::<$request>::deserialize(deserializer).map(|Object(r)| Request::$name(r)) ),+
                }
            }
        }

        /// Writes the arguments alone, as ProtoJSON.
        impl Serialize for Request {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $( Self::$name(request) => request.serialize(serializer) ),+ }
            }
        }

        impl Request {
            /// The operation.
            pub const fn operation(&self) -> Operation {
                match self { $( Self::$name(_) => Operation::$name ),+ }
            }

            /// The tenant that the request names.
            pub fn tenant(&self) -> Option<&str> {
                match self { $( Self::$name(request) => request.tenant.as_deref() ),+ }
            }

            /// Names the tenant.
            pub fn set_tenant(&mut self, tenant: Option<String>) {
                match self { $( Self::$name(request) => request.tenant = tenant ),+ }
            }
        }
    };
}

operations! {
    /// Sends a message and waits for the answer.
    SendMessage(Box<SendMessageRequest>),
    /// Sends a message and streams what happens.
    SendStreamingMessage(Box<SendMessageRequest>),
    /// Reads a task.
    GetTask(GetTaskRequest),
    /// Lists tasks.
    ListTasks(ListTasksRequest),
    /// Ends a task.
    CancelTask(CancelTaskRequest),
    /// Streams what happens to a task.
    SubscribeToTask(SubscribeToTaskRequest),
    /// Adds a webhook to a task.
    CreateTaskPushNotificationConfig(TaskPushNotificationConfig),
    /// Reads a webhook of a task.
    GetTaskPushNotificationConfig(GetTaskPushNotificationConfigRequest),
    /// Lists the webhooks of a task.
    ListTaskPushNotificationConfigs(ListTaskPushNotificationConfigsRequest),
    /// Removes a webhook from a task.
    DeleteTaskPushNotificationConfig(DeleteTaskPushNotificationConfigRequest),
    /// Reads the card for authenticated clients.
    GetExtendedAgentCard(GetExtendedAgentCardRequest),
}

/// Reads ProtoJSON, naming the field that is wrong.
pub(crate) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(json).map(|Object(request)| request).map_err(|_| {
        // Only a request that is refused pays for finding out where.
        let deserializer = &mut serde_json::Deserializer::from_slice(json);
        let Err(error) = serde_path_to_error::deserialize::<_, Object<T>>(deserializer) else {
            return Error::invalid_params("", "text after the end of the arguments");
        };
        let path = error.path().to_string();
        let field = if matches!(path.as_str(), "." | "?") { "" } else { path.as_str() };
        Error::invalid_params(field, shortened(without_position(&error.inner().to_string())))
    })
}

/// The position that serde_json adds counts from the start of the arguments, which misleads whoever reads it.
pub(crate) fn without_position(text: &str) -> &str {
    text.rfind(" at line ").map_or(text, |at| &text[..at])
}

/// A text that may quote what was sent. It is cut in the middle, since what was expected comes last.
fn shortened(text: &str) -> String {
    const END: usize = 200;
    let length = text.chars().count();
    if length <= 2 * END {
        return text.to_owned();
    }
    text.chars().take(END).chain(" … ".chars()).chain(text.chars().skip(length - END)).collect()
}
