//! Who may come in: on every binding the same, for every operation, before anything else is looked at.

use std::sync::Arc;

use attache_core::{Identity, Turn, agent_fn};
use attache_protocol::{ApiKeySecurityScheme, SecurityScheme};
use attache_server::Server;
use attache_server::auth::{Authenticator, Denied, Head, KeyPlace, KnownCallers, Verdict, authenticator_fn};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Binding, Running, card, fetch, player, send, serve};

const ALICE: &str = "Bearer t0ken-of-alice";
const BOB: &str = "Bearer t0ken-of-bob";

async fn guarded() -> Running {
    let callers = KnownCallers::new()
        .bearer("alice", "t0ken-of-alice")
        .bearer("bob", "t0ken-of-bob")
        .basic("ops", "pa55word")
        .api_key("ci", KeyPlace::Header("X-API-Key".to_owned()), "k3y");
    serve(player().extended_card(card().version("7.0.0")).authenticate(callers)).await
}

/// Every operation, for a task that waits for an answer.
pub(crate) fn operations(task: &Value) -> Vec<(&'static str, Value)> {
    let mut more = send("more");
    more["message"]["taskId"] = task.clone();
    vec![
        ("SendMessage", more.clone()),
        ("SendStreamingMessage", more),
        ("GetTask", json!({"id": task})),
        ("ListTasks", json!({})),
        ("SubscribeToTask", json!({"id": task})),
        (
            "CreateTaskPushNotificationConfig",
            json!({"taskId": task, "id": "w", "url": "https://example.com"}),
        ),
        ("GetTaskPushNotificationConfig", json!({"taskId": task, "id": "w"})),
        ("ListTaskPushNotificationConfigs", json!({"taskId": task})),
        ("DeleteTaskPushNotificationConfig", json!({"taskId": task, "id": "w"})),
        ("GetExtendedAgentCard", json!({})),
        ("CancelTask", json!({"id": task})),
    ]
}

/// A task of Alice's that waits for an answer.
async fn asking(server: &Running) -> Value {
    let sent =
        server.ask("SendMessage", send("ask")).header("Authorization", ALICE).ok(Binding::JsonRpc).await;
    sent["task"]["id"].clone()
}

#[tokio::test]
async fn every_binding_requires_a_valid_credential() {
    let server = guarded().await;
    let task = asking(&server).await;
    for credential in
        [None, Some("Bearer wrong"), Some("Bearer "), Some("Basic b3BzOndyb25n"), Some("t0ken-of-alice")]
    {
        for (operation, params) in operations(&task) {
            for binding in Binding::ALL {
                let ask = server.ask(operation, params.clone());
                let ask = credential.into_iter().fold(ask, |ask, value| ask.header("Authorization", value));
                let refusal = ask.refused(binding).await;
                let code = if binding == Binding::Grpc { 16 } else { 401 };
                assert_eq!(refusal.code, code, "{credential:?} {operation} {binding:?}: {refusal:?}");
                if binding != Binding::Grpc {
                    assert_eq!(refusal.message, "Unauthorized");
                    let challenges = "Bearer realm=\"a2a\", Basic realm=\"a2a\", charset=\"UTF-8\", ApiKey realm=\"a2a\", in=\"header\", name=\"X-API-Key\"";
                    assert_eq!(refusal.status, challenges);
                }
            }
        }
    }
    let now = server.ask("GetTask", json!({"id": task})).header("Authorization", ALICE);
    assert_eq!(now.ok(Binding::JsonRpc).await["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
}

#[tokio::test]
async fn what_belongs_to_one_does_not_exist_for_another() {
    let server = guarded().await;
    let task = asking(&server).await;
    for binding in Binding::ALL {
        for (operation, params) in operations(&task) {
            let answer = server.ask(operation, params).header("Authorization", BOB).over(binding).await;
            match operation {
                "ListTasks" => assert_eq!(answer.unwrap()["totalSize"].as_i64().unwrap_or_default(), 0),
                "GetExtendedAgentCard" => assert_eq!(answer.unwrap()["version"], "7.0.0"),
                _ => {
                    let refusal = answer.result.expect_err(operation);
                    assert_eq!(refusal.reason, "TASK_NOT_FOUND", "{operation} {binding:?}: {refusal:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_authenticated_caller_is_admitted_on_every_binding() {
    let server = guarded().await;
    let basic = "Basic b3BzOnBhNTV3b3Jk";
    for (name, value) in [("Authorization", ALICE), ("Authorization", basic), ("X-API-Key", "k3y")] {
        for binding in Binding::ALL {
            let sent = server.ask("SendMessage", send("hi")).header(name, value).ok(binding).await;
            let task = sent["task"]["id"].clone();
            let read = server.ask("GetTask", json!({"id": task})).header(name, value);
            assert_eq!(
                read.ok(binding).await["status"]["state"],
                "TASK_STATE_COMPLETED",
                "{name} {binding:?}"
            );
        }
    }
}

#[tokio::test]
async fn older_dialects_are_asked_too() {
    let server = guarded().await;
    for (path, body) in [
        ("/a2a", json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "t"}})),
        ("/a2a/rpc", json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": {"id": "t"}})),
        ("/", json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {}})),
        ("/v1/message:send", json!({"message": {"content": [{"text": "hi"}]}})),
    ] {
        let reply = fetch(server.bare(Method::POST, path).json(&body)).await;
        assert_eq!((reply.status.as_u16(), reply.json()), (401, json!({"error": "Unauthorized"})), "{path}");
    }
    assert_eq!(fetch(server.bare(Method::GET, "/v1/card")).await.status, 401);
}

#[tokio::test]
async fn the_card_says_what_is_asked_for_and_is_there_for_everyone() {
    let server = guarded().await;
    let read = async |server: &Running, path: &str| fetch(server.http(Method::GET, path)).await;
    let card = read(&server, "/.well-known/agent-card.json").await.json();
    assert_eq!(card["securitySchemes"]["bearerAuth"]["httpAuthSecurityScheme"]["scheme"], "Bearer");
    assert_eq!(card["securitySchemes"]["apiKeyAuth"]["apiKeySecurityScheme"]["name"], "X-API-Key");
    let alternatives = json!([{"schemes": {"bearerAuth": {}}}, {"schemes": {"basicAuth": {}}}, {"schemes": {"apiKeyAuth": {}}}]);
    assert_eq!(card["securityRequirements"], alternatives);
    assert_eq!(read(&server, "/health").await.status, 200);

    let closed = player().authenticate(KnownCallers::new().bearer("alice", "t0ken-of-alice"));
    let closed = closed.options(|options| (options.public_card, options.public_health) = (false, false));
    let closed = serve(closed).await;
    for path in ["/.well-known/agent-card.json", "/.well-known/agent.json", "/health", "/ready"] {
        assert_eq!(read(&closed, path).await.status, 401, "{path}");
        let known = fetch(closed.http(Method::GET, path).header("Authorization", ALICE)).await;
        assert_eq!(known.status, 200, "{path}");
    }
}

/// Knows people by a header, and takes a while.
struct Doorman;

impl Authenticator for Doorman {
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a> {
        let name = head.headers.get("x-name").and_then(|name| name.to_str().ok());
        Verdict::Later(Box::pin(async move {
            tokio::task::yield_now().await;
            match name {
                None => Err(Denied::Missing),
                Some("mallory") => Err(Denied::Forbidden("mallory is not welcome".to_owned())),
                Some("nobody") => Err(Denied::Unavailable("the register is closed".to_owned())),
                Some(name) => Ok(Identity::named(Arc::<str>::from(name))),
            }
        }))
    }

    fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        Vec::new()
    }

    fn challenges(&self) -> Vec<String> {
        vec!["Name".to_owned()]
    }
}

#[tokio::test]
async fn who_comes_in_can_be_decided_by_others() {
    let server = serve(player().authenticate(Doorman)).await;
    for (name, http, grpc) in [("mallory", 403, 7), ("nobody", 503, 14)] {
        for binding in Binding::ALL {
            let refusal = server.ask("ListTasks", json!({})).header("X-Name", name).refused(binding).await;
            let code = if binding == Binding::Grpc { grpc } else { http };
            assert_eq!(refusal.code, code, "{name} {binding:?}");
            assert!(!refusal.message.contains("welcome"), "the reason is for the log: {refusal:?}");
        }
    }
    for binding in Binding::ALL {
        server.ask("SendMessage", send("hi")).header("X-Name", "ann").ok(binding).await;
    }
    let listed = server.ask("ListTasks", json!({})).header("X-Name", "ann").ok(Binding::JsonRpc).await;
    assert_eq!(listed["totalSize"], 3);
}

/// Lets in who is on this machine.
struct Neighbours;

impl Authenticator for Neighbours {
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a> {
        match head.peer.and_then(|peer| peer.address) {
            Some(address) if address.ip().is_loopback() => Verdict::Known(Identity::named("neighbour")),
            Some(_) | None => Verdict::Denied(Denied::Missing),
        }
    }

    fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        Vec::new()
    }

    fn challenges(&self) -> Vec<String> {
        Vec::new()
    }
}

#[tokio::test]
async fn an_authenticator_sees_where_a_request_comes_from() {
    let server = serve(player().authenticate(Neighbours)).await;
    for binding in Binding::ALL {
        server.ask("ListTasks", json!({})).ok(binding).await;
    }
}

#[tokio::test]
async fn a_fallback_is_for_whom_its_access_says_and_sees_no_credential() {
    use attache_server::FallbackAccess;

    let callers = KnownCallers::new().bearer("alice", "t0ken-of-alice");
    let server = player().authenticate(callers).fallback_access(|head| match head.uri.path() {
        "/callers" => FallbackAccess::Callers,
        "/everyone" => FallbackAccess::Everyone,
        _ => FallbackAccess::Own,
    });
    let server = server.fallback(async |request: http::Request<attache_server::BoxBody>| {
        let shown = request.headers().get("authorization").map_or("nothing", |value| value.to_str().unwrap());
        Some(http::Response::new(http_body_util::Full::<bytes::Bytes>::from(shown.to_owned())))
    });
    let server = serve(server).await;
    let get = async |path: &str, credential: Option<&str>| {
        let request = reqwest::Client::new().get(format!("{}{path}", server.base));
        let request =
            credential.into_iter().fold(request, |request, value| request.header("authorization", value));
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!(get("/callers", None).await.0, 401);
    assert_eq!(get("/callers", Some("Bearer wrong")).await.0, 401);
    assert_eq!(get("/callers", Some(ALICE)).await, (200, "nothing".to_owned()));
    assert_eq!(get("/everyone", None).await, (200, "nothing".to_owned()));
    assert_eq!(get("/everyone", Some(ALICE)).await, (200, "nothing".to_owned()));
    assert_eq!(get("/own", Some(ALICE)).await, (200, ALICE.to_owned()));
}

#[tokio::test]
async fn a_closure_authenticates_and_its_metadata_reaches_the_agent() {
    let scheme = SecurityScheme::ApiKey(ApiKeySecurityScheme {
        location: "header".to_owned(),
        name: "X-Session".to_owned(),
        ..ApiKeySecurityScheme::default()
    });
    let callers = authenticator_fn("session", scheme, |headers: http::HeaderMap| async move {
        match headers.get("x-session").map(http::HeaderValue::as_bytes) {
            Some(b"of-ann") => Ok(Identity::named("ann").metadata("team", "red")),
            Some(_) => Err(Denied::Wrong("unknown session".to_owned())),
            None => Err(Denied::Missing),
        }
    });
    let agent = agent_fn(|turn: Turn| async move {
        let team = turn.caller().metadata.get("team").map(ToString::to_string).unwrap_or_default();
        turn.artifact("team").text(team).await?;
        turn.complete().await
    });
    let server = serve(Server::new(agent).authenticate(callers)).await;
    let sent = |session: &'static str| server.ask("SendMessage", send("hi")).header("X-Session", session);
    for binding in Binding::ALL {
        let task = sent("of-ann").ok(binding).await["task"].clone();
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], "\"red\"", "{binding:?}");
    }
    let body = send("hi");
    let denied = server.http(Method::POST, "/v1/message:send").json(&body).header("X-Session", "of-bob");
    assert_eq!(fetch(denied).await.status, 401);
    let card: Value = fetch(server.bare(Method::GET, "/.well-known/agent-card.json")).await.json();
    assert_eq!(card["securitySchemes"]["session"]["apiKeySecurityScheme"]["name"], "X-Session");
}
