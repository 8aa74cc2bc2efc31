//! One gRPC call: from its message to the dispatcher, and from the reply to a message.

use std::marker::PhantomData;

use attache_core::{BoxFuture, Reply, internal};
use attache_grpc::v0_3::FileForm;
use attache_grpc::{ProtoConvert, to_proto};
use attache_protocol::{Error, ErrorKind, Extensions, Operation, Request as ModelRequest, StreamResponse};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::{Request, Response};
use http_body_util::Full;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic_prost::ProstCodec;

use super::reply::unexpected;
use super::{Package, check_version, v0_3};
use crate::dispatch::{Completed, Dispatcher, RequestContext, ServiceParameters};
use crate::http::body::{Body, Shape};

/// What every call has besides its message.
pub(super) struct CallContext {
    pub(super) dispatcher: Dispatcher,
    pub(super) package: Package,
    /// The form in which a client of 0.3 writes files.
    pub(super) files: FileForm,
    pub(super) operation: Operation,
    pub(super) request: RequestContext,
    pub(super) parameters: ServiceParameters,
}

impl CallContext {
    /// Answers a call with one message. `parse` reads the message, `encode` writes the reply.
    pub(super) async fn unary<Req, Res>(
        self,
        request: Request<Full<Bytes>>,
        parse: impl Fn(Req) -> Result<ModelRequest, Error> + Copy + Send + 'static,
        encode: impl Fn(Reply) -> Result<Res, Error> + Copy + Send + 'static,
    ) -> Response<Body>
    where
        Req: prost::Message + Default + 'static,
        Res: prost::Message + Default + 'static,
    {
        let limit = self.dispatcher.options().max_body;
        let mut grpc =
            Grpc::new(ProstCodec::<Res, Req>::default()).apply_max_message_size_config(Some(limit), None);
        grpc.unary(Unary { context: Some(self), parse, encode }, request)
            .await
            .map(|body| Body::grpc(Shape::Whole, body))
    }

    /// Answers a call with a stream of events. `finish` is applied to each message.
    pub(super) async fn streaming<Req, Res>(
        self,
        request: Request<Full<Bytes>>,
        parse: impl Fn(Req) -> Result<ModelRequest, Error> + Copy + Send + 'static,
        finish: impl Fn(Res) -> Res + Copy + Send + 'static,
    ) -> Response<Body>
    where
        Req: prost::Message + Default + 'static,
        Res: prost::Message + Default + 'static,
        StreamResponse: ProtoConvert<Res>,
    {
        let limit = self.dispatcher.options().max_body;
        let mut grpc =
            Grpc::new(ProstCodec::<Res, Req>::default()).apply_max_message_size_config(Some(limit), None);
        grpc.server_streaming(
            Streaming { context: Some(self), parse, finish, response: PhantomData },
            request,
        )
        .await
        .map(|body| Body::grpc(Shape::Stream, body))
    }

    /// Runs the operation of a call.
    async fn call(self, request: Result<ModelRequest, Error>) -> Result<(Reply, ActiveExtensions), Error> {
        let Self { dispatcher, package, files: _, operation, request: context, parameters } = self;
        check_version(package, &parameters, dispatcher.options().strict_version)?;
        let public_card = v0_3::public_card(package, &request, &dispatcher);
        let completed = dispatcher.call(&context, parameters, Some(operation), package.dialect(), || request);
        let completed = match completed.await {
            Err(error)
                if error.kind() == ErrorKind::UnsupportedOperation
                    && let Some(card) = public_card =>
            {
                if let Some(record) = &context.record {
                    record.recovered();
                }
                Completed { reply: Reply::Card(card), extensions: Extensions::default() }
            }
            completed => completed?,
        };
        let list = completed.extensions.iter().collect::<Vec<_>>().join(", ");
        let list = list.parse().ok().filter(|_| !list.is_empty());
        Ok((completed.reply, ActiveExtensions { key: package.extensions(), list }))
    }
}

/// The active extensions, as an entry of the response's metadata.
struct ActiveExtensions {
    key: &'static str,
    list: Option<MetadataValue<Ascii>>,
}

impl ActiveExtensions {
    fn respond<T>(self, message: T) -> tonic::Response<T> {
        let mut response = tonic::Response::new(message);
        if let Some(list) = self.list {
            response.metadata_mut().insert(self.key, list);
        }
        response
    }
}

/// The error that the client gets. The details of an unexpected one go to the log.
fn public_error(error: Error) -> Error {
    let is_logged = error.metadata().iter().any(|(key, _)| *key == "errorId");
    if error.kind() == ErrorKind::Internal && !is_logged { internal(&error) } else { error }
}

struct Unary<P, E> {
    /// Taken by the one call that it is for.
    context: Option<CallContext>,
    parse: P,
    encode: E,
}

impl<P, E, Req, Res> UnaryService<Req> for Unary<P, E>
where
    P: Fn(Req) -> Result<ModelRequest, Error> + Copy + Send + 'static,
    E: Fn(Reply) -> Result<Res, Error> + Copy + Send + 'static,
    Req: prost::Message + 'static,
    Res: prost::Message + 'static,
{
    type Response = Res;
    type Future = BoxFuture<'static, Result<tonic::Response<Res>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Req>) -> Self::Future {
        let (context, parse, encode) = (self.context.take(), self.parse, self.encode);
        Box::pin(async move {
            let context = context.ok_or_else(|| tonic::Status::internal("a call was made twice"))?;
            let package = context.package;
            let response = async move {
                let (reply, active) = context.call(parse(request.into_inner())).await?;
                encode(reply).map(|message| active.respond(message))
            };
            response.await.map_err(|error| package.status(&public_error(error)))
        })
    }
}

struct Streaming<P, F, Res> {
    /// Taken by the one call that it is for.
    context: Option<CallContext>,
    parse: P,
    finish: F,
    response: PhantomData<Res>,
}

impl<P, F, Req, Res> ServerStreamingService<Req> for Streaming<P, F, Res>
where
    P: Fn(Req) -> Result<ModelRequest, Error> + Copy + Send + 'static,
    F: Fn(Res) -> Res + Copy + Send + 'static,
    Req: prost::Message + 'static,
    Res: prost::Message + 'static,
    StreamResponse: ProtoConvert<Res>,
{
    type Response = Res;
    type ResponseStream = BoxStream<'static, Result<Res, tonic::Status>>;
    type Future = BoxFuture<'static, Result<tonic::Response<Self::ResponseStream>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Req>) -> Self::Future {
        let (context, parse, finish) = (self.context.take(), self.parse, self.finish);
        Box::pin(async move {
            let context = context.ok_or_else(|| tonic::Status::internal("a call was made twice"))?;
            let package = context.package;
            let status = move |error| package.status(&public_error(error));
            let (reply, active) = context.call(parse(request.into_inner())).await.map_err(status)?;
            let Reply::Events(events, view) = reply else { return Err(status(unexpected())) };
            let messages = events.flat_map(move |batch| {
                let messages: Vec<_> = match batch {
                    Err(error) => vec![Err(status(error))],
                    Ok(items) => items
                        .iter()
                        .filter_map(|item| item.to_response(view))
                        .map(|response| to_proto(response).map(finish).map_err(status))
                        .collect(),
                };
                stream::iter(messages)
            });
            Ok(active.respond(messages.boxed()))
        })
    }
}
