//! Protocol 0.3: the package `a2a.v1`.

use std::sync::Arc;

use attache_grpc::v0_3::{Call, card, proto};
use attache_grpc::{Package, to_model};
use attache_protocol::{AgentCard, Error, FieldViolation, Operation, Request as ModelRequest};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;

use super::call::CallContext;
use super::reply;
use crate::dispatch::Dispatcher;
use crate::http::body::Body;

/// Answers a call.
pub(super) async fn call(context: CallContext, call: Call, request: Request<Full<Bytes>>) -> Response<Body> {
    let files = context.files;
    macro_rules! unary {
        ($name:ident($message:ident), $encode:expr) => {
            context
                .unary(
                    request,
                    move |r: proto::$message| checked(ModelRequest::$name(to_model(files.read(r))?)),
                    $encode,
                )
                .await
        };
    }
    macro_rules! streaming {
        ($name:ident($message:ident)) => {
            context
                .streaming::<_, proto::StreamResponse>(
                    request,
                    move |r: proto::$message| checked(ModelRequest::$name(to_model(files.read(r))?)),
                    move |message| files.write(message),
                )
                .await
        };
    }
    let task = move |reply| reply::task::<proto::Task>(reply).map(|it| files.write(it));
    match call {
        Call::SendMessage => {
            unary!(SendMessage(SendMessageRequest), move |reply| {
                reply::sent::<proto::SendMessageResponse>(reply).map(|it| files.write(it))
            })
        }
        Call::SendStreamingMessage => streaming!(SendStreamingMessage(SendMessageRequest)),
        Call::TaskSubscription => streaming!(SubscribeToTask(TaskSubscriptionRequest)),
        Call::GetTask => unary!(GetTask(GetTaskRequest), task),
        Call::CancelTask => unary!(CancelTask(CancelTaskRequest), task),
        Call::CreateTaskPushNotificationConfig => unary!(
            CreateTaskPushNotificationConfig(CreateTaskPushNotificationConfigRequest),
            reply::push::<proto::TaskPushNotificationConfig>
        ),
        Call::GetTaskPushNotificationConfig => unary!(
            GetTaskPushNotificationConfig(GetTaskPushNotificationConfigRequest),
            reply::push::<proto::TaskPushNotificationConfig>
        ),
        Call::ListTaskPushNotificationConfig => unary!(
            ListTaskPushNotificationConfigs(ListTaskPushNotificationConfigsRequest),
            reply::pushes::<proto::ListTaskPushNotificationConfigsResponse>
        ),
        Call::DeleteTaskPushNotificationConfig => {
            unary!(DeleteTaskPushNotificationConfig(DeleteTaskPushNotificationConfigRequest), reply::done)
        }
        Call::GetAgentCard => {
            let parse =
                |_: proto::GetAgentCardRequest| Ok(ModelRequest::GetExtendedAgentCard(Default::default()));
            context.unary(request, parse, |reply| card(reply::card(reply)?)).await
        }
    }
}

/// The public card, where the agent has no extended card: `GetAgentCard` returns either of them.
pub(super) fn public_card(
    package: Package,
    request: &Result<ModelRequest, Error>,
    dispatcher: &Dispatcher,
) -> Option<Arc<AgentCard>> {
    let (Package::V0_3, Ok(ModelRequest::GetExtendedAgentCard(_))) = (package, request) else { return None };
    let card = dispatcher.service().card();
    (card.capabilities.extended_agent_card != Some(true)).then_some(card)
}

/// Validates a request here, so that errors name the fields as 0.3 has them.
fn checked(request: ModelRequest) -> Result<ModelRequest, Error> {
    let Err(error) = request.validate() else { return Ok(request) };
    let violations = error.field_violations().iter().map(|violation| FieldViolation {
        field: field(request.operation(), &violation.field),
        description: violation.description.clone(),
    });
    Err(Error::violations(violations.collect()))
}

/// The name that a field of 1.0 has in 0.3.
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
        // Resource names were parsed before.
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
