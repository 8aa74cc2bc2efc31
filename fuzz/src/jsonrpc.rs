//! The JSON-RPC binding: any body gets an answer of JSON-RPC's.

use std::collections::BTreeMap;

use attache_client::parsing;
use attache_protocol::json;
use attache_protocol::jsonrpc::Call;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::choice;
use crate::test_server::{Answer, CallerKind, JSON, ask};

const PATHS: [&str; 2] = ["/a2a", "/a2a/rpc"];
const VERSIONS: [Option<&str>; 4] = [None, Some("1.0"), Some("0.3"), Some("1.1")];

/// How deep a body may nest, if nothing else is said.
pub(crate) const MAX_DEPTH: usize = 100;

/// The first byte chooses the path and the version that is stated; the rest is the body.
pub fn jsonrpc(data: &[u8]) {
    let (choice, body) = choice(data);
    let mut request = Request::builder().method(Method::POST).uri(PATHS[choice % PATHS.len()]);
    request = request.header(http::header::CONTENT_TYPE, JSON);
    if let Some(version) = VERSIONS[choice / PATHS.len() % VERSIONS.len()] {
        request = request.header("a2a-version", version);
    }
    let request = request.body(Bytes::copy_from_slice(body)).expect("it is made of constants");
    let answer = ask(CallerKind::Alice, request);
    assert!(!answer.leaks_secret(body), "somebody else's task: {}", answer.text());
    check(body, &answer);
}

/// Checks that a body is answered as JSON-RPC requires, and that no response blames the server.
pub(crate) fn check(body: &[u8], answer: &Answer) {
    if answer.status == StatusCode::NO_CONTENT {
        let silent = Call::parse(body).is_ok_and(|call| call.id.is_none());
        assert!(silent && answer.body.is_empty(), "no answer to somebody who wants one");
        return;
    }
    assert!(!answer.status.is_server_error(), "{}: {}", answer.status, answer.text());
    let id = match json::is_deeper_than(body, MAX_DEPTH) {
        true => "null".to_owned(),
        false => Call::peek_id(body).as_json().to_owned(),
    };
    if answer.is("text/event-stream") {
        let events = parsing::events([&answer.body[..]], usize::MAX).expect("there is no limit");
        assert!(!events.is_empty(), "a stream without an event: {}", answer.text());
        events.iter().for_each(|(_, event)| envelope(event, &id));
    } else {
        assert!(answer.is("application/json"), "{:?}", answer.headers);
        envelope(&answer.body, &id);
    }
}

fn envelope(text: &[u8], id: &str) {
    let shown = || String::from_utf8_lossy(text);
    let members: BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(text).unwrap_or_else(|error| panic!("not an object: {error}: {}", shown()));
    let member = |name: &str| members.get(name).map(|value| value.get());
    assert_eq!(member("jsonrpc"), Some("\"2.0\""), "{}", shown());
    assert_eq!(member("id"), Some(id), "{}", shown());
    match (member("result"), member("error")) {
        (Some(_), None) => {}
        (None, Some(error)) => {
            let error: Value = serde_json::from_str(error).expect("errors are made by us");
            let code = error["code"].as_i64().unwrap_or_else(|| panic!("no code: {}", shown()));
            assert!(error["message"].is_string(), "no message: {}", shown());
            assert!(![-32603, -32006].contains(&code), "we are to blame: {}", shown());
        }
        _ => panic!("neither a result nor an error: {}", shown()),
    }
}
