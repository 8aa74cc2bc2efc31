//! The gRPC binding: a service for each version, `lf.a2a.v1.A2AService` for 1.0 and `a2a.v1.A2AService` for 0.3.
//!
//! The messages are those of [`attache_grpc`]; everything else sees the model. The package that a call names decides which messages
//! it is written in. Calls of both packages go to the [dispatcher](crate::dispatch) in the same way.

mod call;
pub(crate) mod envelope;
mod reply;
mod v0_3;
mod v1_0;

pub(crate) use attache_grpc::Package;
use attache_grpc::v0_3 as older;
use attache_protocol::{Error, ErrorKind, Operation};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;

use self::call::CallContext;
use crate::ServerOptions;
use crate::dispatch::{Dispatcher, Generation, RequestContext, ServiceParameters, http_error_body_for};
use crate::http::body::{self, Body, BodyError, Shape};
use crate::http::response::json_response;
use crate::options::GRPC_PREFIX;

/// The path of a call without the path of the interface that the card names.
pub(crate) fn without_prefix(path: &str) -> &str {
    path.strip_prefix(GRPC_PREFIX).unwrap_or(path)
}

/// The package whose form the errors of a call have, if the path is one of a call. Those of the envelope have the form of 1.0.
pub(crate) fn package_of(path: &str) -> Option<Package> {
    Package::of(without_prefix(path)).or_else(|| envelope::is_path(path).then_some(Package::V1_0))
}

/// The response to a call that fails.
pub(crate) fn error_response(package: Package, error: &Error) -> Response<Body> {
    package.status(error).into_http::<tonic::body::Body>().map(|body| Body::grpc(Shape::Whole, body))
}

/// Fails if a call of the package for 0.3 states another version.
fn check_version(package: Package, parameters: &ServiceParameters, strict: bool) -> Result<(), Error> {
    match package {
        Package::V1_0 => Ok(()),
        Package::V0_3 if parameters.allows_older(strict) => Ok(()),
        Package::V0_3 => {
            let version = parameters.version(Generation::Older, strict)?;
            let (here, there) = (&package.service()[1..], &Package::V1_0.service()[1..]);
            let text = format!("`{here}` does not speak version {version}: call `{there}`");
            Err(Error::new(ErrorKind::MethodNotFound, text))
        }
    }
}

/// The method of a call.
#[derive(Debug, Clone, Copy)]
enum Call {
    V1_0(Operation),
    V0_3(older::Call),
}

impl Call {
    fn named(package: Package, name: &str) -> Option<Self> {
        match package {
            Package::V1_0 => Operation::from_name(name).map(Self::V1_0),
            Package::V0_3 => older::Call::from_name(name).map(Self::V0_3),
        }
    }

    fn operation(self) -> Operation {
        match self {
            Self::V1_0(operation) => operation,
            Self::V0_3(call) => match call {
                older::Call::SendMessage => Operation::SendMessage,
                older::Call::SendStreamingMessage => Operation::SendStreamingMessage,
                older::Call::GetTask => Operation::GetTask,
                older::Call::CancelTask => Operation::CancelTask,
                older::Call::TaskSubscription => Operation::SubscribeToTask,
                older::Call::CreateTaskPushNotificationConfig => Operation::CreateTaskPushNotificationConfig,
                older::Call::GetTaskPushNotificationConfig => Operation::GetTaskPushNotificationConfig,
                older::Call::ListTaskPushNotificationConfig => Operation::ListTaskPushNotificationConfigs,
                older::Call::DeleteTaskPushNotificationConfig => Operation::DeleteTaskPushNotificationConfig,
                older::Call::GetAgentCard => Operation::GetExtendedAgentCard,
            },
        }
    }
}

/// Answers a call.
pub(crate) async fn call<B>(
    dispatcher: &Dispatcher,
    package: Package,
    context: RequestContext,
    request: Request<B>,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Send + 'static,
{
    if let Some(refused) = not_grpc(request.headers()) {
        return refused;
    }
    let noted = |error: Error| noted(&context, package, &error);
    let name = package.name_in(without_prefix(request.uri().path())).unwrap_or_default();
    let Some(call) = Call::named(package, name) else {
        let name: String = name.chars().take(64).collect();
        let error = Error::new(ErrorKind::MethodNotFound, format!("there is no call `{name}`"));
        return noted(error);
    };
    let parameters = match ServiceParameters::read(request.headers(), None) {
        Ok(parameters) => parameters,
        Err(error) => return noted(error),
    };
    let user_agent = request.headers().get(USER_AGENT).and_then(|value| value.to_str().ok());
    let files = older::FileForm::of_client(user_agent.unwrap_or_default());
    let options = dispatcher.options();
    let request = match read(request, options).await {
        Ok(request) => request,
        Err(error) => return noted(error),
    };
    let (dispatcher, operation) = (dispatcher.clone(), call.operation());
    let context = CallContext { dispatcher, package, files, operation, request: context, parameters };
    match call {
        Call::V1_0(operation) => v1_0::call(context, operation, request).await,
        Call::V0_3(call) => v0_3::call(context, call, request).await,
    }
}

/// The response to a request that is no gRPC call. `None` if it is one.
fn not_grpc(headers: &HeaderMap) -> Option<Response<Body>> {
    if headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
        return None;
    }
    let text = "this path speaks gRPC: expected the content type `application/grpc`";
    let error = Error::new(ErrorKind::ContentTypeNotSupported, text);
    let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    Some(json_response(status, "application/json", http_error_body_for(status, &error)))
}

/// The response to a call that fails before it is decoded. The error goes to the logs too.
fn noted(context: &RequestContext, package: Package, error: &Error) -> Response<Body> {
    if let Some(record) = &context.record {
        record.error(error);
    }
    error_response(package, error)
}

/// The length of the message that the first bytes of a body announce, after the byte that says whether it is compressed.
fn announced_length(first: &[u8]) -> usize {
    let length = first.get(1..5).and_then(|length| length.try_into().ok());
    length.map_or(0, |length| usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX))
}

/// Reads the body of a call within the limits of the server.
async fn read<B>(request: Request<B>, options: &ServerOptions) -> Result<Request<Full<Bytes>>, Error>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Send + 'static,
{
    let (head, body) = request.into_parts();
    let body = body::read_announced(body, options.max_body, options.body_timeout, announced_length).await?;
    Ok(Request::from_parts(head, Full::new(body)))
}
