//! Several agents on one server: each below its own path, with its own card, tasks, callers and limits.

use std::num::NonZero;
use std::sync::Arc;

use attache_core::{
    Agent, BoxAgent, Created, MemoryStore, NewTask, Owner, Store, TaskEvent, Turn, agent_fn, restartable,
};
use attache_protocol::{AgentCard, Task, TaskState, TaskStatus, Timestamp};
use attache_server::auth::KnownCallers;
use attache_server::{AddAgentError, Limits, NamedAgent, Server};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Binding, Ear, Running, fetch, player, send, serve, stage};

/// An agent that answers with its name.
fn named(name: &'static str) -> NamedAgent {
    let agent = agent_fn(move |turn: Turn| async move {
        turn.artifact("name").text(name).await?;
        turn.complete().await
    });
    NamedAgent::new(agent).card(AgentCard::new(name, format!("Says {name}")))
}

async fn two() -> Running {
    let server = player().agent("one", named("first")).unwrap().agent("two", named("second")).unwrap();
    serve(server).await
}

fn answer(sent: &Value) -> &Value {
    &sent["task"]["artifacts"][0]["parts"][0]["text"]
}

#[tokio::test]
async fn each_agent_answers_on_every_binding_and_has_its_own_tasks() {
    let server = two().await;
    for binding in Binding::ALL {
        let root = server.ask("SendMessage", send("root")).ok(binding).await;
        let one = server.ask("SendMessage", send("hi")).of_agent("one").ok(binding).await;
        let two = server.ask("SendMessage", send("hi")).of_agent("two").ok(binding).await;
        assert_eq!(
            (answer(&root), answer(&one), answer(&two)),
            (&json!("root"), &json!("first"), &json!("second"))
        );
        let id = json!({"id": one["task"]["id"]});
        server.ask("GetTask", id.clone()).of_agent("one").ok(binding).await;
        for other in [server.ask("GetTask", id.clone()), server.ask("GetTask", id.clone()).of_agent("two")] {
            let refused = other.refused(binding).await;
            assert_eq!(refused.reason, "TASK_NOT_FOUND", "{refused:?}");
        }
        let cancel = server.ask("CancelTask", id).of_agent("two").refused(binding).await;
        assert_eq!(cancel.reason, "TASK_NOT_FOUND");
    }
    let count = |list: &Value| list["totalSize"].as_i64().unwrap();
    for agent in ["one", "two"] {
        let list = server.ask("ListTasks", json!({})).of_agent(agent).ok(Binding::JsonRpc).await;
        assert_eq!(count(&list), 3, "{agent}");
    }
    let list = server.ask("ListTasks", json!({})).ok(Binding::JsonRpc).await;
    assert_eq!(count(&list), 3);
}

#[tokio::test]
async fn a_task_cannot_be_continued_at_another_agent() {
    let server = serve(player().agent("two", named("second")).unwrap()).await;
    let asked = server.task("ask").await;
    let mut params = send("more");
    params["message"]["taskId"] = asked["id"].clone();
    let refused = server.ask("SendMessage", params).of_agent("two").refused(Binding::JsonRpc).await;
    assert_eq!(refused.reason, "TASK_NOT_FOUND");
}

#[tokio::test]
async fn clients_may_choose_the_same_task_id_at_two_agents() {
    let server = two().await;
    for agent in ["", "/agents/one", "/agents/two"] {
        let params =
            json!({"id": "report", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": params});
        let request = server.bare(Method::POST, &format!("{agent}/a2a/rpc"));
        let reply =
            fetch(request.header("Content-Type", "application/json").body(body.to_string())).await.json();
        assert_eq!(
            (&reply["result"]["id"], &reply["result"]["status"]["state"]),
            (&json!("report"), &json!("completed")),
            "{reply}"
        );
    }
}

#[tokio::test]
async fn a_card_leads_to_its_own_agent() {
    let server = two().await;
    let card = server.http(Method::GET, "/agents/two/.well-known/agent-card.json");
    let card = fetch(card.header("A2A-Extensions", attache_protocol::TRANSPORTS_EXTENSION)).await.json();
    assert_eq!(card["name"], "second");
    for interface in card["supportedInterfaces"].as_array().unwrap() {
        // The other transports have the same place under other schemes.
        let url = interface["url"].as_str().unwrap().replace("grpc-jsonrpc://", "ws://");
        let (own, place) = (url.replace("ws://", "http://") + "/", format!("{}/agents/two/", server.base));
        assert!(own.starts_with(&place), "{url}");
    }
    let url = card["supportedInterfaces"][0]["url"].as_str().unwrap();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send("hi")});
    let request =
        server.http.post(url).header("A2A-Version", "1.0").header("Content-Type", "application/json");
    let reply = fetch(request.body(body.to_string())).await.json();
    assert_eq!(answer(&reply["result"]), "second");
}

#[tokio::test]
async fn the_list_of_agents_has_their_cards_page_by_page_and_can_be_cached() {
    let server = two().await;
    let list = fetch(server.http(Method::GET, "/agents")).await;
    let json = list.json();
    let names: Vec<_> =
        json["agents"].as_array().unwrap().iter().map(|agent| agent["name"].as_str().unwrap()).collect();
    assert_eq!(
        (names, &json["totalSize"], &json["nextPageToken"]),
        (vec!["one", "two"], &json!(2), &json!(""))
    );
    assert_eq!(json["agents"][0]["card"]["name"], "first");
    assert_eq!(json["agents"][0]["url"], format!("{}/agents/one", server.base));
    let again = server.http(Method::GET, "/agents").header("If-None-Match", list.header("etag"));
    assert_eq!(fetch(again).await.status, 304);
    let first = fetch(server.http(Method::GET, "/agents?pageSize=1")).await.json();
    assert_eq!((&first["agents"][0]["name"], &first["nextPageToken"]), (&json!("one"), &json!("one")));
    let rest = fetch(server.http(Method::GET, "/agents?pageSize=1&pageToken=one")).await.json();
    assert_eq!((&rest["agents"][0]["name"], &rest["nextPageToken"]), (&json!("two"), &json!("")));
    for wrong in ["0", "101", "x"] {
        let refused = fetch(server.http(Method::GET, &format!("/agents?pageSize={wrong}"))).await;
        assert_eq!(refused.status, 400, "{wrong}");
    }
    let posted = server.http(Method::POST, "/agents").header("Content-Type", "application/json").body("{}");
    assert_eq!(fetch(posted).await.status, 405);
}

#[tokio::test]
async fn an_agent_that_does_not_exist_is_an_error_on_every_binding() {
    let server = two().await;
    for path in ["/agents/three/a2a", "/agents/three/.well-known/agent-card.json", "/agents/"] {
        let status = fetch(server.http(Method::GET, path)).await.status;
        assert_eq!(status, if path == "/agents/" { 200 } else { 404 }, "{path}");
    }
    let refused = server.ask("ListTasks", json!({})).of_agent("three").refused(Binding::Grpc).await;
    assert!(refused.message.contains("there is no agent `three`"), "{refused:?}");
    // Without named agents the path belongs to the application.
    let alone = serve(player()).await;
    assert_eq!(fetch(alone.http(Method::GET, "/agents")).await.status, 404);
}

#[tokio::test]
async fn an_agent_can_have_callers_and_limits_of_its_own() {
    let slow = Limits::default().with(|limits| {
        limits.requests_per_second_per_address = NonZero::new(1);
        limits.burst_per_address = NonZero::<u32>::MIN;
        limits.limit_loopback = true;
        limits.queue_timeout = std::time::Duration::ZERO;
    });
    let guarded = named("guarded").authenticate(KnownCallers::new().bearer("ann", "a-long-secret-of-ann"));
    let server =
        player().agent("guarded", guarded).unwrap().agent("slow", named("slow").limits(slow)).unwrap();
    let server = serve(server).await;
    for binding in Binding::ALL {
        server.ask("SendMessage", send("hi")).ok(binding).await;
        let refused = server.ask("SendMessage", send("hi")).of_agent("guarded").over(binding).await;
        assert!(refused.result.is_err());
        let with_token = server.ask("SendMessage", send("hi")).of_agent("guarded");
        with_token.header("Authorization", "Bearer a-long-secret-of-ann").ok(binding).await;
    }
    let card = fetch(server.http(Method::GET, "/agents/guarded/.well-known/agent-card.json")).await.json();
    assert!(card["securitySchemes"]["bearerAuth"].is_object(), "{card}");
    let list = |agent: &str| server.ask("ListTasks", json!({})).of_agent(agent);
    let first = list("slow").over(Binding::JsonRpc).await.result;
    let second = list("slow").over(Binding::JsonRpc).await.result;
    assert!(first.is_ok() && second.is_err(), "{first:?} {second:?}");
    server.ask("ListTasks", json!({})).ok(Binding::JsonRpc).await;
}

#[tokio::test]
async fn agents_come_and_go_while_others_work() {
    let (agent, mut stage) = stage();
    let listening = player().named_agents().bind("127.0.0.1:0").listen().await.unwrap();
    let base = format!("http://{}", listening.address().unwrap());
    let agents = listening.http_service().agents().unwrap().clone();
    let serving = tokio::spawn(listening.run_until(std::future::pending()));
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = |agent: &str, text: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send(text)});
        let request = http.post(format!("{base}/agents/{agent}/a2a")).header("A2A-Version", "1.0");
        request.header("Content-Type", "application/json").body(body.to_string())
    };
    agents.put("busy", NamedAgent::new(agent)).unwrap();
    agents.put("one", named("first")).unwrap();
    let waiting = tokio::spawn(fetch(ask("busy", "hi")));
    let act = stage.turn().await;
    // An agent is replaced while it works: its turn goes on.
    agents.put("busy", named("new")).unwrap();
    agents.put("one", named("other")).unwrap();
    assert_eq!(answer(&fetch(ask("one", "hi")).await.json()["result"]), "other");
    assert_eq!(answer(&fetch(ask("busy", "hi")).await.json()["result"]), "new");
    act.text("name", "old").await;
    act.complete().await;
    assert_eq!(answer(&waiting.await.unwrap().json()["result"]), "old");
    assert!(agents.remove("one") && !agents.remove("one"));
    assert_eq!(fetch(ask("one", "hi")).await.status, 404);
    assert_eq!(agents.names(), ["busy"]);
    assert!(matches!(agents.put("a/b", named("x")), Err(AddAgentError::Name(_))));
    serving.abort();
}

/// A store in which a turn of the agent `name` has died.
async fn with_dead_turn(name: &str) -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    let task = Task {
        id: "t".into(),
        context_id: Some("c".into()),
        status: TaskStatus { state: TaskState::Working, ..TaskStatus::default() },
        ..Task::default()
    };
    let long_ago = Timestamp::UNIX_EPOCH;
    let new = NewTask {
        owner: Owner { agent: Some(name.into()), ..Owner::default() },
        events: vec![TaskEvent::Created(Arc::new(task))],
        now: long_ago,
        followed: false,
        lease_until: long_ago,
        idempotency: None,
        push: None,
    };
    assert!(matches!(store.create(new).await, Ok(Created::New { .. })));
    store
}

#[tokio::test]
async fn an_interrupted_turn_runs_again_on_its_own_agent() {
    let store = with_dead_turn("two").await;
    let (agent, mut stage) = stage();
    let never: BoxAgent = restartable(agent_fn(|_: Turn| async { panic!("the wrong agent") })).boxed();
    let server = Server::new(never.clone()).agent("one", NamedAgent::new(never)).unwrap();
    let server = server.agent("two", NamedAgent::new(restartable(agent))).unwrap().shared_store(store);
    let server = serve(server).await;
    let act = stage.turn().await;
    assert!(act.turn().is_rerun());
    let id = act.task_id();
    act.complete().await;
    drop(act);
    let task = server.ask("GetTask", json!({"id": id})).of_agent("two").ok(Binding::JsonRpc).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn the_log_names_the_agent_and_the_path_that_the_client_asked_for() {
    let ear = Ear::new();
    let server = two().await;
    server.ask("ListTasks", json!({})).of_agent("one").ok(Binding::HttpJson).await;
    fetch(server.http(Method::GET, "/agents/one/nothing")).await;
    let lines = ear.all();
    for expected in [r#"agent="one" operation="ListTasks""#, r#"operation="GET /agents/one/nothing""#] {
        assert!(lines.iter().any(|line| line.contains(expected)), "{expected}: {lines:#?}");
    }
}

#[test]
fn names_are_checked_and_unique() {
    assert!(matches!(player().agent("", named("x")), Err(AddAgentError::Name(_))));
    let twice = player().agent("one", named("x")).unwrap().agent("one", named("y"));
    assert!(matches!(twice, Err(AddAgentError::Twice(_))));
}
