//! JSON-RPC in gRPC messages: the service `iac_code.a2a.transports.proto.A2AJsonRpc`.
//!
//! A message has a JSON-RPC request or response as its payload, and whether it is the last one of a response. `Send` is for requests with
//! one response, `Stream` for all requests. Service parameters and credentials are in the metadata. Errors of the protocol are JSON-RPC
//! errors in a call that succeeds; faults of the transport, such as missing credentials, are the status of the call.

use attache_core::BoxFuture;
pub(crate) use attache_grpc::envelope::SERVICE;
use attache_grpc::envelope::{JsonRpcEnvelope, Method};
use attache_protocol::jsonrpc::Call;
use attache_protocol::{Error, ErrorKind};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::{HeaderMap, HeaderName, Request, Response};
use memchr::memmem;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic_prost::ProstCodec;

use super::{Package, not_grpc, noted, read, without_prefix};
use crate::HttpService;
use crate::dispatch::RequestContext;
use crate::http::body::{Body, BodyError, Shape};
use crate::transport::exchange::{Additions, Answer, answer_admitted, is_streaming};

/// The name of the transport in the logs.
pub(crate) const BINDING: &str = "JSONRPC-GRPC";

/// How the messages of a call are compressed.
const ENCODING: &str = "grpc-encoding";

/// Whether a path is one of the service.
pub(crate) fn is_path(path: &str) -> bool {
    without_prefix(path).strip_prefix(SERVICE).is_some_and(|rest| rest.starts_with('/'))
}

/// Answers a call.
pub(crate) async fn call<B>(
    http: &HttpService,
    context: RequestContext,
    is_local: bool,
    request: Request<B>,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Send + 'static,
{
    if let Some(refused) = not_grpc(request.headers()) {
        return refused;
    }
    let noted = |error: Error| noted(&context, Package::V1_0, &error);
    let name = without_prefix(request.uri().path()).rsplit('/').next().unwrap_or_default();
    let Some(method) = Method::from_name(name) else {
        let name: String = name.chars().take(64).collect();
        let text = format!("there is no call `{name}`: expected `Send` or `Stream`");
        return noted(Error::new(ErrorKind::MethodNotFound, text));
    };
    let options = http.options();
    let mut request = match read(request, options).await {
        Ok(request) => request,
        Err(error) => return noted(error),
    };
    // What is left is what the framing of the message depends on.
    let encoding = request.headers().get(ENCODING).cloned();
    let headers = std::mem::take(request.headers_mut());
    request.headers_mut().extend(encoding.map(|encoding| (HeaderName::from_static(ENCODING), encoding)));
    let mut grpc = Grpc::new(ProstCodec::<JsonRpcEnvelope, JsonRpcEnvelope>::default())
        .apply_max_message_size_config(Some(options.max_body), None);
    let answering = Answering(Some((http.clone(), context, headers, is_local, method)));
    match method {
        Method::Send => grpc.unary(answering, request).await.map(|body| Body::grpc(Shape::Whole, body)),
        Method::Stream => {
            grpc.server_streaming(answering, request).await.map(|body| Body::grpc(Shape::Stream, body))
        }
    }
}

/// What answers one call.
struct Answering(Option<(HttpService, RequestContext, HeaderMap, bool, Method)>);

impl Answering {
    async fn answer(
        call: Option<(HttpService, RequestContext, HeaderMap, bool, Method)>,
        envelope: JsonRpcEnvelope,
    ) -> Result<Answer, tonic::Status> {
        let Some((http, context, headers, is_local, method)) = call else {
            return Err(tonic::Status::internal("a call was made twice"));
        };
        let checked = check(method, &envelope);
        if let Err(error) = checked {
            if let Some(record) = &context.record {
                record.error(&error);
            }
            return Err(Package::V1_0.status(&error));
        }
        let place = (&headers, None, is_local);
        Ok(answer_admitted(&http, &context, place, &envelope.payload, Additions::default()).await)
    }
}

/// Checks that a call fits its payload.
fn check(method: Method, envelope: &JsonRpcEnvelope) -> Result<(), Error> {
    if envelope.payload.is_empty() {
        return Err(Error::invalid_params("payload", "is empty: expected a JSON-RPC request"));
    }
    if method == Method::Stream || !may_stream(&envelope.payload) {
        return Ok(());
    }
    match Call::parse(&envelope.payload) {
        Ok(call) if is_streaming(&call) => {
            let text = format!("`{}` has a stream of responses: call `Stream`", call.method);
            Err(Error::invalid_params("payload", text))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether a request may call a method with a stream of responses. Most requests do not, and are not parsed twice.
fn may_stream(request: &[u8]) -> bool {
    // Every such method has one of the first two in its name. Any text can be written with the third.
    [&b"tream"[..], b"ubscribe", b"\\u"].iter().any(|text| memmem::find(request, text).is_some())
}

/// The frames of a response as messages.
async fn next(mut answer: Answer) -> Option<(Result<JsonRpcEnvelope, tonic::Status>, Answer)> {
    let frame = answer.next().await?;
    let r#final = frame.is_last();
    Some((Ok(JsonRpcEnvelope { payload: frame.payload.into(), r#final }), answer))
}

impl UnaryService<JsonRpcEnvelope> for Answering {
    type Response = JsonRpcEnvelope;
    type Future = BoxFuture<'static, Result<tonic::Response<JsonRpcEnvelope>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<JsonRpcEnvelope>) -> Self::Future {
        let call = self.0.take();
        Box::pin(async move {
            let answer = Self::answer(call, request.into_inner()).await?;
            // A notification is answered with an empty message: a call has a response.
            let nothing = || JsonRpcEnvelope { payload: Bytes::new(), r#final: true };
            let message = match next(answer).await {
                Some((message, _)) => message?,
                None => nothing(),
            };
            Ok(tonic::Response::new(message))
        })
    }
}

impl ServerStreamingService<JsonRpcEnvelope> for Answering {
    type Response = JsonRpcEnvelope;
    type ResponseStream = BoxStream<'static, Result<JsonRpcEnvelope, tonic::Status>>;
    type Future = BoxFuture<'static, Result<tonic::Response<Self::ResponseStream>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<JsonRpcEnvelope>) -> Self::Future {
        let call = self.0.take();
        Box::pin(async move {
            let answer = Self::answer(call, request.into_inner()).await?;
            Ok(tonic::Response::new(stream::unfold(answer, next).boxed()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_a_stream_is_noticed_however_its_method_is_written() {
        let refused = |method: &str| {
            let payload = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}"#);
            check(Method::Send, &JsonRpcEnvelope { payload: payload.into(), r#final: true }).is_err()
        };
        let streams = [
            "SendStreamingMessage",
            "SubscribeToTask",
            "message/stream",
            "tasks/resubscribe",
            "tasks/sendSubscribe",
        ];
        for method in streams.into_iter().chain(["message\\/stream", "message/s\\u0074ream"]) {
            assert!(refused(method), "{method}");
        }
        for method in ["SendMessage", "message/send", "streams", "x\\u0041"] {
            assert!(!refused(method), "{method}");
        }
    }
}
