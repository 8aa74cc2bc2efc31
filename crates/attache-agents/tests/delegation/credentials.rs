//! What agents are shown: each what is for its own address, and nothing else.

use std::sync::{Arc, Mutex};

use attache_agents::AgentCredentials;
use attache_agents::delegation::{Access, Api, DelegationOptions};
use attache_client::{AddressBook, AddressEntry, Client, ClientOptions};
use attache_core::{MemoryStore, Store};
use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Redirect};
use serde_json::{Value, json};

use crate::support::{House, Office, near, soon};
use crate::{ENDED, words};

const TOKEN: &str = "the token of the house";

/// What agents at these addresses are shown.
fn shown(entries: &[(&str, &str)]) -> AddressBook {
    let entry =
        |(url, token): &(&str, &str)| AddressEntry::bearer(url.parse().unwrap(), &(*token).into()).unwrap();
    AddressBook::new(entries.iter().map(entry)).unwrap()
}

fn house(book: &AddressBook) -> (House, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    let credentials = AgentCredentials::new(book.clone(), "delegation.agents");
    (House::with(store.clone(), DelegationOptions { credentials, ..near() }), store)
}

#[tokio::test]
async fn an_agent_gets_the_token_for_its_address() {
    for public_card in [true, false] {
        let office = Office::guarded(TOKEN, public_card).await;
        let (house, store) = house(&shown(&[(&office.url(), TOKEN)]));
        for url in [office.url(), office.oldest(), format!("{}/a2a", office.url())] {
            let sent = house.call("a2a::send_task", json!({"agentUrl": url, "message": "ask Who?"})).await;
            let asked = house.until(&sent, &["input-required"]).await;
            let done = house.call("a2a::send_task", json!({"taskId": asked["id"], "message": "me"})).await;
            assert_eq!(words(&house.until(&done, &ENDED).await), "echo: me");
            let waiting = house.call("a2a::send_task", json!({"agentUrl": url, "message": "ask Why?"})).await;
            let canceled = house.call("a2a::cancel_task", json!({"taskId": waiting["id"]})).await;
            assert_eq!(canceled["status"]["state"], "cancelled");
        }
        house.call("a2a::discover", json!({"url": office.url()})).await;
        for scope in ["a2a_tasks", "a2a"] {
            let kept = store.values().list(scope).await.unwrap();
            assert!(!kept.is_empty() && !format!("{kept:?}").contains(TOKEN), "{kept:?}");
        }
    }
}

#[tokio::test]
async fn an_error_about_credentials_names_the_setting() {
    let office = Office::guarded(TOKEN, true).await;
    let private = Office::guarded(TOKEN, false).await;
    let book = AddressBook::default();
    let (house, store) = house(&book);
    let api = Api::new(house.delegation.clone(), Access::ThisMachine);
    let told = |at: &str, origin: &str| {
        format!(
            "the agent at `{at}` wants to know who asks: list a credential for `{origin}` in `delegation.agents`"
        )
    };
    for (url, at) in [
        (office.url(), format!("{}/a2a", office.url())),
        (office.oldest(), office.oldest()),
        (private.url(), format!("{}/.well-known/agent-card.json", private.url())),
        (private.oldest(), private.oldest()),
        (format!("{}/a2a", private.url()), format!("{}/a2a", private.url())),
    ] {
        let origin = url.trim_end_matches("/rpc").trim_end_matches("/a2a");
        let (code, text) = house.refusal("a2a::send_task", json!({"agentUrl": url, "message": "hi"})).await;
        assert_eq!(code, "agent_denied");
        assert!(text.starts_with(&told(&at, origin)), "{text}");
        let request = http::Request::post("/api/a2a/send").header("host", "localhost:3111");
        let body = json!({"agentUrl": url, "message": "hi"}).to_string();
        let response =
            soon(api.handle(request.body(http_body_util::Full::from(body)).unwrap())).await.unwrap();
        assert_eq!(response.status(), 502, "401 would be about whoever asks here");
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], "agent_denied");
    }
    book.exchange(&shown(&[(&office.url(), "a token that is wrong")]));
    let (code, text) =
        house.refusal("a2a::send_task", json!({"agentUrl": office.url(), "message": "hi"})).await;
    let not_taken = format!(
        "the agent at `{0}/a2a` did not take the credential that `delegation.agents` has for `{0}`",
        office.url()
    );
    assert!(code == "agent_denied" && text.starts_with(&not_taken), "{text}");
    assert!(
        !format!("{:?}", store.values().list("a2a_tasks").await.unwrap()).contains("a token that is wrong")
    );
    book.exchange(&shown(&[(&office.url(), TOKEN)]));
    let sent = house.call("a2a::send_task", json!({"agentUrl": office.url(), "message": "hi"})).await;
    assert_eq!(words(&house.until(&sent, &ENDED).await), "echo: hi", "what is exchanged holds at once");
}

/// The path of a request, and what it showed.
type Note = (String, Option<String>);

/// A server that answers everything in one way, and notes what it is shown.
struct Trap {
    url: String,
    noted: Arc<Mutex<Vec<Note>>>,
}

impl Trap {
    async fn set(answer: impl Fn(&str) -> axum::response::Response + Clone + Send + Sync + 'static) -> Self {
        let noted: Arc<Mutex<Vec<_>>> = Arc::default();
        let notes = noted.clone();
        let app = Router::new().fallback(move |request: Request| {
            let authorization =
                request.headers().get("authorization").map(|it| it.to_str().unwrap().to_owned());
            let path = request.uri().path().to_owned();
            let answer = answer(&path);
            notes.lock().unwrap().push((path, authorization));
            async move { answer }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, app).await });
        Self { url, noted }
    }

    fn noted(&self) -> Vec<Note> {
        std::mem::take(&mut self.noted.lock().unwrap())
    }
}

/// A card that leads elsewhere, and asks for a token.
fn leading_to(url: &str) -> Value {
    json!({
        "name": "Trap", "description": "", "version": "1", "capabilities": {}, "skills": [],
        "defaultInputModes": [], "defaultOutputModes": [],
        "supportedInterfaces": [{"url": format!("{url}/a2a"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "securitySchemes": {"b": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
        "securityRequirements": [{"schemes": {"b": {"list": []}}}],
    })
}

#[tokio::test]
async fn the_credential_is_not_sent_to_an_interface_at_another_server() {
    let there = Trap::set(|_| axum::http::StatusCode::UNAUTHORIZED.into_response()).await;
    let card = leading_to(&there.url);
    let here = Trap::set(move |_| axum::Json(card.clone()).into_response()).await;
    let book = shown(&[(&here.url, TOKEN)]);
    let (house, _) = house(&book);
    let message = json!({"agentUrl": here.url, "message": "hi"});
    let (code, text) = house.refusal("a2a::send_task", message.clone()).await;
    assert_eq!(code, "agent_denied");
    assert!(text.contains(&format!("list a credential for `{}`", there.url)), "{text}");
    assert!(here.noted().iter().all(|(_, shown)| shown.as_deref() == Some(&format!("Bearer {TOKEN}"))));
    assert_eq!(there.noted(), [("/a2a".to_owned(), None)]);
    book.exchange(&shown(&[(&here.url, TOKEN), (&there.url, "another")]));
    house.refusal("a2a::send_task", message).await;
    assert_eq!(there.noted(), [("/a2a".to_owned(), Some("Bearer another".to_owned()))]);
}

#[tokio::test]
async fn the_credential_is_not_sent_to_another_server_in_protocol_0_1() {
    let there = Trap::set(|_| axum::http::StatusCode::UNAUTHORIZED.into_response()).await;
    let card = json!({"name": "Trap", "url": format!("{}/a2a/rpc", there.url), "authentication": {"schemes": ["Bearer"]}});
    let here = Trap::set(move |_| axum::Json(card.clone()).into_response()).await;
    let (house, _) = house(&shown(&[(&here.url, TOKEN)]));
    house.refusal("a2a::send_task", json!({"agentUrl": here.url, "message": "hi"})).await;
    assert_eq!(there.noted(), [("/a2a/rpc".to_owned(), None)]);
}

#[tokio::test]
async fn the_credential_is_not_sent_to_the_target_of_a_redirect() {
    let there = Trap::set(|_| axum::Json(leading_to("http://127.0.0.1:9")).into_response()).await;
    let to = there.url.clone();
    let here = Trap::set(move |path| Redirect::temporary(&format!("{to}{path}")).into_response()).await;
    let book = shown(&[(&here.url, TOKEN)]);
    let (house, _) = house(&book);
    for agent in [here.url.clone(), format!("{}/a2a/rpc", here.url)] {
        house.refusal("a2a::send_task", json!({"agentUrl": agent, "message": "hi"})).await;
    }
    assert_eq!(there.noted(), [], "no redirect is followed");
    let first = here.noted();
    assert!(!first.is_empty() && first.iter().all(|(_, shown)| shown.is_some()));
    // The client follows those of cards.
    let client = Client::connect_with(&here.url, ClientOptions::default().with_credentials(book)).await;
    client.unwrap();
    assert_eq!(there.noted(), [("/.well-known/agent-card.json".to_owned(), None)]);
}
