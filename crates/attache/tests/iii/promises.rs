//! What holds with every SDK. A worker called `shop` has the functions in `workers/`, the same in each language.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Engine, Sdk, failure, quiet_address, until};

/// Well before any call would time out.
const AT_ONCE: Duration = Duration::from_secs(5);

fn order() -> Value {
    json!({"sku": "A-1", "quantity": 2})
}

pub(crate) async fn a_skill_is_in_the_card_within_a_second(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    engine.result("shop::change", json!({"name": "extra", "wanted": true})).await;
    let registered = Instant::now();
    engine.until_skill("shop::extra", true).await;
    assert!(registered.elapsed() < Duration::from_secs(1), "it took {:?}", registered.elapsed());
    assert_eq!(engine.result("shop::extra", order()).await, json!({"price": 42, "sku": "A-1"}));
}

pub(crate) async fn a_skill_is_called_and_its_payload_is_checked(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let card = engine.card().await;
    let skills = card["skills"].as_array().expect("there are skills");
    let quote = skills.iter().find(|skill| skill["id"] == "shop::quote").expect("the skill is in the card");
    assert_eq!(quote["description"], "Quote a price");
    assert_eq!(quote["examples"], json!([r#"shop::quote {"sku": "A-1", "quantity": 2}"#]));
    assert!(!skills.iter().any(|skill| skill["id"] == "shop::item"), "it is not exposed");

    let task = engine.call("shop::quote", order()).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let parts = json!([{"data": {"price": 42, "sku": "A-1"}, "mediaType": "application/json"}]);
    assert_eq!(task["artifacts"][0]["parts"], parts);

    let task = engine.call("shop::quote", json!({"sku": 7, "quantity": 2})).await;
    assert!(failure(&task).contains("payload.sku"), "{task}");
}

pub(crate) async fn the_smoke_path_of_the_document_works(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let sent = |part: Value| json!({"message": {"messageId": "m1", "role": "user", "parts": [part]}});
    let by_data = json!({"data": {"function_id": "shop::quote", "payload": order()}});
    let by_text = json!({"text": "shop::quote {\"sku\": \"A-1\", \"quantity\": 2}"});
    for part in [by_data, by_text] {
        let task = engine.documented("message/send", sent(part)).await["task"].clone();
        assert_eq!(task["status"]["state"], "completed", "{task}");
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], "{\n  \"price\": 42,\n  \"sku\": \"A-1\"\n}");
        let again = engine.documented("tasks/get", json!({"id": task["id"]})).await["task"].clone();
        assert_eq!(again["status"]["state"], "completed", "{again}");
        assert_eq!(again["artifacts"], task["artifacts"]);
    }
    let gates = [
        ("shop::item", "There is no function 'shop::item'. You can call: "),
        (
            "state::set",
            "Function 'state::set' is in the iii-engine internal namespace and is not exposed as an A2A skill",
        ),
    ];
    for (function, words) in gates {
        let part = json!({"data": {"function_id": function, "payload": {}}});
        let task = engine.documented("message/send", sent(part)).await["task"].clone();
        assert_eq!(task["status"]["state"], "failed", "{task}");
        let said = task["status"]["message"]["parts"][0]["text"].as_str().expect("words");
        assert!(said.starts_with(words), "{said}");
    }
}

pub(crate) async fn a_function_that_throws_fails_its_task_with_its_words(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let task = engine.call("shop::fail", json!({})).await;
    let words = failure(&task);
    assert!(words.ends_with("the shop is closed") && !words.contains("remote error"), "{words}");
}

pub(crate) async fn a_slow_function_is_canceled(sdk: Sdk) {
    let (engine, mut worker) = Engine::with(sdk).await;
    let task = engine.begin("shop::slow", json!({})).await;
    worker.slow_began().await;
    let canceled = engine.method("CancelTask", json!({"id": task})).await;
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(engine.result("shop::quote", order()).await["price"], 42, "the worker is there for others");
}

pub(crate) async fn a_function_that_takes_longer_than_it_says_is_given_up(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let began = Instant::now();
    let task = engine.call("shop::late", json!({})).await;
    assert!(failure(&task).starts_with("The function 'shop::late' did not return within "), "{task}");
    assert!(began.elapsed() >= Duration::from_millis(300), "it gave up after {:?}", began.elapsed());
    assert!(began.elapsed() < AT_ONCE, "it gave up after {:?}", began.elapsed());
}

pub(crate) async fn a_worker_calls_functions_of_another(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let _other = engine.worker(sdk, "depot").await;
    assert_eq!(engine.relayed("depot::quote", order()).await, json!({"price": 42, "sku": "A-1"}));

    let task = engine.call("shop::relay", json!({"function_id": "depot::fail"})).await;
    assert!(failure(&task).contains("the shop is closed"), "{task}");
    let task = engine.call("shop::relay", json!({"function_id": "depot::nothing"})).await;
    assert!(failure(&task).contains("Function depot::nothing not found"), "{task}");
}

pub(crate) async fn a_worker_delegates_to_another_agent(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let (other, _clerk) = Engine::with(sdk).await;
    let found = engine.relayed("a2a::discover", json!({"url": other.url})).await;
    assert_eq!(found["discovered"], true);
    let message = format!("shop::quote {}", order());
    for url in [other.url.clone(), format!("{}/a2a/rpc", other.url)] {
        let sent = json!({"agentUrl": url, "message": message, "sessionId": "s-1"});
        let task = engine.relayed("a2a::send_task", sent).await;
        let done = until("the task has ended", async || {
            let now = engine.relayed("a2a::get_task", json!({"taskId": task["id"]})).await;
            (now["status"]["state"] == "completed").then_some(now)
        });
        let done = done.await;
        assert_eq!(done["status"]["message"]["parts"][0]["data"], json!({"price": 42, "sku": "A-1"}));
        assert_eq!(done["sessionId"], "s-1");
    }
    let task = engine
        .call("shop::relay", json!({"function_id": "a2a::send_task", "payload": {"message": "hi"}}))
        .await;
    assert!(failure(&task).contains("agentUrl is required"), "{task}");
}

pub(crate) async fn a_worker_keeps_state(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let entry = |value: Value| json!({"scope": "s", "key": "k", "value": value});
    let set = engine.relayed("state::set", entry(json!({"n": 1}))).await;
    assert_eq!(set, json!({"old_value": null, "new_value": {"n": 1}}));
    let bump = json!({"scope": "s", "key": "k", "ops": [{"type": "increment", "path": "n", "by": 4}]});
    assert_eq!(engine.relayed("state::update", bump).await["new_value"], json!({"n": 5}));
    assert_eq!(engine.relayed("state::get", json!({"scope": "s", "key": "k"})).await, json!({"n": 5}));
    assert_eq!(engine.relayed("state::list", json!({"scope": "s"})).await, json!([{"n": 5}]));
    assert_eq!(engine.relayed("state::delete", json!({"scope": "s", "key": "k"})).await, json!({"n": 5}));
    assert_eq!(engine.relayed("state::get", json!({"scope": "s", "key": "k"})).await, Value::Null);
}

pub(crate) async fn a_worker_lists_functions(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let listed = engine.relayed("engine::functions::list", json!({})).await;
    let functions = listed["functions"].as_array().expect("a list of functions");
    let quote =
        functions.iter().find(|function| function["function_id"] == "shop::quote").expect("it is listed");
    assert_eq!(quote["description"], "Quote a price");
    assert_eq!(quote["metadata"]["a2a.expose"], true);
    let about = engine.relayed("engine::functions::info", json!({"function_id": "shop::quote"})).await;
    assert_eq!(about["request_schema"]["required"], json!(["sku", "quantity"]));
    assert_eq!(about["worker_name"], "shop");
}

pub(crate) async fn a_void_call_arrives(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let _other = engine.worker(sdk, "depot").await;
    let order = json!({"function_id": "depot::remember", "payload": {"key": "k", "value": 7}, "void": true});
    assert_eq!(engine.result("shop::relay", order).await, json!({"returned": null}));
    until("the void call has been carried out", async || {
        let kept = engine.relayed("state::get", json!({"scope": "depot", "key": "k"})).await;
        (kept == 7).then_some(())
    })
    .await;
}

pub(crate) async fn an_http_trigger_gets_the_request_in_pieces(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let got = engine.get("/shop/items/a:b?q=x%20y").await;
    assert_eq!(got.status(), 201);
    assert_eq!(got.headers()["x-shop"], "shop");
    let body: Value = got.json().await.expect("JSON");
    assert_eq!(body, json!({"id": "a:b", "q": "x y", "body": null, "method": "GET"}));

    let posted = engine.post("/shop/items/7", "application/json", r#"{"n": 1}"#).await;
    let body: Value = posted.json().await.expect("JSON");
    assert_eq!(body, json!({"id": "7", "q": null, "body": {"n": 1}, "method": "POST"}));
}

pub(crate) async fn a_response_is_streamed(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let streamed = engine.get("/shop/feed/3").await;
    assert_eq!(streamed.status(), 202);
    assert_eq!(streamed.headers()["content-type"], "text/event-stream");
    assert_eq!(streamed.text().await.expect("it ends"), "data: 0\n\ndata: 1\n\ndata: 2\n\n");
}

pub(crate) async fn a_body_that_is_not_json_is_read_from_its_channel(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let body = "hello".repeat(50_000);
    let uploaded = engine.post("/shop/upload", "text/plain", body).await;
    assert_eq!(uploaded.status(), 200);
    let seen: Value = uploaded.json().await.expect("JSON");
    assert_eq!(seen, json!({"length": 250_000, "begins": "hello"}));
}

pub(crate) async fn what_a_function_writes_to_its_channel_are_pieces_of_an_artifact(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let events = engine.stream("shop::tell", json!({"words": ["one ", "two ", "drü"]})).await;
    let pieces: Vec<&Value> = events.iter().filter_map(|event| event.get("artifactUpdate")).collect();
    let words: String =
        pieces.iter().filter_map(|piece| piece["artifact"]["parts"][0]["text"].as_str()).collect();
    assert_eq!(words, "one two drü");
    assert!(pieces.len() >= 3, "each piece comes when it was written: {pieces:?}");
    assert_eq!(pieces[0]["artifact"]["name"], "shop::tell");
    assert!(pieces[1..].iter().all(|piece| piece["append"] == true), "{pieces:?}");
    let last = events.last().expect("there are events");
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");

    let task = engine.call("shop::tell", json!({"words": ["a", "b"]})).await;
    assert_eq!(task["artifacts"].as_array().map(Vec::len), Some(1), "{task}");
    assert_eq!(task["artifacts"][0]["parts"], json!([{"text": "a"}, {"text": "b"}]));
}

pub(crate) async fn what_a_function_returns_after_writing_replaces_nothing(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let task = engine.call("shop::tell_text", json!({"words": ["a", "b"]})).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    let artifacts = task["artifacts"].as_array().expect("artifacts");
    let parts: Vec<&Value> =
        artifacts.iter().filter_map(|artifact| artifact["parts"].as_array()).flatten().collect();
    assert_eq!(parts.len(), 3, "{task}");
    assert_eq!((&parts[0]["text"], &parts[1]["text"]), (&json!("a"), &json!("b")));
    assert_eq!(parts[2]["data"], json!({"words": 2}));
    assert!(engine.has_skill("shop::tell_text").await, "the worker has survived it");
}

pub(crate) async fn whoever_stops_listening_harms_no_worker(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let task = engine.begin("shop::tell", json!({"words": vec!["w"; 50_000]})).await;
    until("it has begun to tell", async || {
        let task = engine.method("GetTask", json!({"id": task})).await;
        task["artifacts"][0]["parts"].is_array().then_some(())
    })
    .await;
    engine.method("CancelTask", json!({"id": task})).await;
    let mut feed = engine.get("/shop/feed/5000").await;
    feed.chunk().await.expect("it comes").expect("there is a first piece");
    drop(feed);
    assert_eq!(engine.result("shop::quote", order()).await["price"], 42);
    assert_eq!(engine.get("/shop/items/7").await.status(), 201);
}

pub(crate) async fn a_large_payload_harms_nobody_elses_call(sdk: Sdk) {
    let (engine, mut worker) = Engine::with(sdk).await;
    let slow = engine.begin("shop::slow", json!({})).await;
    worker.slow_began().await;
    let large = json!({"key": "large", "value": "x".repeat(3_000_000)});
    let task = engine.call("shop::remember", large).await;
    if sdk.takes_large_messages() {
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    } else {
        assert!(failure(&task).contains("too large"), "{}", failure(&task));
    }
    let slow = engine.method("GetTask", json!({"id": slow})).await;
    assert_eq!(slow["status"]["state"], "TASK_STATE_WORKING", "{slow}");
}

pub(crate) async fn a_worker_killed_mid_call_fails_it_at_once(sdk: Sdk) {
    let (engine, mut worker) = Engine::with(sdk).await;
    let task = engine.begin("shop::slow", json!({})).await;
    worker.slow_began().await;
    worker.kill().await;
    let killed = Instant::now();
    let task = engine.ended(&task).await;
    let words = "The worker of the function 'shop::slow' disconnected before the function returned";
    assert_eq!(failure(&task), words);
    assert!(killed.elapsed() < AT_ONCE, "it took {:?}", killed.elapsed());
}

pub(crate) async fn skills_go_with_their_worker_and_come_back_with_it(sdk: Sdk) {
    let (engine, worker) = Engine::with(sdk).await;
    worker.kill().await;
    engine.until_skill("shop::quote", false).await;
    assert_eq!(engine.get("/shop/items/7").await.status(), 404, "its routes go as well");
    let _again = engine.worker(sdk, "shop").await;
    assert_eq!(engine.result("shop::quote", order()).await["price"], 42);
    assert_eq!(engine.get("/shop/items/7").await.status(), 201);
}

pub(crate) async fn skills_come_back_after_the_engine_was_restarted(sdk: Sdk) {
    let (clients, workers) = (quiet_address(), quiet_address());
    let engine = Engine::start_at(&clients, &workers).await;
    let _worker = engine.worker(sdk, "shop").await;
    engine.stop().await;

    let engine = Engine::start_at(&clients, &workers).await;
    engine.until_registered(sdk, "shop").await;
    assert_eq!(engine.result("shop::quote", order()).await["price"], 42);
    assert_eq!(engine.get("/shop/items/7").await.status(), 201);
    if sdk.has_triggers() {
        assert_eq!(
            engine.result("shop::ring", json!({})).await,
            json!([{"heard": "the door", "by": "shop"}])
        );
    }
}

pub(crate) async fn a_worker_hears_of_new_functions(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    engine.result("shop::change", json!({"name": "extra", "wanted": true})).await;
    let seen = until("the worker hears of the function", async || {
        let seen = engine.relayed("state::get", json!({"scope": "shop", "key": "seen"})).await;
        let functions = seen["functions"].as_array()?;
        functions.contains(&json!("shop::extra")).then_some(seen.clone())
    })
    .await;
    assert_eq!(seen["event"], "functions_changed");
}

pub(crate) async fn a_worker_provides_a_type_of_triggers(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    let heard = |at: &str| json!({"heard": at, "by": "shop"});
    // The trigger that the worker has registered goes through the engine and comes back to it.
    until("the bell has been hung", async || {
        let rung = engine.result("shop::ring", json!({})).await;
        (rung == json!([heard("the door")])).then_some(())
    })
    .await;
    let bind =
        |config: Value| json!({"trigger_type": "shop-bell", "function_id": "shop::rung", "config": config});
    engine.relayed("engine::register_trigger", bind(json!({"at": "the gate"}))).await;
    until("the second bell has been hung", async || {
        let rung = engine.result("shop::ring", json!({})).await;
        let rung = rung.as_array().expect("a list");
        (rung.len() == 2 && rung.contains(&heard("the gate"))).then_some(())
    })
    .await;
}

pub(crate) async fn a_function_that_is_unregistered_leaves_the_card(sdk: Sdk) {
    let (engine, _worker) = Engine::with(sdk).await;
    engine.result("shop::change", json!({"name": "extra", "wanted": true})).await;
    engine.until_skill("shop::extra", true).await;
    engine.result("shop::change", json!({"name": "extra", "wanted": false})).await;
    engine.until_skill("shop::extra", false).await;
    let task = engine.call("shop::extra", order()).await;
    assert!(failure(&task).starts_with("There is no function 'shop::extra'."), "{task}");
    // And it can come back.
    engine.result("shop::change", json!({"name": "extra", "wanted": true})).await;
    engine.until_skill("shop::extra", true).await;
}
