//! The ProtoJSON of 1.0: what was read and is written is read again as the same, and no argument blames us.

use attache_protocol::{
    AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill, Artifact, CancelTaskRequest,
    ErrorKind, GetTaskRequest, ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse,
    Message, OAuthFlows, Operation, Part, SecurityRequirement, SecurityScheme, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, StreamResponse, Task, TaskArtifactUpdateEvent,
    TaskPushNotificationConfig, TaskStatus, TaskStatusUpdateEvent, Timestamp, json,
};
use serde_json::value::RawValue;

/// Read as every message, and as the arguments of every operation.
pub fn protojson(data: &[u8]) {
    macro_rules! stay_the_same {
        ($($message:ident),+ $(,)?) => { $(
            if let Ok(value) = serde_json::from_slice::<$message>(data) {
                let mut ours = Vec::new();
                json::write(&mut ours, &value).expect("what was read can be written");
                let theirs = serde_json::to_vec(&value).expect("what was read can be written");
                for text in [ours, theirs] {
                    let again: $message = serde_json::from_slice(&text).unwrap_or_else(|error| {
                        panic!("{} cannot be read again: {error}: {}", stringify!($message), String::from_utf8_lossy(&text))
                    });
                    assert_eq!(again, value, "{}", String::from_utf8_lossy(&text));
                }
            }
        )+ };
    }
    stay_the_same! {
        AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill, Artifact, CancelTaskRequest,
        GetTaskRequest, ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, Message,
        OAuthFlows, Part, SecurityRequirement, SecurityScheme, SendMessageConfiguration, SendMessageRequest,
        SendMessageResponse, StreamResponse, Task, TaskArtifactUpdateEvent, TaskPushNotificationConfig, TaskStatus,
        TaskStatusUpdateEvent, Timestamp,
    }
    for operation in Operation::ALL {
        match operation.parse(data).and_then(|request| request.validate().map(|()| request)) {
            Ok(request) => {
                assert_eq!(request.operation(), *operation);
                let text = serde_json::to_vec(&request).expect("what was read can be written");
                assert_eq!(operation.parse(&text).as_ref(), Ok(&request));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidParams, "{error}");
                assert!(!error.field_violations().is_empty(), "it does not say what is wrong: {error}");
            }
        }
    }
    if serde_json::from_slice::<&RawValue>(data).is_ok() {
        assert_eq!(json::depth(data) > 10, json::is_deeper_than(data, 10));
    }
}
