//! The envelope of JSON-RPC: what is echoed, what is refused and with which code.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Reply, fetch, playing, send};

fn call(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// Every JSON-RPC error looks like this, whatever went wrong.
fn assert_error(reply: &Reply, id: Value, code: i64, reason: &str) {
    let json = reply.json();
    assert_eq!(reply.status, 200, "{json}");
    assert_eq!(reply.header("content-type"), "application/json");
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&json), ["error", "id", "jsonrpc"]);
    assert_eq!(keys(&json["error"]), ["code", "data", "message"]);
    assert_eq!((&json["jsonrpc"], &json["id"]), (&json!("2.0"), &id), "{json}");
    assert_eq!(json["error"]["code"], code, "{json}");
    assert!(!json["error"]["message"].as_str().unwrap().is_empty());
    let details = json["error"]["data"].as_array().expect("data is an array");
    assert!(
        details
            .iter()
            .all(|detail| detail["@type"].as_str().unwrap().starts_with("type.googleapis.com/google.rpc."))
    );
    assert_eq!(details[0]["@type"], "type.googleapis.com/google.rpc.ErrorInfo");
    assert_eq!((&details[0]["reason"], &details[0]["domain"]), (&json!(reason), &json!("a2a-protocol.org")));
}

#[tokio::test]
async fn a_body_that_is_not_json_is_a_parse_error_with_a_null_id() {
    let server = playing().await;
    for body in ["", "{", "{\"jsonrpc\":\"2.0\",\"id\":1", "not json", "[", "\u{0}", "{\"id\":\"\u{1}\"}"] {
        assert_error(&server.post(body).await, Value::Null, -32700, "PARSE_ERROR");
    }
    let not_utf8 = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}".to_vec();
    assert_error(&server.post(not_utf8).await, Value::Null, -32700, "PARSE_ERROR");
}

#[tokio::test]
async fn json_that_is_not_a_request_is_an_invalid_request() {
    let server = playing().await;
    for (body, id) in [
        (r#"{"id":7,"method":"ListTasks","params":{}}"#, json!(7)),
        (r#"{"jsonrpc":"1.0","id":7,"method":"ListTasks"}"#, json!(7)),
        (r#"{"jsonrpc":2.0,"id":7,"method":"ListTasks"}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","id":7}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","id":7,"method":""}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","id":7,"method":null}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","id":7,"method":["ListTasks"]}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ListTasks"}"#, Value::Null),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ListTasks"}"#, Value::Null),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"ListTasks"}"#, Value::Null),
        ("\"ListTasks\"", Value::Null),
        ("7", Value::Null),
        ("null", Value::Null),
        ("{}", Value::Null),
    ] {
        assert_error(&server.post(body).await, id, -32600, "INVALID_REQUEST");
    }
}

#[tokio::test]
async fn a_batch_is_an_invalid_request() {
    let server = playing().await;
    let one = call("1", "ListTasks", "{}");
    for batch in ["[]".to_owned(), format!("[{one}]"), format!("[{one},{one}]"), "[1]".to_owned()] {
        assert_error(&server.post(batch).await, Value::Null, -32600, "INVALID_REQUEST");
    }
}

#[tokio::test]
async fn an_unknown_method_is_named_together_with_those_that_exist() {
    let server = playing().await;
    for method in ["Explode", "sendMessage", "sendmessage", "SendMessage ", "tasks", "GetAgentCard"] {
        let reply = server.post(call("\"x\"", method, "{}")).await;
        assert_error(&reply, json!("x"), -32601, "METHOD_NOT_FOUND");
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(method) && message.contains("SendMessage"), "{message}");
    }
}

#[tokio::test]
async fn arguments_of_the_wrong_type_are_invalid_with_the_field_named() {
    let server = playing().await;
    for (method, params, field) in [
        ("GetTask", json!({"id": 5}), "id"),
        ("SendMessage", json!({"message": "hi"}), "message"),
        (
            "SendMessage",
            json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": {}}}),
            "message.parts",
        ),
        ("SendStreamingMessage", json!({"message": {"parts": [{"text": 1}]}}), "message.parts[0].text"),
        ("ListTasks", json!({"pageSize": "many"}), "pageSize"),
        ("ListTasks", json!({"includeArtifacts": "yes"}), "includeArtifacts"),
    ] {
        let reply = server.post(call("1", method, &params.to_string())).await;
        assert_error(&reply, json!(1), -32602, "INVALID_PARAMS");
        let bad = &reply.json()["error"]["data"][1];
        assert_eq!(bad["@type"], "type.googleapis.com/google.rpc.BadRequest");
        assert_eq!(bad["fieldViolations"][0]["field"], field, "{bad}");
        assert!(!bad["fieldViolations"][0]["description"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn params_are_an_object_or_absent() {
    let server = playing().await;
    for params in ["[]", r#"["a"]"#, r#""text""#, "7", "true"] {
        assert_error(&server.post(call("1", "ListTasks", params)).await, json!(1), -32602, "INVALID_PARAMS");
    }
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}"#,
    ] {
        assert_eq!(server.post(body).await.json()["result"]["totalSize"], 0, "{body}");
    }
}

#[tokio::test]
async fn ids_are_echoed_unchanged() {
    let server = playing().await;
    for id in
        ["1", "0", "-7", "9007199254740993", "1.50", "1e3", "\"\"", "\"a b\"", r#""\u00e9""#, "\"1\"", "null"]
    {
        for method in ["ListTasks", "Nonsense"] {
            let reply = server.post(call(id, method, "{}")).await;
            let text = std::str::from_utf8(&reply.body).unwrap();
            assert!(text.contains(&format!(r#""id":{id},"#)), "{id}: {text}");
        }
        let stream = server.post(call(id, "SendStreamingMessage", &send("hi").to_string())).await;
        let text = std::str::from_utf8(&stream.body).unwrap();
        assert_eq!(
            text.matches(&format!(r#""id":{id},"result""#)).count(),
            text.matches("data: ").count(),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_notification_is_carried_out_and_gets_no_answer() {
    let server = playing().await;
    let body = json!({"jsonrpc": "2.0", "method": "SendMessage", "params": send("note")});
    let reply = server.post(body.to_string()).await;
    assert_eq!((reply.status.as_u16(), reply.body.len()), (204, 0));
    assert_eq!(server.rpc("ListTasks", json!({})).await["result"]["totalSize"], 1);

    for (method, params) in
        [("Explode", json!({})), ("GetTask", json!({"id": "none"})), ("GetTask", json!({"id": 1}))]
    {
        let body = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let reply = server.post(body.to_string()).await;
        assert_eq!((reply.status.as_u16(), reply.body.len()), (204, 0), "{method} {params}");
    }
}

#[tokio::test]
async fn a_result_comes_with_status_200_and_plain_json() {
    let server = playing().await;
    let reply = server.post(call("1", "SendMessage", &send("hi").to_string())).await;
    assert_eq!((reply.status.as_u16(), reply.header("content-type")), (200, "application/json"));
    let json = reply.json();
    assert_eq!(json.as_object().unwrap().keys().collect::<Vec<_>>(), ["id", "jsonrpc", "result"]);
    assert_eq!(json["result"].as_object().unwrap().keys().collect::<Vec<_>>(), ["task"]);
}

#[tokio::test]
async fn every_default_path_answers_with_and_without_a_slash_at_the_end() {
    let server = playing().await;
    for path in ["/a2a", "/a2a/", "/", "/v1/rpc", "/v1/rpc/"] {
        let request = server.http(Method::POST, path).header("Content-Type", "application/json");
        let reply = fetch(request.body(call("1", "ListTasks", "{}"))).await;
        assert_eq!(reply.json()["result"]["totalSize"], 0, "{path}");
    }
}

#[tokio::test]
async fn other_methods_are_not_allowed_and_say_which_one_is() {
    let server = playing().await;
    for path in ["/a2a", "/", "/v1/rpc"] {
        for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let reply = fetch(server.http(method.parse().unwrap(), path)).await;
            assert_eq!((reply.status.as_u16(), reply.header("allow")), (405, "POST"), "{method} {path}");
            assert_eq!(reply.json()["error"]["code"], 405, "{method} {path}");
        }
        let head = fetch(server.http(Method::HEAD, path)).await;
        assert_eq!((head.status.as_u16(), head.header("allow")), (405, "POST"));
    }
}

#[tokio::test]
async fn a_body_that_is_not_declared_as_json_is_refused_unread() {
    let server = playing().await;
    for body in ["{", "text=hi", &call("1", "SendMessage", &send("hi").to_string())] {
        for content_type in [
            Some("text/plain"),
            Some("text/plain; application/json"),
            Some("application/x-www-form-urlencoded"),
            Some("application/xml"),
            Some("application/jsonp"),
            Some("nonsense"),
            Some(""),
            None,
        ] {
            let mut request = server.http(Method::POST, "/a2a");
            if let Some(content_type) = content_type {
                request = request.header("Content-Type", content_type);
            }
            let reply = fetch(request.body(body.to_owned())).await;
            assert_eq!(reply.status, 415, "{content_type:?}");
            let error = &reply.json()["error"];
            assert_eq!(error["code"], -32005, "{content_type:?}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("`Content-Type: application/json`"), "{message}");
        }
    }
    assert_eq!(server.rpc("ListTasks", json!({})).await["result"]["totalSize"], 0);
}

#[tokio::test]
async fn json_is_json_with_a_charset_and_in_capitals() {
    let server = playing().await;
    for content_type in [
        "application/json",
        "application/json; charset=utf-8",
        "APPLICATION/JSON;charset=UTF-8",
        "application/a2a+json",
    ] {
        let request = server.http(Method::POST, "/a2a").header("Content-Type", content_type);
        let reply = fetch(request.body(call("1", "ListTasks", "{}"))).await;
        assert_eq!(reply.json()["result"]["totalSize"], 0, "{content_type}");
    }
}

#[tokio::test]
async fn unknown_members_are_ignored_wherever_they_stand() {
    let server = playing().await;
    let part = json!({"text": "hi", "kind": "text", "future": {"a": 1}});
    let message =
        json!({"messageId": "m", "role": "ROLE_USER", "parts": [part], "kind": "message", "more": null});
    let params = json!({"message": message, "configuration": {"blocking": true}, "later": [1]});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params, "trace": "t"});
    let json = server.post(body.to_string()).await.json();
    assert_eq!(json["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{json}");
    assert!(!json.to_string().contains("kind"), "what is not of the protocol does not come back: {json}");
}

#[tokio::test]
async fn a_stream_that_cannot_begin_is_one_plain_error() {
    let server = playing().await;
    for (method, params, code, reason) in [
        ("SendStreamingMessage", json!({}), -32602, "INVALID_PARAMS"),
        ("SubscribeToTask", json!({"id": "none"}), -32001, "TASK_NOT_FOUND"),
        ("SubscribeToTask", json!({}), -32602, "INVALID_PARAMS"),
    ] {
        let reply = server.post(call("\"s\"", method, &params.to_string())).await;
        assert_error(&reply, json!("s"), code, reason);
    }
}
