//! Page tokens: a token for another caller or another list is rejected, and never shows another caller's tasks.

use std::cell::OnceCell;

use attache_protocol::TaskId;
use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};

use crate::test_server::{CallerKind, JSON, SECRET, ask, contains};
use crate::{changed, jsonrpc};

/// Tried as a token in three ways: as it is, as the difference from a token of Alice's, and as the difference from one of Bob's.
pub fn page_tokens(data: &[u8]) {
    thread_local! {
        static TOKENS: OnceCell<[String; 2]> = const { OnceCell::new() };
    }
    let [own, other] = TOKENS
        .with(|tokens| tokens.get_or_init(|| [token(CallerKind::Alice), token(CallerKind::Bob)]).clone());
    for token in [String::from_utf8_lossy(data).into_owned(), changed(&own, data), changed(&other, data)] {
        let answer =
            list(CallerKind::Alice, &json!({ "pageToken": token, "pageSize": 1, "includeArtifacts": true }));
        match (&answer["error"]["code"], &answer["result"]["tasks"]) {
            (Value::Null, Value::Array(tasks)) => {
                assert!(token.is_empty() || token != other, "a token of Bob's is good for Alice");
                let known = ["ended", "asking"];
                let is_own = |task: &Value| {
                    task["id"].as_str().is_some_and(|id| known.contains(&TaskId::from(id).chosen()))
                };
                assert!(tasks.iter().all(is_own), "somebody else's task: {answer}");
            }
            (code, _) => assert_eq!(code, -32602, "{answer}"),
        }
    }
}

/// The token of the second page.
fn token(caller: CallerKind) -> String {
    let page = list(caller, &json!({ "pageSize": 1 }));
    page["result"]["nextPageToken"].as_str().filter(|token| !token.is_empty()).expect("two tasks").to_owned()
}

fn list(caller: CallerKind, params: &Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params }).to_string();
    let mut request = Request::new(Bytes::from(body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static("/a2a");
    request.headers_mut().insert("a2a-version", http::HeaderValue::from_static("1.0"));
    request.headers_mut().insert(http::header::CONTENT_TYPE, JSON);
    let answer = ask(caller, request);
    jsonrpc::check(body.as_bytes(), &answer);
    let leaked = caller == CallerKind::Alice && contains(&answer.body, SECRET.as_bytes());
    assert!(!leaked || body.contains(SECRET), "somebody else's task: {}", answer.text());
    serde_json::from_slice(&answer.body).expect("it was checked")
}
