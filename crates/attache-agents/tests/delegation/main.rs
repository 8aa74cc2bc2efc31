//! Tasks for other agents: given by functions and over HTTP, recorded, bounded and guarded.

mod continuing;
mod credentials;
mod engine_http;
mod http;
mod support;

use std::sync::Arc;
use std::time::Duration;

use attache_agents::delegation::DelegationOptions;
use attache_core::{MemoryStore, Store};
use attache_outbound::Policy;
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use self::support::{House, Office, near, soon};

const ENDED: [&str; 3] = ["completed", "failed", "cancelled"];

fn words(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_task_is_delegated_to_an_agent_of_protocol_1_0() {
    let (mut office, house) = (Office::open("Office").await, House::new());
    let sent = house
        .call(
            "a2a::send_task",
            json!({"agentUrl": office.url(), "message": "Analyze", "sessionId": "s-1", "metadata": {"priority": "high"}}),
        )
        .await;
    assert_eq!(soon(office.heard.recv()).await.unwrap(), "s-1: Analyze");
    assert_eq!(sent["sessionId"], "s-1");
    assert_eq!(sent["metadata"]["priority"], "high");
    assert_eq!(sent["metadata"]["agentUrl"], office.url());
    assert!(sent["createdAt"].as_i64().unwrap() > 1_700_000_000_000, "{sent}");
    let done = house.until(&sent, &ENDED).await;
    assert_eq!((done["status"]["state"].as_str(), words(&done)), (Some("completed"), "echo: Analyze"));
    assert_eq!(done["artifacts"][0]["parts"][0], json!({"type": "text", "text": "echo: Analyze"}));
    assert_eq!(done["history"][0]["parts"][0]["text"], "Analyze");
    assert_ne!(done["metadata"]["remoteTaskId"], done["id"], "the agent names its tasks itself");
}

#[tokio::test]
async fn a_task_has_the_same_id_at_an_agent_of_protocol_0_1() {
    let (mut office, house) = (Office::open("Office").await, House::new());
    let sent = house.call("a2a::send_task", json!({"agentUrl": office.oldest(), "message": "Analyze"})).await;
    assert_eq!((sent["status"]["state"].as_str(), words(&sent)), (Some("completed"), "echo: Analyze"));
    assert_eq!(sent["metadata"]["remoteTaskId"], sent["id"]);
    let heard = soon(office.heard.recv()).await.unwrap();
    assert_eq!(heard, format!("{}: Analyze", sent["sessionId"].as_str().unwrap()));
    let again = house.call("a2a::get_task", json!({"taskId": sent["id"], "agentUrl": office.oldest()})).await;
    assert_eq!(again, sent);
}

#[tokio::test]
async fn a_message_in_response_completes_the_task() {
    let (office, house) = (Office::open("Office").await, House::new());
    let sent = house.call("a2a::send_task", json!({"agentUrl": office.url(), "message": "reply yes"})).await;
    assert_eq!((sent["status"]["state"].as_str(), words(&sent)), (Some("completed"), "yes"));
    assert_eq!(sent["history"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_message_can_have_parts_of_every_kind() {
    let (office, house) = (Office::open("Office").await, House::new());
    let message = json!({"parts": [{"type": "text", "text": "see"}, {"type": "data", "data": {"n": 1}}]});
    let sent = house.call("a2a::send_task", json!({"agentUrl": office.url(), "message": message})).await;
    let done = house.until(&sent, &ENDED).await;
    assert_eq!(done["history"][0]["parts"], message["parts"]);
}

#[tokio::test]
async fn canceling_a_task_cancels_it_at_its_agent() {
    let (office, house) = (Office::open("Office").await, House::new());
    let sent = house.call("a2a::send_task", json!({"agentUrl": office.url(), "message": "wait"})).await;
    let id = json!({"taskId": sent["id"]});
    let canceled = house.call("a2a::cancel_task", id.clone()).await;
    assert_eq!(canceled["status"]["state"], "cancelled");
    let remote = json!({"taskId": sent["metadata"]["remoteTaskId"], "agentUrl": office.url()});
    assert_eq!(house.call("a2a::get_task", remote).await["status"]["state"], "cancelled");
    let again = house.refusal("a2a::cancel_task", id).await;
    assert_eq!(again.1, "Cannot cancel task in state: cancelled");
}

#[tokio::test]
async fn a_slow_agent_of_protocol_0_1_does_not_block_the_caller() {
    let office = Office::open("Office").await;
    let options = DelegationOptions { patience: Duration::from_millis(50), ..near() };
    let house = House::with(Arc::new(MemoryStore::new()), options);
    let sent = house.call("a2a::send_task", json!({"agentUrl": office.oldest(), "message": "wait"})).await;
    assert_eq!(sent["status"]["state"], "working");
    let canceled = house.call("a2a::cancel_task", json!({"taskId": sent["id"]})).await;
    assert_eq!(canceled["status"]["state"], "cancelled");
    let after = house.call("a2a::get_task", json!({"taskId": sent["id"]})).await;
    assert_eq!(after["status"]["state"], "cancelled", "the late answer changes nothing");
}

#[tokio::test]
async fn tasks_are_sent_to_several_agents_concurrently() {
    // None of them ends before all of them have begun.
    let together = Arc::new(Barrier::new(3));
    let offices = join_all(["a", "b", "c"].map(|name| Office::open_with(name, together.clone()))).await;
    let house = House::new();
    let sends = offices.iter().enumerate().map(|(n, office)| {
        let url = if n == 0 { office.url() } else { office.oldest() };
        house.call("a2a::send_task", json!({"agentUrl": url, "message": "together"}))
    });
    for sent in join_all(sends).await {
        let done = house.until(&sent, &ENDED).await;
        assert_eq!(words(&done), "all are here");
    }
}

#[tokio::test]
async fn a_discovered_card_is_stored_and_listed() {
    let (office, store) = (Office::open("Office").await, Arc::new(MemoryStore::new()));
    let house = House::with(store.clone(), near());
    let found = house.call("a2a::discover", json!({"url": office.url()})).await;
    assert_eq!(found["discovered"], true);
    let card = &found["card"];
    assert_eq!((&card["name"], &card["capabilities"]["tools"]), (&json!("Office"), &json!(["paper"])));
    assert!(card["authentication"]["schemes"].is_array());
    let again = House::with(store, near());
    again.ready().await;
    let cards = again.call("a2a::list_cards", json!({})).await;
    let names: Vec<_> = cards.as_array().unwrap().iter().map(|card| card["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["iii-engine", "Office"]);
    assert_eq!(cards[0]["url"], "http://house.example/a2a/rpc");
    assert_eq!(cards[0]["capabilities"]["tools"], json!(["agent::chat"]), "what delegates is not exposed");
}

#[tokio::test]
async fn a_created_card_has_the_documented_shape() {
    let house = House::new();
    let skills = json!([{"id": "code-review", "name": "Code Review", "description": "Review code",
        "tags": ["code"], "examples": ["Review this PR"]}]);
    let input = json!({"baseUrl": "https://your-agent.example.com", "name": "code-analyzer", "description": "Analyzes", "skills": skills});
    let card = house.call("a2a::agent_card", input).await;
    insta::assert_snapshot!(
        serde_json::to_string_pretty(&card).unwrap().replace(env!("CARGO_PKG_VERSION"), "VERSION")
    );
    assert_eq!(house.call("state::get", json!({"scope": "a2a", "key": "agent_card"})).await, card);
}

#[tokio::test]
async fn an_incoming_request_goes_to_the_default_function() {
    let house = House::new();
    house.ready().await;
    let request = json!({"jsonrpc": "2.0", "id": "req-123", "method": "tasks/send", "params": {
        "id": "task-abc-456", "sessionId": "session-xyz",
        "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}, "metadata": {}}});
    let answer = house.call("a2a::handle_task", request).await;
    assert_eq!(answer["id"], "req-123");
    assert_eq!(answer["result"]["id"], "task-abc-456");
    assert_eq!(answer["result"]["sessionId"], "session-xyz");
    assert_eq!(answer["result"]["artifacts"][0]["parts"][0]["text"], "you said hi");
    let wrapped =
        json!({"body": {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "task-abc-456"}}});
    let answer = house.call("a2a::handle_task", wrapped).await;
    assert_eq!(answer["result"]["status"]["state"], "completed");
    let unknown = json!({"jsonrpc": "2.0", "id": 2, "method": "tasks/get", "params": {"id": "nope"}});
    assert_eq!(house.call("a2a::handle_task", unknown).await["error"]["code"], -32001);
}

#[tokio::test]
async fn errors_in_the_input_have_the_documented_text() {
    let house = House::new();
    for (function, payload, text) in [
        ("a2a::discover", json!({}), "url is required"),
        ("a2a::send_task", json!({"message": "hi"}), "agentUrl is required"),
        ("a2a::send_task", json!({"agentUrl": "https://a.example"}), "message is required"),
        ("a2a::get_task", json!({}), "taskId is required"),
        ("a2a::cancel_task", json!(null), "taskId is required"),
        ("a2a::agent_card", json!({}), "baseUrl is required"),
        ("a2a::get_task", json!({"taskId": "nope"}), "Task not found: nope"),
        ("a2a::cancel_task", json!({"body": {"taskId": "nope"}}), "Task not found: nope"),
        (
            "a2a::send_task",
            json!({"agentUrl": "https://a.example", "message": "hi", "metadata": 7}),
            "`metadata` must be an object",
        ),
    ] {
        assert_eq!(house.refusal(function, payload).await.1, text);
    }
}

#[tokio::test]
async fn an_error_of_the_agent_has_its_code() {
    let (office, house) = (Office::open("Office").await, House::new());
    for url in [office.url(), office.oldest()] {
        let (code, text) = house.refusal("a2a::get_task", json!({"taskId": "t", "agentUrl": url})).await;
        assert_eq!(code, "task_not_found");
        assert!(text.starts_with("A2A error -32001: "), "{text}");
    }
}

#[tokio::test]
async fn an_agent_that_cannot_be_reached_is_an_error() {
    let (office, house) = (Office::open("Office").await, House::new());
    let url = office.url();
    drop(office);
    let (code, text) = house.refusal("a2a::send_task", json!({"agentUrl": url, "message": "hi"})).await;
    assert!(code == "agent_unreachable" && text.starts_with("a2a fetch failed: "), "{text}");
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused() {
    let house = House::with(Arc::new(MemoryStore::new()), DelegationOptions::default());
    for url in [
        "http://127.0.0.1:3111",
        "http://[::1]:9/a2a/rpc",
        "http://[::ffff:127.0.0.1]/",
        "http://localhost/",
        "http://localhost./",
        "http://169.254.169.254/latest/meta-data",
        "http://metadata.google.internal/",
        "http://10.0.0.1/",
        "http://user:secret@example.com/",
        "http://2130706433/",
        "ftp://example.com/",
        "not a url",
    ] {
        for (function, payload) in [
            ("a2a::discover", json!({"url": url})),
            ("a2a::send_task", json!({"agentUrl": url, "message": "hi"})),
            ("a2a::get_task", json!({"taskId": "t", "agentUrl": url})),
            ("a2a::cancel_task", json!({"taskId": "t", "agentUrl": url})),
        ] {
            let (code, text) = house.refusal(function, payload).await;
            assert_eq!(code, "blocked", "{url}: {text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_card_cannot_name_a_blocked_address() {
    use axum::Json;
    use axum::routing::get;
    // The guard lets this network through, and the card leads to another one.
    let card =
        json!({"name": "Trap", "url": "http://169.254.169.254/a2a/rpc", "authentication": {"schemes": []}});
    let app = axum::Router::new().route("/.well-known/agent.json", get(|| async { Json(card) }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async { axum::serve(listener, app).await });
    let policy = Policy::default().allow(["127.0.0.0/8".parse().unwrap()]);
    let house = House::with(
        Arc::new(MemoryStore::new()),
        DelegationOptions { policy, ..DelegationOptions::default() },
    );
    let (code, _) = house.refusal("a2a::send_task", json!({"agentUrl": url, "message": "hi"})).await;
    assert_eq!(code, "blocked");
    serving.abort();
}

#[tokio::test]
async fn records_survive_a_restart() {
    let (office, store) = (Office::open("Office").await, Arc::new(MemoryStore::new()));
    let before = House::with(store.clone(), near());
    let done = before.call("a2a::send_task", json!({"agentUrl": office.oldest(), "message": "hi"})).await;
    let waiting = before.call("a2a::send_task", json!({"agentUrl": office.url(), "message": "wait"})).await;
    drop(before);
    let after = House::with(store, near());
    assert_eq!(after.call("a2a::get_task", json!({"taskId": done["id"]})).await, done);
    let canceled = after.call("a2a::cancel_task", json!({"taskId": waiting["id"]})).await;
    assert_eq!(canceled["status"]["state"], "cancelled", "it is known where the task is");
}

#[tokio::test]
async fn a_full_table_removes_only_tasks_that_have_ended() {
    let (office, store) = (Office::open("Office").await, Arc::new(MemoryStore::new()));
    let house = House::with(store.clone(), DelegationOptions { max_tasks: 2, ..near() });
    let send = |text: &str| json!({"agentUrl": office.url(), "message": text});
    let waiting = house.call("a2a::send_task", send("wait")).await;
    // It ends without anyone looking, which is found out when the room is needed.
    let unseen = house.call("a2a::send_task", send("hi")).await;
    let remote = json!({"taskId": unseen["metadata"]["remoteTaskId"], "agentUrl": office.url()});
    soon(async {
        while house.call("a2a::get_task", remote.clone()).await["status"]["state"] != "completed" {}
    })
    .await;
    let third = house.call("a2a::send_task", send("wait")).await;
    assert_eq!(house.refusal("a2a::get_task", json!({"taskId": unseen["id"]})).await.0, "task_not_found");
    let (code, text) = house.refusal("a2a::send_task", send("one too many")).await;
    assert!(code == "too_many_tasks" && text.contains("2 delegated tasks under way"), "{text}");
    for task in [waiting, third] {
        assert_eq!(
            house.call("a2a::get_task", json!({"taskId": task["id"]})).await["status"]["state"],
            "working"
        );
    }
    assert_eq!(store.values().list("a2a_tasks").await.unwrap().len(), 2);
}

#[tokio::test]
async fn the_documented_research_loop_collects_all_findings() {
    let house = House::new();
    let offices = join_all(["research-1", "research-2", "research-3"].map(Office::open)).await;
    let cards =
        join_all(offices.iter().map(|office| house.call("a2a::discover", json!({"url": office.url()}))))
            .await;
    assert!(cards.iter().all(|found| found["discovered"] == true));
    let sends = offices.iter().enumerate().map(|(i, office)| {
        let message = format!("Research aspect {} of quantum computing", i + 1);
        house.call(
            "a2a::send_task",
            json!({"agentUrl": office.oldest(), "message": message, "metadata": {"aspect": i + 1}}),
        )
    });
    let mut findings = Vec::new();
    for task in join_all(sends).await {
        let asked = json!({"taskId": task["id"], "agentUrl": task["metadata"]["agentUrl"]});
        let status = house.call("a2a::get_task", asked).await;
        assert_eq!(status["status"]["state"], "completed");
        findings.push(words(&status).to_owned());
    }
    assert_eq!(findings[2], "echo: Research aspect 3 of quantum computing");
    assert_eq!(findings.len(), 3);
}

#[tokio::test]
async fn the_default_function_gets_the_history_of_the_session() {
    let house = House::new();
    house.ready().await;
    let say = async |session: &str, text: &str| {
        let message = json!({"role": "user", "parts": [{"type": "text", "text": text}]});
        let params = json!({"id": format!("{session}-{text}"), "sessionId": session, "message": message});
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": params});
        let answer = house.call("a2a::handle_task", request).await;
        answer["result"]["artifacts"][0]["parts"][0]["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(say("s1", "one").await, "you said one");
    assert_eq!(say("s1", "two").await, "user: one; agent: you said one; you said two");
    assert_eq!(say("s2", "three").await, "you said three", "another session");
}
