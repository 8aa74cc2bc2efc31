//! Parsers of what functions, engines and other workers send over HTTP and in the state, for fuzzing. Not part of the public API.

use attache_protocol::Task;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::value::RawValue;

use crate::engine::{HttpBody, result_as_response, written_head};
use crate::{CallError, bridge, state_store};

/// The HTTP response that the result of a function stands for.
pub fn response(result: &RawValue) -> Response<HttpBody> {
    result_as_response(result)
}

/// The HTTP response with the head that a function wrote before its body.
pub fn head<'a>(messages: impl IntoIterator<Item = &'a str>) -> Response<HttpBody> {
    written_head(messages)
}

/// The HTTP request that a call of an engine stands for.
pub fn invocation(call: &str) -> Result<Request<Full<Bytes>>, CallError> {
    bridge::read_invocation(call)
}

/// A task in the state of an engine, and the same task as it is written again.
pub fn document(json: &str) -> Result<(Task, Result<Box<RawValue>, CallError>), String> {
    state_store::read_document(json)
}
