//! Invalid frames.

use futures::SinkExt;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::support::engine;

#[tokio::test]
async fn an_invalid_frame_is_ignored() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    let bad_frames = [
        "",
        "{",
        "[]",
        "7",
        "\u{0}",
        r#"{"type":7}"#,
        r#"{"type":"fly"}"#,
        r#"{"type":"registerfunction"}"#,
        r#"{"type":"registerservice","id":"s"}"#,
        r#"{"type":"workerregistered","worker_id":"me"}"#,
        r#"{"type":"invokefunction","invocation_id":"not a uuid","function_id":"f"}"#,
        r#"{"type":"invocationresult","invocation_id":"00000000-0000-0000-0000-000000000000"}"#,
    ];
    for frame in bad_frames {
        worker.send_text(frame).await;
    }
    for _ in 0..1000 {
        worker.send_text("garbage").await;
    }
    worker.settle().await;
}

#[tokio::test]
async fn telemetry_and_json_are_accepted_in_binary_frames() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    for frame in [&b"OTLP{}"[..], b"MTRC{}", b"LOGS{}", b"\xff\xfe", br#"{"type":"ping"}"#] {
        worker.socket.send(Message::binary(frame)).await.unwrap();
    }
    assert_eq!(worker.next().await, json!({ "type": "pong" }));
}

#[tokio::test]
async fn pings_are_answered() {
    use futures::StreamExt;
    let setup = engine().await;
    let mut worker = setup.worker().await;
    worker.socket.send(Message::Ping("are you there".into())).await.unwrap();
    assert_eq!(worker.socket.next().await.unwrap().unwrap(), Message::Pong("are you there".into()));
}
