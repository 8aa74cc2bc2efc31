//! The gRPC envelope: JSON-RPC in the messages of the service `iac_code.a2a.transports.proto.A2AJsonRpc`.
//!
//! `Send` is for one response and `Stream` for a stream of them. Service parameters and credentials are the metadata of the call. The last
//! message of a stream is final and has a payload without result. Each request is a call of its own, on shared HTTP/2 connections.

use std::sync::Arc;

use attache_grpc::envelope::{JsonRpcEnvelope, Method as EnvelopeMethod, SERVICE};
use futures::future::BoxFuture;
use prost::Message;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, Url};

use super::multiplexer::ResponseHead;
use super::{Channel, RequestFrame, ResponseCount, ResponseFrame, ResponseSource, Responses};
use crate::ClientError;
use crate::http::{Http, status_error};
use crate::transport::connection::cut_off;
use crate::transport::grpc::{MEDIA_TYPE, Messages};

/// A channel over the service.
pub(super) struct Envelope {
    http: Arc<Http>,
    /// The URL with the scheme of HTTP.
    url: Url,
}

impl Envelope {
    pub(super) fn new(http: Arc<Http>, url: Url) -> Self {
        Self { http, url }
    }

    async fn call(&self, request: RequestFrame) -> Result<Responses, ClientError> {
        let method = match request.responses {
            ResponseCount::One => EnvelopeMethod::Send,
            ResponseCount::Stream => EnvelopeMethod::Stream,
        };
        let mut url = self.url.clone();
        url.set_path(&format!("{}{SERVICE}/{}", url.path().trim_end_matches('/'), method.name()));
        let mut builder = self.http.grpc_request(Method::POST, &url)?.header(CONTENT_TYPE, MEDIA_TYPE);
        for (name, value) in request.headers.iter().chain(&request.auth) {
            builder = builder.header(name, value);
        }
        let envelope = JsonRpcEnvelope { payload: request.json.into(), r#final: false };
        let response = self.http.send(&url, builder.body(framed(&envelope)?)).await?;
        let status = response.status();
        if !status.is_success() {
            let body = self.http.body(&url, response).await.unwrap_or_default();
            return Err(status_error(&url, status, &body));
        }
        let options = &self.http.options;
        let limit = options.max_body.max(options.max_event).saturating_add(1024);
        let messages = Messages::new(url, response, limit)?;
        Ok(match (request.id, request.responses) {
            (None, _) => Responses::none(),
            (Some(_), responses) => Responses::new(CallResponses { messages, responses, is_over: false }),
        })
    }
}

/// A message with the prefix that gRPC gives it.
fn framed(message: &JsonRpcEnvelope) -> Result<Vec<u8>, ClientError> {
    let length = u32::try_from(message.encoded_len())
        .map_err(|_| ClientError::Invalid("the request is too large for gRPC".to_owned()))?;
    let mut out = Vec::with_capacity(message.encoded_len() + 5);
    out.push(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&message.encode_to_vec());
    Ok(out)
}

impl Channel for Envelope {
    fn exchange(&self, request: RequestFrame) -> BoxFuture<'_, Result<Responses, ClientError>> {
        Box::pin(self.call(request))
    }
}

struct CallResponses {
    messages: Messages,
    responses: ResponseCount,
    is_over: bool,
}

impl CallResponses {
    async fn read(&mut self) -> Result<Option<ResponseFrame>, ClientError> {
        if self.is_over {
            return Ok(None);
        }
        let Some(message) = self.messages.next().await.map_err(cut_off)? else {
            self.is_over = true;
            return Ok(None);
        };
        let envelope = JsonRpcEnvelope::decode(message)
            .map_err(|error| ClientError::Protocol(format!("the message cannot be read: {error}")))?;
        self.is_over = envelope.r#final || self.responses == ResponseCount::One;
        let head = ResponseHead::read(&envelope.payload).map_err(super::multiplexer::Loss::into_error)?;
        let frame = head.frame(envelope.payload.clone());
        let is_end_only = self.responses == ResponseCount::Stream
            && envelope.r#final
            && !frame.has_result
            && !frame.has_error;
        Ok((!is_end_only).then_some(ResponseFrame { json: frame.json, event: frame.event }))
    }
}

impl ResponseSource for CallResponses {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<ResponseFrame>, ClientError>> {
        Box::pin(self.read())
    }
}
