//! The client's own requests over a channel that is not HTTP.

use std::sync::Arc;

use attache_protocol::{ErrorKind, Request};
use reqwest::header::HeaderValue;

use super::channel::{Channel, RequestFrame, ResponseCount};
use super::connection::{Connection, FrameStream};
use super::jsonrpc::{self, Encoded};
use super::reader::{CardResponse, FromResponse, Reader};
use super::{A2A_VERSION, Transport, extension_header};
use crate::ClientError;
use crate::request_auth::RequestAuth;
use crate::request_headers::RequestHeaders;

/// The method with which servers of this project return their card over channels.
const CARD_METHOD: &str = "GetAgentCard";

impl Transport {
    /// Sends a request and reads its only response.
    pub(super) async fn exchange_one<R: FromResponse>(
        &self,
        encoded: Encoded,
        headers: &RequestHeaders,
        auth: &RequestAuth,
    ) -> Result<R, ClientError> {
        let reader = encoded.reader;
        let prepared = self.prepare(encoded, headers, auth, ResponseCount::One)?;
        match prepared.read_one(reader).await {
            Err(error) if prepared.retries_without_headers(&error) => {
                let result = prepared.read_one(reader).await;
                prepared.settle(error, result)
            }
            result => result,
        }
    }

    /// Sends a request whose response is a stream.
    pub(super) async fn open_frames(
        &self,
        request: &Request,
        headers: &RequestHeaders,
        auth: &RequestAuth,
    ) -> Result<Connection, ClientError> {
        let encoded = jsonrpc::encode(self.wire().version(), request)?;
        let reader = encoded.reader;
        let prepared = self.prepare(encoded, headers, auth, ResponseCount::Stream)?;
        let stream = match prepared.read_stream(reader).await {
            Err(error) if prepared.retries_without_headers(&error) => {
                let result = prepared.read_stream(reader).await;
                prepared.settle(error, result)
            }
            result => result,
        };
        stream.map(|stream| Connection::Frames(Box::new(stream)))
    }

    /// Reads the card over the channel, from a server that has a method for it.
    pub(crate) async fn card_over_channel(&self) -> Result<CardResponse, ClientError> {
        let encoded = jsonrpc::encode_method(CARD_METHOD)?;
        self.exchange_one(encoded, &RequestHeaders::default(), &RequestAuth::default()).await
    }

    fn prepare(
        &self,
        encoded: Encoded,
        headers: &RequestHeaders,
        auth: &RequestAuth,
        responses: ResponseCount,
    ) -> Result<Prepared, ClientError> {
        let endpoint = &self.agent.endpoint;
        if !auth.query.is_empty() {
            let text = "the agent asks for a key in the query of its URL, which this transport does not support: \
                        prefer another of its interfaces";
            return Err(ClientError::Invalid(text.to_owned()));
        }
        let version = HeaderValue::try_from(self.wire().version().to_string())
            .unwrap_or(HeaderValue::from_static("1.0"));
        let pairs = headers.pairs(extension_header(self.wire()));
        let frame = RequestFrame {
            id: Some(encoded.id.number()),
            json: encoded.json,
            headers: std::iter::once((A2A_VERSION, version)).chain(pairs).collect(),
            auth: auth.headers.clone(),
            responses,
        };
        // A request must not lose what protects it from being executed twice.
        let needs_headers = headers.is_repeatable() || !auth.headers.is_empty();
        let channel = self.channels.to(&self.http, endpoint.channel, &endpoint.url, &self.agent.card_url)?;
        Ok(Prepared { channel, frame, needs_headers })
    }
}

/// A request that can be sent.
struct Prepared {
    channel: Arc<dyn Channel>,
    frame: RequestFrame,
    needs_headers: bool,
}

impl Prepared {
    async fn read_one<R: FromResponse>(&self, reader: Reader) -> Result<R, ClientError> {
        let mut responses = self.channel.exchange(self.frame.clone()).await?;
        match responses.next().await? {
            Some(frame) => reader.decode(&frame.json),
            None => Err(ClientError::Protocol("the request was answered without a response".to_owned())),
        }
    }

    async fn read_stream(&self, reader: Reader) -> Result<FrameStream, ClientError> {
        FrameStream::open(reader, self.channel.exchange(self.frame.clone()).await?).await
    }

    /// Whether the request is sent once more without the member `headers`, which some servers reject. An invalid request was not executed.
    fn retries_without_headers(&self, error: &ClientError) -> bool {
        error.kind() == Some(ErrorKind::InvalidRequest)
            && !self.needs_headers
            && self.channel.omit_headers(true)
    }

    /// The result of the second attempt. If it helped, later requests have no such member either.
    fn settle<T>(&self, first: ClientError, second: Result<T, ClientError>) -> Result<T, ClientError> {
        match second {
            Err(error) if error.kind() == Some(ErrorKind::InvalidRequest) => {
                self.channel.omit_headers(false);
                Err(first)
            }
            result => result,
        }
    }
}
