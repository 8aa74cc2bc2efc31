//! Downloads of stored content: `GET` and `HEAD` of `/artifacts/TASK/ID`.
//!
//! The content comes from agents and tools, so nothing that a browser could run is served: every response is a download, in a sandbox, and
//! its type is not guessed. A caller that may not see the task gets the same answer as for a task that does not exist.

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use attache_core::{
    ArtifactError, ArtifactReader, BoxFuture, FoundContent, OpenedContent, internal, safe_file_name,
};
use attache_protocol::{Error, ErrorKind};
use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_RANGE, RANGE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body::{Frame, SizeHint};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::body::{Body, BodyError, BoxBody};
use super::response::no_such_path;
use super::route::ContentPath;
use crate::binding::http_json;
use crate::card::has_tag;
use crate::dispatch::{Dispatcher, RequestContext};

/// How much is read at a time. A slow client keeps one chunk in memory.
const CHUNK: usize = 64 * 1024;

/// The content of unknown type.
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// The name of a file without one.
const UNNAMED: &str = "artifact";

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Characters that stay as they are in the extended form of a parameter (RFC 8187).
const ATTRIBUTE: AsciiSet = NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Answers a request for stored content.
pub(super) async fn respond(
    dispatcher: &Dispatcher,
    context: &RequestContext,
    place: Option<ContentPath>,
    head: &Parts,
) -> Response<Body> {
    let Some(ContentPath { task, id }) = place else {
        return http_json::error_response(&no_such_path(head.uri.path()), &head.headers);
    };
    let tenant = tenant(head.uri.query().unwrap_or_default());
    let found = match dispatcher.content(context, tenant.as_deref(), &task, &id).await {
        Ok(found) => found,
        Err(error) => return http_json::error_response(&error, &head.headers),
    };
    let FoundContent { content, id, filename, media_type } = found;
    let reader = match content {
        OpenedContent::Found(reader) => reader,
        OpenedContent::Expired => {
            let text =
                "the content was removed: it was older than this server keeps the content of artifacts";
            let error = Error::new(ErrorKind::InvalidRequest, text);
            return http_json::error_response_as(StatusCode::GONE, &error, &head.headers);
        }
        OpenedContent::Missing => {
            let error = internal(&format!("the content {id} of the task `{task}` is missing"));
            return http_json::error_response(&error, &head.headers);
        }
    };
    let size = reader.size();
    let etag =
        HeaderValue::from_str(&format!("\"{}\"", id.hash())).unwrap_or(HeaderValue::from_static("\"\""));
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(ETAG, etag.clone());
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // The client may keep it, but asks every time whether it may still have it.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(CONTENT_DISPOSITION, disposition(filename.as_deref()));
    if has_tag(&head.headers, &etag) == Some(true) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    let range = match head.method == Method::GET {
        true => requested_range(&head.headers, &etag, size),
        false => RequestedRange::Whole,
    };
    let (status, range) = match range {
        RequestedRange::Whole => (StatusCode::OK, 0..size),
        RequestedRange::Part(range) => {
            let text = format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1));
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(CONTENT_RANGE, value);
            }
            (StatusCode::PARTIAL_CONTENT, range)
        }
        RequestedRange::Outside => {
            let text = format!("the range is outside of the content, which has {size} bytes");
            let error = Error::new(ErrorKind::InvalidRequest, text);
            let mut response =
                http_json::error_response_as(StatusCode::RANGE_NOT_SATISFIABLE, &error, &head.headers);
            if let Ok(value) = HeaderValue::from_str(&format!("bytes */{size}")) {
                response.headers_mut().insert(CONTENT_RANGE, value);
            }
            return response;
        }
    };
    headers.insert(CONTENT_TYPE, content_type(media_type.as_deref()));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
    *response.status_mut() = status;
    if head.method == Method::GET {
        *response.body_mut() = Body::other(BoxBody::new(ContentBody { range, state: State::Idle(reader) }));
    }
    response
}

/// The tenant of a query.
fn tenant(query: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("tenant="))?;
    let value = percent_decode_str(value).decode_utf8_lossy();
    Some(value.into_owned()).filter(|tenant| !tenant.is_empty())
}

/// The media type as the agent has given it, if it can be a header and has the form of one.
fn content_type(media_type: Option<&str>) -> HeaderValue {
    let is_type = |text: &&str| {
        let name = text.split(';').next().unwrap_or_default().trim();
        let is_token = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
        };
        name.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
    };
    let value =
        media_type.filter(is_type).filter(|text| text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    value.and_then(|text| HeaderValue::from_str(text).ok()).unwrap_or(OCTETS)
}

/// Has the client save the content as a file (RFC 6266). The name is harmless, in a form for old clients and in one for all characters.
fn disposition(filename: Option<&str>) -> HeaderValue {
    let name = filename.and_then(safe_file_name).unwrap_or_else(|| UNNAMED.to_owned());
    let plain: String = name
        .chars()
        .map(|c| if matches!(c, ' '..='~') && !matches!(c, '"' | '\\' | '%') { c } else { '_' })
        .collect();
    let mut text = format!("attachment; filename=\"{plain}\"");
    if plain != name {
        text.push_str(&format!("; filename*=UTF-8''{}", utf8_percent_encode(&name, &ATTRIBUTE)));
    }
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("attachment"))
}

#[derive(Debug, PartialEq, Eq)]
enum RequestedRange {
    Whole,
    Part(Range<u64>),
    /// No byte of the content is in the range.
    Outside,
}

/// The part of the content that a request asks for. Several ranges, other units and ranges that cannot be read are ignored, as HTTP
/// allows. A range for another version of the content is ignored too.
fn requested_range(headers: &HeaderMap, etag: &HeaderValue, size: u64) -> RequestedRange {
    if headers.get(IF_RANGE).is_some_and(|tag| tag != etag) {
        return RequestedRange::Whole;
    }
    let mut values = headers.get_all(RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return RequestedRange::Whole };
    let Some((first, last)) = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().strip_prefix("bytes="))
        .filter(|ranges| !ranges.contains(','))
        .and_then(|range| range.trim().split_once('-'))
    else {
        return RequestedRange::Whole;
    };
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number that is too large for us is beyond every content.
        digits.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    let range = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(size),
        (Some(first), None) if last.is_empty() => first..size,
        (None, Some(count)) if first.is_empty() => size.saturating_sub(count)..size,
        (_, _) => return RequestedRange::Whole,
    };
    if range.start >= range.end { RequestedRange::Outside } else { RequestedRange::Part(range) }
}

/// Content that is read as it is sent.
struct ContentBody {
    /// What is left to send.
    range: Range<u64>,
    state: State,
}

enum State {
    Idle(Box<dyn ArtifactReader>),
    Reading(BoxFuture<'static, (Box<dyn ArtifactReader>, Result<Bytes, ArtifactError>)>),
    Done,
}

impl http_body::Body for ContentBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            match std::mem::replace(&mut self.state, State::Done) {
                State::Done => return Poll::Ready(None),
                State::Idle(_) if self.range.is_empty() => return Poll::Ready(None),
                State::Idle(mut reader) => {
                    let Range { start, end } = self.range;
                    let limit = usize::try_from(end - start).unwrap_or(CHUNK).min(CHUNK);
                    self.state = State::Reading(Box::pin(async move {
                        let read = reader.read(start, limit).await;
                        (reader, read)
                    }));
                }
                State::Reading(mut reading) => {
                    let Poll::Ready((reader, read)) = reading.as_mut().poll(cx) else {
                        self.state = State::Reading(reading);
                        return Poll::Pending;
                    };
                    let failed = |error: String| {
                        tracing::error!(error, "the content of an artifact could not be read");
                        // The connection is closed before the announced length is reached, so that the client notices.
                        Poll::Ready(Some(Err(BodyError::new(error))))
                    };
                    return match read {
                        Ok(bytes) if bytes.is_empty() => {
                            failed("the content is shorter than it was".to_owned())
                        }
                        Ok(bytes) => {
                            self.range.start += bytes.len() as u64;
                            self.state = State::Idle(reader);
                            Poll::Ready(Some(Ok(Frame::data(bytes))))
                        }
                        Err(error) => failed(error.to_string()),
                    };
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.range.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.range.end.saturating_sub(self.range.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(value: &str, size: u64) -> RequestedRange {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, HeaderValue::from_str(value).unwrap());
        requested_range(&headers, &HeaderValue::from_static("\"a\""), size)
    }

    #[test]
    fn one_range_is_served_and_everything_else_is_the_whole() {
        for (value, expected) in [
            ("bytes=0-0", RequestedRange::Part(0..1)),
            ("bytes=2-", RequestedRange::Part(2..10)),
            ("bytes=-3", RequestedRange::Part(7..10)),
            ("bytes=-30", RequestedRange::Part(0..10)),
            ("bytes=8-99999999999999999999999", RequestedRange::Part(8..10)),
            ("bytes=10-", RequestedRange::Outside),
            ("bytes=99999999999999999999999-", RequestedRange::Outside),
            ("bytes=-0", RequestedRange::Outside),
            ("bytes=5-4", RequestedRange::Whole),
            ("bytes=0-1,3-4", RequestedRange::Whole),
            ("bytes=+1-2", RequestedRange::Whole),
            ("bytes=a-b", RequestedRange::Whole),
            ("bytes=-", RequestedRange::Whole),
            ("items=0-1", RequestedRange::Whole),
        ] {
            assert_eq!(range(value, 10), expected, "{value}");
        }
        assert_eq!(range("bytes=0-", 0), RequestedRange::Outside);
    }

    #[test]
    fn a_range_for_another_version_is_ignored() {
        for (tag, expected) in [
            ("\"a\"", RequestedRange::Part(1..10)),
            ("\"b\"", RequestedRange::Whole),
            ("W/\"a\"", RequestedRange::Whole),
            ("Wed, 18 Nov 2026 10:00:00 GMT", RequestedRange::Whole),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, HeaderValue::from_static("bytes=1-"));
            headers.insert(IF_RANGE, HeaderValue::from_static(tag));
            let etag = HeaderValue::from_static("\"a\"");
            assert_eq!(requested_range(&headers, &etag, 10), expected, "{tag}");
        }
    }

    #[test]
    fn the_name_in_a_header_is_harmless() {
        for (name, expected) in [
            (Some("report.pdf"), r#"attachment; filename="report.pdf""#),
            (Some("../../x\r\nSet-Cookie: a=b"), r#"attachment; filename="x__Set-Cookie_ a=b""#),
            (Some("a\"b\\c.txt"), r#"attachment; filename="c.txt""#),
            (Some("50% off.txt"), r#"attachment; filename="50_ off.txt"; filename*=UTF-8''50%25%20off.txt"#),
            (Some("ä.txt"), r#"attachment; filename="_.txt"; filename*=UTF-8''%C3%A4.txt"#),
            (Some(".."), r#"attachment; filename="artifact""#),
            (None, r#"attachment; filename="artifact""#),
        ] {
            assert_eq!(disposition(name), expected, "{name:?}");
        }
    }

    #[test]
    fn a_media_type_that_is_none_is_not_repeated() {
        for (media_type, expected) in [
            (Some("text/csv; charset=utf-8"), "text/csv; charset=utf-8"),
            (Some("text/html"), "text/html"),
            (Some("text"), "application/octet-stream"),
            (Some("a/b\r\nX: y"), "application/octet-stream"),
            (Some("/x"), "application/octet-stream"),
            (None, "application/octet-stream"),
        ] {
            assert_eq!(content_type(media_type), expected, "{media_type:?}");
        }
    }
}
