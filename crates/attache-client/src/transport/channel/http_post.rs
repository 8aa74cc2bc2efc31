//! JSON-RPC over HTTP as a channel, for requests that are forwarded.
//!
//! The client's own requests over HTTP do not use this: they are encoded by their bindings.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Response, Url};

use super::{Channel, RequestFrame, ResponseCount, ResponseFrame, ResponseSource, Responses};
use crate::ClientError;
use crate::http::{Http, convert_error, status_error};
use crate::transport::is_event_stream;
use crate::transport::sse::{Decoder, Frame, TooLarge};

/// A channel that makes an HTTP request for each JSON-RPC request.
pub(super) struct HttpPost {
    http: Arc<Http>,
    url: Url,
}

impl HttpPost {
    pub(super) fn new(http: Arc<Http>, url: Url) -> Self {
        Self { http, url }
    }

    async fn post(&self, request: RequestFrame) -> Result<Responses, ClientError> {
        let accept = match request.responses {
            ResponseCount::One => "application/json",
            ResponseCount::Stream => "text/event-stream, application/json",
        };
        let mut builder = self.http.request(Method::POST, &self.url);
        for (name, value) in request.headers.iter().chain(&request.auth) {
            builder = builder.header(name, value);
        }
        let builder =
            builder.header(ACCEPT, accept).header(CONTENT_TYPE, "application/json").body(request.json);
        let response = self.http.send(&self.url, builder).await?;
        let status = response.status();
        if status.is_success() && is_event_stream(&response) {
            let limit = self.http.options.max_event;
            return Ok(Responses::new(EventResponses {
                url: self.url.clone(),
                response,
                decoder: Decoder::new(limit),
                frames: VecDeque::new(),
                limit,
                is_too_large: false,
            }));
        }
        let body = self.http.body(&self.url, response).await?;
        let is_object = body.trim_ascii_start().first() == Some(&b'{');
        match (request.id, status.is_success()) {
            (None, true) => Ok(Responses::none()),
            // Some JSON-RPC errors come with an HTTP error status.
            (Some(_), _) if is_object && is_response(&body) => {
                Ok(Responses::one(ResponseFrame { json: body.into(), event: None }))
            }
            (Some(_), true) => {
                Err(ClientError::Protocol("the response is not one of JSON-RPC 2.0".to_owned()))
            }
            (_, false) => Err(status_error(&self.url, status, &body)),
        }
    }
}

/// Whether this is a JSON-RPC response.
fn is_response(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Version<'a> {
        #[serde(default)]
        jsonrpc: &'a str,
    }
    serde_json::from_slice::<Version<'_>>(body).is_ok_and(|version| version.jsonrpc == "2.0")
}

impl Channel for HttpPost {
    fn exchange(&self, request: RequestFrame) -> BoxFuture<'_, Result<Responses, ClientError>> {
        Box::pin(self.post(request))
    }
}

/// The responses in a stream of server-sent events.
struct EventResponses {
    url: Url,
    response: Response,
    decoder: Decoder,
    frames: VecDeque<Frame>,
    limit: usize,
    is_too_large: bool,
}

impl EventResponses {
    async fn read(&mut self) -> Result<Option<ResponseFrame>, ClientError> {
        loop {
            if let Some(Frame { id, data }) = self.frames.pop_front() {
                return Ok(Some(ResponseFrame { json: data.into(), event: id }));
            }
            if self.is_too_large {
                return Err(ClientError::TooLarge { limit: self.limit });
            }
            let chunk = self.response.chunk().await.map_err(|error| convert_error(&self.url, &error))?;
            let Some(chunk) = chunk else { return Ok(None) };
            self.is_too_large = self.decoder.feed(&chunk, &mut self.frames) == Err(TooLarge);
        }
    }
}

impl ResponseSource for EventResponses {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<ResponseFrame>, ClientError>> {
        Box::pin(self.read())
    }
}
