//! The methods of the older dialects.

use crate::{Dialect, Operation};

impl Dialect {
    /// The operation of a JSON-RPC method of any older dialect. It can be told before the parameters are read.
    ///
    /// ```
    /// use attache_protocol::{Dialect, Operation};
    ///
    /// assert_eq!(Dialect::operation("message/stream"), Some(Operation::SendStreamingMessage));
    /// assert_eq!(Dialect::operation("SendStreamingMessage"), None);
    /// ```
    pub fn operation(method: &str) -> Option<Operation> {
        Some(match method {
            "message/send" | "tasks/send" => Operation::SendMessage,
            "message/stream" | "tasks/sendSubscribe" => Operation::SendStreamingMessage,
            "tasks/get" => Operation::GetTask,
            "tasks/list" => Operation::ListTasks,
            "tasks/cancel" => Operation::CancelTask,
            "tasks/resubscribe" => Operation::SubscribeToTask,
            "tasks/pushNotificationConfig/set" | "tasks/pushNotification/set" => {
                Operation::CreateTaskPushNotificationConfig
            }
            "tasks/pushNotificationConfig/get" | "tasks/pushNotification/get" => {
                Operation::GetTaskPushNotificationConfig
            }
            "tasks/pushNotificationConfig/list" => Operation::ListTaskPushNotificationConfigs,
            "tasks/pushNotificationConfig/delete" => Operation::DeleteTaskPushNotificationConfig,
            "agent/getAuthenticatedExtendedCard" | "agent/authenticatedExtendedCard" => {
                Operation::GetExtendedAgentCard
            }
            _ => return None,
        })
    }
}
