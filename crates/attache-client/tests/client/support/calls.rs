//! A scripted gRPC server.

use std::sync::{Arc, Mutex};

use attache_grpc::{Package, ProtoConvert, to_proto, v1_0::proto};
use attache_protocol::{Error, StreamResponse};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use futures::stream::{self, BoxStream, StreamExt};
use http_body_util::{BodyExt, StreamBody};
use prost::Message;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Fake, json as respond};

/// A chunk of a response.
pub(crate) enum Chunk {
    Data(Vec<u8>),
    Trailers(HeaderMap),
}

impl Chunk {
    /// A framed event.
    pub(crate) fn event(event: &Value) -> Self {
        let event: StreamResponse = serde_json::from_value(event.clone()).unwrap();
        Self::Data(framed::<proto::StreamResponse, _>(event))
    }

    /// The trailers of a successful call.
    pub(crate) fn done() -> Self {
        Self::Trailers(
            [(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))].into_iter().collect(),
        )
    }
}

/// A response with these chunks.
pub(crate) fn response(pieces: BoxStream<'static, Chunk>) -> Response {
    let frames = pieces.map(|piece| {
        Ok::<_, std::io::Error>(match piece {
            Chunk::Data(bytes) => http_body::Frame::data(Bytes::from(bytes)),
            Chunk::Trailers(trailers) => http_body::Frame::trailers(trailers),
        })
    });
    let body = Body::new(StreamBody::new(frames));
    Response::builder().header("content-type", "application/grpc+proto").body(body).unwrap()
}

/// A framed message.
pub(crate) fn framed<P: Message, M: ProtoConvert<P>>(model: M) -> Vec<u8> {
    let message = to_proto::<P, M>(model).unwrap().encode_to_vec();
    let mut out = vec![0];
    out.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    out.extend_from_slice(&message);
    out
}

/// The trailers of a failed call.
pub(crate) fn refusal(error: &Error) -> Chunk {
    Chunk::Trailers(Package::V1_0.status(error).into_http::<()>().into_parts().0.headers)
}

/// A call that the server received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedCall {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
}

impl ReceivedCall {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// A gRPC server on a free port, and a card on another one that leads to it.
pub(crate) struct Calls {
    /// The address of the card.
    pub(crate) url: String,
    /// The address of the calls.
    pub(crate) origin: String,
    log: Arc<Mutex<Vec<ReceivedCall>>>,
}

impl Calls {
    /// Responds with these chunks, by the number of the call.
    pub(crate) async fn new<S>(answer: impl Fn(usize) -> S + Clone + Send + Sync + 'static) -> Self
    where
        S: futures::Stream<Item = Chunk> + Send + 'static,
    {
        let pieces = move |number| -> BoxStream<'static, Chunk> { answer(number).boxed() };
        Self::responding(move |number| response(pieces(number))).await
    }

    /// Responds to every call with these chunks.
    pub(crate) async fn saying(pieces: impl Fn() -> Vec<Chunk> + Clone + Send + Sync + 'static) -> Self {
        Self::new(move |_| stream::iter(pieces())).await
    }

    /// Responds with these responses, which need not be gRPC.
    pub(crate) async fn responding(
        answer: impl Fn(usize) -> Response + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::responding_late(move |number| std::future::ready(answer(number))).await
    }

    /// The same, with response heads that arrive later.
    pub(crate) async fn responding_late<F: Future<Output = Response> + Send>(
        answer: impl Fn(usize) -> F + Clone + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let calls = log.clone();
        let app = axum::Router::new().fallback(move |request: Request| {
            let (answer, calls) = (answer.clone(), calls.clone());
            async move {
                let (head, body) = request.into_parts();
                body.collect().await.unwrap();
                let number = {
                    let mut calls = calls.lock().unwrap();
                    calls.push(ReceivedCall { path: head.uri.path().to_owned(), headers: head.headers });
                    calls.len() - 1
                };
                answer(number).await
            }
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        let interface =
            json!({"url": address.to_string(), "protocolBinding": "GRPC", "protocolVersion": "1.0"});
        let schemes = json!({
            "token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "query": {"apiKeySecurityScheme": {"location": "query", "name": "key"}},
        });
        let card = json!({"name": "Calls", "capabilities": {"streaming": true}, "supportedInterfaces": [interface],
            "securitySchemes": schemes});
        let fake = Fake::server(move |asked| {
            let mut card = card.clone();
            // The query of the card's URL states what the card asks for.
            if let Some((_, scheme)) = asked.path().split_once('?') {
                card["securityRequirements"] = json!([{"schemes": {scheme: {}}}]);
            }
            respond(200, &card)
        })
        .await;
        Self { url: format!("{}/card.json", fake.url), origin: format!("http://{address}"), log }
    }

    /// The calls so far.
    pub(crate) fn log(&self) -> Vec<ReceivedCall> {
        self.log.lock().unwrap().clone()
    }
}
