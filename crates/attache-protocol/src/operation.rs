//! The operations of the protocol and their requests.

use serde::de::{DeserializeOwned, DeserializeSeed};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::lenient::Object;
use crate::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Dialect, Error, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig,
};

macro_rules! operations {
    ($( $(#[$meta:meta])* $name:ident($request:ty) ),+ $(,)?) => {
        /// An operation of the protocol. The names are those of the JSON-RPC methods and gRPC calls.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Operation { $( $(#[$meta])* $name ),+ }

        /// An operation with its arguments.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Request { $( $(#[$meta])* $name($request) ),+ }

        impl Operation {
            /// All operations.
            pub const ALL: &[Self] = &[$( Self::$name ),+];

            /// The name as a JSON-RPC method and as a gRPC call.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name) ),+ }
            }

            /// The operation with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $( stringify!($name) => Some(Self::$name), )+ _ => None }
            }

            /// Parses the operation's arguments from ProtoJSON.
            pub fn parse(self, json: &[u8]) -> Result<Request, Error> {
                match self { $( Self::$name => parse::<$request>(json).map(Request::$name) ),+ }
            }
        }

        /// Parses the operation's arguments as part of another value.
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

            /// The tenant of the request.
            pub fn tenant(&self) -> Option<&str> {
                match self { $( Self::$name(request) => request.tenant.as_deref() ),+ }
            }

            /// Sets the tenant.
            pub fn set_tenant(&mut self, tenant: Option<String>) {
                match self { $( Self::$name(request) => request.tenant = tenant ),+ }
            }
        }
    };
}

operations! {
    /// Sends a message and waits for the response.
    SendMessage(Box<SendMessageRequest>),
    /// Sends a message and streams the events of its task.
    SendStreamingMessage(Box<SendMessageRequest>),
    /// Reads a task.
    GetTask(GetTaskRequest),
    /// Lists tasks.
    ListTasks(ListTasksRequest),
    /// Cancels a task.
    CancelTask(CancelTaskRequest),
    /// Streams the events of a task.
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

impl Operation {
    /// The operation of a JSON-RPC method, in any version of the protocol.
    pub fn of_method(method: &str) -> Option<Self> {
        Self::from_name(method).or_else(|| Dialect::operation(method))
    }

    /// Whether the response is a stream.
    ///
    /// ```
    /// use attache_protocol::Operation;
    ///
    /// for method in ["SubscribeToTask", "message/stream", "tasks/resubscribe", "tasks/sendSubscribe"] {
    ///     assert!(Operation::of_method(method).is_some_and(Operation::is_streaming));
    /// }
    /// for method in ["SendMessage", "message/send", "tasks/get", "GetAgentCard", ""] {
    ///     assert!(!Operation::of_method(method).is_some_and(Operation::is_streaming));
    /// }
    /// ```
    pub const fn is_streaming(self) -> bool {
        match self {
            Self::SendStreamingMessage | Self::SubscribeToTask => true,
            Self::SendMessage
            | Self::GetTask
            | Self::ListTasks
            | Self::CancelTask
            | Self::CreateTaskPushNotificationConfig
            | Self::GetTaskPushNotificationConfig
            | Self::ListTaskPushNotificationConfigs
            | Self::DeleteTaskPushNotificationConfig
            | Self::GetExtendedAgentCard => false,
        }
    }
}

/// Parses ProtoJSON. An error names the invalid field.
pub(crate) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(json).map(|Object(request)| request).map_err(|_| {
        // Only an invalid request is parsed a second time, to find the field.
        let deserializer = &mut serde_json::Deserializer::from_slice(json);
        let Err(error) = serde_path_to_error::deserialize::<_, Object<T>>(deserializer) else {
            return Error::invalid_params("", "text after the end of the arguments");
        };
        let path = error.path().to_string();
        let field = if matches!(path.as_str(), "." | "?") { "" } else { path.as_str() };
        Error::invalid_params(field, shortened(without_position(&error.inner().to_string())))
    })
}

/// Removes the position that serde_json adds. It is relative to the arguments and not to the request, which is misleading.
pub(crate) fn without_position(text: &str) -> &str {
    text.rfind(" at line ").map_or(text, |at| &text[..at])
}

/// Shortens a text that may quote the request. It is cut in the middle, since its end says what is expected.
fn shortened(text: &str) -> String {
    const END: usize = 200;
    let length = text.chars().count();
    if length <= 2 * END {
        return text.to_owned();
    }
    text.chars().take(END).chain(" … ".chars()).chain(text.chars().skip(length - END)).collect()
}
