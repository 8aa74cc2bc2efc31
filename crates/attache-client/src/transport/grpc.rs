//! gRPC: framed messages, and trailers that state the result of a call.
//!
//! Requests use the same HTTP client as the other bindings, so that the same address checks and limits apply. Only frames and
//! trailers are specific to gRPC.

use std::fmt;

pub(super) use attache_grpc::Package;
pub(super) use attache_grpc::v0_3::FileForm;
use attache_grpc::{DecodeResponse, EncodedCall, Event, FrameError, Frames, call_result};
use attache_protocol::{Error, Request, StreamResponse, Version};
use bytes::Bytes;
use http_body_util::BodyExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Method, Response, Url};

use super::reader::Reader;
use super::{Body, Call, unsupported};
use crate::http::{convert_error, display_url};
use crate::sdk::Sdk;
use crate::{ClientError, RemoteError};

/// The media type of requests, and the prefix of that of responses.
pub(super) const MEDIA_TYPE: &str = "application/grpc";

/// Encodes a request. The path of the call is appended to the address of the interface.
pub(super) fn write(url: &Url, version: Version, sdk: Sdk, request: &Request) -> Result<Call, ClientError> {
    let package = if version == Version::V0_3 { Package::V0_3 } else { Package::V1_0 };
    let files = sdk.file_form();
    let EncodedCall { path, body } = package.write(request, files).map_err(unsupported)?;
    let mut url = url.clone();
    url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
    let body = Some(Body { bytes: body, media_type: MEDIA_TYPE });
    Ok(Call { method: Method::POST, url, body, accept: None, reader: Reader::Grpc(package, files) })
}

/// Decodes the message of a response.
pub(super) fn read_answer<T: DecodeResponse>(
    package: Package,
    files: FileForm,
    message: &[u8],
) -> Result<T, Error> {
    T::decode(package, files, message)
}

/// Decodes an event of a stream, and whether it is the last one; nothing if the event is of an unknown kind.
pub(super) fn read_event(
    package: Package,
    files: FileForm,
    message: &[u8],
) -> Result<Option<(StreamResponse, bool)>, Error> {
    Ok(Event::read(package, files, message)?.map(|Event { response, is_last }| (response, is_last)))
}

/// The messages of a response.
pub(crate) struct Messages {
    url: Url,
    body: reqwest::Body,
    frames: Frames,
    limit: usize,
    ended: bool,
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Messages {
    /// The messages of a response with a success status.
    pub(super) fn new(url: Url, response: Response, limit: usize) -> Result<Self, ClientError> {
        let ended = settled(response.headers())?;
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or_default();
        if !ended && !media_type.starts_with(MEDIA_TYPE) {
            let media_type: String = media_type.chars().take(64).collect();
            return Err(ClientError::Protocol(format!(
                "`{}` answers with `{media_type}`, expected `{MEDIA_TYPE}`",
                display_url(&url)
            )));
        }
        Ok(Self { url, body: response.into(), frames: Frames::new(limit), limit, ended })
    }

    /// The next message; nothing at the end of a successful call.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            match self.frames.next_message() {
                Ok(Some(message)) => return Ok(Some(message)),
                Ok(None) => {}
                Err(FrameError::TooLarge) => return Err(ClientError::TooLarge { limit: self.limit }),
                Err(FrameError::Compressed) => {
                    let text = "a message is compressed, which was not asked for";
                    return Err(ClientError::Protocol(text.to_owned()));
                }
            }
            if self.ended {
                return Ok(None);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.frames.feed(&data),
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            self.ended = settled(&trailers)?;
                        }
                    }
                },
                Some(Err(error)) => return Err(convert_error(&self.url, &error)),
                // A complete call ends with trailers.
                None => return Err(ClientError::Broken("the call ended without trailers".to_owned())),
            }
            if self.ended && self.frames.is_incomplete() {
                let text = "the call ended in the middle of a message";
                return Err(ClientError::Protocol(text.to_owned()));
            }
        }
    }

    /// The only message of a call that is not a stream.
    pub(super) async fn only(mut self) -> Result<Bytes, ClientError> {
        let protocol = |why: &str| ClientError::Protocol(why.to_owned());
        let message = self.next().await?.ok_or_else(|| protocol("the call ended without an answer"))?;
        match self.next().await? {
            None => Ok(message),
            Some(_) => Err(protocol("several responses instead of one")),
        }
    }
}

/// Whether a call has ended, according to its headers or trailers. Fails if the call failed.
fn settled(headers: &HeaderMap) -> Result<bool, ClientError> {
    match call_result(headers) {
        None => Ok(false),
        Some(Ok(())) => Ok(true),
        Some(Err(refusal)) => Err(ClientError::Remote(Box::new(RemoteError::from_grpc(refusal)))),
    }
}
