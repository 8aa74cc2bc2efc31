//! HTTP in an engine: requests to triggers, results of functions, calls that stand for requests, and tasks in the state.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use attache_core::MemoryStore;
use attache_iii::engine::{Engine, EngineOptions, HttpBody, HttpRoute, PublicOnly};
use attache_iii::{FunctionCall, FunctionInfo, Functions, parsing};
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use percent_encoding::percent_decode;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::runtime::Runtime;

use crate::{choice, line};

/// The triggers: method, path, function.
const TRIGGERS: [(&str, &str, &str); 5] = [
    ("POST", "r/:id", "callers"),
    ("GET", "r/:id", "everyone"),
    ("PUT", "r/fixed", "everyone"),
    ("POST", "r/:id/x", "everyone"),
    ("DELETE", "", "callers"),
];

/// The first byte chooses what the rest is. A request is a line with method and path, lines with headers, an empty line, and the
/// body. Its body is the result of the function as well.
pub fn engine_http(data: &[u8]) {
    let (choice, rest) = choice(data);
    match choice & 3 {
        0 => request(choice >> 2 & 1 == 1, rest),
        1 => results(rest),
        2 => invocation(rest),
        _ => document(rest),
    }
}

struct Setup {
    engine: Engine,
    /// How many calls there were.
    calls: Arc<AtomicUsize>,
    runtime: Runtime,
}

impl Setup {
    fn build() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime needs nothing that could be missing");
        let calls = Arc::new(AtomicUsize::new(0));
        let engine = runtime.block_on(async {
            let engine = Engine::new(Arc::new(MemoryStore::new()), EngineOptions::default());
            for (id, public) in [("callers", false), ("everyone", true)] {
                let metadata = Some(json!({ "a2a.public": public }));
                let calls = calls.clone();
                engine.register(FunctionInfo { metadata, ..FunctionInfo::new(id) }, move |invocation| {
                    calls.fetch_add(1, Ordering::Relaxed);
                    let result = body_of(&invocation.payload);
                    async move { Ok(result) }
                });
            }
            for id in ["middleware", "condition"] {
                engine.register(FunctionInfo::new(id), move |invocation| {
                    let result = header_of(&invocation.payload, id);
                    async move { Ok(result) }
                });
            }
            for (method, path, function) in TRIGGERS {
                let mut config = json!({ "api_path": path, "http_method": method });
                if path.ends_with("/x") {
                    config["middleware_function_ids"] = json!(["middleware"]);
                    config["condition_function_id"] = json!("condition");
                }
                let trigger = json!({ "trigger_type": "http", "function_id": function, "config": config });
                let payload = serde_json::value::to_raw_value(&trigger).expect("it is JSON");
                let call = FunctionCall {
                    function: "engine::register_trigger",
                    payload: &payload,
                    timeout: Duration::from_secs(1),
                    trace_parent: None,
                };
                engine.call(call).await.expect("the path is free");
            }
            engine
        });
        Self { engine, calls, runtime }
    }
}

/// What a function gets of a request.
#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Box<RawValue>>,
    request: Option<Box<Self>>,
}

fn body_of(payload: &RawValue) -> Box<RawValue> {
    let payload: Payload = serde_json::from_str(payload.get()).expect("a payload is an object");
    payload.body.unwrap_or_else(|| RawValue::NULL.to_owned())
}

/// The JSON in the header with the name of a function.
fn header_of(payload: &RawValue, name: &str) -> Box<RawValue> {
    let payload: Payload = serde_json::from_str(payload.get()).expect("a payload is an object");
    let headers = payload.request.map_or(payload.headers, |request| request.headers);
    let json = headers.get(name).and_then(|text| RawValue::from_string(text.clone()).ok());
    json.unwrap_or_else(|| RawValue::NULL.to_owned())
}

/// Every request to a trigger gets a response, and a request without credentials calls only functions for everyone.
fn request(is_public_only: bool, data: &[u8]) {
    let Some(request) = parse(is_public_only, data) else { return };
    thread_local! {
        static SETUP: OnceCell<Setup> = const { OnceCell::new() };
    }
    SETUP.with(|setup| {
        let Setup { engine, calls, runtime } = setup.get_or_init(Setup::build);
        let route = engine.http_route(request.method(), request.uri().path());
        let before = calls.load(Ordering::Relaxed);
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let response = runtime.block_on(engine.handle_http(request));
        let called = calls.load(Ordering::Relaxed) - before;
        assert_eq!(response.is_some(), route != HttpRoute::None, "{method} {uri}");
        assert!(called <= 1, "{method} {uri} was called {called} times");
        let Some(response) = response else { return };
        if is_public_only && route == HttpRoute::Callers {
            assert_eq!((response.status(), called), (StatusCode::UNAUTHORIZED, 0), "{method} {uri}");
        }
        check(response, runtime);
    });
}

fn parse(is_public_only: bool, data: &[u8]) -> Option<Request<Full<Bytes>>> {
    let (first, mut rest) = line(data);
    let space = first.iter().position(|byte| *byte == b' ')?;
    let method = Method::from_bytes(&first[..space]).ok()?;
    let uri = Uri::try_from(&first[space + 1..]).ok()?;
    let mut request = Request::new(Full::default());
    loop {
        let (header, others) = line(rest);
        rest = others;
        if header.is_empty() {
            break;
        }
        let Some(colon) = header.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&header[..colon]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(header[colon + 1..].trim_ascii())) {
            request.headers_mut().append(name, value);
        }
    }
    *request.body_mut() = Full::new(Bytes::copy_from_slice(rest));
    (*request.method_mut(), *request.uri_mut()) = (method, uri);
    if is_public_only {
        request.extensions_mut().insert(PublicOnly);
    }
    Some(request)
}

/// A response has a final status, no header of the connection, and a body that ends.
fn check(response: Response<HttpBody>, runtime: &Runtime) {
    let (head, body) = response.into_parts();
    assert!((200..=599).contains(&head.status.as_u16()), "{}", head.status);
    for name in [CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE] {
        assert!(!head.headers.contains_key(&name), "{name}");
    }
    assert!(!head.headers.contains_key("keep-alive"), "keep-alive");
    assert!(head.headers.get_all("content-type").iter().count() <= 1, "two types");
    let body = runtime.block_on(body.collect());
    assert!(body.is_ok(), "the body breaks off");
}

/// What a function returns, and what it writes before its body, in lines.
fn results(data: &[u8]) {
    thread_local! {
        static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
    }
    RUNTIME.with(|runtime| {
        let build = || tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.get_or_init(|| build().expect("a runtime needs nothing that could be missing"));
        if let Ok(result) = serde_json::from_slice::<&RawValue>(data) {
            check(parsing::response(result), runtime);
        }
        let text = String::from_utf8_lossy(data);
        check(parsing::head(text.lines()), runtime);
    });
}

/// The request that a call stands for has the query of the call.
fn invocation(data: &[u8]) {
    #[derive(Deserialize)]
    struct Call {
        path: String,
        #[serde(default)]
        query_params: BTreeMap<String, String>,
        #[serde(default)]
        path_params: BTreeMap<String, String>,
    }
    let text = String::from_utf8_lossy(data);
    let Ok(request) = parsing::invocation(&text) else { return };
    // A list has members too, in another order.
    let Ok(call) = serde_json::from_str::<Call>(&text) else { return };
    if !text.trim_start().starts_with('{') {
        return;
    }
    assert!(request.uri().path().starts_with('/'), "{}", request.uri());
    let is_plain = |part: &String| !part.contains(['?', '#']);
    if is_plain(&call.path) && call.path_params.values().all(is_plain) {
        let decode = |part: &str| percent_decode(part.as_bytes()).decode_utf8_lossy().into_owned();
        let pairs = request.uri().query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let query: BTreeMap<String, String> = pairs
            .map(|pair| {
                pair.split_once('=')
                    .map_or((decode(pair), String::new()), |(key, value)| (decode(key), decode(value)))
            })
            .collect();
        assert_eq!(query, call.query_params, "{}", request.uri());
    }
}

/// A task that another worker wrote is the same after it is written and read again.
fn document(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (task, written) = match parsing::document(&text) {
        Ok(document) => document,
        Err(error) => {
            assert!(!error.is_empty() && error.len() < 1000 + 8 * text.len(), "{error}");
            return;
        }
    };
    let written = written.expect("what was read can be written");
    let (again, rewritten) = parsing::document(written.get()).expect("what was written can be read");
    assert_eq!(again, task, "{}", written.get());
    assert_eq!(
        rewritten.expect("it can be written").get(),
        written.get(),
        "it changes each time it is written"
    );
}
