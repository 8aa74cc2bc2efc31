//! Disconnecting from an engine.

use attache_iii::CallError;
use attache_iii::worker::{Connection, Invocation, Worker};
use serde_json::json;

use crate::engine::{Engine, LONG, call, function, raw, soon};

#[tokio::test]
async fn closing_unregisters_everything_and_closes_the_connection() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    worker.register(function("a"), |_| async { Ok(raw(&json!(1))) });
    let trigger = worker.register_trigger("http", "a", json!({"api_path": "a"}));
    let (other, id) = (worker.clone(), trigger.id().to_owned());
    let closing = tokio::spawn(worker.close());
    let gone = peer.message("unregistertrigger").await;
    assert_eq!(gone, json!({"type": "unregistertrigger", "id": id, "trigger_type": "http"}));
    assert_eq!(peer.hear().await, json!({"type": "unregisterfunction", "id": "a"}));
    assert!(peer.next_frame().await.unwrap().is_close());
    soon(closing).await.unwrap();
    assert_eq!(*other.state().borrow(), Connection::Closed);
    assert_eq!(call(&other, "a", json!({})).await, Err(CallError::Disconnected));
}

#[tokio::test]
async fn a_worker_leaves_when_its_last_clone_is_dropped() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let clone = worker.clone();
    drop(worker);
    assert!(matches!(*clone.state().borrow(), Connection::Connected { .. }));
    drop(clone);
    peer.end().await;
}

#[tokio::test]
async fn a_closed_worker_lets_go_of_its_handlers() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let (held, mut released) = tokio::sync::mpsc::channel::<()>(1);
    let own = worker.clone();
    worker.register(function("a"), move |call: Invocation| {
        let _ = (&held, &own);
        async move { Ok(call.data) }
    });
    let closing = tokio::spawn(worker.close());
    peer.end().await;
    soon(closing).await.unwrap();
    assert_eq!(soon(released.recv()).await, None);
}

#[tokio::test]
async fn a_worker_that_never_connected_can_be_closed() {
    let engine = Engine::start().await;
    let options = engine.options().with(|options| {
        options.reconnect_min = LONG;
        options.reconnect_max = LONG;
    });
    let worker = Worker::connect(options).unwrap();
    drop(engine.accept().await);
    soon(worker.close()).await;
}
