//! Delegation to other agents, by functions and over HTTP: protocol versions, records, limits, and the policy for addresses.

mod continuing;
mod credentials;
mod engine_http;
mod handmade;
mod http;
mod support;

use std::sync::Arc;
use std::time::Duration;

use attache_agents::delegation::DelegationOptions;
use attache_client::{Algorithm, Verifier};
use attache_core::{MemoryStore, Store};
use attache_outbound::Policy;
use attache_protocol::Timestamp;
use attache_server::SigningKeys;
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use self::support::{Delegator, TestAgent, in_time, local_options};

const ENDED: [&str; 3] = ["completed", "failed", "cancelled"];

fn status_text(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_task_is_delegated_to_an_agent_of_protocol_1_0() {
    let (mut agent, delegator) = (TestAgent::start("Office").await, Delegator::new());
    let sent = delegator
        .call(
            "a2a::send_task",
            json!({"agentUrl": agent.url(), "message": "Analyze", "sessionId": "s-1", "metadata": {"priority": "high"}}),
        )
        .await;
    assert_eq!(in_time(agent.received.recv()).await.unwrap(), "s-1: Analyze");
    assert_eq!(sent["sessionId"], "s-1");
    assert_eq!(sent["metadata"]["priority"], "high");
    assert_eq!(sent["metadata"]["agentUrl"], agent.url());
    assert!(sent["createdAt"].as_i64().unwrap() > 1_700_000_000_000, "{sent}");
    let done = delegator.until(&sent, &ENDED).await;
    assert_eq!((done["status"]["state"].as_str(), status_text(&done)), (Some("completed"), "echo: Analyze"));
    assert_eq!(done["artifacts"][0]["parts"][0], json!({"type": "text", "text": "echo: Analyze"}));
    assert_eq!(done["history"][0]["parts"][0]["text"], "Analyze");
    assert_ne!(done["metadata"]["remoteTaskId"], done["id"], "the agent chooses the ids of its tasks");
}

#[tokio::test]
async fn a_task_has_the_same_id_at_an_agent_of_protocol_0_1() {
    let (mut agent, delegator) = (TestAgent::start("Office").await, Delegator::new());
    let sent =
        delegator.call("a2a::send_task", json!({"agentUrl": agent.v0_1_url(), "message": "Analyze"})).await;
    assert_eq!((sent["status"]["state"].as_str(), status_text(&sent)), (Some("completed"), "echo: Analyze"));
    assert_eq!(sent["metadata"]["remoteTaskId"], sent["id"]);
    let received = in_time(agent.received.recv()).await.unwrap();
    assert_eq!(received, format!("{}: Analyze", sent["sessionId"].as_str().unwrap()));
    let again =
        delegator.call("a2a::get_task", json!({"taskId": sent["id"], "agentUrl": agent.v0_1_url()})).await;
    assert_eq!(again, sent);
}

#[tokio::test]
async fn a_message_in_response_completes_the_task() {
    let (agent, delegator) = (TestAgent::start("Office").await, Delegator::new());
    let sent =
        delegator.call("a2a::send_task", json!({"agentUrl": agent.url(), "message": "reply yes"})).await;
    assert_eq!((sent["status"]["state"].as_str(), status_text(&sent)), (Some("completed"), "yes"));
    assert_eq!(sent["history"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_message_can_have_parts_of_every_kind() {
    let (agent, delegator) = (TestAgent::start("Office").await, Delegator::new());
    let message = json!({"parts": [{"type": "text", "text": "see"}, {"type": "data", "data": {"n": 1}}]});
    let sent = delegator.call("a2a::send_task", json!({"agentUrl": agent.url(), "message": message})).await;
    let done = delegator.until(&sent, &ENDED).await;
    assert_eq!(done["history"][0]["parts"], message["parts"]);
}

#[tokio::test]
async fn canceling_a_task_cancels_it_at_its_agent() {
    let (agent, delegator) = (TestAgent::start("Office").await, Delegator::new());
    let sent = delegator
        .call("a2a::send_task", json!({"agentUrl": agent.url(), "message": "wait", "wait": 0}))
        .await;
    let id = json!({"taskId": sent["id"]});
    let canceled = delegator.call("a2a::cancel_task", id.clone()).await;
    assert_eq!(canceled["status"]["state"], "cancelled");
    let remote = json!({"taskId": sent["metadata"]["remoteTaskId"], "agentUrl": agent.url()});
    assert_eq!(delegator.call("a2a::get_task", remote).await["status"]["state"], "cancelled");
    let again = delegator.error("a2a::cancel_task", id).await;
    assert_eq!(again.1, "Cannot cancel task in state: cancelled");
}

#[tokio::test]
async fn a_slow_agent_of_protocol_0_1_does_not_block_the_caller() {
    let agent = TestAgent::start("Office").await;
    let options = local_options().with(|options| options.max_wait = Duration::from_millis(50));
    let delegator = Delegator::with(Arc::new(MemoryStore::new()), options);
    let sent =
        delegator.call("a2a::send_task", json!({"agentUrl": agent.v0_1_url(), "message": "wait"})).await;
    assert_eq!(sent["status"]["state"], "working");
    let canceled = delegator.call("a2a::cancel_task", json!({"taskId": sent["id"]})).await;
    assert_eq!(canceled["status"]["state"], "cancelled");
    let after = delegator.call("a2a::get_task", json!({"taskId": sent["id"]})).await;
    assert_eq!(after["status"]["state"], "cancelled", "the late response changes nothing");
}

#[tokio::test]
async fn sending_waits_until_the_task_has_ended_or_needs_input() {
    let (agent, delegator) = (TestAgent::start("Office").await, Delegator::new());
    for (text, state) in [("hi", "completed"), ("fail no paper", "failed"), ("ask which?", "input-required")]
    {
        let sent = delegator.call("a2a::send_task", json!({"agentUrl": agent.url(), "message": text})).await;
        assert_eq!(sent["status"]["state"], state, "{sent}");
    }
}

#[tokio::test]
async fn a_caller_chooses_how_long_it_waits() {
    let barrier = Arc::new(Barrier::new(2));
    let (agent, delegator) =
        (TestAgent::start_with_barrier("Office", barrier.clone()).await, Delegator::new());
    for url in [agent.url(), agent.v0_1_url()] {
        let send = json!({"agentUrl": url, "message": "barrier", "wait": 0});
        let sent = delegator.call("a2a::send_task", send).await;
        assert!(matches!(sent["status"]["state"].as_str(), Some("submitted" | "working")), "{sent}");
        let known = json!({"taskId": sent["id"], "wait": "0.05"});
        let known = delegator.call("a2a::get_task", known).await;
        assert!(matches!(known["status"]["state"].as_str(), Some("submitted" | "working")), "{known}");
        // Without `wait`, the caller gets the end of the task.
        let ended = delegator.call("a2a::get_task", json!({"taskId": sent["id"]}));
        let (ended, _) = tokio::join!(ended, barrier.wait());
        assert_eq!(ended["status"]["state"], "completed", "{ended}");
    }
    let wrong = json!({"agentUrl": agent.url(), "message": "hi", "wait": "long"});
    let (code, text) = delegator.error("a2a::send_task", wrong).await;
    assert_eq!(
        (code.as_str(), text.as_str()),
        ("invalid_input", "`wait` must be a number of seconds from 0 to 600")
    );
}

#[tokio::test]
async fn tasks_are_sent_to_several_agents_concurrently() {
    // No agent completes its task before all agents have started theirs.
    let barrier = Arc::new(Barrier::new(3));
    let agents =
        join_all(["a", "b", "c"].map(|name| TestAgent::start_with_barrier(name, barrier.clone()))).await;
    let delegator = Delegator::new();
    let sends = agents.iter().enumerate().map(|(n, agent)| {
        let url = if n == 0 { agent.url() } else { agent.v0_1_url() };
        delegator.call("a2a::send_task", json!({"agentUrl": url, "message": "barrier"}))
    });
    for sent in join_all(sends).await {
        let done = delegator.until(&sent, &ENDED).await;
        assert_eq!(status_text(&done), "all are here");
    }
}

#[tokio::test]
async fn a_discovered_card_is_stored_and_listed() {
    let (agent, store) = (TestAgent::start("Office").await, Arc::new(MemoryStore::new()));
    let delegator = Delegator::with(store.clone(), local_options());
    let found = delegator.call("a2a::discover", json!({"url": agent.url()})).await;
    assert_eq!(found["discovered"], true);
    let card = &found["card"];
    assert_eq!((&card["name"], &card["capabilities"]["tools"]), (&json!("Office"), &json!(["paper"])));
    assert!(card["authentication"]["schemes"].is_array());
    let again = Delegator::with(store, local_options());
    again.ready().await;
    let cards = again.call("a2a::list_cards", json!({})).await;
    let names: Vec<_> = cards.as_array().unwrap().iter().map(|card| card["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Attaché", "Office"]);
    assert_eq!(cards[0]["url"], "http://delegator.example/a2a/rpc");
    assert_eq!(
        cards[0]["capabilities"]["tools"],
        json!(["agent::chat"]),
        "the functions of delegation are not exposed"
    );
}

#[tokio::test]
async fn a_created_card_has_the_documented_shape() {
    let delegator = Delegator::new();
    let skills = json!([{"id": "code-review", "name": "Code Review", "description": "Review code",
        "tags": ["code"], "examples": ["Review this PR"]}]);
    let input = json!({"baseUrl": "https://your-agent.example.com", "name": "code-analyzer", "description": "Analyzes", "skills": skills});
    let card = delegator.call("a2a::agent_card", input).await;
    insta::assert_snapshot!(
        serde_json::to_string_pretty(&card).unwrap().replace(env!("CARGO_PKG_VERSION"), "VERSION")
    );
    assert_eq!(delegator.call("state::get", json!({"scope": "a2a", "key": "agent_card"})).await, card);
    let wrong = json!({"baseUrl": "https://your-agent.example.com", "skills": [{"name": "nameless"}]});
    assert!(
        delegator.error("a2a::agent_card", wrong).await.1.starts_with("`skills` must be a list of skills")
    );
}

#[tokio::test]
async fn a_created_card_is_served_also_after_a_restart() {
    let store = Arc::new(MemoryStore::new());
    let delegator = Delegator::with(store.clone(), local_options());
    delegator.ready().await;
    let usual = delegator.served_card("Attaché").await;
    assert_eq!(
        delegator.call("a2a::list_cards", json!({})).await[0],
        usual,
        "the own card is the served one"
    );
    assert_eq!(usual["capabilities"]["pushNotifications"], true);
    let skills =
        json!([{"id": "code-review", "name": "Code Review", "description": "Review code", "tags": ["code"]}]);
    let input = json!({"baseUrl": "http://delegator.example", "name": "code-analyzer", "skills": skills});
    let created = delegator.call("a2a::agent_card", input).await;
    assert_eq!(delegator.served_card("code-analyzer").await, created);
    drop(delegator);
    let again = Delegator::with(store, local_options());
    again.delegation.restore_own_card().await;
    assert_eq!(again.served_card("code-analyzer").await, created);
    let input = json!({"baseUrl": "http://delegator.example"});
    again.call("a2a::agent_card", input).await;
    again.served_card("Attaché").await;
}

#[tokio::test]
async fn an_incoming_request_goes_to_the_default_function() {
    let delegator = Delegator::new();
    delegator.ready().await;
    let request = json!({"jsonrpc": "2.0", "id": "req-123", "method": "tasks/send", "params": {
        "id": "task-abc-456", "sessionId": "session-xyz",
        "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}, "metadata": {}}});
    let answer = delegator.call("a2a::handle_task", request).await;
    assert_eq!(answer["id"], "req-123");
    assert_eq!(answer["result"]["id"], "task-abc-456");
    assert_eq!(answer["result"]["sessionId"], "session-xyz");
    assert_eq!(answer["result"]["artifacts"][0]["parts"][0]["text"], "you said hi");
    let wrapped =
        json!({"body": {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "task-abc-456"}}});
    let answer = delegator.call("a2a::handle_task", wrapped).await;
    assert_eq!(answer["result"]["status"]["state"], "completed");
    let unknown = json!({"jsonrpc": "2.0", "id": 2, "method": "tasks/get", "params": {"id": "nope"}});
    assert_eq!(delegator.call("a2a::handle_task", unknown).await["error"]["code"], -32001);
}

#[tokio::test]
async fn errors_in_the_input_have_the_documented_text() {
    let delegator = Delegator::new();
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
        assert_eq!(delegator.error(function, payload).await.1, text);
    }
}

#[tokio::test]
async fn an_error_of_the_agent_has_its_code() {
    let (agent, delegator) = (TestAgent::start("Office").await, Delegator::new());
    for url in [agent.url(), agent.v0_1_url()] {
        let (code, text) = delegator.error("a2a::get_task", json!({"taskId": "t", "agentUrl": url})).await;
        assert_eq!(code, "task_not_found");
        assert!(text.starts_with("A2A error -32001: "), "{text}");
    }
}

#[tokio::test]
async fn an_agent_that_cannot_be_reached_is_an_error() {
    let (agent, delegator) = (TestAgent::start("Office").await, Delegator::new());
    let url = agent.url();
    drop(agent);
    let (code, text) = delegator.error("a2a::send_task", json!({"agentUrl": url, "message": "hi"})).await;
    assert!(code == "agent_unreachable" && text.starts_with("a2a fetch failed: "), "{text}");
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused() {
    let delegator = Delegator::with(Arc::new(MemoryStore::new()), DelegationOptions::default());
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
            let (code, text) = delegator.error(function, payload).await;
            assert_eq!(code, "blocked", "{url}: {text}");
            assert!(!text.contains("secret"), "{text}");
            let here =
                ["127.0.0.1", "localhost/", "[::1]", "2130706433"].iter().any(|host| url.contains(host));
            assert_eq!(text.contains("`--allow-loopback-agents`"), here, "{text}");
        }
    }
}

#[tokio::test]
async fn a_card_cannot_name_a_blocked_address() {
    use axum::Json;
    use axum::routing::get;
    // The policy allows this network, and the card names an address in another one.
    let card =
        json!({"name": "Other", "url": "http://169.254.169.254/a2a/rpc", "authentication": {"schemes": []}});
    let app = axum::Router::new().route("/.well-known/agent.json", get(|| async { Json(card) }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async { axum::serve(listener, app).await });
    let policy = Policy::default().allow(["127.0.0.0/8".parse().unwrap()]);
    let delegator = Delegator::with(
        Arc::new(MemoryStore::new()),
        DelegationOptions::default().with(|options| options.policy = policy),
    );
    let (code, _) = delegator.error("a2a::send_task", json!({"agentUrl": url, "message": "hi"})).await;
    assert_eq!(code, "blocked");
    serving.abort();
}

#[tokio::test]
async fn a_card_with_signatures_must_have_one_of_a_trusted_key() {
    let new_keys = || SigningKeys::in_memory(Algorithm::Es256, Timestamp::from_millis(0)).unwrap();
    let keys = new_keys();
    let (signed, unsigned) =
        (TestAgent::start_signed(keys.clone()).await, TestAgent::start("Unsigned").await);
    let trusting = |keys: Option<&SigningKeys>| {
        let card_trust = keys.map(|keys| Verifier::new().pin(keys.current().public_keys()));
        Delegator::with(
            Arc::new(MemoryStore::new()),
            local_options().with(|options| options.card_trust = card_trust),
        )
    };
    for delegator in [trusting(Some(&keys)), trusting(None)] {
        for agent in [&signed, &unsigned] {
            delegator.call("a2a::discover", json!({"url": agent.url()})).await;
            let sent =
                delegator.call("a2a::send_task", json!({"agentUrl": agent.url(), "message": "hi"})).await;
            assert_eq!(sent["status"]["state"], "completed", "{sent}");
        }
    }
    let wrong = trusting(Some(&new_keys()));
    for (function, payload) in [
        ("a2a::discover", json!({"url": signed.url()})),
        ("a2a::send_task", json!({"agentUrl": signed.url(), "message": "hi"})),
    ] {
        let (code, text) = wrong.error(function, payload).await;
        assert_eq!(code, "card_untrusted", "{text}");
        assert!(text.starts_with("the card is not trusted: "), "{text}");
    }
    wrong.call("a2a::discover", json!({"url": unsigned.url()})).await;
}

#[tokio::test]
async fn records_survive_a_restart() {
    let (agent, store) = (TestAgent::start("Office").await, Arc::new(MemoryStore::new()));
    let before = Delegator::with(store.clone(), local_options());
    let done = before.call("a2a::send_task", json!({"agentUrl": agent.v0_1_url(), "message": "hi"})).await;
    let waiting =
        before.call("a2a::send_task", json!({"agentUrl": agent.url(), "message": "wait", "wait": 0})).await;
    drop(before);
    let after = Delegator::with(store, local_options());
    assert_eq!(after.call("a2a::get_task", json!({"taskId": done["id"]})).await, done);
    let canceled = after.call("a2a::cancel_task", json!({"taskId": waiting["id"]})).await;
    assert_eq!(canceled["status"]["state"], "cancelled", "the record has the address of the agent");
}

#[tokio::test]
async fn a_full_table_removes_only_tasks_that_have_ended() {
    let (agent, store) = (TestAgent::start("Office").await, Arc::new(MemoryStore::new()));
    let delegator = Delegator::with(store.clone(), local_options().with(|options| options.max_tasks = 2));
    let send = |text: &str| json!({"agentUrl": agent.url(), "message": text, "wait": 0});
    let waiting = delegator.call("a2a::send_task", send("wait")).await;
    // It ends without a request for it. The table notices that when it is full.
    let unseen = delegator.call("a2a::send_task", send("hi")).await;
    let remote = json!({"taskId": unseen["metadata"]["remoteTaskId"], "agentUrl": agent.url(), "wait": 0});
    in_time(async {
        while delegator.call("a2a::get_task", remote.clone()).await["status"]["state"] != "completed" {}
    })
    .await;
    let third = delegator.call("a2a::send_task", send("wait")).await;
    assert_eq!(delegator.error("a2a::get_task", json!({"taskId": unseen["id"]})).await.0, "task_not_found");
    let (code, text) = delegator.error("a2a::send_task", send("one too many")).await;
    assert!(code == "too_many_tasks" && text.contains("2 delegated tasks under way"), "{text}");
    for task in [waiting, third] {
        assert_eq!(
            delegator.call("a2a::get_task", json!({"taskId": task["id"], "wait": 0})).await["status"]["state"],
            "working"
        );
    }
    assert_eq!(store.values().list("a2a_tasks").await.unwrap().len(), 2);
}

#[tokio::test]
async fn the_documented_research_loop_collects_all_findings() {
    let delegator = Delegator::new();
    let agents = join_all(["research-1", "research-2", "research-3"].map(TestAgent::start)).await;
    let cards =
        join_all(agents.iter().map(|agent| delegator.call("a2a::discover", json!({"url": agent.url()}))))
            .await;
    assert!(cards.iter().all(|found| found["discovered"] == true));
    let sends = agents.iter().enumerate().map(|(i, agent)| {
        let message = format!("Research aspect {} of quantum computing", i + 1);
        delegator.call(
            "a2a::send_task",
            json!({"agentUrl": agent.v0_1_url(), "message": message, "metadata": {"aspect": i + 1}}),
        )
    });
    let mut findings = Vec::new();
    for task in join_all(sends).await {
        let asked = json!({"taskId": task["id"], "agentUrl": task["metadata"]["agentUrl"]});
        let status = delegator.call("a2a::get_task", asked).await;
        assert_eq!(status["status"]["state"], "completed");
        findings.push(status_text(&status).to_owned());
    }
    assert_eq!(findings[2], "echo: Research aspect 3 of quantum computing");
    assert_eq!(findings.len(), 3);
}

#[tokio::test]
async fn the_default_function_gets_the_history_of_the_session() {
    let delegator = Delegator::new();
    delegator.ready().await;
    let say = async |session: &str, text: &str| {
        let message = json!({"role": "user", "parts": [{"type": "text", "text": text}]});
        let params = json!({"id": format!("{session}-{text}"), "sessionId": session, "message": message});
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": params});
        let answer = delegator.call("a2a::handle_task", request).await;
        answer["result"]["artifacts"][0]["parts"][0]["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(say("s1", "one").await, "you said one");
    assert_eq!(say("s1", "two").await, "user: one; agent: you said one; you said two");
    assert_eq!(say("s2", "three").await, "you said three", "another session");
}
