//! stub
use attache_core::Owner;
use http::{Request, Response};
use crate::{Body, Surface};
pub(crate) const PREFIX: &str = "/lf.a2a.v1.A2AService/";
pub(crate) async fn call<B>(_surface: &Surface, _owner: Owner, _request: Request<B>) -> Response<Body> { Response::new(Body::grpc(tonic::body::Body::empty())) }
