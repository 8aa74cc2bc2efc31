//! Protocol 0.3: the package `a2a.v1`.

use attache_core::{Reply, Service};
use attache_grpc::to_model;
use attache_grpc::v0_3::{Call, card, proto};
use attache_protocol::{Error, FieldViolation, Operation, Request as Asked};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;

use super::answer;
use super::call::Context;
use crate::body::Body;

/// Answers a call.
pub(super) async fn call(context: Context, call: Call, request: Request<Full<Bytes>>) -> Response<Body> {
    macro_rules! unary {
        ($name:ident($message:ident), $answer:expr) => {
            context.unary(request, |r: proto::$message| checked(Asked::$name(to_model(r)?)), $answer).await
        };
    }
    macro_rules! streaming {
        ($name:ident($message:ident)) => {
            context
                .streaming::<_, proto::StreamResponse>(request, |r: proto::$message| {
                    checked(Asked::$name(to_model(r)?))
                })
                .await
        };
    }
    match call {
        Call::SendMessage => {
            unary!(SendMessage(SendMessageRequest), answer::sent::<proto::SendMessageResponse>)
        }
        Call::SendStreamingMessage => streaming!(SendStreamingMessage(SendMessageRequest)),
        Call::TaskSubscription => streaming!(SubscribeToTask(TaskSubscriptionRequest)),
        Call::GetTask => unary!(GetTask(GetTaskRequest), answer::task::<proto::Task>),
        Call::CancelTask => unary!(CancelTask(CancelTaskRequest), answer::task::<proto::Task>),
        Call::CreateTaskPushNotificationConfig => unary!(
            CreateTaskPushNotificationConfig(CreateTaskPushNotificationConfigRequest),
            answer::push::<proto::TaskPushNotificationConfig>
        ),
        Call::GetTaskPushNotificationConfig => unary!(
            GetTaskPushNotificationConfig(GetTaskPushNotificationConfigRequest),
            answer::push::<proto::TaskPushNotificationConfig>
        ),
        Call::ListTaskPushNotificationConfig => unary!(
            ListTaskPushNotificationConfigs(ListTaskPushNotificationConfigsRequest),
            answer::pushes::<proto::ListTaskPushNotificationConfigsResponse>
        ),
        Call::DeleteTaskPushNotificationConfig => {
            unary!(DeleteTaskPushNotificationConfig(DeleteTaskPushNotificationConfigRequest), answer::done)
        }
        Call::GetAgentCard => {
            let ask = |_: proto::GetAgentCardRequest| Ok(Asked::GetExtendedAgentCard(Default::default()));
            context.unary(request, ask, |reply| card(answer::card(reply)?)).await
        }
    }
}

/// The card of an agent that has no extended one: `GetAgentCard` is there for both.
pub(super) fn known(asked: &Asked, service: &Service) -> Option<Reply> {
    let Asked::GetExtendedAgentCard(_) = asked else { return None };
    let card = service.card();
    (card.capabilities.extended_agent_card != Some(true)).then_some(Reply::Card(card))
}

/// Checks a request before it is handed on, so that what is wrong with it is told in the words it was written in.
fn checked(asked: Asked) -> Result<Asked, Error> {
    let Err(error) = asked.validate() else { return Ok(asked) };
    let violations = error.field_violations().iter().map(|violation| FieldViolation {
        field: field(asked.operation(), &violation.field),
        description: violation.description.clone(),
    });
    Err(Error::violations(violations.collect()))
}

/// What a field of 1.0 is called.
fn field(operation: Operation, field: &str) -> String {
    let schemes = |field: &str| field.replace("authentication.scheme", "authentication.schemes");
    match operation {
        Operation::SendMessage | Operation::SendStreamingMessage => {
            let field = field.replace("message.parts", "message.content");
            let field = match field.starts_with("message.content") {
                true => field.replace(".filename", ".file.name").replace(".mediaType", ".file.mimeType"),
                false => field,
            };
            schemes(&field.replace("taskPushNotificationConfig", "pushNotification"))
        }
        Operation::CreateTaskPushNotificationConfig => {
            format!("config.pushNotificationConfig.{}", schemes(field))
        }
        // Tasks and webhooks go by their names, which were read before.
        Operation::GetTask
        | Operation::ListTasks
        | Operation::CancelTask
        | Operation::SubscribeToTask
        | Operation::GetTaskPushNotificationConfig
        | Operation::ListTaskPushNotificationConfigs
        | Operation::DeleteTaskPushNotificationConfig
        | Operation::GetExtendedAgentCard => field.to_owned(),
    }
}
