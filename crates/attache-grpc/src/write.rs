//! Calls, as a client writes them.

use attache_protocol::{Error, Request, SendMessageConfiguration, SendMessageRequest, Version};
use prost::Message;

use crate::frame::framed;
use crate::{Package, Wire, to_proto, v0_3, v1_0};

/// A call on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The path: service and call.
    pub path: String,
    /// The body: the one message, framed.
    pub body: Vec<u8>,
}

impl Package {
    /// Writes a call. What the version has no words for is an error where leaving it out would get another answer than was
    /// asked for.
    pub fn write(self, request: &Request) -> Result<Written, Error> {
        let (name, body) = match self {
            Self::V1_0 => (request.operation().name(), current(request)?),
            Self::V0_3 => older(request)?,
        };
        Ok(Written { path: format!("{}/{name}", self.service()), body })
    }
}

fn body<P: Message, M: Wire<P>>(model: M) -> Result<Vec<u8>, Error> {
    Ok(framed(&to_proto::<P, M>(model)?))
}

fn current(request: &Request) -> Result<Vec<u8>, Error> {
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

fn older(request: &Request) -> Result<(&'static str, Vec<u8>), Error> {
    use v0_3::{Call, proto as p};
    if request.tenant().is_some() {
        return Err(Error::invalid_params("tenant", "protocol 0.3 has no tenants"));
    }
    let (call, body) = match request.clone() {
        Request::SendMessage(it) => (Call::SendMessage, body::<p::SendMessageRequest, _>(sent(*it)?)?),
        Request::SendStreamingMessage(it) => {
            (Call::SendStreamingMessage, body::<p::SendMessageRequest, _>(sent(*it)?)?)
        }
        // Once the task has changed is asked as now: a server is free to answer at once.
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

/// Whether to wait is always said: without a configuration, servers of the time do as they like.
fn sent(send: SendMessageRequest) -> Result<SendMessageRequest, Error> {
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

    /// Requests that both versions have words for, with the names of their calls in 0.3.
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

    /// What a server makes of a body.
    fn read<P: Message + Default, M: Wire<P>>(body: &[u8]) -> M {
        let mut frames = Frames::new(1000);
        frames.feed(body);
        let message = frames.cut().unwrap().unwrap();
        assert!(!frames.is_within());
        to_model(P::decode(message).unwrap()).unwrap()
    }

    /// A function that reads the bodies of a package's calls, but for those that have no request of their own.
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
        read_current from v1_0:
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
        read_older from v0_3:
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
        for (operation, older, arguments) in requests() {
            let request = operation.parse(arguments.to_string().as_bytes()).unwrap();
            let Written { path, body } = Package::V1_0.write(&request).unwrap();
            assert_eq!(Package::V1_0.name_in(&path), Some(operation.name()));
            assert_eq!(read_current(operation, &body), Some(request.clone()));
            let Written { path, body } = Package::V0_3.write(&request).unwrap();
            assert_eq!(Package::V0_3.name_in(&path), Some(older));
            if operation != Operation::GetExtendedAgentCard {
                assert_eq!(read_older(operation, &body), Some(request));
            }
        }
        let list = Operation::ListTasks.parse(br#"{"pageSize": 5, "tenant": "acme"}"#).unwrap();
        let Written { body, .. } = Package::V1_0.write(&list).unwrap();
        assert_eq!(read_current(Operation::ListTasks, &body), Some(list));
    }

    #[test]
    fn what_0_3_has_no_words_for_is_not_left_out_silently() {
        for (operation, arguments) in [
            (Operation::ListTasks, json!({})),
            (Operation::GetTask, json!({"id": "t", "tenant": "acme"})),
            (
                Operation::SendMessage,
                json!({"message": {"messageId": "m"}, "configuration": {"ifGenerationMatch": 3}}),
            ),
        ] {
            let request = operation.parse(arguments.to_string().as_bytes()).unwrap();
            assert!(Package::V0_3.write(&request).is_err(), "{operation:?}");
        }
    }

    #[test]
    fn a_message_for_0_3_always_says_whether_to_wait() {
        let request = Operation::SendMessage.parse(br#"{"message": {"messageId": "m"}}"#).unwrap();
        let Written { body, .. } = Package::V0_3.write(&request).unwrap();
        let Some(Request::SendMessage(read)) = read_older(Operation::SendMessage, &body) else { panic!() };
        assert!(!read.configuration.unwrap().return_immediately);
    }
}
