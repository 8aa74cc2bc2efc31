//! `attache login --mcp`, and `attache serve --mcp URL` with the tokens that it stored.

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::browser::Consent;
use crate::command::{kept, login};
use crate::home::Home;
use crate::peers::{Process, keep};
use crate::provider::{Provider, absent, introspect};

/// An MCP server with one tool, which says who calls it.
struct Tools {
    url: String,
    seen: Arc<Seen>,
}

struct Seen {
    issuer: String,
    base: String,
    /// The tokens that it was shown.
    tokens: Mutex<Vec<String>>,
}

impl Tools {
    async fn start(provider: &Provider) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base = format!("http://{}", listener.local_addr().expect("it has an address"));
        let seen =
            Arc::new(Seen { issuer: provider.issuer.clone(), base: base.clone(), tokens: Mutex::default() });
        let app = Router::new()
            .route("/mcp", post(message))
            .route("/.well-known/oauth-protected-resource/mcp", get(metadata))
            .with_state(seen.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url: format!("{base}/mcp"), seen }
    }

    fn tokens(&self) -> usize {
        let mut tokens = self.seen.tokens.lock().expect("nobody panics with it").clone();
        tokens.dedup();
        tokens.len()
    }
}

async fn metadata(State(seen): State<Arc<Seen>>) -> Json<Value> {
    Json(
        json!({"resource": format!("{}/mcp", seen.base), "authorization_servers": [seen.issuer], "scopes_supported": ["ask"]}),
    )
}

async fn message(State(seen): State<Arc<Seen>>, headers: HeaderMap, Json(message): Json<Value>) -> Response {
    let value = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let token = value.strip_prefix("Bearer ").unwrap_or_default();
    let known = match token {
        "" => Value::Null,
        token => {
            seen.tokens.lock().expect("nobody panics with it").push(token.to_owned());
            introspect(&seen.issuer, token).await
        }
    };
    // The token must be for this server.
    if known["active"] != true || known["aud"] != format!("{}/mcp", seen.base) {
        let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", seen.base);
        let challenge = format!("Bearer resource_metadata=\"{metadata}\"");
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
    }
    let result = match message["method"].as_str() {
        Some("initialize") => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "tools", "version": "1"}}),
        Some("tools/list") => json!({"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]}),
        Some("tools/call") => {
            let who = known["sub"].as_str().or(known["client_id"].as_str()).unwrap_or_default();
            json!({"content": [{"type": "text", "text": format!("hello {who}")}]})
        }
        Some(_) | None => return StatusCode::ACCEPTED.into_response(),
    };
    Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
}

/// Serves the tools, and returns the URL of the agent.
async fn serve(home: &Home, tools: &Tools) -> (Process, String) {
    let arguments = ["serve", "--mcp", &tools.url, "--listen", "127.0.0.1:0", "--store", "memory:"];
    let mut command = home.command(&arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Process::start("attache serve", command);
    let url =
        server.heard("where it listens", |line| line.strip_prefix("Listening on ").map(str::to_owned)).await;
    (server, url)
}

async fn says(home: &Home, url: &str, expected: &str) {
    let said = home.run(&["send", url, "whoami {}"]).await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), expected), "{said}");
}

#[test]
fn a_person_logs_in_to_an_mcp_server_and_the_tokens_are_used_and_renewed() {
    keep("a_person_logs_in_to_an_mcp_server_and_the_tokens_are_used_and_renewed", absent(), async {
        let provider = Provider::start().await;
        let (home, tools) = (Home::new(), Tools::start(&provider).await);
        let refused = home.run(&["serve", "--mcp", &tools.url, "--listen", "127.0.0.1:0"]).await;
        assert_ne!(refused.code, Some(0), "{refused}");
        let hint = format!("attache login --mcp {}", tools.url);
        assert!(refused.stderr.contains("requires a login") && refused.stderr.contains(&hint), "{refused}");

        let arguments = ["login", "--mcp", &tools.url, "--client-id", "laptop", "--no-browser"];
        let unsure = home.run(&arguments).await;
        assert!(unsure.stderr.contains("the MCP server wants you to log in at"), "{unsure}");
        let agreed = [&arguments[..], &["--server", &provider.issuer]].concat();
        let ran = login(&home, &agreed, Consent::Give).await;
        assert!(ran.code == Some(0) && ran.stderr.contains("logged in at"), "{ran}");
        let (_server, agent) = serve(&home, &tools).await;
        says(&home, &agent, "hello ann\n").await;
        let before = tools.tokens();
        provider.revoke(&kept(&home, "accessToken")).await;
        says(&home, &agent, "hello ann\n").await;
        assert_eq!(tools.tokens(), before + 1, "the token was renewed");

        let other = home.run(&["logout", &tools.url]).await;
        assert!(other.stderr.contains("there was no login"), "a login to an agent is another one: {other}");
        let access = kept(&home, "accessToken");
        let out = home.run(&["logout", "--mcp", &tools.url]).await;
        assert!(out.code == Some(0) && out.stderr.contains("logged out of the MCP server"), "{out}");
        assert_eq!(introspect(&provider.issuer, &access).await["active"], false);
        assert_ne!(home.run(&["serve", "--mcp", &tools.url, "--listen", "127.0.0.1:0"]).await.code, Some(0));
    });
}

#[test]
fn a_person_without_a_client_id_logs_in_with_a_client_that_is_registered() {
    keep("a_person_without_a_client_id_logs_in_with_a_client_that_is_registered", absent(), async {
        let provider = Provider::start().await;
        let (home, tools) = (Home::new(), Tools::start(&provider).await);
        let arguments =
            ["login", "--mcp", &tools.url, "--server", &provider.issuer, "--no-browser", "--json"];
        let ran = login(&home, &arguments, Consent::Give).await;
        assert_eq!(ran.code, Some(0), "{ran}");
        let shown: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert!(shown["client"].as_str().is_some_and(|client| !client.is_empty()), "{ran}");
        let (_server, agent) = serve(&home, &tools).await;
        says(&home, &agent, "hello ann\n").await;
    });
}

#[test]
fn a_person_logs_in_to_an_mcp_server_with_a_code() {
    keep("a_person_logs_in_to_an_mcp_server_with_a_code", absent(), async {
        let provider = Provider::start().await;
        let (home, tools) = (Home::new(), Tools::start(&provider).await);
        let arguments =
            ["login", "--mcp", &tools.url, "--client-id", "laptop", "--server", &provider.issuer, "--device"];
        let ran = login(&home, &arguments, Consent::Give).await;
        assert_eq!(ran.code, Some(0), "{ran}");
        let (_server, agent) = serve(&home, &tools).await;
        says(&home, &agent, "hello ann\n").await;
    });
}
