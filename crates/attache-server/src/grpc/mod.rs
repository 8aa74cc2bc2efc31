//! The gRPC binding: service `lf.a2a.v1.A2AService`.
//!
//! Protobuf types live only here; everything else sees the model.

mod convert;
mod proto;
mod status;

use std::marker::PhantomData;

use attache_core::{BoxFuture, Owner, Reply, Seq};
use attache_protocol::{
    Error, ErrorKind, ListTasksResponse, Operation, Request as Asked, SendMessageResponse,
};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use tonic::metadata::MetadataValue;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic_prost::ProstCodec;

use self::convert::{to_model, to_proto};
use self::status::status;
use crate::body::{self, Body};
use crate::params::{Params, Shape};
use crate::surface::{Surface, json_response};

/// What the paths of the binding begin with.
pub(crate) const PREFIX: &str = "/lf.a2a.v1.A2AService/";

/// Answers a call.
pub(crate) async fn call<B>(surface: &Surface, owner: Owner, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    if !is_grpc(request.headers()) {
        let text = "this path speaks gRPC: expected the content type `application/grpc`";
        let error = Error::new(ErrorKind::ContentTypeNotSupported, text);
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return json_response(status, "application/json", crate::reply::http_error_body_for(status, &error));
    }
    let name = request.uri().path().strip_prefix(PREFIX).unwrap_or_default();
    let Some(operation) = Operation::from_name(name) else {
        let name: String = name.chars().take(64).collect();
        return refuse(&Error::new(ErrorKind::MethodNotFound, format!("there is no call `{name}`")));
    };
    let params = match Params::read(request.headers(), None) {
        Ok(params) => params,
        Err(error) => return refuse(&error),
    };
    let options = surface.options();
    let (head, body) = request.into_parts();
    let request = match body::read(body, options.max_body, options.body_timeout).await {
        Ok(body) => Request::from_parts(head, Full::new(body)),
        Err(error) => return refuse(&error),
    };
    let context = Context { surface: surface.clone(), owner, params };
    match operation {
        Operation::SendMessage => {
            context.unary(request, |r| Ok(Asked::SendMessage(to_model(r)?)), sent).await
        }
        Operation::SendStreamingMessage => {
            context.streaming(request, |r| Ok(Asked::SendStreamingMessage(to_model(r)?))).await
        }
        Operation::SubscribeToTask => {
            context
                .streaming(request, |r: proto::SubscribeToTaskRequest| {
                    Ok(Asked::SubscribeToTask(to_model(r)?))
                })
                .await
        }
        Operation::GetTask => {
            context.unary(request, |r: proto::GetTaskRequest| Ok(Asked::GetTask(to_model(r)?)), task).await
        }
        Operation::CancelTask => {
            context
                .unary(request, |r: proto::CancelTaskRequest| Ok(Asked::CancelTask(to_model(r)?)), task)
                .await
        }
        Operation::ListTasks => {
            context
                .unary(request, |r: proto::ListTasksRequest| Ok(Asked::ListTasks(to_model(r)?)), tasks)
                .await
        }
        Operation::CreateTaskPushNotificationConfig => {
            let ask = |r| Ok(Asked::CreateTaskPushNotificationConfig(to_model(r)?));
            context.unary(request, ask, push).await
        }
        Operation::GetTaskPushNotificationConfig => {
            let ask = |r: proto::GetTaskPushNotificationConfigRequest| {
                Ok(Asked::GetTaskPushNotificationConfig(to_model(r)?))
            };
            context.unary(request, ask, push).await
        }
        Operation::ListTaskPushNotificationConfigs => {
            let ask = |r: proto::ListTaskPushNotificationConfigsRequest| {
                Ok(Asked::ListTaskPushNotificationConfigs(to_model(r)?))
            };
            context.unary(request, ask, pushes).await
        }
        Operation::DeleteTaskPushNotificationConfig => {
            let ask = |r: proto::DeleteTaskPushNotificationConfigRequest| {
                Ok(Asked::DeleteTaskPushNotificationConfig(to_model(r)?))
            };
            context.unary(request, ask, |_| Ok(())).await
        }
        Operation::GetExtendedAgentCard => {
            let ask = |r: proto::GetExtendedAgentCardRequest| Ok(Asked::GetExtendedAgentCard(to_model(r)?));
            context.unary(request, ask, card).await
        }
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

pub(crate) fn refuse(error: &Error) -> Response<Body> {
    status(error).into_http::<tonic::body::Body>().map(Body::grpc)
}

fn sent(reply: Reply) -> Result<proto::SendMessageResponse, Error> {
    if let Reply::Message(message) = reply {
        return to_proto(SendMessageResponse::Message(*message));
    }
    let Reply::Sent(snapshot, view) = reply else { return Err(unexpected()) };
    to_proto(SendMessageResponse::Task(snapshot.viewed(view)))
}

fn task(reply: Reply) -> Result<proto::Task, Error> {
    let Reply::Task(snapshot, view) = reply else { return Err(unexpected()) };
    to_proto(snapshot.viewed(view))
}

fn tasks(reply: Reply) -> Result<proto::ListTasksResponse, Error> {
    let Reply::Tasks(page) = reply else { return Err(unexpected()) };
    to_proto(ListTasksResponse {
        tasks: page.tasks.iter().map(|task| task.viewed(page.view)).collect(),
        next_page_token: page.next_page_token,
        page_size: page.page_size,
        total_size: page.total_size,
    })
}

fn push(reply: Reply) -> Result<proto::TaskPushNotificationConfig, Error> {
    let Reply::Push(config) = reply else { return Err(unexpected()) };
    to_proto(*config)
}

fn pushes(reply: Reply) -> Result<proto::ListTaskPushNotificationConfigsResponse, Error> {
    let Reply::Pushes(configs) = reply else { return Err(unexpected()) };
    to_proto(configs)
}

fn card(reply: Reply) -> Result<proto::AgentCard, Error> {
    let Reply::Card(card) = reply else { return Err(unexpected()) };
    to_proto((*card).clone())
}

/// The service answers each operation with its own kind of reply; anything else is a mistake of ours.
fn unexpected() -> Error {
    Error::new(ErrorKind::Internal, "the answer does not fit the call")
}

/// What every call has besides its arguments.
struct Context {
    surface: Surface,
    owner: Owner,
    params: Params,
}

impl Context {
    async fn unary<B, Req, Res>(
        self,
        request: Request<B>,
        ask: fn(Req) -> Result<Asked, Error>,
        answer: fn(Reply) -> Result<Res, Error>,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
        Req: prost::Message + Default + 'static,
        Res: prost::Message + Default + 'static,
    {
        let limit = self.surface.options().max_body;
        let mut grpc =
            Grpc::new(ProstCodec::<Res, Req>::default()).apply_max_message_size_config(Some(limit), None);
        grpc.unary(Unary { context: Some(self), ask, answer, response: PhantomData }, request)
            .await
            .map(Body::grpc)
    }

    async fn streaming<B, Req>(
        self,
        request: Request<B>,
        ask: fn(Req) -> Result<Asked, Error>,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
        Req: prost::Message + Default + 'static,
    {
        let limit = self.surface.options().max_body;
        let codec = ProstCodec::<proto::StreamResponse, Req>::default();
        let mut grpc = Grpc::new(codec).apply_max_message_size_config(Some(limit), None);
        grpc.server_streaming(Streaming { context: Some(self), ask }, request).await.map(Body::grpc)
    }

    /// Carries out a call; the reply comes with the extensions that are active, ready for the response's metadata.
    async fn call(
        self,
        asked: Result<Asked, Error>,
    ) -> Result<(Reply, Option<MetadataValue<tonic::metadata::Ascii>>), Error> {
        let Self { surface, owner, params } = self;
        let version = params.version(Shape::Current, surface.options().strict_version)?;
        let service = surface.service();
        let caller = service.admit(owner, version, &params.extensions, params.idempotency_key)?;
        let asked = asked?;
        let active = caller.extensions.iter().collect::<Vec<_>>().join(", ");
        let resume: Option<Seq> = params.resume;
        let reply = service.call(caller, asked, resume).await?;
        Ok((reply, active.parse().ok().filter(|_| !active.is_empty())))
    }
}

fn respond<T>(message: T, active: Option<MetadataValue<tonic::metadata::Ascii>>) -> tonic::Response<T> {
    let mut response = tonic::Response::new(message);
    if let Some(active) = active {
        response.metadata_mut().insert("a2a-extensions", active);
    }
    response
}

struct Unary<Req, Res> {
    /// Taken by the one call that it is for.
    context: Option<Context>,
    ask: fn(Req) -> Result<Asked, Error>,
    answer: fn(Reply) -> Result<Res, Error>,
    response: PhantomData<Res>,
}

impl<Req, Res> UnaryService<Req> for Unary<Req, Res>
where
    Req: prost::Message + 'static,
    Res: prost::Message + 'static,
{
    type Response = Res;
    type Future = BoxFuture<'static, Result<tonic::Response<Res>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Req>) -> Self::Future {
        let (context, ask, answer) = (self.context.take(), self.ask, self.answer);
        Box::pin(async move {
            let context = context.ok_or_else(|| tonic::Status::internal("a call was made twice"))?;
            let (reply, active) =
                context.call(ask(request.into_inner())).await.map_err(|error| status(&error))?;
            answer(reply).map(|message| respond(message, active)).map_err(|error| status(&error))
        })
    }
}

struct Streaming<Req> {
    /// Taken by the one call that it is for.
    context: Option<Context>,
    ask: fn(Req) -> Result<Asked, Error>,
}

impl<Req: prost::Message + 'static> ServerStreamingService<Req> for Streaming<Req> {
    type Response = proto::StreamResponse;
    type ResponseStream = BoxStream<'static, Result<proto::StreamResponse, tonic::Status>>;
    type Future = BoxFuture<'static, Result<tonic::Response<Self::ResponseStream>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Req>) -> Self::Future {
        let (context, ask) = (self.context.take(), self.ask);
        Box::pin(async move {
            let context = context.ok_or_else(|| tonic::Status::internal("a call was made twice"))?;
            let (reply, active) =
                context.call(ask(request.into_inner())).await.map_err(|error| status(&error))?;
            let Reply::Events(events, view) = reply else { return Err(status(&unexpected())) };
            let messages = events.flat_map(move |batch| {
                let messages: Vec<_> = match batch {
                    Err(error) => vec![Err(status(&error))],
                    Ok(items) => items
                        .iter()
                        .filter_map(|item| item.to_response(view))
                        .map(|response| to_proto(response).map_err(|error| status(&error)))
                        .collect(),
                };
                stream::iter(messages)
            });
            Ok(respond(messages.boxed(), active))
        })
    }
}
