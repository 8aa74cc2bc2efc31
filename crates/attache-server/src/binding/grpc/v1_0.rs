//! Protocol 1.0: the package `lf.a2a.v1`.

use attache_grpc::v1_0::proto;
use attache_grpc::{to_model, to_proto};
use attache_protocol::{Operation, Request as ModelRequest};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;

use super::call::CallContext;
use super::reply;
use crate::http::body::Body;

/// Answers a call.
pub(super) async fn call(
    context: CallContext,
    operation: Operation,
    request: Request<Full<Bytes>>,
) -> Response<Body> {
    macro_rules! unary {
        ($name:ident($message:ident), $encode:expr) => {
            context.unary(request, |r: proto::$message| Ok(ModelRequest::$name(to_model(r)?)), $encode).await
        };
    }
    macro_rules! streaming {
        ($name:ident($message:ident)) => {
            context
                .streaming::<_, proto::StreamResponse>(
                    request,
                    |r: proto::$message| Ok(ModelRequest::$name(to_model(r)?)),
                    |message| message,
                )
                .await
        };
    }
    match operation {
        Operation::SendMessage => {
            unary!(SendMessage(SendMessageRequest), reply::sent::<proto::SendMessageResponse>)
        }
        Operation::SendStreamingMessage => streaming!(SendStreamingMessage(SendMessageRequest)),
        Operation::SubscribeToTask => streaming!(SubscribeToTask(SubscribeToTaskRequest)),
        Operation::GetTask => unary!(GetTask(GetTaskRequest), reply::task::<proto::Task>),
        Operation::CancelTask => unary!(CancelTask(CancelTaskRequest), reply::task::<proto::Task>),
        Operation::ListTasks => {
            unary!(ListTasks(ListTasksRequest), reply::tasks::<proto::ListTasksResponse>)
        }
        Operation::CreateTaskPushNotificationConfig => unary!(
            CreateTaskPushNotificationConfig(TaskPushNotificationConfig),
            reply::push::<proto::TaskPushNotificationConfig>
        ),
        Operation::GetTaskPushNotificationConfig => unary!(
            GetTaskPushNotificationConfig(GetTaskPushNotificationConfigRequest),
            reply::push::<proto::TaskPushNotificationConfig>
        ),
        Operation::ListTaskPushNotificationConfigs => unary!(
            ListTaskPushNotificationConfigs(ListTaskPushNotificationConfigsRequest),
            reply::pushes::<proto::ListTaskPushNotificationConfigsResponse>
        ),
        Operation::DeleteTaskPushNotificationConfig => {
            unary!(DeleteTaskPushNotificationConfig(DeleteTaskPushNotificationConfigRequest), reply::done)
        }
        Operation::GetExtendedAgentCard => {
            unary!(GetExtendedAgentCard(GetExtendedAgentCardRequest), |reply| {
                to_proto::<proto::AgentCard, _>(reply::card(reply)?)
            })
        }
    }
}
