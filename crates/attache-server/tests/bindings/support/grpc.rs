//! gRPC as a real peer speaks it: the types and the client of the published SDK.

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::{proto, protojson};
use serde_json::{Value, json};
use tonic::metadata::{MetadataKey, MetadataMap};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Response, Status, Streaming};

use super::soon;
use super::wire::{to_json, to_proto};

/// A client of the published SDK, for arguments and answers in JSON.
#[derive(Clone)]
pub(crate) struct Client {
    /// The client itself, for what JSON cannot say.
    pub(crate) inner: A2aServiceClient<Channel>,
}

/// A stream of the published SDK.
pub(crate) struct GrpcStream(Streaming<proto::StreamResponse>);

pub(crate) async fn connect(base: &str) -> Client {
    Client { inner: soon(A2aServiceClient::connect(base.to_owned())).await.unwrap() }
}

/// A client that speaks TLS.
pub(crate) async fn connect_tls(base: &str, tls: ClientTlsConfig) -> Result<Client, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(base.to_owned())?.tls_config(tls)?;
    Ok(Client { inner: A2aServiceClient::new(soon(endpoint.connect()).await?) })
}

/// A request with metadata.
pub(crate) fn request<T>(message: T, metadata: &[(String, String)]) -> Request<T> {
    let mut request = Request::new(message);
    for (key, value) in metadata {
        let key: MetadataKey<_> = key.to_ascii_lowercase().parse().unwrap();
        request.metadata_mut().append(key, value.parse().unwrap());
    }
    request
}

impl Client {
    /// Makes a call. The events of a stream are gathered in an array.
    pub(crate) async fn call(
        &mut self,
        operation: &str,
        params: Value,
        metadata: &[(String, String)],
    ) -> Result<(Value, MetadataMap), Status> {
        macro_rules! unary {
            ($call:ident, $ask:ident, $answer:ident) => {{
                let message: proto::$ask = to_proto::<protojson::$ask, _>(params);
                let response = soon(self.inner.$call(request(message, metadata))).await?;
                let answer = to_json::<protojson::$answer, proto::$answer>(response.get_ref());
                Ok((answer, response.metadata().clone()))
            }};
        }
        match operation {
            "SendMessage" => unary!(send_message, SendMessageRequest, SendMessageResponse),
            "GetTask" => unary!(get_task, GetTaskRequest, Task),
            "ListTasks" => unary!(list_tasks, ListTasksRequest, ListTasksResponse),
            "CancelTask" => unary!(cancel_task, CancelTaskRequest, Task),
            "CreateTaskPushNotificationConfig" => unary!(
                create_task_push_notification_config,
                TaskPushNotificationConfig,
                TaskPushNotificationConfig
            ),
            "GetTaskPushNotificationConfig" => unary!(
                get_task_push_notification_config,
                GetTaskPushNotificationConfigRequest,
                TaskPushNotificationConfig
            ),
            "ListTaskPushNotificationConfigs" => unary!(
                list_task_push_notification_configs,
                ListTaskPushNotificationConfigsRequest,
                ListTaskPushNotificationConfigsResponse
            ),
            "DeleteTaskPushNotificationConfig" => {
                let message: proto::DeleteTaskPushNotificationConfigRequest =
                    to_proto::<protojson::DeleteTaskPushNotificationConfigRequest, _>(params);
                let call = self.inner.delete_task_push_notification_config(request(message, metadata));
                Ok((json!({}), soon(call).await?.metadata().clone()))
            }
            "GetExtendedAgentCard" => {
                unary!(get_extended_agent_card, GetExtendedAgentCardRequest, AgentCard)
            }
            "SendStreamingMessage" | "SubscribeToTask" => {
                let (mut stream, metadata) = self.stream(operation, params, metadata).await?;
                let mut events = Vec::new();
                while let Some(event) = stream.next().await? {
                    events.push(event);
                }
                Ok((Value::Array(events), metadata))
            }
            other => panic!("there is no call {other}"),
        }
    }

    /// Opens a stream.
    pub(crate) async fn stream(
        &mut self,
        operation: &str,
        params: Value,
        metadata: &[(String, String)],
    ) -> Result<(GrpcStream, MetadataMap), Status> {
        let response: Response<Streaming<proto::StreamResponse>> = if operation == "SubscribeToTask" {
            let message: proto::SubscribeToTaskRequest =
                to_proto::<protojson::SubscribeToTaskRequest, _>(params);
            soon(self.inner.subscribe_to_task(request(message, metadata))).await?
        } else {
            let message: proto::SendMessageRequest = to_proto::<protojson::SendMessageRequest, _>(params);
            soon(self.inner.send_streaming_message(request(message, metadata))).await?
        };
        let metadata = response.metadata().clone();
        Ok((GrpcStream(response.into_inner()), metadata))
    }
}

impl GrpcStream {
    /// The next event; nothing at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Status> {
        let event = soon(self.0.message()).await?;
        Ok(event.map(|event| to_json::<protojson::StreamResponse, _>(&event)))
    }
}
