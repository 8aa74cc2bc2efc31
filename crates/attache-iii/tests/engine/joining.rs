//! Authentication of workers, and reconnects.

use attache_iii::engine::{EngineError, Token};
use futures::StreamExt;
use http::StatusCode;
use serde_json::json;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::support::{engine, engine_with};

async fn connect(address: &str, path: &str, header: Option<(&'static str, &str)>) -> Result<(), StatusCode> {
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    if let Some((name, value)) = header {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    match tokio_tungstenite::connect_async(request).await {
        Ok(_) => Ok(()),
        Err(Error::Http(response)) => Err(response.status()),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_new_worker_gets_an_id_and_a_token() {
    let (_, welcome) = engine().await.join().await;
    assert_eq!(welcome["type"], "workerregistered");
    assert!(welcome["worker_id"].as_str().unwrap().parse::<uuid::Uuid>().is_ok());
    assert!(welcome["reattach_token"].as_str().unwrap().parse::<uuid::Uuid>().is_ok());
    assert_eq!(welcome["features"], json!(["observe.v1", "observe.v2"]));
}

#[tokio::test]
async fn an_open_address_without_a_token_is_refused() {
    let options =
        attache_iii::engine::EngineOptions::default().with(|options| options.listen = "0.0.0.0:0".into());
    let store = std::sync::Arc::new(attache_core::MemoryStore::default());
    let engine = attache_iii::engine::Engine::new(store, options);
    let error = engine.listen().await.err().unwrap();
    assert!(matches!(error, EngineError::Open(_)));
    assert!(error.to_string().contains("set a token"), "{error}");
}

#[tokio::test]
async fn with_a_token_only_workers_that_send_it_can_connect() {
    let setup = engine_with(|options| options.token = Some(Token::new("s3cret"))).await;
    let address = &setup.address;
    assert_eq!(connect(address, "/", None).await, Err(StatusCode::UNAUTHORIZED));
    let wrong = Some(("authorization", "Bearer s3cre"));
    assert_eq!(connect(address, "/", wrong).await, Err(StatusCode::UNAUTHORIZED));
    assert_eq!(connect(address, "/", Some(("authorization", "Bearer s3cret"))).await, Ok(()));
    assert_eq!(connect(address, "/?token=s3cret", None).await, Ok(()));
}

#[tokio::test]
async fn pages_of_other_origins_cannot_connect() {
    let setup = engine().await;
    let evil = Some(("origin", "https://evil.example"));
    assert_eq!(connect(&setup.address, "/", evil).await, Err(StatusCode::FORBIDDEN));
    let own = Some(("origin", "http://localhost:3000"));
    assert_eq!(connect(&setup.address, "/", own).await, Ok(()));
}

#[tokio::test]
async fn other_paths_are_not_found() {
    let setup = engine().await;
    assert_eq!(connect(&setup.address, "/nothing", None).await, Err(StatusCode::NOT_FOUND));
    let channel = connect(&setup.address, "/ws/channels/none?key=k&dir=read", None).await;
    assert_eq!(channel, Err(StatusCode::NOT_FOUND));
}

#[tokio::test]
async fn telemetry_is_accepted_without_a_response() {
    use futures::SinkExt;
    let setup = engine().await;
    let mut socket = setup.socket("/otel").await;
    socket.send(Message::binary(&b"OTLP{}"[..])).await.unwrap();
    socket.send(Message::Ping("x".into())).await.unwrap();
    assert!(matches!(socket.next().await, Some(Ok(Message::Pong(_)))));
}

#[tokio::test]
async fn functions_of_a_live_worker_cannot_be_taken() {
    let setup = engine().await;
    let mut owner = setup.worker_with(&["pricing::quote"]).await;
    let mut thief = setup.worker().await;
    thief.send(json!({ "type": "registerfunction", "id": "pricing::quote" })).await;
    let expected = json!({
        "type": "registrationrejected", "code": "FUNCTION_NAMESPACE_CONFLICT", "namespace": "default",
        "function_id": "pricing::quote", "owner_worker_id": owner.id,
    });
    assert_eq!(thief.next().await, expected);
    thief.settle().await;
    let calling = tokio::spawn({
        let engine = setup.engine.clone();
        async move {
            let timeout = std::time::Duration::from_secs(20);
            crate::support::call(&engine, "pricing::quote", json!({}), timeout).await
        }
    });
    let call = owner.work().await;
    owner.answer(&call, json!("mine")).await;
    assert_eq!(calling.await.unwrap(), Ok(json!("mine")));
}

#[tokio::test]
async fn functions_of_the_engine_cannot_be_taken() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    for id in ["engine::functions::list", "engine::x", "state::set", "stream::x"] {
        worker.send(json!({ "type": "registerfunction", "id": id })).await;
        let answer = worker.next().await;
        assert_eq!(answer["code"], "FUNCTION_NAMESPACE_CONFLICT", "{id}");
        assert_eq!(answer["owner_worker_id"], "engine", "{id}");
    }
}

#[tokio::test]
async fn a_function_that_the_engine_would_have_to_call_over_http_is_refused() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    worker.send(json!({ "type": "registerfunction", "id": "f", "invocation": { "url": "http://x" } })).await;
    assert_eq!(worker.next().await["code"], "FUNCTION_INVOCATION_UNSUPPORTED");
}

#[tokio::test]
async fn a_function_may_be_registered_twice_by_the_same_worker() {
    let setup = engine().await;
    let mut worker = setup.worker_with(&["f", "f"]).await;
    worker.send(json!({ "type": "registerfunction", "id": "f", "description": "again" })).await;
    let listed = worker.result("engine::functions::list", json!({ "prefix": "f" })).await;
    assert_eq!(listed["functions"][0]["description"], "again");
}

#[tokio::test]
async fn a_worker_that_reconnects_keeps_its_functions() {
    let setup = engine().await;
    let (mut before, welcome) = setup.join().await;
    before.send(json!({ "type": "registerfunction", "id": "f" })).await;
    before.settle().await;
    let mut after = setup.worker().await;
    let (id, token) = (&welcome["worker_id"], &welcome["reattach_token"]);
    after.send(json!({ "type": "reattach", "previous_worker_id": id, "reattach_token": token })).await;
    after.send(json!({ "type": "registerfunction", "id": "f" })).await;
    after.settle().await;
    assert_eq!(before.next_if_any().await, None);
    after.run(|_| json!("after"));
    assert_eq!(setup.call("f", json!(1)).await, Ok(json!("after")));
}

#[tokio::test]
async fn a_wrong_reattach_token_takes_nothing_over() {
    let setup = engine().await;
    let (mut before, welcome) = setup.join().await;
    before.send(json!({ "type": "registerfunction", "id": "f" })).await;
    before.settle().await;
    let mut after = setup.worker().await;
    let id = &welcome["worker_id"];
    after.send(json!({ "type": "reattach", "previous_worker_id": id, "reattach_token": "x" })).await;
    after.send(json!({ "type": "reattach", "previous_worker_id": id })).await;
    after.send(json!({ "type": "registerfunction", "id": "f" })).await;
    assert_eq!(after.next().await["type"], "registrationrejected");
    before.settle().await;
}

#[tokio::test]
async fn two_workers_may_have_the_same_name() {
    let setup = engine().await;
    let (mut one, mut two) = (setup.worker().await, setup.worker().await);
    for worker in [&mut one, &mut two] {
        let said = worker.result("engine::workers::register", json!({ "name": "vm:1", "pid": 1 })).await;
        assert_eq!(said, json!({ "success": true }));
    }
    let listed = one.result("engine::workers::list", json!({})).await;
    let names: Vec<_> = listed["workers"].as_array().unwrap().iter().map(|worker| &worker["name"]).collect();
    assert_eq!(names, ["vm:1", "vm:1"]);
}

#[tokio::test]
async fn an_engine_that_stops_closes_connections_and_fails_calls() {
    let setup = engine().await;
    let mut worker = setup.worker_with(&["f"]).await;
    let calling = tokio::spawn({
        let engine = setup.engine.clone();
        async move {
            let timeout = std::time::Duration::from_secs(20);
            crate::support::call(&engine, "f", json!({}), timeout).await
        }
    });
    worker.work().await;
    let stopping = tokio::spawn(setup.stop());
    assert_eq!(worker.next_if_any().await, None);
    let error = calling.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "remote error (invocation_stopped): Invocation stopped");
    stopping.await.unwrap();
}
