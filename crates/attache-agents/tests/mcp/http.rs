//! Streamable HTTP, with a scripted server.

use std::sync::Arc;
use std::time::Duration;

use attache_agents::mcp::{CallError, Mcp, McpOptions, McpServer};
use attache_client::{MemoryTokens, OAuth, TokenKey, TokenStore, Tokens};
use attache_protocol::TaskState;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::{failure, json, question, run, serve, start as start_call, task, text, until};

/// The server: which token it wants, and what it was sent.
#[derive(Default)]
struct Script {
    token: Mutex<Option<String>>,
    issued: Mutex<usize>,
    forms: Mutex<Vec<String>>,
    answers: tokio::sync::Notify,
    answer: Mutex<Option<Value>>,
    /// How often a session was opened.
    sessions: Mutex<usize>,
    /// The ids of the calls that were canceled.
    canceled: Mutex<Vec<Value>>,
    /// The status for an unknown session.
    unknown_session: Mutex<u16>,
    base: Mutex<String>,
    /// How many calls of `gather` have begun.
    gathered: tokio::sync::watch::Sender<usize>,
}

fn app(script: &Arc<Script>) -> Router {
    Router::new()
        .route("/mcp", post(message).get(|| async { StatusCode::METHOD_NOT_ALLOWED }))
        .route("/.well-known/oauth-protected-resource/mcp", get(resource))
        .route("/.well-known/oauth-authorization-server", get(issuer))
        .route("/token", post(token))
        .with_state(script.clone())
}

async fn start() -> (Arc<Script>, McpOptions) {
    let script = Arc::new(Script::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    *script.base.lock() = format!("http://{}", listener.local_addr().unwrap());
    let app = app(&script);
    tokio::spawn(async move { axum::serve(listener, app).await });
    let url = format!("{}/mcp", script.base.lock());
    (script, McpOptions::new(McpServer::url(&url).unwrap()))
}

/// The same server in a runtime of its own. Its connections break when the runtime is shut down, as if its process were killed.
struct Killable(tokio::runtime::Runtime);

impl Killable {
    fn start(script: &Arc<Script>, address: &str) -> (Self, String) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let app = app(script);
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, app).await
        });
        (Self(runtime), address)
    }

    fn kill(self) {
        self.0.shutdown_background();
    }
}

async fn resource(State(script): State<Arc<Script>>) -> axum::Json<Value> {
    let base = script.base.lock().clone();
    axum::Json(
        json!({"resource": format!("{base}/mcp"), "authorization_servers": [base], "scopes_supported": ["tools"]}),
    )
}

async fn issuer(State(script): State<Arc<Script>>) -> axum::Json<Value> {
    let base = script.base.lock().clone();
    axum::Json(json!({"issuer": base, "token_endpoint": format!("{base}/token")}))
}

async fn token(State(script): State<Arc<Script>>, body: String) -> axum::Json<Value> {
    script.forms.lock().push(body);
    let number = {
        let mut issued = script.issued.lock();
        *issued += 1;
        *issued
    };
    let token = format!("token-{number}");
    *script.token.lock() = Some(format!("Bearer {token}"));
    axum::Json(json!({"access_token": token, "token_type": "Bearer", "expires_in": 3600}))
}

fn event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

async fn message(State(script): State<Arc<Script>>, headers: HeaderMap, body: Bytes) -> Response {
    let sent =
        headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let wanted = script.token.lock().clone();
    if wanted.is_some_and(|wanted| wanted != sent) {
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer scope=\"tools\"")], "")
            .into_response();
    }
    let message: Value = serde_json::from_slice(&body).unwrap();
    let id = message["id"].clone();
    let reply = |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
    let session = headers.get("mcp-session-id").and_then(|value| value.to_str().ok());
    let current = format!("s{}", script.sessions.lock());
    if session.is_some_and(|session| session != current) {
        let status = StatusCode::from_u16(*script.unknown_session.lock()).unwrap();
        let error = json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
        return (status, axum::Json(json!({"jsonrpc": "2.0", "id": null, "error": error}))).into_response();
    }
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    match message["method"].as_str() {
        Some("initialize") => {
            let result = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "1"}});
            let number = {
                let mut sessions = script.sessions.lock();
                *sessions += 1;
                *sessions
            };
            ([("mcp-session-id", format!("s{number}"))], axum::Json(reply(result))).into_response()
        }
        Some("tools/list") => {
            let names = ["echo", "ask", "big", "big_stream", "broken", "hang", "hang_stream", "gather"];
            axum::Json(reply(json!({"tools": names.map(tool)}))).into_response()
        }
        Some("tools/call") => match message["params"]["name"].as_str().unwrap() {
            "ask" => {
                let question = json!({"jsonrpc": "2.0", "id": 77, "method": "elicitation/create", "params": {
                    "message": "Which city?", "requestedSchema": {"type": "object", "properties": {"city": {"type": "string"}}}}});
                let first = futures::stream::once(async move { Ok::<_, std::io::Error>(event(&question)) });
                let rest = futures::stream::once(async move {
                    script.answers.notified().await;
                    let answer = script.answer.lock().take().unwrap();
                    let content = json!([{"type": "text", "text": answer.to_string()}]);
                    Ok(event(&json!({"jsonrpc": "2.0", "id": id, "result": {"content": content}})))
                });
                let stream = futures::StreamExt::chain(first, rest);
                ([("content-type", "text/event-stream")], axum::body::Body::from_stream(stream))
                    .into_response()
            }
            "big" => axum::Json(reply(json!({"content": [{"type": "text", "text": "x".repeat(5_000_000)}]})))
                .into_response(),
            "big_stream" => {
                let big = reply(json!({"content": [{"type": "text", "text": "x".repeat(5_000_000)}]}));
                ([("content-type", "text/event-stream")], event(&big)).into_response()
            }
            // Without a response, and in the middle of one.
            "hang" => std::future::pending().await,
            "hang_stream" => {
                let params =
                    json!({"progressToken": message["params"]["_meta"]["progressToken"], "progress": 1});
                let progress =
                    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
                let first = futures::stream::once(async move { Ok::<_, std::io::Error>(event(&progress)) });
                let stream = futures::StreamExt::chain(first, futures::stream::pending());
                ([("content-type", "text/event-stream")], axum::body::Body::from_stream(stream))
                    .into_response()
            }
            "gather" => {
                script.gathered.send_modify(|count| *count += 1);
                script.gathered.subscribe().wait_for(|count| *count >= 100).await.unwrap();
                axum::Json(reply(json!({"content": [{"type": "text", "text": "all"}]}))).into_response()
            }
            "broken" => (StatusCode::INTERNAL_SERVER_ERROR, "secret of the server").into_response(),
            _ => {
                let seen = json!({"session": session,
                    "key": headers.get("x-key").and_then(|value| value.to_str().ok())});
                axum::Json(reply(json!({"content": [{"type": "text", "text": seen.to_string()}]})))
                    .into_response()
            }
        },
        _ => {
            if message["method"] == "notifications/cancelled" {
                script.canceled.lock().push(message["params"]["requestId"].clone());
            }
            if message.get("result").is_some() {
                *script.answer.lock() = Some(message["result"].clone());
                script.answers.notify_one();
            }
            StatusCode::ACCEPTED.into_response()
        }
    }
}

#[tokio::test]
async fn tools_are_called_with_the_session_and_the_configured_headers() {
    let (script, options) = start().await;
    *script.token.lock() = Some("Bearer t-1".into());
    let options = options.with(|options| {
        options.token = Some("t-1".into());
        options.headers.insert("X-Key".into(), "k-1".into());
    });
    assert!(!format!("{options:?}").contains("t-1"));
    let mcp = Mcp::connect(options).await.unwrap();
    assert_eq!(mcp.card().name, "web");
    let output = mcp.call("echo", json!({})).await.unwrap();
    assert_eq!(output.text(), r#"{"key":"k-1","session":"s1"}"#);
}

#[tokio::test]
async fn a_question_reaches_the_call_whose_stream_it_came_on() {
    let (_script, options) = start().await;
    let mcp = Mcp::connect(options).await.unwrap();
    let agent = serve(&mcp).await;
    let asked = run(&agent, "ask", json!({})).await;
    assert_eq!(question(&asked), "Which city?");
    let done = task(agent.answer(&asked, "Oslo").await.unwrap());
    assert_eq!(json(&done), json!({"action": "accept", "content": {"city": "Oslo"}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_calls_over_http_run_at_once() {
    let (_script, options) = start().await;
    let mcp = Mcp::connect(options.with(|options| options.max_calls = 100)).await.unwrap();
    let agent = serve(&mcp).await;
    let calls = (0..100).map(|_| run(&agent, "gather", json!({})));
    for done in futures::future::join_all(calls).await {
        assert_eq!(text(&done), "all");
    }
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_opened_again() {
    for status in [404, 400] {
        let (script, options) = start().await;
        *script.unknown_session.lock() = status;
        let mcp = Mcp::connect(options).await.unwrap();
        // As after a restart of the server.
        *script.sessions.lock() = 5;
        let output = mcp.call("echo", json!({})).await.unwrap();
        assert_eq!(output.text(), r#"{"key":null,"session":"s6"}"#, "{status}");
    }
}

#[tokio::test]
async fn responses_are_bounded_and_errors_are_not_shown() {
    let (_script, options) = start().await;
    let mcp = Mcp::connect(options.with(|options| options.max_output = 3_000_000)).await.unwrap();
    let error = mcp.call("big", json!({})).await.unwrap_err();
    assert_eq!(error, CallError::TooLarge { tool: "big".into(), limit: 3_000_000 });
    assert!(mcp.call("big_stream", json!({})).await.is_err());
    assert_eq!(mcp.call("broken", json!({})).await.unwrap_err(), CallError::Unavailable);
    assert!(mcp.call("echo", json!({})).await.is_ok(), "the connection still works");
}

#[tokio::test]
async fn a_server_that_wants_a_login_gets_a_token_with_the_secret_of_the_client() {
    let (script, options) = start().await;
    *script.token.lock() = Some("Bearer nothing yet".into());
    let base = script.base.lock().clone();
    let oauth = OAuth::new("attache").secret("s3cret").server(&base).unwrap();
    let mcp = Mcp::connect(options.with(|options| options.oauth = Some(oauth))).await.unwrap();
    assert!(mcp.call("echo", json!({})).await.is_ok());
    let form = script.forms.lock()[0].clone();
    assert!(form.contains("grant_type=client_credentials") && form.contains("scope=tools"), "{form}");
    assert!(form.contains("resource=http"), "{form}");
    // The token is revoked, and a new one is requested.
    *script.token.lock() = Some("Bearer another".into());
    assert!(mcp.call("echo", json!({})).await.is_ok());
    assert_eq!(*script.issued.lock(), 2);
}

#[tokio::test]
async fn a_stored_token_is_used_without_a_secret() {
    let (script, options) = start().await;
    *script.token.lock() = Some("Bearer stored".into());
    let base = script.base.lock().clone();
    let key = TokenKey {
        server: format!("{base}/.well-known/oauth-authorization-server"),
        client: "attache".into(),
        scopes: vec!["tools".into()],
        resource: Some(format!("{base}/mcp")),
        agent: base.clone(),
        account: None,
    };
    let store = MemoryTokens::new();
    let tokens = Tokens { access: "stored".into(), refresh: None, renew: None };
    store.lock(&key).await.unwrap().write(Some(&tokens)).unwrap();
    let oauth = OAuth::new("attache").server(&base).unwrap().store(store);
    let mcp = Mcp::connect(options.with(|options| options.oauth = Some(oauth))).await.unwrap();
    assert!(mcp.call("echo", json!({})).await.is_ok());
}

#[tokio::test]
async fn a_login_that_is_not_configured_is_a_clear_error_at_start() {
    let (script, options) = start().await;
    *script.token.lock() = Some("Bearer secret".into());
    let refusal = async |options: McpOptions| Mcp::connect(options).await.unwrap_err().to_string();
    let server = format!("{}/mcp", script.base.lock());
    assert_eq!(
        refusal(options.clone()).await,
        format!(
            "the MCP server `{server}` requires a login: no credentials are configured: set a token, headers, or an OAuth client"
        )
    );
    let wrong = options.clone().with(|options| options.token = Some("wrong".into()));
    assert!(refusal(wrong).await.contains("it rejected the configured credentials"));
    // The operator has not agreed to the authorization server that the MCP server names.
    let oauth = OAuth::new("attache").secret("s3cret");
    let stranger = refusal(options.clone().with(|options| options.oauth = Some(oauth))).await;
    assert!(stranger.contains("requires a login") && stranger.contains("not agreed"), "{stranger}");
    let base = script.base.lock().clone();
    let oauth = OAuth::new("attache").server(&base).unwrap();
    let no_secret = refusal(options.with(|options| options.oauth = Some(oauth))).await;
    assert!(no_secret.contains("no stored token"), "{no_secret}");
    assert!(script.forms.lock().is_empty(), "nothing was sent to the authorization server");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_a_clear_error_at_start() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let error = Mcp::connect(McpOptions::new(McpServer::url(&url).unwrap())).await.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("cannot use the MCP server `{url}`: it cannot be reached: ")),
        "{error}"
    );
}

#[tokio::test]
async fn a_cancel_reaches_the_server_over_http() {
    let (script, options) = start().await;
    let agent = serve(&Mcp::connect(options).await.unwrap()).await;
    let (hanging, _events) = start_call(&agent, "hang_stream").await;
    assert_eq!(agent.cancel(hanging.id).await.unwrap().status.state, TaskState::Canceled);
    until("the server has read the cancellation", || script.canceled.lock().len() == 1).await;
    assert_eq!(run(&agent, "echo", json!({})).await.status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_tool_that_hangs_over_http_is_given_up_and_canceled() {
    for tool in ["hang", "hang_stream"] {
        let (script, options) = start().await;
        let options = options.with(|options| options.call_timeout = Duration::from_secs(1));
        let agent = serve(&Mcp::connect(options).await.unwrap()).await;
        let failed = failure(&run(&agent, tool, json!({})).await);
        assert_eq!(failed, format!("The tool '{tool}' did not return within 1 s"));
        until("the server has read the cancellation", || script.canceled.lock().len() == 1).await;
        assert_eq!(run(&agent, "echo", json!({})).await.status.state, TaskState::Completed, "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_in_the_middle_of_a_call_fails_it_and_is_used_again_when_it_runs() {
    let script = Arc::new(Script::default());
    let (server, address) = Killable::start(&script, "127.0.0.1:0");
    let options = McpOptions::new(McpServer::url(&format!("http://{address}/mcp")).unwrap());
    let agent = serve(&Mcp::connect(options).await.unwrap()).await;
    let (hanging, mut events) = start_call(&agent, "hang_stream").await;
    server.kill();
    let ended = async { while events.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the call fails");
    let failed = failure(&agent.get(hanging.id).await.unwrap());
    assert_eq!(failed, "The MCP server ended before the tool 'hang_stream' returned a result");
    let failed = failure(&run(&agent, "echo", json!({})).await);
    assert_eq!(failed, "The MCP server cannot be used now: try again later");
    let (server, _) = Killable::start(&script, &address);
    assert_eq!(run(&agent, "echo", json!({})).await.status.state, TaskState::Completed);
    server.kill();
}
