//! The list of the engine's functions.

use std::sync::Arc;
use std::time::Duration;

use attache_iii::worker::Worker;
use attache_iii::{Catalog, Functions, Updates};
use serde_json::{Value, json};

use crate::engine::{Engine, Peer, function, raw, soon};

const LIST: &str = "engine::functions::list";
const INFO: &str = "engine::functions::info";
const CHANGED: &str = "a2a::functions_changed.tester";

/// A worker that watches the functions of its engine.
async fn following() -> (Engine, Peer, Worker, Updates) {
    let (engine, peer, worker) = Engine::with_worker().await;
    let updates = worker.updates();
    (engine, peer, worker, updates)
}

/// Answers the next request for the list of functions.
async fn list(peer: &mut Peer, functions: Value) {
    let called = peer.call(LIST).await;
    peer.answer(&called, json!({"functions": functions})).await;
}

/// The next catalog.
async fn next(updates: &mut Updates) -> Arc<Catalog> {
    soon(async {
        loop {
            updates.changed().await.unwrap();
            if let Some(catalog) = updates.borrow_and_update().clone() {
                return catalog;
            }
        }
    })
    .await
}

async fn closed(updates: &mut Updates) {
    soon(updates.wait_for(Option::is_none)).await.unwrap();
}

fn ids(catalog: &Arc<Catalog>) -> Vec<&str> {
    catalog.keys().map(|id| &**id).collect()
}

fn marked(id: &str) -> Value {
    json!({"function_id": id, "worker_name": "pricing", "metadata": {"a2a.expose": true}})
}

#[tokio::test]
async fn lists_of_old_engines_are_understood() {
    let (_engine, mut peer, _worker, mut updates) = following().await;
    assert_eq!(*updates.borrow(), None);
    list(
        &mut peer,
        json!([{"function_id": "pricing::quote", "description": "Quote a price", "request_format": {"type": "object"},
            "response_format": null, "metadata": {"a2a.expose": true}}, {"no": "function"}]),
    )
    .await;
    let catalog = next(&mut updates).await;
    assert_eq!(ids(&catalog), ["pricing::quote"]);
    let quote = &catalog["pricing::quote"];
    assert_eq!(quote.description.as_deref(), Some("Quote a price"));
    assert_eq!(quote.request_format, Some(json!({"type": "object"})));
    assert_eq!(quote.response_format, None);
    assert_eq!(quote.metadata, Some(json!({"a2a.expose": true})));
}

#[tokio::test]
async fn the_worker_subscribes_to_changes() {
    let (_engine, mut peer, _worker, _updates) = following().await;
    let function = peer.message("registerfunction").await;
    assert_eq!((&function["id"], &function["metadata"]), (&json!(CHANGED), &json!({"internal": true})));
    for kind in ["engine::functions-available", "engine::workers-available"] {
        let trigger = peer.message("registertrigger").await;
        assert_eq!((&trigger["trigger_type"], &trigger["function_id"]), (&json!(kind), &json!(CHANGED)));
    }
}

#[tokio::test]
async fn schemas_are_fetched_in_batches_if_the_list_has_none() {
    let (_engine, mut peer, _worker, mut updates) = following().await;
    let mut functions: Vec<Value> = (0..40).map(|number| marked(&format!("f{number:02}"))).collect();
    functions.push(json!({"function_id": "other::f", "worker_name": "other"}));
    list(&mut peer, json!(functions)).await;
    for expected in [32, 8] {
        let called = peer.call(INFO).await;
        let asked = called["data"]["function_ids"].as_array().unwrap();
        assert_eq!(asked.len(), expected);
        let told = asked.iter().map(|id| {
            if id == "f03" {
                return json!({"function_id": id, "error": "forbidden"});
            }
            json!({"function_id": id, "worker_name": "pricing", "request_schema": {"title": id},
                "response_schema": {"type": "string"}, "registered_triggers": []})
        });
        let told: Vec<Value> = told.collect();
        peer.answer(&called, json!({"functions": told})).await;
    }
    let catalog = next(&mut updates).await;
    assert_eq!(catalog.len(), 41);
    assert_eq!(catalog["f39"].request_format, Some(json!({"title": "f39"})));
    assert_eq!(catalog["f39"].response_format, Some(json!({"type": "string"})));
    assert_eq!(catalog["f39"].worker.as_deref(), Some("pricing"));
    assert_eq!(catalog["f03"].request_format, None);
    assert_eq!(catalog["other::f"].request_format, None);
}

#[tokio::test]
async fn schemas_are_fetched_one_by_one_if_the_engine_has_no_batches() {
    let (_engine, mut peer, _worker, mut updates) = following().await;
    list(&mut peer, json!([marked("a"), marked("b"), marked("c")])).await;
    let called = peer.call(INFO).await;
    peer.fail(&called, "deserialization_error", "missing field `function_id`").await;
    for id in ["a", "b", "c"] {
        let called = peer.call(INFO).await;
        assert_eq!(called["data"], json!({"function_id": id}));
        if id == "b" {
            peer.fail(&called, "NOT_FOUND", "Function 'b' is not registered.").await;
        } else {
            peer.answer(&called, json!({"function_id": id, "request_schema": {"title": id}})).await;
        }
    }
    let catalog = next(&mut updates).await;
    let titles: Vec<_> = catalog.values().map(|function| function.request_format.clone()).collect();
    assert_eq!(titles, [Some(json!({"title": "a"})), None, Some(json!({"title": "c"}))]);
}

#[tokio::test]
async fn functions_are_listed_without_schemas_if_the_engine_has_none() {
    let (_engine, mut peer, _worker, mut updates) = following().await;
    list(&mut peer, json!([marked("a"), marked("b")])).await;
    let called = peer.call(INFO).await;
    peer.fail(&called, "function_not_found", "Function engine::functions::info not found").await;
    assert_eq!(ids(&next(&mut updates).await), ["a", "b"]);
    // The worker does not request them again.
    peer.invoke(1, CHANGED, json!({"event": "worker_connected", "worker_id": "w-2"})).await;
    list(&mut peer, json!([marked("a")])).await;
    assert_eq!(ids(&next(&mut updates).await), ["a"]);
}

#[tokio::test]
async fn a_new_function_is_found_after_a_notification() {
    let (_engine, mut peer, _worker, mut updates) = following().await;
    list(&mut peer, json!([{"function_id": "a"}])).await;
    assert_eq!(ids(&next(&mut updates).await), ["a"]);
    // Several notifications in a row cause one request.
    for number in 1..=3 {
        peer.invoke(number, CHANGED, json!({"event": "worker_metadata_updated", "worker_id": "w-2"})).await;
        assert_eq!(peer.result().await.0, number);
    }
    list(&mut peer, json!([{"function_id": "a"}, {"function_id": "b"}])).await;
    assert_eq!(ids(&next(&mut updates).await), ["a", "b"]);
}

#[tokio::test]
async fn changes_without_a_notification_are_found_by_polling() {
    let engine = Engine::start().await;
    let options = engine.options().with(|options| options.poll_interval = Duration::from_millis(20));
    let worker = Worker::connect(options).unwrap();
    let mut updates = worker.updates();
    let mut peer = engine.join().await;
    list(&mut peer, json!([marked("a")])).await;
    let called = peer.call(INFO).await;
    peer.answer(&called, json!({"functions": [{"function_id": "a", "request_schema": {"v": 1}}]})).await;
    next(&mut updates).await;

    // Nothing changed: the catalog is not published again, and no schemas are requested.
    list(&mut peer, json!([marked("a")])).await;
    list(&mut peer, json!([marked("a")])).await;
    assert!(!updates.has_changed().unwrap());

    // Only the schemas of new functions are requested.
    list(&mut peer, json!([marked("a"), marked("b")])).await;
    let called = peer.call(INFO).await;
    assert_eq!(called["data"], json!({"function_ids": ["b"]}));
    peer.answer(&called, json!({"functions": [{"function_id": "b", "request_schema": {"v": 2}}]})).await;
    let catalog = next(&mut updates).await;
    assert_eq!(catalog["a"].request_format, Some(json!({"v": 1})));
    assert_eq!(catalog["b"].request_format, Some(json!({"v": 2})));
}

#[tokio::test]
async fn the_catalog_is_empty_while_the_engine_is_away() {
    let (engine, mut peer, _worker, mut updates) = following().await;
    list(&mut peer, json!([{"function_id": "a"}])).await;
    next(&mut updates).await;
    drop(peer);
    closed(&mut updates).await;
    let mut peer = engine.join().await;
    list(&mut peer, json!([{"function_id": "b"}])).await;
    assert_eq!(ids(&next(&mut updates).await), ["b"]);
}

#[tokio::test]
async fn the_catalog_is_empty_while_the_engine_does_not_list() {
    let (_engine, mut peer, _worker, mut updates) = following().await;
    list(&mut peer, json!([{"function_id": "a"}])).await;
    next(&mut updates).await;
    peer.invoke(1, CHANGED, json!({"event": "functions_changed", "functions": []})).await;
    let called = peer.call(LIST).await;
    peer.fail(&called, "FORBIDDEN", "function 'engine::functions::list' not allowed").await;
    closed(&mut updates).await;
    // The worker retries until the engine lists them.
    let called = peer.call(LIST).await;
    peer.answer(&called, json!("what?")).await;
    list(&mut peer, json!([{"function_id": "a"}])).await;
    assert_eq!(ids(&next(&mut updates).await), ["a"]);
}

#[tokio::test]
async fn functions_of_another_namespace_are_not_listed() {
    let (_engine, mut peer, _worker, mut updates) = following().await;
    list(
        &mut peer,
        json!([{"function_id": "a", "namespace": "default"}, {"function_id": "b", "namespace": "other"}]),
    )
    .await;
    assert_eq!(ids(&next(&mut updates).await), ["a"]);
}

#[tokio::test]
async fn everything_is_registered_again_when_another_worker_leaves() {
    let (_engine, mut peer, worker, _updates) = following().await;
    worker.register(function("f"), |_| async { Ok(raw(&json!(1))) });
    let route = worker.register_trigger("http", "f", json!({"api_path": "a2a", "http_method": "POST"}));
    while peer.message("registertrigger").await["id"] != route.id() {}
    // The engine has removed the route of this worker together with the route of the other worker, which has the same path.
    for number in 1..=2 {
        peer.invoke(number, CHANGED, json!({"event": "worker_disconnected", "worker_id": "w-0"})).await;
    }
    let mut functions = Vec::new();
    let again = loop {
        let message = peer.hear().await;
        if message["type"] == "registerfunction" {
            functions.push(message["id"].clone());
        }
        if message["type"] == "registertrigger" && message["id"] == route.id() {
            break message;
        }
    };
    assert_eq!(functions, [CHANGED, "f"]);
    assert_eq!(again["config"], json!({"api_path": "a2a", "http_method": "POST"}));
}

#[tokio::test]
async fn a_function_that_the_engine_has_removed_without_a_word_is_registered_again() {
    let engine = Engine::start().await;
    let options = engine.options().with(|options| options.poll_interval = Duration::from_millis(20));
    let worker = Worker::connect(options).unwrap();
    worker.register(function("f"), |_| async { Ok(raw(&json!(1))) });
    worker.register(function("hidden"), |_| async { Ok(raw(&json!(1))) });
    let route = worker.register_trigger("http", "f", json!({"api_path": "a2a", "http_method": "POST"}));
    let mut updates = worker.updates();
    let mut peer = engine.join().await;
    let internal = |id: &str| json!({"function_id": id, "metadata": {"internal": true}});
    list(&mut peer, json!([marked("other"), internal("f"), {"function_id": "engine::log::info"}])).await;
    let called = peer.call(INFO).await;
    peer.answer(&called, json!({"functions": []})).await;
    assert_eq!(ids(&next(&mut updates).await), ["other"], "internal functions are not for callers");
    // Nothing is missing, so nothing is registered: the next message is the next request for the list.
    let called = peer.hear().await;
    assert_eq!(called["function_id"], LIST, "{called}");
    peer.answer(&called, json!({"functions": [internal("f"), marked("other")]})).await;
    // Another worker with the same function has left, and the engine says nothing.
    list(&mut peer, json!([marked("other")])).await;
    while peer.message("registertrigger").await["id"] != route.id() {}
}

#[tokio::test]
async fn a_worker_that_may_not_hear_of_others_registers_again_with_every_poll() {
    let engine = Engine::start().await;
    let options = engine.options().with(|options| options.poll_interval = Duration::from_millis(20));
    let worker = Worker::connect(options).unwrap();
    let route = worker.register_trigger("http", "f", json!({"api_path": "a2a", "http_method": "POST"}));
    let _updates = worker.updates();
    let mut peer = engine.greet("w-1").await;
    let mut routes = 0;
    // The engine may have removed the route with that of a worker that left. No list shows that.
    while routes < 3 {
        let message = peer.hear().await;
        if message["function_id"] == LIST {
            peer.answer(&message, json!({"functions": []})).await;
        } else if message["trigger_type"] == "engine::workers-available" {
            let error = json!({"code": "FORBIDDEN", "message": "not for this worker"});
            let result = json!({"type": "triggerregistrationresult", "id": message["id"],
                "trigger_type": message["trigger_type"], "function_id": message["function_id"], "error": error});
            peer.say(result).await;
        } else if message["type"] == "registertrigger" && message["id"] == route.id() {
            routes += 1;
        }
    }
}

#[tokio::test]
async fn a_function_that_was_refused_is_registered_again_when_a_worker_leaves() {
    let (_engine, mut peer, worker, _updates) = following().await;
    let registration = worker.register(function("f"), |_| async { Ok(raw(&json!(1))) });
    peer.say(
        json!({"type": "registrationrejected", "code": "FUNCTION_NAMESPACE_CONFLICT", "function_id": "f"}),
    )
    .await;
    let mut rejection = registration.rejection();
    soon(rejection.wait_for(Option::is_some)).await.unwrap();
    peer.invoke(1, CHANGED, json!({"event": "worker_disconnected", "worker_id": "w-0"})).await;
    soon(rejection.wait_for(Option::is_none)).await.unwrap();
    let mut registered = 0;
    while registered < 2 {
        registered += usize::from(peer.message("registerfunction").await["id"] == "f");
    }
}
