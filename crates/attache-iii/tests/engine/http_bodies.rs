//! Bodies of HTTP requests, and streamed responses.

use futures::{SinkExt, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::http::{answer_of, request, serving, text};
use crate::support::{Setup, engine, engine_with};

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_the_worker_stays() {
    let setup = engine_with(|options| options.limits.http_body = 1000).await;
    let mut worker = serving(&setup, "POST", "/x").await;
    let (status, response) = answer_of(&setup, request("POST", "/x", &"x".repeat(1001))).await;
    assert_eq!(status, 413);
    assert!(text(response).await.contains("larger than 1000 bytes"));
    worker.settle().await;
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Opens one end of a channel.
async fn open(setup: &Setup, channel: &Value, direction: &str) -> Socket {
    let (id, key) = (channel["channel_id"].as_str().unwrap(), channel["access_key"].as_str().unwrap());
    setup.socket(&format!("/ws/channels/{id}?key={key}&dir={direction}")).await
}

/// Reads a channel to its end.
async fn read(setup: &Setup, channel: &Value) -> Vec<u8> {
    let mut socket = open(setup, channel, "read").await;
    let mut bytes = Vec::new();
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Binary(piece) = message {
            bytes.extend_from_slice(&piece);
        }
    }
    bytes
}

#[tokio::test]
async fn other_bodies_than_small_json_are_read_through_their_channel() {
    let setup = engine().await;
    let mut worker = serving(&setup, "POST", "/x").await;
    let large = format!("[\"{}\"]", "x".repeat(600 * 1024));
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (content_type, body) in [
        ("application/a2a+json", "{}"),
        ("application/json", large.as_str()),
        ("application/json", "{broken"),
        ("application/json", deep.as_str()),
        ("text/plain", "hello"),
    ] {
        let request = Request::builder().method("POST").uri("/x").header("content-type", content_type);
        let asking = answer_of(&setup, request.body(Full::from(body.to_owned())).unwrap());
        let answering = async {
            let call = worker.work().await;
            assert_eq!(call["data"]["body"], Value::Null);
            assert_eq!(read(&setup, &call["data"]["request_body"]).await, body.as_bytes());
            worker.answer(&call, json!({})).await;
        };
        assert_eq!(tokio::join!(asking, answering).0.0, 200);
    }
}

#[tokio::test]
async fn a_json_body_is_also_in_its_channel() {
    let setup = engine().await;
    let mut worker = serving(&setup, "POST", "/x").await;
    let asking = answer_of(&setup, request("POST", "/x", "{ \"a\": 1 }"));
    let answering = async {
        let call = worker.work().await;
        assert_eq!(call["data"]["body"], json!({ "a": 1 }));
        assert_eq!(read(&setup, &call["data"]["request_body"]).await, b"{ \"a\": 1 }");
        worker.answer(&call, json!({})).await;
    };
    tokio::join!(asking, answering);
}

async fn writer(setup: &Setup, call: &Value) -> Socket {
    open(setup, &call["data"]["response"], "write").await
}

#[tokio::test]
async fn output_of_a_function_is_streamed_at_once() {
    let setup = engine().await;
    let mut worker = serving(&setup, "GET", "/x").await;
    let asking = answer_of(&setup, request("GET", "/x", ""));
    let beginning = async {
        let call = worker.work().await;
        let mut writer = writer(&setup, &call).await;
        for frame in [
            json!({ "type": "set_status", "status_code": 202 }),
            json!({ "type": "set_headers", "headers": { "content-type": "text/event-stream" } }),
        ] {
            writer.send(Message::text(frame.to_string())).await.unwrap();
        }
        writer.send(Message::binary(&b": ok\n\n"[..])).await.unwrap();
        worker.answer(&call, json!(null)).await;
        writer
    };
    let ((status, response), mut writer) = tokio::join!(asking, beginning);
    assert_eq!((status, &response.headers()["content-type"]), (202, &"text/event-stream".parse().unwrap()));
    let mut body = response.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), ": ok\n\n");
    for i in 0..3 {
        let event = format!("data: {i}\n\n");
        writer.send(Message::text("ignored by now")).await.unwrap();
        writer.send(Message::binary(event.clone())).await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), event);
    }
    writer.close(None).await.unwrap();
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_stream_that_is_closed_before_anything_is_written_is_an_empty_response() {
    let setup = engine().await;
    let mut worker = serving(&setup, "GET", "/x").await;
    let asking = answer_of(&setup, request("GET", "/x", ""));
    let answering = async {
        let call = worker.work().await;
        let mut writer = writer(&setup, &call).await;
        writer.send(Message::text(r#"{"type":"set_status","status_code":418}"#)).await.unwrap();
        writer.close(None).await.unwrap();
    };
    let ((status, response), ()) = tokio::join!(asking, answering);
    assert_eq!((status, text(response).await.as_str()), (418, ""));
}

#[tokio::test]
async fn a_result_that_comes_first_closes_the_channel() {
    let setup = engine().await;
    let mut worker = serving(&setup, "GET", "/x").await;
    let asking = answer_of(&setup, request("GET", "/x", ""));
    let answering = async {
        let call = worker.work().await;
        let writer = writer(&setup, &call).await;
        worker.answer(&call, json!({ "body": 1 })).await;
        writer
    };
    let ((_, response), mut writer) = tokio::join!(asking, answering);
    assert_eq!(text(response).await, "1");
    assert!(matches!(writer.next().await, Some(Ok(Message::Close(_))) | None));
}

#[tokio::test]
async fn a_client_that_leaves_closes_the_channel() {
    let setup = engine().await;
    let mut worker = serving(&setup, "GET", "/x").await;
    let asking = answer_of(&setup, request("GET", "/x", ""));
    let answering = async {
        let call = worker.work().await;
        let mut writer = writer(&setup, &call).await;
        writer.send(Message::binary(&b"begin"[..])).await.unwrap();
        writer
    };
    let ((_, response), mut writer) = tokio::join!(asking, answering);
    drop(response);
    assert!(matches!(writer.next().await, Some(Ok(Message::Close(_))) | None));
}
