//! Stopping: running requests finish, and the server does not wait for what cannot finish.

use std::time::Duration;

use attache_server::{Server, ServerOptions};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Raw, Running, Sse, Stage, card, send, serve, soon, stage};

const NEVER: Duration = Duration::from_secs(3600);

async fn staged(change: impl FnOnce(&mut ServerOptions)) -> (Running, Stage) {
    let (agent, stage) = stage();
    (serve(Server::new(agent).card(card()).options(change)).await, stage)
}

/// Tells the server to stop and waits until it takes no more connections.
async fn stop(server: &mut Running) {
    server.stop();
    soon(async {
        while tokio::net::TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_running_send_gets_its_answer() {
    let (mut server, mut stage) = staged(|options| options.drain = NEVER).await;
    let sending = tokio::spawn(server.http(Method::POST, "/v1/message:send").json(&send("go")).send());
    let act = stage.turn().await;
    stop(&mut server).await;
    act.text("answer", "still").await;
    drop(act);
    let sent: Value = soon(soon(sending).await.unwrap().unwrap().json()).await.unwrap();
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    server.stopped().await;
}

#[tokio::test]
async fn a_server_that_was_told_to_stop_is_well_and_not_ready() {
    let (mut server, mut stage) = staged(|options| options.drain = NEVER).await;
    let sending = tokio::spawn(server.http(Method::POST, "/v1/message:send").json(&send("go")).send());
    let act = stage.turn().await;
    let mut raw = Raw::connect(server.address).await;
    let mut asked = async |path: &str| {
        raw.write(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        raw.read_until("}").await
    };
    assert!(asked("/ready").await.starts_with("HTTP/1.1 200 "));
    stop(&mut server).await;
    soon(async { while !asked("/ready").await.starts_with("HTTP/1.1 503 ") {} }).await;
    assert!(asked("/health").await.starts_with("HTTP/1.1 200 "));
    act.complete().await;
    drop(act);
    assert!(soon(sending).await.unwrap().is_ok());
    server.stopped().await;
}

#[tokio::test]
async fn an_open_stream_sees_the_end_of_its_task() {
    let (mut server, mut stage) = staged(|options| options.drain = NEVER).await;
    let opened = tokio::spawn(Sse::open(server.http(Method::POST, "/v1/message:stream").json(&send("go"))));
    let act = stage.turn().await;
    act.working("at it").await;
    let mut stream = soon(opened).await.unwrap();
    let id = stream.event().await["task"]["id"].clone();
    let (mut grpc, _) = server.grpc().await.stream("SubscribeToTask", json!({"id": id}), &[]).await.unwrap();
    stop(&mut server).await;
    act.working("nearly").await;
    act.complete().await;
    drop(act);
    assert_eq!(stream.rest().await.len(), 3);
    let mut last = Value::Null;
    while let Some(event) = grpc.next().await.unwrap() {
        last = event;
    }
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    server.stopped().await;
}

#[tokio::test]
async fn no_new_messages_are_taken_while_the_last_ones_finish() {
    let (mut server, mut stage) = staged(|options| options.drain = NEVER).await;
    let sending = tokio::spawn(server.http(Method::POST, "/v1/message:send").json(&send("go")).send());
    let act = stage.turn().await;
    let mut raw = Raw::connect(server.address).await;
    raw.write("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    raw.read_until("}").await;
    stop(&mut server).await;
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send("more")}).to_string();
    let head = "POST /a2a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    raw.write(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await;
    let head = raw.head().await;
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("retry-after: 1"), "{head}");
    drop(act);
    soon(sending).await.unwrap().unwrap();
    server.stopped().await;
}

#[tokio::test]
async fn a_turn_that_takes_too_long_is_ended_and_its_readers_are_told() {
    let (mut server, mut stage) = staged(|options| options.drain = Duration::from_millis(50)).await;
    let opened = tokio::spawn(Sse::open(server.http(Method::POST, "/v1/message:stream").json(&send("go"))));
    let act = stage.turn().await;
    act.working("forever").await;
    let mut stream = soon(opened).await.unwrap();
    server.stop();
    let last = stream.rest().await.pop().unwrap().event();
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_FAILED");
    soon(act.turn().cancelled()).await;
    drop(act);
    server.stopped().await;
}

#[tokio::test]
async fn connections_on_which_nothing_happens_do_not_delay_the_end() {
    let (mut server, _stage) = staged(|options| options.drain = NEVER).await;
    let mut idle = Raw::connect(server.address).await;
    idle.write("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    idle.read_until("}").await;
    let mut silent = Raw::connect(server.address).await;
    let _http2 = server.grpc().await;
    server.rpc("ListTasks", json!({})).await;
    server.stop();
    idle.closed().await;
    silent.closed().await;
    server.stopped().await;
}

#[tokio::test]
async fn a_stream_that_will_not_end_does_not_keep_the_server_alive() {
    let (mut server, mut stage) = staged(|options| options.drain = Duration::from_millis(50)).await;
    let sending = tokio::spawn(server.http(Method::POST, "/v1/message:send").json(&send("go")).send());
    let act = stage.turn().await;
    act.ask("and then?").await;
    drop(act);
    let sent: Value = soon(soon(sending).await.unwrap().unwrap().json()).await.unwrap();
    let id = sent["task"]["id"].as_str().unwrap();
    let mut stream = server.rest_sse("GET", &format!("/tasks/{id}:subscribe"), None).await;
    assert!(stream.event().await["task"].is_object());
    server.stop();
    server.stopped().await;
}
