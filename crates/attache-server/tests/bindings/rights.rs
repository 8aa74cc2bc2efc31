//! What callers may do beyond being let in: which card they see, and what takes a scope.

use attache_core::{Agent, AgentResult, Caller, Identity, Turn};
use attache_protocol::{AgentSkill, Error, ErrorKind, Message};
use attache_server::Server;
use attache_server::auth::KnownCallers;
use reqwest::Method;
use serde_json::json;

use crate::support::{Binding, card, fetch, player, send, serve};

const ALICE: &str = "Bearer t0ken-of-alice";
const BOB: &str = "Bearer t0ken-of-bob";

#[tokio::test]
async fn each_audience_has_a_card_of_its_own() {
    let skill = |id: &str| AgentSkill::new(id, id).scopes(["quote"]);
    let server = player()
        .card(card().skill(skill("public")))
        .card_for(move |rights| card().skill(skill(rights.tier().unwrap_or("none"))))
        .authenticate(
            KnownCallers::new()
                .bearer(Identity::named("alice").tier("partner"), "t0ken-of-alice")
                .bearer(Identity::named("bob").tier("ops"), "t0ken-of-bob"),
        );
    let server = serve(server.options(|options| options.public_card = false)).await;
    let open = serve(
        player()
            .card(card().skill(skill("public")))
            .card_for(|_| card())
            .authenticate(KnownCallers::new().bearer("alice", "t0ken-of-alice")),
    )
    .await;
    for (credential, tier) in [(ALICE, "partner"), (BOB, "ops")] {
        for binding in Binding::ALL {
            let extended = server
                .ask("GetExtendedAgentCard", json!({}))
                .header("Authorization", credential)
                .ok(binding)
                .await;
            assert_eq!(extended["skills"][0]["id"], tier, "{binding:?}");
        }
        let path = "/.well-known/agent-card.json";
        let request = server.http(Method::GET, path).header("Authorization", credential);
        let reply = fetch(request).await;
        assert_eq!(reply.json()["skills"][0]["id"], tier);
        assert_eq!(reply.headers["cache-control"], "private, max-age=60");
        let requirement = json!([{"schemes": {"bearerAuth": {"list": ["quote"]}}}]);
        assert_eq!(reply.json()["skills"][0]["securityRequirements"], requirement);
    }
    assert_eq!(fetch(server.http(Method::GET, "/.well-known/agent-card.json")).await.status, 401);
    let public =
        fetch(open.http(Method::GET, "/.well-known/agent-card.json").header("Authorization", ALICE)).await;
    assert_eq!(
        public.json()["skills"][0]["id"],
        "public",
        "where the card is for everyone it is the same for all"
    );
    assert_eq!(public.headers["cache-control"], "public, max-age=60");
}

#[tokio::test]
async fn who_is_known_already_is_not_asked() {
    let callers = KnownCallers::new().bearer("alice", "t0ken-of-alice");
    let surface = player().authenticate(callers).into_http_service("http://localhost").unwrap();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}).to_string();
    let request = || {
        let head = http::Request::post("/a2a")
            .header("A2A-Version", "1.0")
            .header("Content-Type", "application/json");
        head.extension(Identity::named("mallory")).body(http_body_util::Full::from(body.clone())).unwrap()
    };
    assert_eq!(surface.handle(request()).await.status(), 401, "whatever the request says of itself");
    let mut known = surface.for_caller(Identity::named("house"));
    let Ok(answer) = tower_service::Service::call(&mut known, request()).await;
    assert_eq!(answer.status(), 200);
}

/// An agent that asks for a scope at the door.
struct Picky;

impl Agent for Picky {
    async fn run(&self, turn: Turn) -> AgentResult {
        turn.complete().await
    }

    fn admits(&self, caller: &Caller, _: &Message) -> Result<(), Error> {
        if caller.rights.has("quote") {
            return Ok(());
        }
        Err(Error::new(ErrorKind::PermissionDenied, "not for you"))
    }
}

#[tokio::test]
async fn who_lacks_a_scope_is_refused_on_every_binding_and_leaves_nothing_behind() {
    let callers = KnownCallers::new()
        .bearer(Identity::named("alice").scope("quote"), "t0ken-of-alice")
        .bearer("bob", "t0ken-of-bob");
    let server = serve(Server::new(Picky).authenticate(callers)).await;
    for operation in ["SendMessage", "SendStreamingMessage"] {
        for binding in Binding::ALL {
            let refusal =
                server.ask(operation, send("hi")).header("Authorization", BOB).refused(binding).await;
            let code = match binding {
                Binding::JsonRpc => -32051,
                Binding::HttpJson => 403,
                Binding::Grpc => 7,
            };
            assert_eq!(refusal.code, code, "{operation} {binding:?}: {refusal:?}");
        }
    }
    let tasks = server.ask("ListTasks", json!({})).header("Authorization", BOB).ok(Binding::JsonRpc).await;
    assert_eq!(tasks["totalSize"].as_i64().unwrap_or_default(), 0);
    server.ask("SendMessage", send("hi")).header("Authorization", ALICE).ok(Binding::JsonRpc).await;
}
