//! Settings of one named agent that differ from those of the server, and secrets that change.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::home::Home;
use crate::model;
use crate::support::{Program, until};

async fn card(url: &str) -> Value {
    let request = reqwest::Client::new().get(format!("{url}/.well-known/agent-card.json"));
    let response = request.header("A2A-Version", "1.0").send().await.expect("the server answers");
    response.json().await.expect("a card")
}

fn schemes(card: &Value) -> Vec<&str> {
    let schemes = card["securitySchemes"].as_object().expect("schemes");
    let required: Vec<_> = card["securityRequirements"]
        .as_array()
        .expect("requirements")
        .iter()
        .flat_map(|requirement| requirement["schemes"].as_object().expect("schemes").keys())
        .collect();
    let names: Vec<_> = schemes.keys().map(String::as_str).collect();
    assert_eq!(required, names, "{card}");
    names
}

/// The URLs of a binding in a card.
fn urls<'a>(card: &'a Value, binding: &str) -> Vec<&'a str> {
    let interfaces = card["supportedInterfaces"].as_array().expect("interfaces").iter();
    let current = interfaces.filter(|it| it["protocolBinding"] == binding && it["protocolVersion"] != "0.3");
    current.filter_map(|interface| interface["url"].as_str()).collect()
}

const CARDS: &str = r#"
listen: 127.0.0.1:0
store: memory
agent: own
auth:
  require: all
  bearer: [{ name: alice, token: the-token-of-alice-is-long }]
  basic: [{ name: bob, password: the-password-of-bob }]
card: { schemes: { bearer: token }, grpc: hidden, transports: hidden }
agents:
  own:
    echo: true
    card: { schemes: { basic: password }, grpc: host-port, transports: all }
  same: { echo: true }
"#;

#[tokio::test]
async fn a_named_agent_has_its_own_names_of_schemes_and_its_own_interfaces_in_its_card() {
    let home = Home::new();
    let file = home.file("attache.yml", CARDS);
    let (server, _) = Program::command(&["serve", "--config", &file]).await;
    let same = card(&format!("{}/agents/same", server.url)).await;
    assert_eq!(schemes(&same), ["basicAuth", "token"]);
    assert!(urls(&same, "GRPC").is_empty() && urls(&same, "websocket").is_empty(), "{same}");
    let address = server.url.trim_start_matches("http://");
    for url in [server.url.clone(), format!("{}/agents/own", server.url)] {
        let own = card(&url).await;
        assert_eq!(schemes(&own), ["password", "token"], "{url}");
        assert_eq!(urls(&own, "GRPC"), [address], "{url}");
        assert_eq!(urls(&own, "websocket").len(), 1, "{own}");
    }
}

#[tokio::test]
async fn two_schemes_with_one_name_in_a_named_agent_are_refused_with_the_line() {
    let home = Home::new();
    let file = home.file("attache.yml", &CARDS.replace("basic: password }, grpc", "basic: token }, grpc"));
    let checked = home.run(&["config", "check", "--config", &file]).await;
    assert_eq!(checked.code, Some(2), "{checked}");
    assert!(checked.stderr.contains("two kinds of schemes are called `token`"), "{checked}");
    assert!(checked.stderr.contains("agents.own.card.schemes"), "{checked}");
}

/// An MCP server, and what callers have shown it.
async fn mcp_server() -> (String, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let app = Router::new().route("/mcp", post(mcp_message)).with_state(seen.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("it has an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, seen)
}

async fn mcp_message(
    State(seen): State<Arc<Mutex<Vec<String>>>>,
    headers: HeaderMap,
    Json(message): Json<Value>,
) -> Response {
    let shown = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    seen.lock().expect("it is not poisoned").push(shown.to_owned());
    let result = match message["method"].as_str() {
        Some("initialize") => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "tools", "version": "1"}}),
        Some("tools/list") => json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
        Some(_) | None => return StatusCode::ACCEPTED.into_response(),
    };
    Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
}

#[tokio::test]
async fn a_secret_that_changes_in_its_file_is_used_after_a_reload() {
    let home = Home::new();
    let (model, (tools, seen)) = (model::start().await, mcp_server().await);
    let (key, token) = (home.file("key", "an old key"), home.file("token", "old"));
    let settings = format!(
        r#"
listen: 127.0.0.1:0
store: memory
agent: echo
agents:
  talk: {{ model: {{ url: '{model}', name: small, key-file: '{key}', retries: 0 }} }}
  tools: {{ mcp: {{ url: '{tools}', token-file: '{token}' }} }}
  other: {{ echo: true }}
"#
    );
    let file = home.file("attache.yml", &settings);
    let (server, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
    let shown = |token: &str| {
        seen.lock().expect("it is not poisoned").iter().any(|shown| *shown == format!("Bearer {token}"))
    };
    assert!(shown("old") && !shown("new"));
    let talk = async || {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message":
            {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}});
        let request = reqwest::Client::new().post(format!("{}/agents/talk/a2a", server.url));
        let response = request.header("A2A-Version", "1.0").json(&body).send().await.expect("an answer");
        response.json::<Value>().await.expect("JSON")["result"]["task"].clone()
    };
    assert_eq!(talk().await["status"]["state"], "TASK_STATE_FAILED");

    home.file("key", model::KEY);
    home.file("token", "new");
    server.hang_up().await;
    let mut changed = [log.line_with("changed an agent").await, log.line_with("changed an agent").await];
    changed.sort();
    assert!(changed[0].contains("talk") || changed[1].contains("talk"), "{changed:?}");
    assert!(changed.iter().all(|line| !line.contains("other")), "{changed:?}");
    tokio::spawn(log.skip());
    until("the model has the new key", async || talk().await["status"]["state"] == "TASK_STATE_COMPLETED")
        .await;
    until("the MCP server was shown the new token", async || shown("new")).await;
}
