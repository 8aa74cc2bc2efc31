//! An HTTP request as the payload of a call.

use std::collections::BTreeMap;

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderMap, Method, Request};
use attache_protocol::json::is_deeper_than;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde_json::value::RawValue;

use super::routes::{Route, RouteMatch};
use crate::wire::ChannelRef;

/// How deep a JSON body in a call may nest. SDKs drop calls that they cannot parse.
const MAX_DEPTH: usize = 100;

/// An HTTP request, including its body.
pub(super) struct TriggerRequest {
    method: Method,
    query: BTreeMap<String, String>,
    params: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    is_json: bool,
    pub(super) bytes: Bytes,
}

/// Why a request could not be read.
pub(super) enum ReadError {
    TooLarge,
    BrokeOff,
}

/// The payload of the call.
#[derive(Serialize)]
struct Data<'a> {
    query_params: &'a BTreeMap<String, String>,
    path_params: &'a BTreeMap<String, String>,
    headers: &'a BTreeMap<String, String>,
    path: &'a str,
    method: &'a str,
    body: &'a RawValue,
    trigger: TriggerData<'a>,
    request_body: &'a ChannelRef,
    response: &'a ChannelRef,
}

#[derive(Serialize)]
struct TriggerData<'a> {
    r#type: &'static str,
    path: &'a str,
    method: &'a str,
}

impl TriggerRequest {
    /// Reads a request with a body of at most `limit` bytes.
    pub(super) async fn read<B>(
        request: Request<B>,
        matched: &RouteMatch,
        limit: usize,
    ) -> Result<Self, ReadError>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        if body.size_hint().lower() > limit as u64 {
            return Err(ReadError::TooLarge);
        }
        let bytes = match Limited::new(body, limit).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return Err(ReadError::TooLarge),
            Err(_) => return Err(ReadError::BrokeOff),
        };
        let query = head.uri.query().unwrap_or_default();
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        Ok(Self {
            method: head.method,
            query: url::form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
            params: matched.params.iter().cloned().collect(),
            headers: header_texts(&head.headers),
            is_json: content_type.is_some_and(|text| text.to_ascii_lowercase().contains("application/json")),
            bytes,
        })
    }

    /// The body as JSON. `null` if it is not declared as JSON, is not valid JSON, or is too large for a call.
    fn json(&self, limit: usize) -> &RawValue {
        if !self.is_json || self.bytes.len() > limit || is_deeper_than(&self.bytes, MAX_DEPTH) {
            return RawValue::NULL;
        }
        serde_json::from_slice(&self.bytes).unwrap_or(RawValue::NULL)
    }

    /// Encodes the payload of the call as JSON.
    pub(super) fn data(
        &self,
        route: &Route,
        limit: usize,
        request_body: &ChannelRef,
        response: &ChannelRef,
    ) -> String {
        let (path, method) = (route.config.path.as_str(), self.method.as_str());
        let data = Data {
            query_params: &self.query,
            path_params: &self.params,
            headers: &self.headers,
            path,
            method,
            body: self.json(limit),
            trigger: TriggerData { r#type: "http", path, method },
            request_body,
            response,
        };
        serde_json::to_string(&data).unwrap_or_default()
    }

    /// Encodes the payload of the middleware functions as JSON.
    pub(super) fn for_middleware(&self) -> String {
        serde_json::json!({
            "phase": "preHandler",
            "request": {
                "path_params": self.params,
                "query_params": self.query,
                "headers": self.headers,
                "method": self.method.as_str(),
            },
            "context": {},
        })
        .to_string()
    }
}

/// The headers as text. Of headers with the same name, the last one counts.
fn header_texts(headers: &HeaderMap) -> BTreeMap<String, String> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect()
}
