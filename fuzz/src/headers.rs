//! What stands beside a request: version, extensions, the last event, keys and credentials.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};

use crate::test_server::{CREDENTIALS, CallerKind, JSON, ask, contains};
use crate::{jsonrpc, line};

const BODIES: [&str; 3] = [
    r#"{"jsonrpc":"2.0","id":"1","method":"SubscribeToTask","params":{"id":"asking"}}"#,
    r#"{"jsonrpc":"2.0","id":"1","method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}}}"#,
    r#"{"jsonrpc":"2.0","id":"1","method":"tasks/get","params":{"id":"ended"}}"#,
];

/// What a request may be refused for before its body is read.
const FILTERED: [HeaderName; 5] =
    [CONTENT_TYPE, HOST, ORIGIN, AUTHORIZATION, HeaderName::from_static("sec-fetch-site")];

/// Each line is a header. For any headers, three kinds of requests get a response, and no request is admitted without a credential or
/// from a page of another site.
pub fn headers(data: &[u8]) {
    let mut headers = HeaderMap::new();
    let mut rest = data;
    while !rest.is_empty() {
        let (field, after) = line(rest);
        rest = after;
        let Some(colon) = field.iter().position(|byte| *byte == b':') else { continue };
        // What HTTP has no such header for does not come as far as the bindings.
        let name = HeaderName::from_bytes(&field[..colon]);
        let value = HeaderValue::from_bytes(field[colon + 1..].trim_ascii());
        let (Ok(name), Ok(value)) = (name, value) else { continue };
        if headers.try_append(name, value).is_err() {
            return;
        }
    }
    let filtered = FILTERED.iter().any(|name| headers.contains_key(name));
    headers.entry(CONTENT_TYPE).or_insert(JSON);
    let foreign = headers.get_all("sec-fetch-site").iter().any(|site| site == "cross-site");
    let request = |body: &'static str| {
        let mut request = Request::new(Bytes::from_static(body.as_bytes()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = http::Uri::from_static("/a2a");
        *request.headers_mut() = headers.clone();
        request
    };
    for body in BODIES {
        let answer = ask(CallerKind::Alice, request(body));
        assert!(!foreign || answer.status.is_client_error(), "let in from another site: {}", answer.text());
        // What is refused for a header is refused before the id is looked for.
        if filtered {
            assert!(!answer.status.is_server_error(), "{}: {}", answer.status, answer.text());
        } else {
            jsonrpc::check(body.as_bytes(), &answer);
        }
    }
    let answer = ask(CallerKind::Guarded, request(BODIES[2]));
    let has_one = CREDENTIALS.iter().any(|credential| contains(data, credential.as_bytes()));
    assert!(
        has_one || answer.status == StatusCode::UNAUTHORIZED || filtered && answer.status.is_client_error(),
        "let in without a credential: {}",
        answer.text()
    );
}
