//! Each agent gets the credential for its own address, and no other.

use std::sync::{Arc, Mutex};

use attache_agents::AgentCredentials;
use attache_agents::delegation::{Access, Api};
use attache_client::{AddressBook, AddressEntry, Client, ClientOptions};
use attache_core::{MemoryStore, Store};
use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Redirect};
use serde_json::{Value, json};

use crate::http::{post, send};
use crate::support::{Delegator, TestAgent, local_options};
use crate::{ENDED, status_text};

const TOKEN: &str = "the token of the agent";

/// The bearer tokens for these addresses.
fn tokens(entries: &[(&str, &str)]) -> AddressBook {
    let entry =
        |(url, token): &(&str, &str)| AddressEntry::bearer(url.parse().unwrap(), &(*token).into()).unwrap();
    AddressBook::new(entries.iter().map(entry)).unwrap()
}

fn delegator_with(book: &AddressBook) -> (Delegator, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    let credentials = AgentCredentials::new(book.clone(), "delegation.agents");
    (Delegator::with(store.clone(), local_options().with(|options| options.credentials = credentials)), store)
}

#[tokio::test]
async fn an_agent_gets_the_token_for_its_address() {
    for public_card in [true, false] {
        let agent = TestAgent::start_with_token(TOKEN, public_card).await;
        let (delegator, store) = delegator_with(&tokens(&[(&agent.url(), TOKEN)]));
        for url in [agent.url(), agent.v0_1_url(), format!("{}/a2a", agent.url())] {
            let sent =
                delegator.call("a2a::send_task", json!({"agentUrl": url, "message": "ask Who?"})).await;
            let asked = delegator.until(&sent, &["input-required"]).await;
            let done =
                delegator.call("a2a::send_task", json!({"taskId": asked["id"], "message": "me"})).await;
            assert_eq!(status_text(&delegator.until(&done, &ENDED).await), "echo: me");
            let waiting =
                delegator.call("a2a::send_task", json!({"agentUrl": url, "message": "ask Why?"})).await;
            let canceled = delegator.call("a2a::cancel_task", json!({"taskId": waiting["id"]})).await;
            assert_eq!(canceled["status"]["state"], "cancelled");
        }
        delegator.call("a2a::discover", json!({"url": agent.url()})).await;
        for scope in ["a2a_tasks", "a2a"] {
            let kept = store.values().list(scope).await.unwrap();
            assert!(!kept.is_empty() && !format!("{kept:?}").contains(TOKEN), "{kept:?}");
        }
    }
}

#[tokio::test]
async fn an_error_about_credentials_names_the_setting() {
    let agent = TestAgent::start_with_token(TOKEN, true).await;
    let private = TestAgent::start_with_token(TOKEN, false).await;
    let book = AddressBook::default();
    let (delegator, store) = delegator_with(&book);
    let api = Api::new(delegator.delegation.clone(), Access::ThisMachine);
    let expected = |at: &str, origin: &str| {
        format!(
            "the agent at `{at}` requires authentication: list a credential for `{origin}` in `delegation.agents`"
        )
    };
    for (url, at) in [
        (agent.url(), format!("{}/a2a", agent.url())),
        (agent.v0_1_url(), agent.v0_1_url()),
        (private.url(), format!("{}/.well-known/agent-card.json", private.url())),
        (private.v0_1_url(), private.v0_1_url()),
        (format!("{}/a2a", private.url()), format!("{}/a2a", private.url())),
    ] {
        let origin = url.trim_end_matches("/rpc").trim_end_matches("/a2a");
        let (code, text) = delegator.error("a2a::send_task", json!({"agentUrl": url, "message": "hi"})).await;
        assert_eq!(code, "agent_denied");
        assert!(text.starts_with(&expected(&at, origin)), "{text}");
        let message = json!({"agentUrl": url, "message": "hi"});
        let (status, body) = send(&api, post("/api/a2a/send", &message)).await;
        assert_eq!(status, 502, "401 is for the callers of this API");
        assert_eq!(body["error"]["code"], "agent_denied");
    }
    book.exchange(&tokens(&[(&agent.url(), "a token that is wrong")]));
    let (code, text) =
        delegator.error("a2a::send_task", json!({"agentUrl": agent.url(), "message": "hi"})).await;
    let rejected = format!(
        "the agent at `{0}/a2a` rejected the credential that `delegation.agents` has for `{0}`",
        agent.url()
    );
    assert!(code == "agent_denied" && text.starts_with(&rejected), "{text}");
    assert!(
        !format!("{:?}", store.values().list("a2a_tasks").await.unwrap()).contains("a token that is wrong")
    );
    book.exchange(&tokens(&[(&agent.url(), TOKEN)]));
    let sent = delegator.call("a2a::send_task", json!({"agentUrl": agent.url(), "message": "hi"})).await;
    assert_eq!(
        status_text(&delegator.until(&sent, &ENDED).await),
        "echo: hi",
        "new credentials are used at once"
    );
}

/// The path of a request, and its `Authorization` header.
type RecordedRequest = (String, Option<String>);

/// A server that has one response for all requests, and records them.
struct RecordingServer {
    url: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl RecordingServer {
    async fn start(
        respond: impl Fn(&str) -> axum::response::Response + Clone + Send + Sync + 'static,
    ) -> Self {
        let requests: Arc<Mutex<Vec<_>>> = Arc::default();
        let recorded = requests.clone();
        let app = Router::new().fallback(move |request: Request| {
            let authorization =
                request.headers().get("authorization").map(|it| it.to_str().unwrap().to_owned());
            let path = request.uri().path().to_owned();
            let response = respond(&path);
            recorded.lock().unwrap().push((path, authorization));
            async move { response }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, app).await });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

/// A card with an interface at another server, which requires a token.
fn card_with_interface_at(url: &str) -> Value {
    json!({
        "name": "Other", "description": "", "version": "1", "capabilities": {}, "skills": [],
        "defaultInputModes": [], "defaultOutputModes": [],
        "supportedInterfaces": [{"url": format!("{url}/a2a"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "securitySchemes": {"b": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
        "securityRequirements": [{"schemes": {"b": {"list": []}}}],
    })
}

#[tokio::test]
async fn the_credential_is_not_sent_to_an_interface_at_another_server() {
    let there = RecordingServer::start(|_| axum::http::StatusCode::UNAUTHORIZED.into_response()).await;
    let card = card_with_interface_at(&there.url);
    let here = RecordingServer::start(move |_| axum::Json(card.clone()).into_response()).await;
    let book = tokens(&[(&here.url, TOKEN)]);
    let (delegator, _) = delegator_with(&book);
    let message = json!({"agentUrl": here.url, "message": "hi"});
    let (code, text) = delegator.error("a2a::send_task", message.clone()).await;
    assert_eq!(code, "agent_denied");
    assert!(text.contains(&format!("list a credential for `{}`", there.url)), "{text}");
    assert!(
        here.requests()
            .iter()
            .all(|(_, authorization)| authorization.as_deref() == Some(&format!("Bearer {TOKEN}")))
    );
    assert_eq!(there.requests(), [("/a2a".to_owned(), None)]);
    book.exchange(&tokens(&[(&here.url, TOKEN), (&there.url, "another")]));
    delegator.error("a2a::send_task", message).await;
    assert_eq!(there.requests(), [("/a2a".to_owned(), Some("Bearer another".to_owned()))]);
}

#[tokio::test]
async fn the_credential_is_not_sent_to_another_server_in_protocol_0_1() {
    let there = RecordingServer::start(|_| axum::http::StatusCode::UNAUTHORIZED.into_response()).await;
    let card = json!({"name": "Other", "url": format!("{}/a2a/rpc", there.url), "authentication": {"schemes": ["Bearer"]}});
    let here = RecordingServer::start(move |_| axum::Json(card.clone()).into_response()).await;
    let (delegator, _) = delegator_with(&tokens(&[(&here.url, TOKEN)]));
    delegator.error("a2a::send_task", json!({"agentUrl": here.url, "message": "hi"})).await;
    assert_eq!(there.requests(), [("/a2a/rpc".to_owned(), None)]);
}

#[tokio::test]
async fn the_credential_is_not_sent_to_the_target_of_a_redirect() {
    let there =
        RecordingServer::start(|_| axum::Json(card_with_interface_at("http://127.0.0.1:9")).into_response())
            .await;
    let to = there.url.clone();
    let here =
        RecordingServer::start(move |path| Redirect::temporary(&format!("{to}{path}")).into_response()).await;
    let book = tokens(&[(&here.url, TOKEN)]);
    let (delegator, _) = delegator_with(&book);
    for agent in [here.url.clone(), format!("{}/a2a/rpc", here.url)] {
        delegator.error("a2a::send_task", json!({"agentUrl": agent, "message": "hi"})).await;
    }
    assert_eq!(there.requests(), [], "no redirect is followed");
    let first = here.requests();
    assert!(!first.is_empty() && first.iter().all(|(_, authorization)| authorization.is_some()));
    // The client library follows redirects of cards.
    let client = Client::connect_with(&here.url, ClientOptions::default().with_credentials(book)).await;
    client.unwrap();
    assert_eq!(there.requests(), [("/.well-known/agent-card.json".to_owned(), None)]);
}
