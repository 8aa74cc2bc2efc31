//! HTTP triggers.

use std::time::Duration;

use attache_iii::engine::HttpBody;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::support::{Setup, Worker, engine, engine_with};

fn trigger(id: &str, method: &str, path: &str) -> Value {
    json!({
        "type": "registertrigger", "id": id, "trigger_type": "http", "function_id": "f",
        "config": { "api_path": path, "http_method": method },
    })
}

pub(crate) async fn serving(setup: &Setup, method: &str, path: &str) -> Worker {
    let mut worker = setup.worker_with(&["f"]).await;
    worker.send(trigger("t", method, path)).await;
    worker.settle().await;
    worker
}

pub(crate) fn request(method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    request.body(Full::from(body.to_owned())).unwrap()
}

pub(crate) async fn answer_of(setup: &Setup, request: Request<Full<Bytes>>) -> (u16, Response<HttpBody>) {
    let response = setup.engine.handle_http(request).await.expect("a route");
    (response.status().as_u16(), response)
}

pub(crate) async fn text(response: Response<HttpBody>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_request_becomes_a_call_and_its_result_the_response() {
    let setup = engine().await;
    let mut worker = serving(&setup, "POST", "v1/tasks/:id").await;
    let answering = async {
        let call = worker.work().await;
        worker
            .answer(&call, json!({ "status_code": 201, "headers": { "X-A": "b" }, "body": { "ok": true } }))
            .await;
        call
    };
    let asking = answer_of(&setup, request("POST", "/v1/tasks/abc%20d:cancel?a=2&b=x+y", r#"{"k":1}"#));
    let ((status, response), call) = tokio::join!(asking, answering);
    assert_eq!(status, 201);
    assert_eq!(response.headers()["x-a"], "b");
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(text(response).await, r#"{"ok":true}"#);
    let mut data = call["data"].clone();
    for end in ["request_body", "response"] {
        assert!(data.as_object_mut().unwrap().remove(end).unwrap()["channel_id"].is_string());
    }
    let expected = json!({
        "query_params": { "a": "2", "b": "x y" }, "path_params": { "id": "abc%20d:cancel" },
        "headers": { "content-type": "application/json" }, "path": "v1/tasks/:id", "method": "POST", "body": { "k": 1 },
        "trigger": { "type": "http", "path": "v1/tasks/:id", "method": "POST" },
    });
    assert_eq!(data, expected);
}

#[tokio::test]
async fn results_become_responses_in_many_shapes() {
    let setup = engine().await;
    let mut worker = serving(&setup, "GET", "/x").await;
    let cases = [
        (json!({}), 200, "application/json", "{}"),
        (json!({ "body": "text" }), 200, "application/json", r#""text""#),
        (json!({ "body": "<p>", "headers": { "Content-Type": "text/html" } }), 200, "text/html", "<p>"),
        (json!({ "body": [1], "headers": ["Content-Type: text/csv"] }), 200, "text/csv", "[1]"),
        (json!({ "status_code": 204, "body": null }), 204, "application/json", "{}"),
        (json!("just text"), 200, "application/json", "{}"),
    ];
    for (result, status, content_type, body) in cases {
        let answering = async {
            let call = worker.work().await;
            worker.answer(&call, result.clone()).await;
        };
        let ((got, response), ()) = tokio::join!(answer_of(&setup, request("GET", "/x", "")), answering);
        assert_eq!(got, status, "{result}");
        assert_eq!(response.headers()["content-type"], content_type, "{result}");
        assert_eq!(text(response).await, body, "{result}");
    }
}

#[tokio::test]
async fn paths_without_a_trigger_are_not_handled() {
    let setup = engine().await;
    let _worker = serving(&setup, "GET", "/x").await;
    assert!(setup.engine.handle_http(request("GET", "/y", "")).await.is_none());
    assert!(setup.engine.handle_http(request("GET", "/x/y", "")).await.is_none());
}

#[tokio::test]
async fn another_method_is_not_allowed_and_the_right_ones_are_named() {
    let setup = engine().await;
    let mut worker = serving(&setup, "GET", "/x").await;
    worker.send(trigger("u", "PUT", "/x")).await;
    worker.settle().await;
    let (status, response) = answer_of(&setup, request("POST", "/x", "")).await;
    assert_eq!(status, 405);
    assert_eq!(response.headers()["allow"], "GET, HEAD, PUT");
    assert_eq!(text(response).await, "");
}

#[tokio::test]
async fn pages_of_other_sites_are_allowed_only_by_the_author_of_a_function() {
    let setup = engine().await;
    let mut worker = setup.worker_with(&["f"]).await;
    let shared = json!({
        "type": "registerfunction", "id": "g", "metadata": { "a2a.origins": ["https://app.example.com", 7] },
    });
    worker.send(shared).await;
    worker.send(trigger("t", "POST", "/f")).await;
    let mut open = trigger("u", "GET", "/g/:id");
    open["function_id"] = json!("g");
    worker.send(open).await;
    worker.settle().await;
    let origins = |method: Method, path: &str| setup.engine.http_origins(&method, path);
    assert_eq!(origins(Method::GET, "/g/1"), ["https://app.example.com"]);
    for (method, path) in
        [(Method::POST, "/f"), (Method::POST, "/g/1"), (Method::GET, "/g"), (Method::GET, "/h")]
    {
        assert!(origins(method, path).is_empty(), "{path}");
    }
    let answering = async {
        let call = worker.work().await;
        worker.answer(&call, json!({})).await;
    };
    let asked = Request::builder().method("POST").uri("/f").header("origin", "https://evil.example");
    let ((_, response), ()) =
        tokio::join!(answer_of(&setup, asked.body(Full::default()).unwrap()), answering);
    assert!(!response.headers().contains_key("access-control-allow-origin"));
    let asked =
        Request::builder().method("OPTIONS").uri("/f").header("access-control-request-method", "POST");
    let (status, response) = answer_of(&setup, asked.body(Full::default()).unwrap()).await;
    assert_eq!(status, 405);
    assert!(!response.headers().contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn a_literal_segment_is_preferred_and_may_have_a_colon_inside() {
    let setup = engine().await;
    let mut worker = setup.worker_with(&["f", "g"]).await;
    worker.send(trigger("a", "GET", "/v1/:what/end")).await;
    let mut literal = trigger("b", "GET", "v1/message:send");
    literal["function_id"] = json!("g");
    worker.send(literal).await;
    worker.settle().await;
    for (path, function) in [("/v1/message:send", "g"), ("/v1/message:send/end", "f")] {
        let answering = async {
            let call = worker.work().await;
            worker.answer(&call, json!({})).await;
            call["function_id"].clone()
        };
        let (_, called) = tokio::join!(answer_of(&setup, request("GET", path, "")), answering);
        assert_eq!(called, function, "{path}");
    }
}

#[tokio::test]
async fn invalid_triggers_are_refused_with_the_reason() {
    let setup = engine().await;
    setup.engine.reserve_paths(["/a2a", "/"], ["/v1", "/.well-known"]);
    let mut worker = setup.worker_with(&["f"]).await;
    worker.send(trigger("ok", "GET", "/tasks/:id")).await;
    let cases = [
        (json!({}), "api_path is required for http triggers"),
        (json!({ "api_path": "x", "http_method": "FLY" }), "`FLY` is not a method"),
        (json!({ "api_path": "/tasks/:name/x" }), "`:name` where another route has `:id`"),
        (json!({ "api_path": "/s".repeat(65) }), "a path may have at most 64 segments"),
        (json!({ "api_path": "tasks/:id" }), "`GET tasks/:id` has a trigger already"),
        (json!({ "api_path": "/a2a" }), "belongs to the A2A server"),
        (json!({ "api_path": "/" }), "belongs to the A2A server"),
        (json!({ "api_path": "v1/tasks" }), "belongs to the A2A server"),
        (json!({ "api_path": ".well-known/agent-card.json" }), "belongs to the A2A server"),
    ];
    for (config, reason) in cases {
        worker.send(json!({ "type": "registertrigger", "id": "bad", "trigger_type": "http", "function_id": "f", "config": config })).await;
        let answer = worker.next().await;
        assert_eq!(answer["type"], "triggerregistrationresult");
        assert_eq!(answer["error"]["code"], "trigger_registration_failed");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(reason), "{message}");
    }
}

#[tokio::test]
async fn the_routes_of_a_worker_go_with_it() {
    let setup = engine().await;
    let mut watcher = setup.worker_with(&["seen"]).await;
    watcher.send(json!({ "type": "registertrigger", "id": "w", "trigger_type": "engine::workers-available", "function_id": "seen" })).await;
    watcher.settle().await;
    let mut worker = serving(&setup, "GET", "/x").await;
    worker.send(json!({ "type": "unregistertrigger", "id": "t", "trigger_type": "http" })).await;
    worker.settle().await;
    assert!(setup.engine.handle_http(request("GET", "/x", "")).await.is_none());
    worker.send(trigger("u", "GET", "/x")).await;
    worker.settle().await;
    assert_eq!(answer_of(&setup, request("POST", "/x", "")).await.0, 405);
    drop(worker);
    while watcher.work().await["data"]["event"] != "worker_disconnected" {}
    assert!(setup.engine.handle_http(request("GET", "/x", "")).await.is_none());
}

#[tokio::test]
async fn a_function_that_fails_is_a_500_with_its_error() {
    let setup = engine().await;
    let mut worker = serving(&setup, "GET", "/x").await;
    let answering = async {
        let id = worker.work().await["invocation_id"].clone();
        let error = json!({ "code": "invocation_failed", "message": "boom" });
        worker.send(json!({ "type": "invocationresult", "invocation_id": id, "error": error })).await;
    };
    let ((status, response), ()) = tokio::join!(answer_of(&setup, request("GET", "/x", "")), answering);
    assert_eq!(status, 500);
    let body: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(body["error"]["code"], "invocation_failed");
    assert_eq!(body["error"]["message"], "boom");
    assert!(body["error"]["error_id"].is_string());
}

#[tokio::test]
async fn a_function_that_does_not_answer_is_a_504() {
    let setup = engine_with(|options| options.http_timeout = Duration::from_millis(50)).await;
    let mut worker = serving(&setup, "GET", "/x").await;
    let (status, response) = answer_of(&setup, request("GET", "/x", "")).await;
    assert_eq!(status, 504);
    assert_eq!(text(response).await, "");
    worker.work().await;
    let asking = answer_of(&setup, request("GET", "/x", ""));
    let answering = async {
        let call = worker.work().await;
        worker.answer(&call, json!(null)).await;
    };
    assert_eq!(tokio::join!(asking, answering).0.0, 504);
}

#[tokio::test]
async fn middleware_and_condition_come_before_the_function() {
    let setup = engine().await;
    let mut worker = setup.worker_with(&["f", "gate", "check"]).await;
    let mut route = trigger("t", "GET", "/x/:id");
    route["config"]["middleware_function_ids"] = json!(["gate"]);
    route["config"]["condition_function_id"] = json!("check");
    worker.send(route).await;
    worker.settle().await;
    worker.run(|call| match call["function_id"].as_str().unwrap() {
        "gate" => {
            assert_eq!(call["data"]["phase"], "preHandler");
            match call["data"]["request"]["path_params"]["id"].as_str().unwrap() {
                "stop" => json!({ "action": "respond", "response": { "status_code": 401, "body": "no" } }),
                _ => json!({ "action": "continue" }),
            }
        }
        "check" => json!(call["data"]["path_params"]["id"] != "odd"),
        _ => json!({ "body": "done" }),
    });
    for (path, status) in [("/x/stop", 401), ("/x/odd", 422), ("/x/even", 200)] {
        assert_eq!(answer_of(&setup, request("GET", path, "")).await.0, status, "{path}");
    }
}

#[tokio::test]
async fn an_observer_of_requests_is_a_route() {
    let setup = engine().await;
    let mut worker = setup.worker_with(&["f"]).await;
    let id = uuid::Uuid::new_v4();
    let source = json!({ "function_id": "http::on-request", "args": { "method": "POST", "path": "/quote" } });
    worker
        .send(json!({ "type": "observe", "id": id, "source": source, "target": { "function_id": "f" } }))
        .await;
    assert_eq!(worker.next().await, json!({ "type": "observeresult", "id": id, "state": "active" }));
    let answering = async {
        let call = worker.work().await;
        worker.answer(&call, json!({ "body": call["data"]["body"] })).await;
    };
    let ((_, response), ()) = tokio::join!(answer_of(&setup, request("POST", "/quote", "[7]")), answering);
    assert_eq!(text(response).await, "[7]");
    worker.send(json!({ "type": "unobserve", "id": id })).await;
    let expected = json!({ "type": "observerstatechanged", "id": id, "state": "disposed", "fires": 1 });
    assert_eq!(worker.next().await, expected);
    assert!(setup.engine.handle_http(request("POST", "/quote", "")).await.is_none());
    let source = json!({ "function_id": "other::function" });
    worker
        .send(json!({ "type": "observe", "id": id, "source": source, "target": { "function_id": "f" } }))
        .await;
    let refused = worker.next().await;
    assert_eq!((&refused["state"], &refused["error"]["code"]), (&json!("error"), &json!("UNSUPPORTED")));
}

#[tokio::test]
async fn a_trigger_is_for_callers_unless_its_function_is_for_everyone() {
    use attache_iii::engine::{HttpRoute, PublicOnly};
    use http::Method;

    let setup = engine().await;
    let mut worker = serving(&setup, "GET", "/x").await;
    let route = |method: Method, path: &str| setup.engine.http_route(&method, path);
    assert_eq!(route(Method::GET, "/x"), HttpRoute::Callers);
    assert_eq!(route(Method::HEAD, "/x"), HttpRoute::Callers);
    assert_eq!(route(Method::OPTIONS, "/x"), HttpRoute::Public);
    assert_eq!(route(Method::GET, "/y"), HttpRoute::None);
    let unvouched = || {
        let mut request = request("GET", "/x", "");
        request.extensions_mut().insert(PublicOnly);
        request
    };
    assert_eq!(answer_of(&setup, unvouched()).await.0, 401);
    for said in [json!("true"), json!(1), json!(false)] {
        let metadata = json!({ "a2a.public": said });
        worker.send(json!({ "type": "registerfunction", "id": "f", "metadata": metadata })).await;
        worker.settle().await;
        assert_eq!(route(Method::GET, "/x"), HttpRoute::Callers, "{said}");
    }
    worker.send(json!({ "type": "registerfunction", "id": "f", "metadata": { "a2a.public": true } })).await;
    worker.settle().await;
    assert_eq!(route(Method::GET, "/x"), HttpRoute::Public);
    let answering = async {
        let call = worker.work().await;
        worker.answer(&call, json!({})).await;
    };
    let ((status, _), ()) = tokio::join!(answer_of(&setup, unvouched()), answering);
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_route_has_up_to_64_segments() {
    let setup = engine().await;
    let mut worker = setup.worker_with(&["f"]).await;
    worker.send(trigger("t", "GET", &"/s".repeat(64))).await;
    worker.settle().await;
    let found = |segments: usize| {
        let route = setup.engine.http_route(&Method::GET, &"/s".repeat(segments));
        route == attache_iii::engine::HttpRoute::Callers
    };
    assert_eq!((found(63), found(64), found(65)), (false, true, false));
    assert!(setup.engine.handle_http(request("GET", &"/s".repeat(65), "")).await.is_none());
}

#[tokio::test]
async fn a_lookup_tries_a_limited_number_of_routes() {
    let setup = engine().await;
    let mut worker = setup.worker_with(&["f"]).await;
    // Twelve segments with a literal and a parameter each. The last route is found after all others were tried.
    for number in 0..1 << 12 {
        let place =
            |bit: u32| if number >> bit & 1 == 0 { format!("a/p{bit}") } else { format!(":x/p{bit}") };
        let path: Vec<_> = (0..12).map(place).collect();
        worker.send(trigger(&format!("t{number}"), "GET", &format!("{}/end", path.join("/")))).await;
    }
    let last: Vec<_> = (0..12).map(|bit| format!(":x/p{bit}")).collect();
    worker.send(trigger("last", "GET", &format!("{}/last", last.join("/")))).await;
    worker.send(trigger("short", "GET", &format!("{}/last", last[..10].join("/")))).await;
    worker.settle().await;
    let path: Vec<_> = (0..12).map(|bit| format!("a/p{bit}")).collect();
    let found = |places: usize, end: &str| {
        let path = format!("/{}/{end}", path[..places].join("/"));
        setup.engine.http_route(&http::Method::GET, &path) == attache_iii::engine::HttpRoute::Callers
    };
    assert!(found(12, "end") && found(10, "last"));
    assert!(!found(12, "last"));
}
