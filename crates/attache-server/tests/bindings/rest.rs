//! HTTP+JSON: routes, tenants, queries, media types and the shape of a refusal.

use insta::assert_json_snapshot;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Running, fetch, player, playing, send, serve, without_ids};

/// Starts a task that goes on until it is canceled.
async fn waiting(server: &Running) -> String {
    let mut params = send("wait");
    params["configuration"] = json!({"returnImmediately": true});
    server.sent(params).await["task"]["id"].as_str().unwrap().to_owned()
}

async fn fields(server: &Running, method: &str, path: &str, body: Option<Value>) -> Vec<String> {
    let reply = server.rest(method, path, body).await;
    assert_eq!(reply.status, 400, "{path}: {reply:?}");
    let json = reply.json();
    let violations =
        json["error"]["details"][1]["fieldViolations"].as_array().unwrap_or_else(|| panic!("{json}"));
    violations.iter().map(|violation| violation["field"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn every_operation_has_a_route_with_and_without_a_tenant() {
    for tenant in ["", "/acme", "/a%2Fb", "/v1", "/message:send"] {
        let server = playing().await;
        let sent = server.rest("POST", &format!("{tenant}/message:send"), Some(send("ask"))).await;
        assert_eq!(sent.status, 200, "{tenant}: {sent:?}");
        let id = sent.json()["task"]["id"].as_str().unwrap().to_owned();
        let task = format!("{tenant}/tasks/{id}");
        let push = format!("{task}/pushNotificationConfigs");
        let config = json!({"id": "c", "url": "https://example.com/hook"});
        for (method, path, body, expected) in [
            ("GET", format!("{tenant}/tasks"), None, json!({"totalSize": 1})),
            ("GET", task.clone(), None, json!({"id": id})),
            ("POST", push.clone(), Some(config), json!({"id": "c", "taskId": id})),
            ("GET", push.clone(), None, json!({"configs": [{"id": "c"}]})),
            ("GET", format!("{push}/c"), None, json!({"id": "c", "url": "https://example.com/hook"})),
            ("DELETE", format!("{push}/c"), None, json!({})),
            ("DELETE", format!("{push}/c"), None, json!({})),
            ("POST", format!("{task}:cancel"), None, json!({"status": {"state": "TASK_STATE_CANCELED"}})),
        ] {
            let reply = server.rest(method, &path, body).await;
            assert_eq!(reply.status, 200, "{method} {path}: {reply:?}");
            assert!(contains(&reply.json(), &expected), "{method} {path}: {} lacks {expected}", reply.json());
        }
        let mut stream = server.rest_sse("POST", &format!("{tenant}/message:stream"), Some(send("hi"))).await;
        assert_eq!(stream.rest().await.len(), 3);
        let card = server.rest("GET", &format!("{tenant}/extendedAgentCard"), None).await;
        assert_eq!(card.json()["error"]["details"][0]["reason"], "UNSUPPORTED_OPERATION");
    }
}

/// Whether `json` has everything that `part` has.
fn contains(json: &Value, part: &Value) -> bool {
    match (json, part) {
        (Value::Object(all), Value::Object(some)) => {
            some.iter().all(|(name, value)| all.get(name).is_some_and(|own| contains(own, value)))
        }
        (Value::Array(all), Value::Array(some)) => {
            all.len() == some.len() && all.iter().zip(some).all(|(own, value)| contains(own, value))
        }
        (json, part) => json == part,
    }
}

#[tokio::test]
async fn tenants_do_not_see_each_others_tasks() {
    let server = playing().await;
    let sent = server.rest("POST", "/acme/message:send", Some(send("ask"))).await.json();
    let id = sent["task"]["id"].as_str().unwrap();
    for (path, status) in [
        (format!("/acme/tasks/{id}"), 200),
        (format!("/tasks/{id}?tenant=acme"), 200),
        (format!("/tasks/{id}"), 404),
        (format!("/other/tasks/{id}"), 404),
        (format!("/tasks/{id}?tenant=other"), 404),
    ] {
        assert_eq!(server.rest("GET", &path, None).await.status, status, "{path}");
    }
    for (tenant, size) in [("/acme", 1), ("/other", 0), ("", 0)] {
        assert_eq!(
            server.rest("GET", &format!("{tenant}/tasks"), None).await.json()["totalSize"],
            size,
            "{tenant}"
        );
    }
    assert_eq!(server.rpc("ListTasks", json!({"tenant": "acme"})).await["result"]["totalSize"], 1);
    assert_eq!(server.rpc("GetTask", json!({"id": id})).await["error"]["code"], -32001);
    assert_eq!(server.rpc("GetTask", json!({"id": id, "tenant": "acme"})).await["result"]["id"], *id);
}

#[tokio::test]
async fn both_verbs_subscribe_and_neither_reads_a_task_of_that_name() {
    let server = playing().await;
    let id = waiting(&server).await;
    for method in ["GET", "POST"] {
        let mut stream = server.rest_sse(method, &format!("/tasks/{id}:subscribe"), None).await;
        assert_eq!(stream.event().await["task"]["id"], *id, "{method}");
    }
    let unknown = server.rest("GET", "/tasks/none:subscribe", None).await;
    assert_eq!(unknown.json()["error"]["details"][0]["metadata"]["taskId"], "none");
    assert_eq!(
        server.rest("PUT", &format!("/tasks/{id}:subscribe"), None).await.header("allow"),
        "GET, POST"
    );
}

#[tokio::test]
async fn answers_come_in_the_media_type_that_the_client_uses() {
    let server = playing().await;
    for (content_type, accept, expected) in [
        ("application/json", "", "application/json"),
        ("application/json; charset=utf-8", "*/*", "application/json"),
        ("application/a2a+json", "", "application/a2a+json"),
        ("application/a2a+json; charset=utf-8", "", "application/a2a+json"),
        ("application/json", "application/a2a+json", "application/a2a+json"),
        ("application/json", "text/html, application/a2a+json;q=0.5", "application/a2a+json"),
        ("Application/JSON", "application/json", "application/json"),
    ] {
        let mut request = server.http(Method::POST, "/v1/message:send").header("Content-Type", content_type);
        if !accept.is_empty() {
            request = request.header("Accept", accept);
        }
        let reply = fetch(request.body(send("hi").to_string())).await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("content-type")),
            (200, expected),
            "{content_type} {accept}"
        );
    }
    let refused =
        fetch(server.http(Method::GET, "/v1/tasks/none").header("Accept", "application/a2a+json")).await;
    assert_eq!((refused.status.as_u16(), refused.header("content-type")), (404, "application/a2a+json"));
}

#[tokio::test]
async fn bodies_of_other_types_and_undeclared_ones_are_refused() {
    let server = playing().await;
    let types = ["text/plain", "application/xml", "multipart/form-data; boundary=x", "json"];
    for content_type in types.map(Some).into_iter().chain([None]) {
        let mut request = server.http(Method::POST, "/v1/message:send");
        if let Some(content_type) = content_type {
            request = request.header("Content-Type", content_type);
        }
        let reply = fetch(request.body(send("hi").to_string())).await;
        assert_eq!(reply.status, 415, "{content_type:?}");
        let error = &reply.json()["error"];
        assert_eq!(error["code"], 415, "{content_type:?}");
        assert_eq!(error["details"][0]["reason"], "CONTENT_TYPE_NOT_SUPPORTED", "{content_type:?}");
    }
}

#[tokio::test]
async fn refusals_have_one_shape() {
    let server = playing().await;
    let snapshot = |reply: &crate::support::Reply| {
        without_ids(json!({"status": reply.status.as_u16(), "body": reply.json()}))
    };
    let done = server.task("hi").await["id"].as_str().unwrap().to_owned();
    assert_json_snapshot!("unknown_task", snapshot(&server.rest("GET", "/tasks/none", None).await));
    assert_json_snapshot!(
        "not_cancelable",
        snapshot(&server.rest("POST", &format!("/tasks/{done}:cancel"), None).await)
    );
    assert_json_snapshot!(
        "bad_query",
        snapshot(&server.rest("GET", "/tasks?pageSize=0&historyLength=-1", None).await)
    );
    assert_json_snapshot!(
        "empty_message",
        snapshot(&server.rest("POST", "/message:send", Some(json!({}))).await)
    );
    assert_json_snapshot!("unknown_path", snapshot(&server.rest("GET", "/nowhere", None).await));
    assert_json_snapshot!("method_not_allowed", snapshot(&server.rest("DELETE", "/tasks", None).await));
    let version = fetch(server.bare(Method::GET, "/v1/tasks").header("A2A-Version", "2.0")).await;
    assert_json_snapshot!("version_not_supported", snapshot(&version));
}

#[tokio::test]
async fn what_is_nowhere_is_not_found_in_json() {
    let server = playing().await;
    for path in [
        "/v1",
        "/v1/",
        "/v1/nowhere",
        "/v1/a/b/c/d/e/f",
        "/v1/tasks/t/pushNotificationConfigs/c/more",
        "/v2/tasks",
        "/nowhere",
        "/v1/tasks/%ff",
        "/v1//tasks",
        "/V1/tasks",
        "/%2e%2e/etc",
    ] {
        let reply = fetch(server.http(Method::GET, path)).await;
        assert_eq!(reply.status, 404, "{path}");
        assert_eq!(
            (&reply.json()["error"]["code"], reply.header("content-type")),
            (&json!(404), "application/json"),
            "{path}"
        );
    }
    for path in ["/v1/message:explode", "/v1/tasks/t:explode", "/v1/tasks/t/cancel"] {
        assert_eq!(fetch(server.http(Method::POST, path)).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn other_methods_are_not_allowed_and_say_which_ones_are() {
    let server = playing().await;
    for (method, path, allow) in [
        ("GET", "/message:send", "POST"),
        ("PUT", "/message:stream", "POST"),
        ("POST", "/tasks", "GET"),
        ("DELETE", "/tasks/t", "GET"),
        ("PUT", "/tasks/t:cancel", "POST"),
        ("DELETE", "/tasks/t:subscribe", "GET, POST"),
        ("PUT", "/tasks/t/pushNotificationConfigs", "GET, POST"),
        ("POST", "/tasks/t/pushNotificationConfigs/c", "DELETE, GET"),
        ("POST", "/extendedAgentCard", "GET"),
        ("POST", "/acme/tasks", "GET"),
        ("OPTIONS", "/tasks", "GET"),
    ] {
        let reply = server.rest(method, path, None).await;
        assert_eq!((reply.status.as_u16(), reply.header("allow")), (405, allow), "{method} {path}");
        assert_eq!(reply.json()["error"]["code"], 405, "{method} {path}");
    }
}

#[tokio::test]
async fn queries_are_decoded_once_and_typed() {
    let server = playing().await;
    let mut params = send("hi");
    params["message"]["contextId"] = json!("a,b & c+d=%41");
    server.sent(params).await;
    for (query, found) in [
        ("contextId=a%2Cb%20%26%20c%2Bd%3D%2541", 1),
        ("contextId=a,b+%26+c%2Bd%3D%2541", 1),
        ("contextId=a", 0),
        ("contextId=true", 0),
        ("contextId=12", 0),
        ("contextId=", 1),
        ("status=TASK_STATE_COMPLETED", 1),
        ("status=TASK_STATE_WORKING", 0),
        ("status=TASK_STATE_UNSPECIFIED", 1),
        ("status=", 1),
        ("includeArtifacts=true&pageSize=1&historyLength=0", 1),
        ("future=1&flag", 1),
        ("&&pageSize=5&", 1),
    ] {
        let reply = server.rest("GET", &format!("/tasks?{query}"), None).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["totalSize"]), (200, &json!(found)), "{query}");
    }
}

#[tokio::test]
async fn a_plus_sign_in_a_time_is_an_offset_encoded_or_not() {
    let server = playing().await;
    server.task("hi").await;
    for (time, found) in [
        ("2001-01-01T00:00:00%2B02:00", 1),
        ("2001-01-01T00:00:00+02:00", 1),
        ("2001-01-01T00%3A00%3A00%2B02%3A00", 1),
        ("2999-01-01T00:00:00+02:00", 0),
    ] {
        let reply = server.rest("GET", &format!("/tasks?statusTimestampAfter={time}"), None).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["totalSize"]), (200, &json!(found)), "{time}");
    }
}

#[tokio::test]
async fn a_query_that_makes_no_sense_names_the_field() {
    let server = playing().await;
    for (query, field) in [
        ("pageSize=0", "pageSize"),
        ("pageSize=101", "pageSize"),
        ("pageSize=abc", "pageSize"),
        ("pageSize=1.5", "pageSize"),
        ("historyLength=-1", "historyLength"),
        ("status=TASK_STATE_RUNNING", "status"),
        ("status=completed", "status"),
        ("includeArtifacts=yes", "includeArtifacts"),
        ("includeArtifacts=1", "includeArtifacts"),
        ("statusTimestampAfter=yesterday", "statusTimestampAfter"),
        ("pageToken=garbage", "pageToken"),
        ("pageSize=1&pageSize=2", "pageSize"),
        ("status=TASK_STATE_FAILED&status=TASK_STATE_FAILED", "status"),
    ] {
        assert_eq!(fields(&server, "GET", &format!("/tasks?{query}"), None).await, [field], "{query}");
    }
    assert_eq!(server.rest("GET", "/tasks?contextId=%ff", None).await.status, 400);
    let both = fields(&server, "GET", "/tasks?pageSize=0&historyLength=-5", None).await;
    assert_eq!(both, ["pageSize", "historyLength"]);
}

#[tokio::test]
async fn path_query_and_body_must_not_contradict_each_other() {
    let server = playing().await;
    let id = waiting(&server).await;
    let with_tenant = |tenant: &str| {
        let mut params = send("hi");
        params["tenant"] = json!(tenant);
        Some(params)
    };
    assert_eq!(fields(&server, "POST", "/acme/message:send", with_tenant("other")).await, ["tenant"]);
    assert_eq!(fields(&server, "GET", "/acme/tasks?tenant=other", None).await, ["tenant"]);
    assert_eq!(fields(&server, "GET", &format!("/tasks/{id}?id=other"), None).await, ["id"]);
    assert_eq!(
        fields(&server, "POST", &format!("/tasks/{id}:cancel"), Some(json!({"id": "other"}))).await,
        ["id"]
    );
    let push = format!("/tasks/{id}/pushNotificationConfigs");
    let config = |member: &str| Some(json!({member: "other", "url": "https://example.com/"}));
    assert_eq!(fields(&server, "POST", &push, config("taskId")).await, ["taskId"]);
    assert_eq!(fields(&server, "POST", &push, config("task_id")).await, ["taskId"]);

    assert_eq!(server.rest("POST", "/acme/message:send", with_tenant("acme")).await.status, 200);
    assert_eq!(server.rest("POST", "/acme/message:send", with_tenant("")).await.status, 200);
    assert_eq!(server.rest("GET", &format!("/tasks/{id}?id={id}"), None).await.status, 200);
}

#[tokio::test]
async fn ids_are_percent_decoded_and_may_hold_colons() {
    let server = playing().await;
    for (path, id) in [
        ("/tasks/a%20b", "a b"),
        ("/tasks/a%2Fb", "a/b"),
        ("/tasks/a:b", "a:b"),
        ("/tasks/a%3Asubscribe", "a:subscribe"),
        ("/tasks/a+b", "a+b"),
        ("/tasks/%C3%A9", "\u{e9}"),
        ("/tasks/t/", "t"),
        ("/tasks/t:subscribe", "t"),
        ("/tasks/a:b:subscribe", "a:b"),
    ] {
        let reply = server.rest("GET", path, None).await;
        assert_eq!(reply.status, 404, "{path}");
        assert_eq!(reply.json()["error"]["details"][0]["metadata"]["taskId"], *id, "{path}");
    }
    let encoded = waiting(&server).await.replace('-', "%2D");
    assert_eq!(server.rest("GET", &format!("/tasks/{encoded}"), None).await.status, 200);
    assert_eq!(
        server.rest("POST", &format!("/tasks/{encoded}%3Acancel"), None).await.status,
        405,
        "not a verb"
    );
    assert_eq!(server.rest("POST", &format!("/tasks/{encoded}:cancel"), None).await.status, 200);
}

#[tokio::test]
async fn a_task_is_canceled_with_any_kind_of_empty_body() {
    let server = playing().await;
    for (content_type, body) in [
        (None, ""),
        (Some("application/json"), ""),
        (Some("application/json"), " \n"),
        (Some("text/plain"), ""),
        (Some("application/a2a+json"), "{}"),
        (Some("application/json"), r#"{"metadata":{"why":"late"}}"#),
        (Some("application/json"), r#"{"metadata":null,"tenant":""}"#),
    ] {
        let id = waiting(&server).await;
        let mut request = server.http(Method::POST, &format!("/v1/tasks/{id}:cancel"));
        if let Some(content_type) = content_type {
            request = request.header("Content-Type", content_type);
        }
        let reply = fetch(request.body(body)).await;
        assert_eq!(reply.status, 200, "{content_type:?} {body:?}: {reply:?}");
        assert_eq!(reply.json()["status"]["state"], "TASK_STATE_CANCELED");
    }
    for body in ["[]", "{", "null", "7", r#"{"metadata":[]}"#] {
        let id = waiting(&server).await;
        let request = server.http(Method::POST, &format!("/v1/tasks/{id}:cancel"));
        let request = request.header("Content-Type", "application/json").body(body);
        assert_eq!(fetch(request).await.status, 400, "{body}");
    }
}

#[tokio::test]
async fn the_binding_may_have_the_root_for_itself() {
    let server = serve(player().options(|options| options.paths.http_json = Some(String::new()))).await;
    for (path, status) in
        [("/tasks", 200), ("/acme/tasks", 200), ("/v1/tasks", 200), ("/nowhere", 404), ("/health", 200)]
    {
        assert_eq!(fetch(server.http(Method::GET, path)).await.status, status, "{path}");
    }
    let card: Value = fetch(server.bare(Method::GET, "/.well-known/agent-card.json")).await.json();
    assert_eq!(card["supportedInterfaces"][1]["url"], server.base);
    assert_eq!(server.rpc("ListTasks", json!({})).await["result"]["totalSize"], 0);
}

#[tokio::test]
async fn the_binding_can_be_switched_off() {
    let server = serve(player().options(|options| options.paths.http_json = None)).await;
    assert_eq!(fetch(server.http(Method::GET, "/v1/tasks")).await.status, 404);
    let card: Value = fetch(server.bare(Method::GET, "/.well-known/agent-card.json")).await.json();
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    assert!(interfaces.iter().all(|interface| interface["protocolBinding"] != "HTTP+JSON"), "{interfaces:?}");
    assert_eq!(server.rpc("ListTasks", json!({})).await["result"]["totalSize"], 0);
}
