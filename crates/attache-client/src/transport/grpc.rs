//! gRPC: a message in a frame for each request, and messages in frames back, with how it ended after them.
//!
//! The requests go through the same HTTP client as all others, so that the same addresses are allowed and the same limits hold.
//! What is left of gRPC is its frames and its trailers, and those are here.

use std::fmt;

use attache_grpc::{EncodedCall, FrameError, Frames, Package, call_result};
use attache_protocol::Request;
use bytes::Bytes;
use http_body_util::BodyExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Method, Response, Url};

use super::reader::Reader;
use super::{Body, Call};
use crate::http::{explain, place};
use crate::{ClientError, RemoteError};

/// The media type of requests, and what that of answers begins with.
const MEDIA_TYPE: &str = "application/grpc";

/// Writes a request. Below the address of the interface comes the path of the call.
pub(super) fn write(url: &Url, package: Package, request: &Request) -> Result<Call, ClientError> {
    let cannot = |error| ClientError::Invalid(format!("the agent cannot be asked this: {error}"));
    let EncodedCall { path, body } = package.write(request).map_err(cannot)?;
    let mut url = url.clone();
    url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
    let body = Some(Body { bytes: body, media_type: MEDIA_TYPE });
    Ok(Call { method: Method::POST, url, body, accept: None, reader: Reader::Grpc(package) })
}

/// The messages that answer a call.
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
    /// The messages of a response that came with a status of success.
    pub(super) fn new(url: Url, response: Response, limit: usize) -> Result<Self, ClientError> {
        let ended = settled(response.headers())?;
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or_default();
        if !ended && !media_type.starts_with(MEDIA_TYPE) {
            let media_type: String = media_type.chars().take(64).collect();
            return Err(ClientError::Protocol(format!(
                "`{}` answers with `{media_type}`, expected `{MEDIA_TYPE}`",
                place(&url)
            )));
        }
        Ok(Self { url, body: response.into(), frames: Frames::new(limit), limit, ended })
    }

    /// The next message; nothing at the end of a call that went well.
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
                Some(Err(error)) => return Err(explain(&self.url, &error)),
                // Whoever means to end a call says how it ended.
                None => return Err(ClientError::Broken("the call was cut off before its end".to_owned())),
            }
            if self.ended && self.frames.is_incomplete() {
                let text = "the call ended in the middle of a message";
                return Err(ClientError::Protocol(text.to_owned()));
            }
        }
    }

    /// The one message that answers a call which has no more to say.
    pub(super) async fn only(mut self) -> Result<Bytes, ClientError> {
        let protocol = |why: &str| ClientError::Protocol(why.to_owned());
        let message = self.next().await?.ok_or_else(|| protocol("the call ended without an answer"))?;
        match self.next().await? {
            None => Ok(message),
            Some(_) => Err(protocol("several answers where there must be one")),
        }
    }
}

/// Whether a call is over, by its headers or trailers; an error if it was refused.
fn settled(headers: &HeaderMap) -> Result<bool, ClientError> {
    match call_result(headers) {
        None => Ok(false),
        Some(Ok(())) => Ok(true),
        Some(Err(refusal)) => Err(ClientError::Remote(Box::new(RemoteError::from_grpc(refusal)))),
    }
}
