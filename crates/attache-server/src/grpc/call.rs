//! A call on its way: from its message to the service and back.

use std::marker::PhantomData;

use attache_core::{BoxFuture, Reply, internal};
use attache_grpc::{ProtoConvert, to_proto};
use attache_protocol::{Error, ErrorKind, Request as Asked, StreamResponse};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::{Request, Response};
use http_body_util::Full;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic_prost::ProstCodec;

use super::answer::unexpected;
use super::{Package, known, version};
use crate::body::{Body, Shape};
use crate::limits::RequestContext;
use crate::params::Params;
use crate::surface::Surface;

/// What every call has besides its arguments.
pub(super) struct Context {
    pub(super) surface: Surface,
    pub(super) package: Package,
    pub(super) context: RequestContext,
    pub(super) params: Params,
}

impl Context {
    /// Answers a call with one message. `ask` reads what is asked, `answer` writes the reply.
    pub(super) async fn unary<Req, Res>(
        self,
        request: Request<Full<Bytes>>,
        ask: fn(Req) -> Result<Asked, Error>,
        answer: fn(Reply) -> Result<Res, Error>,
    ) -> Response<Body>
    where
        Req: prost::Message + Default + 'static,
        Res: prost::Message + Default + 'static,
    {
        let limit = self.surface.options().max_body;
        let mut grpc =
            Grpc::new(ProstCodec::<Res, Req>::default()).apply_max_message_size_config(Some(limit), None);
        grpc.unary(Unary { context: Some(self), ask, answer, response: PhantomData }, request)
            .await
            .map(|body| Body::grpc(Shape::Whole, body))
    }

    /// Answers a call with a stream of events.
    pub(super) async fn streaming<Req, Res>(
        self,
        request: Request<Full<Bytes>>,
        ask: fn(Req) -> Result<Asked, Error>,
    ) -> Response<Body>
    where
        Req: prost::Message + Default + 'static,
        Res: prost::Message + Default + 'static,
        StreamResponse: ProtoConvert<Res>,
    {
        let limit = self.surface.options().max_body;
        let mut grpc =
            Grpc::new(ProstCodec::<Res, Req>::default()).apply_max_message_size_config(Some(limit), None);
        grpc.server_streaming(Streaming { context: Some(self), ask, response: PhantomData }, request)
            .await
            .map(|body| Body::grpc(Shape::Stream, body))
    }

    /// Carries out a call; the reply comes with the extensions that are active.
    async fn call(self, asked: Result<Asked, Error>) -> Result<(Reply, Active), Error> {
        let Self { surface, package, context, params } = self;
        let version = version(package, &params, surface.options().strict_version)?;
        let service = surface.service();
        let identity = context.identity.clone();
        let mut caller = service.admit(identity, version, &params.extensions, params.idempotency_key)?;
        let asked = asked?;
        caller.dialect = package.dialect();
        let list = caller.extensions.iter().collect::<Vec<_>>().join(", ");
        let list = list.parse().ok().filter(|_| !list.is_empty());
        let reply = match known(package, &asked, service) {
            Some(reply) => reply,
            None => surface.carry_out(&context, caller, asked, params.resume).await?,
        };
        Ok((reply, Active { key: package.extensions(), list }))
    }
}

/// The extensions that are active, ready for the response's metadata.
struct Active {
    key: &'static str,
    list: Option<MetadataValue<Ascii>>,
}

impl Active {
    fn respond<T>(self, message: T) -> tonic::Response<T> {
        let mut response = tonic::Response::new(message);
        if let Some(list) = self.list {
            response.metadata_mut().insert(self.key, list);
        }
        response
    }
}

/// An error as it may leave the house: what an unexpected one says goes to the log.
fn sealed(error: Error) -> Error {
    let is_known = error.metadata().iter().any(|(key, _)| *key == "errorId");
    if error.kind() == ErrorKind::Internal && !is_known { internal(&error) } else { error }
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
            let package = context.package;
            let answered = async {
                let (reply, active) = context.call(ask(request.into_inner())).await?;
                answer(reply).map(|message| active.respond(message))
            };
            answered.await.map_err(|error| package.status(&sealed(error)))
        })
    }
}

struct Streaming<Req, Res> {
    /// Taken by the one call that it is for.
    context: Option<Context>,
    ask: fn(Req) -> Result<Asked, Error>,
    response: PhantomData<Res>,
}

impl<Req, Res> ServerStreamingService<Req> for Streaming<Req, Res>
where
    Req: prost::Message + 'static,
    Res: prost::Message + 'static,
    StreamResponse: ProtoConvert<Res>,
{
    type Response = Res;
    type ResponseStream = BoxStream<'static, Result<Res, tonic::Status>>;
    type Future = BoxFuture<'static, Result<tonic::Response<Self::ResponseStream>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Req>) -> Self::Future {
        let (context, ask) = (self.context.take(), self.ask);
        Box::pin(async move {
            let context = context.ok_or_else(|| tonic::Status::internal("a call was made twice"))?;
            let package = context.package;
            let refuse = move |error| package.status(&sealed(error));
            let (reply, active) = context.call(ask(request.into_inner())).await.map_err(refuse)?;
            let Reply::Events(events, view) = reply else { return Err(refuse(unexpected())) };
            let messages = events.flat_map(move |batch| {
                let messages: Vec<_> = match batch {
                    Err(error) => vec![Err(refuse(error))],
                    Ok(items) => items
                        .iter()
                        .filter_map(|item| item.to_response(view))
                        .map(|response| to_proto(response).map_err(refuse))
                        .collect(),
                };
                stream::iter(messages)
            });
            Ok(active.respond(messages.boxed()))
        })
    }
}
