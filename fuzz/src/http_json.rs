//! The HTTP+JSON binding: any path, query and body get an answer that is JSON, and none that blames us.

use attache_client::parsing;
use bytes::Bytes;
use http::{Method, Request, Uri};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::line;
use crate::test_server::{CallerKind, JSON, ask};

/// The first line is the method and what it is about, as in `GET /v1/tasks?pageSize=3`, the second the version that is stated,
/// which may be empty, and the rest is the body.
pub fn http_json(data: &[u8]) {
    let (first, rest) = line(data);
    let (version, body) = line(rest);
    let Some(space) = first.iter().position(|byte| *byte == b' ') else { return };
    // What is no method or no path does not come as far as the binding.
    let (Ok(method), Ok(uri)) = (Method::from_bytes(&first[..space]), Uri::try_from(&first[space + 1..]))
    else {
        return;
    };
    let mut request = Request::builder().method(method).uri(uri).header(http::header::CONTENT_TYPE, JSON);
    if !version.is_empty() {
        request = request.header("a2a-version", version);
    }
    let Ok(request) = request.body(Bytes::copy_from_slice(body)) else { return };
    let answer = ask(CallerKind::Alice, request);
    assert!(!answer.leaks_secret(data), "somebody else's task: {}", answer.text());
    assert!(!answer.status.is_server_error(), "{}: {}", answer.status, answer.text());
    if answer.is("text/event-stream") {
        let events = parsing::events([&answer.body[..]], usize::MAX).expect("there is no limit");
        assert!(!events.is_empty(), "a stream without an event: {}", answer.text());
        events.iter().for_each(|(_, event)| assert!(is_json(event), "{}", answer.text()));
    } else if answer.is("application/") && !answer.is("application/grpc") && !answer.body.is_empty() {
        assert!(is_json(&answer.body), "{}", answer.text());
        if !answer.status.is_success() {
            let error: Value = serde_json::from_slice(&answer.body).expect("errors are made by us");
            let message = [&error["message"], &error["error"]["message"]];
            assert!(message.iter().any(|message| message.is_string()), "no message: {error}");
        }
    }
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(text).is_ok()
}
