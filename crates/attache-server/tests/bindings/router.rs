//! The routes inside an axum application of someone's own.

use attache_core::Principal;
use attache_server::Server;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Binding, Running, Sse, adopt, card, fetch, player, send};

/// Trusts the name that a caller gives. A real application would verify a token here.
async fn who(mut request: Request, next: Next) -> Response {
    let name = request.headers().get("x-user").and_then(|value| value.to_str().ok()).map(str::to_owned);
    if let Some(name) = name {
        request.extensions_mut().insert(Principal::named(name));
    }
    next.run(request).await
}

/// An application with routes of its own and an agent.
async fn app() -> Running {
    let agent = player().extended_card(card().version("9.0.0")).into_router("https://example.com").unwrap();
    let own = Router::new().route("/own", get(async || "mine")).route("/v2/tasks", get(async || "mine too"));
    let app = own.merge(agent).layer(middleware::from_fn(who)).fallback(async || "nothing of anyone's");
    adopt(app).await
}

async fn as_user(
    server: &Running,
    user: &str,
    binding: Binding,
    operation: &str,
    params: Value,
) -> Result<Value, String> {
    let answer = server.ask(operation, params).header("x-user", user).over(binding).await;
    answer.result.map_err(|refusal| format!("{} {} {:?}", refusal.reason, refusal.message, refusal.metadata))
}

#[tokio::test]
async fn all_bindings_answer_inside_an_application() {
    let server = app().await;
    for binding in Binding::ALL {
        let sent = as_user(&server, "ada", binding, "SendMessage", send("hi")).await.unwrap();
        assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{binding:?}");
        let events = as_user(&server, "ada", binding, "SendStreamingMessage", send("chunks")).await.unwrap();
        assert_eq!(events.as_array().unwrap().len(), 6, "{binding:?}");
    }
    let card = fetch(server.bare(Method::GET, "/.well-known/agent-card.json")).await.json();
    assert_eq!(card["supportedInterfaces"][0]["url"], "https://example.com/a2a");
    assert_eq!(fetch(server.bare(Method::GET, "/health")).await.status, 200);
    for path in ["/a2a", "/a2a/", "/", "/v1/rpc", "/v1/rpc/"] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"});
        let reply = fetch(server.http(Method::POST, path).json(&body)).await;
        assert_eq!(reply.json()["result"]["totalSize"], 0, "{path}");
    }
}

#[tokio::test]
async fn the_applications_own_routes_stay_its_own() {
    let server = app().await;
    for (path, text) in [("/own", "mine"), ("/v2/tasks", "mine too"), ("/nowhere", "nothing of anyone's")] {
        assert_eq!(fetch(server.http(Method::GET, path)).await.body, text, "{path}");
    }
}

#[tokio::test]
async fn an_application_keeps_its_root_when_the_agent_does_not_need_it() {
    let agent = player()
        .options(|options| options.paths.jsonrpc = vec!["/rpc".to_owned()])
        .into_router("http://x")
        .unwrap();
    let server = adopt(Router::new().route("/", get(async || "home")).merge(agent)).await;
    assert_eq!(fetch(server.bare(Method::GET, "/")).await.body, "home");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"});
    assert_eq!(fetch(server.http(Method::POST, "/rpc").json(&body)).await.json()["result"]["totalSize"], 0);
}

#[tokio::test]
async fn an_agent_may_live_below_a_path() {
    let agent = player().into_router("http://x/agents/one").unwrap();
    let server = adopt(Router::new().nest("/agents/one", agent)).await;
    assert_eq!(fetch(server.http(Method::GET, "/agents/one/v1/tasks")).await.status, 200);
    let card = fetch(server.bare(Method::GET, "/agents/one/.well-known/agent-card.json")).await.json();
    assert_eq!(card["supportedInterfaces"][1]["url"], "http://x/agents/one/v1");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"});
    let reply = fetch(server.http(Method::POST, "/agents/one/a2a").json(&body)).await;
    assert_eq!(reply.json()["result"]["totalSize"], 0);
}

#[tokio::test]
async fn someone_elses_task_looks_exactly_like_one_that_never_was() {
    let server = app().await;
    let task =
        as_user(&server, "ada", Binding::JsonRpc, "SendMessage", send("ask")).await.unwrap()["task"].clone();
    let id = task["id"].as_str().unwrap().to_owned();
    let never = "00000000-0000-7000-8000-000000000000";
    for binding in Binding::ALL {
        for operation in ["GetTask", "CancelTask", "SubscribeToTask"] {
            let theirs = as_user(&server, "eve", binding, operation, json!({"id": id})).await.unwrap_err();
            let nobodys =
                as_user(&server, "eve", binding, operation, json!({"id": never})).await.unwrap_err();
            assert_eq!(theirs.replace(&id, never), nobodys, "{operation} {binding:?}");
        }
        for operation in ["SendMessage", "SendStreamingMessage"] {
            let to = |id: &str| {
                let mut params = send("mine?");
                params["message"]["taskId"] = json!(id);
                params["message"]["contextId"] = task["contextId"].clone();
                params
            };
            let theirs = as_user(&server, "eve", binding, operation, to(&id)).await.unwrap_err();
            let nobodys = as_user(&server, "eve", binding, operation, to(never)).await.unwrap_err();
            assert_eq!(theirs.replace(&id, never), nobodys, "{operation} {binding:?}");
        }
        for (operation, more) in [
            ("CreateTaskPushNotificationConfig", json!({"url": "https://example.com/"})),
            ("GetTaskPushNotificationConfig", json!({"id": "c"})),
            ("ListTaskPushNotificationConfigs", json!({})),
            ("DeleteTaskPushNotificationConfig", json!({"id": "c"})),
        ] {
            let of = |id: &str| {
                let mut params = more.clone();
                params["taskId"] = json!(id);
                params
            };
            let theirs = as_user(&server, "eve", binding, operation, of(&id)).await.unwrap_err();
            let nobodys = as_user(&server, "eve", binding, operation, of(never)).await.unwrap_err();
            assert_eq!(theirs.replace(&id, never), nobodys, "{operation} {binding:?}");
        }
    }
    let still = as_user(&server, "ada", Binding::Grpc, "GetTask", json!({"id": id})).await.unwrap();
    assert_eq!(still["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
}

#[tokio::test]
async fn listings_and_contexts_end_at_the_caller() {
    let server = app().await;
    let mut params = send("hi");
    params["message"]["contextId"] = json!("shared");
    for user in ["ada", "ada", "bob"] {
        as_user(&server, user, Binding::HttpJson, "SendMessage", params.clone()).await.unwrap();
    }
    for binding in Binding::JSON {
        for filter in [json!({}), json!({"contextId": "shared"})] {
            for (user, size) in [("ada", 2), ("bob", 1), ("eve", 0)] {
                let page = as_user(&server, user, binding, "ListTasks", filter.clone()).await.unwrap();
                assert_eq!(page["totalSize"], size, "{user} {binding:?} {filter}");
            }
        }
        let page = as_user(&server, "ada", binding, "ListTasks", json!({"pageSize": 1})).await.unwrap();
        let next = json!({"pageSize": 1, "pageToken": page["nextPageToken"]});
        assert!(as_user(&server, "ada", binding, "ListTasks", next.clone()).await.is_ok());
        let stolen = as_user(&server, "bob", binding, "ListTasks", next).await.unwrap_err();
        assert!(stolen.starts_with("INVALID_PARAMS"), "{stolen}");
    }
    assert_eq!(server.rpc("ListTasks", json!({})).await["result"]["totalSize"], 0, "nobody in particular");
}

#[tokio::test]
async fn keys_of_different_callers_do_not_meet() {
    let server = app().await;
    let params = send("hi");
    let mut ids = Vec::new();
    for user in ["ada", "bob"] {
        let ask =
            server.ask("SendMessage", params.clone()).header("x-user", user).header("Idempotency-Key", "k");
        ids.push(ask.ok(Binding::JsonRpc).await["task"]["id"].clone());
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn the_extended_card_is_for_those_who_are_known() {
    let server = app().await;
    for binding in Binding::ALL {
        let card = as_user(&server, "ada", binding, "GetExtendedAgentCard", json!({})).await.unwrap();
        assert_eq!(card["version"], "9.0.0", "{binding:?}");
        assert_eq!(
            server.ask("GetExtendedAgentCard", json!({})).refused(binding).await.reason,
            "UNAUTHENTICATED"
        );
    }
}

#[tokio::test]
async fn a_stream_through_an_application_comes_as_it_happens() {
    let (agent, mut stage) = crate::support::stage();
    let server = adopt(
        Server::new(agent).card(card()).into_router("http://x").unwrap().layer(middleware::from_fn(who)),
    )
    .await;
    let request = server.http(Method::POST, "/v1/message:stream").json(&send("go"));
    let opened = tokio::spawn(Sse::open(request));
    let act = stage.turn().await;
    act.working("now").await;
    let mut stream = opened.await.unwrap();
    assert!(stream.event().await["task"].is_object());
    assert!(stream.event().await["statusUpdate"].is_object());
    act.complete().await;
    assert_eq!(stream.rest().await.len(), 1);
}
