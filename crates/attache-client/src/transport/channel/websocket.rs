//! WebSocket: a text message for each frame.
//!
//! A request is the JSON-RPC object itself. A response is `{"id":ID,"payload":RESPONSE,"final":BOOL}`. The last frame of a stream is final
//! and has a payload without result. Credentials are in the headers of the handshake, service parameters in the member `headers` of each
//! request.
//!
//! The handshake is an HTTP request of the client's HTTP stack. So the same address checks, TLS options and time limits apply.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use reqwest::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use reqwest::{Method, StatusCode, Upgraded, Url};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use super::duplex::{
    Dial, Duplex, FrameSink, FrameSource, Incoming, Loss, ResponseHead, Traits, event_number,
};
use crate::ClientError;
use crate::http::{Http, convert_error, display_url, status_error};

/// How much is read from a connection at once. The library fills as much with zeros before each read.
const READ: usize = 16 * 1024;

/// Connects to a WebSocket.
pub(super) struct WebSocketDialer {
    http: Arc<Http>,
    /// The URL with the scheme of HTTP.
    url: Url,
}

impl WebSocketDialer {
    pub(super) fn new(http: Arc<Http>, url: Url) -> Self {
        Self { http, url }
    }

    async fn handshake(&self, auth: &[(HeaderName, HeaderValue)]) -> Result<Duplex, ClientError> {
        let mut nonce = [0; 16];
        fastrand::fill(&mut nonce);
        let key = STANDARD.encode(nonce);
        let mut request = self.http.upgrade_request(Method::GET, &self.url)?;
        for (name, value) in auth {
            request = request.header(name, value);
        }
        let request = request
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key);
        let response = self.http.send(&self.url, request).await?;
        let status = response.status();
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let body = self.http.body(&self.url, response).await.unwrap_or_default();
            return Err(match status.is_success() {
                true => ClientError::Protocol(format!("`{}` is not a WebSocket", display_url(&self.url))),
                false => status_error(&self.url, status, &body),
            });
        }
        let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
        if accepted != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
            return Err(ClientError::Protocol("the handshake of the WebSocket is invalid".to_owned()));
        }
        let socket = response.upgrade().await.map_err(|error| convert_error(&self.url, &error))?;
        let options = &self.http.options;
        // The envelope needs a few bytes beside the response.
        let limit = options.max_body.max(options.max_event).saturating_add(1024);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ)
            .max_message_size(Some(limit))
            .max_frame_size(Some(limit));
        let socket = WebSocketStream::from_raw_socket(socket, Role::Client, Some(config)).await;
        let (sink, source) = socket.split();
        Ok(Duplex { source: Box::new(Source { source, limit }), sink: Box::new(Sink(sink)) })
    }
}

impl Dial for WebSocketDialer {
    const TRAITS: Traits = Traits { auth_per_connection: true, is_replaceable: true, has_pings: true };

    fn dial<'a>(
        &'a self,
        auth: &'a [(HeaderName, HeaderValue)],
    ) -> BoxFuture<'a, Result<Duplex, ClientError>> {
        Box::pin(self.handshake(auth))
    }
}

struct Source {
    source: SplitStream<WebSocketStream<Upgraded>>,
    limit: usize,
}

/// The envelope of a response.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(default, rename = "final")]
    is_final: bool,
    #[serde(default, rename = "eventId", borrow)]
    event: Option<&'a RawValue>,
}

/// The frame in a message.
pub(super) fn read(message: &Bytes) -> Result<Incoming, Loss> {
    let invalid =
        |why: String| Loss::Protocol(format!("a WebSocket message is not a frame of the protocol: {why}"));
    let envelope: Envelope<'_> =
        serde_json::from_slice(message).map_err(|error| invalid(error.to_string()))?;
    let payload = message.slice_ref(envelope.payload.get().as_bytes());
    let mut frame = ResponseHead::read(&payload)?.frame(payload.clone());
    frame.is_final = envelope.is_final;
    frame.event = envelope.event.and_then(event_number).or(frame.event);
    Ok(Incoming::Frame(frame))
}

impl Source {
    async fn read(&mut self) -> Result<Incoming, Loss> {
        match self.source.next().await {
            Some(Ok(Message::Text(text))) => read(&Bytes::from(text)),
            Some(Ok(Message::Binary(bytes))) => read(&bytes),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(Incoming::Alive),
            Some(Ok(Message::Close(close))) => Err(Loss::Broken(match close {
                Some(close) if !close.reason.is_empty() => {
                    let reason: String = close.reason.as_str().chars().take(200).collect();
                    format!("the agent closed the connection: {reason}")
                }
                Some(_) | None => "the agent closed the connection".to_owned(),
            })),
            Some(Err(Error::Capacity(CapacityError::MessageTooLong { .. }))) => {
                Err(Loss::TooLarge { limit: self.limit })
            }
            Some(Err(error)) => Err(Loss::Broken(error.to_string())),
            None => Err(Loss::Broken("the agent closed the connection".to_owned())),
        }
    }
}

impl FrameSource for Source {
    fn next(&mut self) -> BoxFuture<'_, Result<Incoming, Loss>> {
        Box::pin(self.read())
    }
}

struct Sink(SplitSink<WebSocketStream<Upgraded>, Message>);

impl FrameSink for Sink {
    fn send(&mut self, json: Vec<u8>) -> BoxFuture<'_, Result<(), Loss>> {
        Box::pin(async move {
            let text = Utf8Bytes::try_from(Bytes::from(json))
                .map_err(|error| Loss::Protocol(format!("the request is not UTF-8: {error}")))?;
            self.0.send(Message::Text(text)).await.map_err(|error| Loss::Broken(error.to_string()))
        })
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<(), Loss>> {
        Box::pin(async move {
            self.0.send(Message::Ping(Bytes::new())).await.map_err(|error| Loss::Broken(error.to_string()))
        })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _ = self.0.close().await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_response_in_an_envelope() {
        let frame = |text: &'static str| match read(&Bytes::from_static(text.as_bytes())) {
            Ok(Incoming::Frame(frame)) => Ok(frame),
            Ok(Incoming::Alive) => panic!("a message is a frame"),
            Err(loss) => Err(loss),
        };
        let event =
            frame(r#"{"id":7,"payload":{"jsonrpc":"2.0","id":7,"result":{}},"final":false,"eventId":"3"}"#)
                .unwrap();
        assert_eq!((event.id, event.is_final, event.has_result), (Some(7), false, true));
        assert_eq!(event.event.as_deref(), Some("3"));
        assert_eq!(event.json, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        let end = frame(r#"{"id":7,"payload":{"jsonrpc":"2.0","id":7},"final":true}"#).unwrap();
        assert!(end.is_final && !end.has_result && !end.has_error);
        let refused = frame(
            r#"{"id":null,"payload":{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}},"final":true}"#,
        );
        let refused = refused.unwrap();
        assert!(refused.id.is_none() && refused.has_error);
        for bad in ["", "[]", "{}", r#"{"payload":[]}"#, r#"{"payload":7}"#, "<html>"] {
            assert!(matches!(frame(bad), Err(Loss::Protocol(_))), "{bad}");
        }
    }
}
