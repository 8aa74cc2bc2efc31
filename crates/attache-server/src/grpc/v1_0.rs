//! Protocol 1.0: the package `lf.a2a.v1`.

use attache_grpc::v1_0::proto;
use attache_grpc::{to_model, to_proto};
use attache_protocol::{Operation, Request as Asked};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;

use super::answer;
use super::call::Context;
use crate::body::Body;

/// Answers a call.
pub(super) async fn call(
    context: Context,
    operation: Operation,
    request: Request<Full<Bytes>>,
) -> Response<Body> {
    macro_rules! unary {
        ($name:ident($message:ident), $answer:expr) => {
            context.unary(request, |r: proto::$message| Ok(Asked::$name(to_model(r)?)), $answer).await
        };
    }
    macro_rules! streaming {
        ($name:ident($message:ident)) => {
            context
                .streaming::<_, proto::StreamResponse>(request, |r: proto::$message| {
                    Ok(Asked::$name(to_model(r)?))
                })
                .await
        };
    }
    match operation {
        Operation::SendMessage => {
            unary!(SendMessage(SendMessageRequest), answer::sent::<proto::SendMessageResponse>)
        }
        Operation::SendStreamingMessage => streaming!(SendStreamingMessage(SendMessageRequest)),
        Operation::SubscribeToTask => streaming!(SubscribeToTask(SubscribeToTaskRequest)),
        Operation::GetTask => unary!(GetTask(GetTaskRequest), answer::task::<proto::Task>),
        Operation::CancelTask => unary!(CancelTask(CancelTaskRequest), answer::task::<proto::Task>),
        Operation::ListTasks => {
            unary!(ListTasks(ListTasksRequest), answer::tasks::<proto::ListTasksResponse>)
        }
        Operation::CreateTaskPushNotificationConfig => unary!(
            CreateTaskPushNotificationConfig(TaskPushNotificationConfig),
            answer::push::<proto::TaskPushNotificationConfig>
        ),
        Operation::GetTaskPushNotificationConfig => unary!(
            GetTaskPushNotificationConfig(GetTaskPushNotificationConfigRequest),
            answer::push::<proto::TaskPushNotificationConfig>
        ),
        Operation::ListTaskPushNotificationConfigs => unary!(
            ListTaskPushNotificationConfigs(ListTaskPushNotificationConfigsRequest),
            answer::pushes::<proto::ListTaskPushNotificationConfigsResponse>
        ),
        Operation::DeleteTaskPushNotificationConfig => {
            unary!(DeleteTaskPushNotificationConfig(DeleteTaskPushNotificationConfigRequest), answer::done)
        }
        Operation::GetExtendedAgentCard => {
            unary!(GetExtendedAgentCard(GetExtendedAgentCardRequest), |reply| {
                to_proto::<proto::AgentCard, _>(answer::card(reply)?)
            })
        }
    }
}
