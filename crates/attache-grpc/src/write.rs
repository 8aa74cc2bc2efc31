//! Encodes calls, for a client.

use attache_protocol::{Error, Request, SendMessageConfiguration, SendMessageRequest, Version};
use prost::Message;

use crate::frame::framed;
use crate::v0_3::FileForm;
use crate::{Package, ProtoConvert, to_proto, v0_3, v1_0};

/// An encoded call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedCall {
    /// The request path.
    pub path: String,
    /// The body: one message with its prefix.
    pub body: Vec<u8>,
}

impl Package {
    /// Encodes a call. A field that the version does not have is an error, if the response without it would be a different one.
    /// `files` is the form of files in 0.3.
    pub fn write(self, request: &Request, files: FileForm) -> Result<EncodedCall, Error> {
        let (name, body) = match self {
            Self::V1_0 => (request.operation().name(), v1_0_body(request)?),
            Self::V0_3 => v0_3_call(request, files)?,
        };
        Ok(EncodedCall { path: format!("{}/{name}", self.service()), body })
    }
}

fn body<P: Message, M: ProtoConvert<P>>(model: M) -> Result<Vec<u8>, Error> {
    Ok(framed(&to_proto::<P, M>(model)?))
}

fn v1_0_body(request: &Request) -> Result<Vec<u8>, Error> {
    use v1_0::proto as p;
    match request.clone() {
        Request::SendMessage(it) | Request::SendStreamingMessage(it) => body::<p::SendMessageRequest, _>(it),
        Request::GetTask(it) => body::<p::GetTaskRequest, _>(it),
        Request::ListTasks(it) => body::<p::ListTasksRequest, _>(it),
        Request::CancelTask(it) => body::<p::CancelTaskRequest, _>(it),
        Request::SubscribeToTask(it) => body::<p::SubscribeToTaskRequest, _>(it),
        Request::CreateTaskPushNotificationConfig(it) => body::<p::TaskPushNotificationConfig, _>(it),
        Request::GetTaskPushNotificationConfig(it) => body::<p::GetTaskPushNotificationConfigRequest, _>(it),
        Request::ListTaskPushNotificationConfigs(it) => {
            body::<p::ListTaskPushNotificationConfigsRequest, _>(it)
        }
        Request::DeleteTaskPushNotificationConfig(it) => {
            body::<p::DeleteTaskPushNotificationConfigRequest, _>(it)
        }
        Request::GetExtendedAgentCard(it) => body::<p::GetExtendedAgentCardRequest, _>(it),
    }
}

fn v0_3_call(request: &Request, files: FileForm) -> Result<(&'static str, Vec<u8>), Error> {
    use v0_3::{Call, proto as p};
    if request.tenant().is_some() {
        return Err(Error::invalid_params("tenant", "protocol 0.3 has no tenants"));
    }
    let (call, body) = match request.clone() {
        Request::SendMessage(it) => {
            let message = files.write::<p::SendMessageRequest>(to_proto(with_configuration(*it)?)?);
            (Call::SendMessage, framed(&message))
        }
        Request::SendStreamingMessage(it) => {
            let message = files.write::<p::SendMessageRequest>(to_proto(with_configuration(*it)?)?);
            (Call::SendStreamingMessage, framed(&message))
        }
        // 0.3 cannot wait for a change. A server may always respond at once, so the task is read now.
        Request::GetTask(it) => (Call::GetTask, body::<p::GetTaskRequest, _>(it)?),
        Request::CancelTask(it) => (Call::CancelTask, body::<p::CancelTaskRequest, _>(it)?),
        Request::SubscribeToTask(it) => (Call::TaskSubscription, body::<p::TaskSubscriptionRequest, _>(it)?),
        Request::CreateTaskPushNotificationConfig(it) => (
            Call::CreateTaskPushNotificationConfig,
            body::<p::CreateTaskPushNotificationConfigRequest, _>(it)?,
        ),
        Request::GetTaskPushNotificationConfig(it) => {
            (Call::GetTaskPushNotificationConfig, body::<p::GetTaskPushNotificationConfigRequest, _>(it)?)
        }
        Request::ListTaskPushNotificationConfigs(it) => {
            (Call::ListTaskPushNotificationConfig, body::<p::ListTaskPushNotificationConfigsRequest, _>(it)?)
        }
        Request::DeleteTaskPushNotificationConfig(it) => (
            Call::DeleteTaskPushNotificationConfig,
            body::<p::DeleteTaskPushNotificationConfigRequest, _>(it)?,
        ),
        Request::GetExtendedAgentCard(_) => (Call::GetAgentCard, framed(&p::GetAgentCardRequest {})),
        Request::ListTasks(_) => return Err(no_listing()),
    };
    Ok((call.name(), body))
}

pub(crate) fn no_listing() -> Error {
    let text = format!("tasks cannot be listed over gRPC in protocol {}", Version::V0_3);
    Error::new(attache_protocol::ErrorKind::UnsupportedOperation, text)
}

/// Adds a configuration, which has `blocking`: without one, servers of 0.3 behave differently.
fn with_configuration(send: SendMessageRequest) -> Result<SendMessageRequest, Error> {
    let configuration: SendMessageConfiguration = send.configuration.unwrap_or_default();
    if configuration.if_generation_match.is_some() {
        let field = "configuration.ifGenerationMatch";
        return Err(Error::invalid_params(field, "protocol 0.3 has no generations of tasks"));
    }
    Ok(SendMessageRequest { configuration: Some(configuration), ..send })
}

#[cfg(test)]
mod tests {
    use attache_protocol::Operation;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Frames, to_model};

    /// Requests that both versions have, with the names of their calls in 0.3.
    fn requests() -> [(Operation, &'static str, Value); 10] {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
        let send = json!({"message": message, "configuration": {"returnImmediately": true}});
        let webhook = json!({"taskId": "t", "id": "w"});
        use Operation as O;
        [
            (O::SendMessage, "SendMessage", send.clone()),
            (O::SendStreamingMessage, "SendStreamingMessage", send),
            (O::GetTask, "GetTask", json!({"id": "t", "historyLength": 3})),
            (O::CancelTask, "CancelTask", json!({"id": "t"})),
            (O::SubscribeToTask, "TaskSubscription", json!({"id": "t"})),
            (
                O::CreateTaskPushNotificationConfig,
                "CreateTaskPushNotificationConfig",
                json!({"taskId": "t", "id": "w", "url": "https://h"}),
            ),
            (O::GetTaskPushNotificationConfig, "GetTaskPushNotificationConfig", webhook.clone()),
            (O::ListTaskPushNotificationConfigs, "ListTaskPushNotificationConfig", json!({"taskId": "t"})),
            (O::DeleteTaskPushNotificationConfig, "DeleteTaskPushNotificationConfig", webhook),
            (O::GetExtendedAgentCard, "GetAgentCard", json!({})),
        ]
    }

    /// Decodes a body, as a server does.
    fn read<P: Message + Default, M: ProtoConvert<P>>(body: &[u8]) -> M {
        let mut frames = Frames::new(1000);
        frames.feed(body);
        let message = frames.next_message().unwrap().unwrap();
        assert!(!frames.is_incomplete());
        to_model(P::decode(message).unwrap()).unwrap()
    }

    /// Defines a function that decodes the bodies of a package's calls, except those without arguments.
    macro_rules! reads {
        ($function:ident from $package:ident: $( $name:ident in $message:ident, )+; but [$( $other:ident ),*]) => {
            fn $function(operation: Operation, body: &[u8]) -> Option<Request> {
                match operation {
                    $( Operation::$name => Some(Request::$name(read::<$package::proto::$message, _>(body))), )+
                    $( Operation::$other => None, )*
                }
            }
        };
    }

    reads! {
        read_v1_0 from v1_0:
        SendMessage in SendMessageRequest,
        SendStreamingMessage in SendMessageRequest,
        GetTask in GetTaskRequest,
        ListTasks in ListTasksRequest,
        CancelTask in CancelTaskRequest,
        SubscribeToTask in SubscribeToTaskRequest,
        CreateTaskPushNotificationConfig in TaskPushNotificationConfig,
        GetTaskPushNotificationConfig in GetTaskPushNotificationConfigRequest,
        ListTaskPushNotificationConfigs in ListTaskPushNotificationConfigsRequest,
        DeleteTaskPushNotificationConfig in DeleteTaskPushNotificationConfigRequest,
        GetExtendedAgentCard in GetExtendedAgentCardRequest,
        ; but []
    }

    reads! {
        read_v0_3 from v0_3:
        SendMessage in SendMessageRequest,
        SendStreamingMessage in SendMessageRequest,
        GetTask in GetTaskRequest,
        CancelTask in CancelTaskRequest,
        SubscribeToTask in TaskSubscriptionRequest,
        CreateTaskPushNotificationConfig in CreateTaskPushNotificationConfigRequest,
        GetTaskPushNotificationConfig in GetTaskPushNotificationConfigRequest,
        ListTaskPushNotificationConfigs in ListTaskPushNotificationConfigsRequest,
        DeleteTaskPushNotificationConfig in DeleteTaskPushNotificationConfigRequest,
        ; but [ListTasks, GetExtendedAgentCard]
    }

    #[test]
    fn a_server_reads_what_a_client_writes() {
        for (operation, v0_3_name, arguments) in requests() {
            let request = operation.parse(arguments.to_string().as_bytes()).unwrap();
            let EncodedCall { path, body } = Package::V1_0.write(&request, FileForm::Base64).unwrap();
            assert_eq!(Package::V1_0.name_in(&path), Some(operation.name()));
            assert_eq!(read_v1_0(operation, &body), Some(request.clone()));
            let EncodedCall { path, body } = Package::V0_3.write(&request, FileForm::Base64).unwrap();
            assert_eq!(Package::V0_3.name_in(&path), Some(v0_3_name));
            if operation != Operation::GetExtendedAgentCard {
                assert_eq!(read_v0_3(operation, &body), Some(request));
            }
        }
        let list = Operation::ListTasks.parse(br#"{"pageSize": 5, "tenant": "acme"}"#).unwrap();
        let EncodedCall { body, .. } = Package::V1_0.write(&list, FileForm::Base64).unwrap();
        assert_eq!(read_v1_0(Operation::ListTasks, &body), Some(list));
    }

    #[test]
    fn fields_that_0_3_does_not_have_are_errors() {
        for (operation, arguments) in [
            (Operation::ListTasks, json!({})),
            (Operation::GetTask, json!({"id": "t", "tenant": "acme"})),
            (
                Operation::SendMessage,
                json!({"message": {"messageId": "m"}, "configuration": {"ifGenerationMatch": 3}}),
            ),
        ] {
            let request = operation.parse(arguments.to_string().as_bytes()).unwrap();
            assert!(Package::V0_3.write(&request, FileForm::Base64).is_err(), "{operation:?}");
        }
    }

    #[test]
    fn a_message_for_0_3_always_has_a_configuration() {
        let request = Operation::SendMessage.parse(br#"{"message": {"messageId": "m"}}"#).unwrap();
        let EncodedCall { body, .. } = Package::V0_3.write(&request, FileForm::Base64).unwrap();
        let Some(Request::SendMessage(read)) = read_v0_3(Operation::SendMessage, &body) else { panic!() };
        assert!(!read.configuration.unwrap().return_immediately);
    }
}
