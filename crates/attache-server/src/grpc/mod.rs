//! The gRPC binding: a service for each version, `lf.a2a.v1.A2AService` for 1.0 and `a2a.v1.A2AService` for 0.3.
//!
//! The messages are those of [`attache_grpc`]; everything else sees the model. The package that a call names tells which messages
//! it is written in, and [`call`] carries it out in one way for all.

mod answer;
mod call;
mod v0_3;
mod v1_0;

use attache_core::{Reply, Service};
pub(crate) use attache_grpc::Package;
use attache_grpc::v0_3 as older;
use attache_protocol::{Dialect, Error, ErrorKind, Operation, Request as Asked, Version};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;

use self::call::Context;
use crate::body::{self, Body, BodyError, Shape};
use crate::limits::RequestContext;
use crate::params::{self, Params};
use crate::surface::{Surface, json_response};

/// A response that refuses a call.
pub(crate) fn refuse(package: Package, error: &Error) -> Response<Body> {
    package.status(error).into_http::<tonic::body::Body>().map(|body| Body::grpc(Shape::Whole, body))
}

/// The version that a call speaks, if what it says about that fits the service.
fn version(package: Package, params: &Params, strict: bool) -> Result<Version, Error> {
    match package {
        Package::V1_0 => params.version(params::Shape::Current, strict),
        Package::V0_3 if params.allows_older(strict) => Ok(Dialect::V0_3.version()),
        Package::V0_3 => {
            let version = params.version(params::Shape::Older, strict)?;
            let (here, there) = (&package.service()[1..], &Package::V1_0.service()[1..]);
            let text = format!("`{here}` does not speak version {version}: call `{there}`");
            Err(Error::new(ErrorKind::MethodNotFound, text))
        }
    }
}

/// An answer that is known without carrying out anything.
fn known(package: Package, asked: &Asked, service: &Service) -> Option<Reply> {
    match package {
        Package::V1_0 => None,
        Package::V0_3 => v0_3::known(asked, service),
    }
}

/// What is called.
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
}

/// Answers a call.
pub(crate) async fn call<B>(
    surface: &Surface,
    package: Package,
    context: RequestContext,
    request: Request<B>,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Send + 'static,
{
    if !is_grpc(request.headers()) {
        let text = "this path speaks gRPC: expected the content type `application/grpc`";
        let error = Error::new(ErrorKind::ContentTypeNotSupported, text);
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return json_response(status, "application/json", crate::reply::http_error_body_for(status, &error));
    }
    let name = package.name_in(request.uri().path()).unwrap_or_default();
    let Some(call) = Call::named(package, name) else {
        let name: String = name.chars().take(64).collect();
        return refuse(package, &Error::new(ErrorKind::MethodNotFound, format!("there is no call `{name}`")));
    };
    let params = match Params::read(request.headers(), None) {
        Ok(params) => params,
        Err(error) => return refuse(package, &error),
    };
    let options = surface.options();
    let (head, body) = request.into_parts();
    let request = match body::read(body, options.max_body, options.body_timeout).await {
        Ok(body) => Request::from_parts(head, Full::new(body)),
        Err(error) => return refuse(package, &error),
    };
    let context = Context { surface: surface.clone(), package, context, params };
    match call {
        Call::V1_0(operation) => v1_0::call(context, operation, request).await,
        Call::V0_3(call) => v0_3::call(context, call, request).await,
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}
