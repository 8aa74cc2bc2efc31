//! Channels.

use attache_iii::{ChannelItem, Functions};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::support::{Setup, engine, engine_with};

async fn end(setup: &Setup, end: &Value) -> WebSocketStream<MaybeTlsStream<TcpStream>> {
    setup.socket(&path(end)).await
}

fn path(end: &Value) -> String {
    let text = |name: &str| end[name].as_str().unwrap();
    format!("/ws/channels/{}?key={}&dir={}", text("channel_id"), text("access_key"), text("direction"))
}

#[tokio::test]
async fn items_are_read_in_order_until_the_end() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    let channel = worker.result("engine::channels::create", json!({ "buffer_size": 4 })).await;
    assert_eq!(channel["writer"]["channel_id"], channel["reader"]["channel_id"]);
    let (mut writer, mut reader) =
        (end(&setup, &channel["writer"]).await, end(&setup, &channel["reader"]).await);
    let writing = async {
        for i in 0..100_u8 {
            writer.send(Message::text(i.to_string())).await.unwrap();
            writer.send(Message::binary(vec![i])).await.unwrap();
        }
        writer.close(None).await.unwrap();
    };
    let reading = async {
        for i in 0..100_u8 {
            assert_eq!(reader.next().await.unwrap().unwrap(), Message::text(i.to_string()));
            assert_eq!(reader.next().await.unwrap().unwrap(), Message::binary(vec![i]));
        }
        assert!(matches!(reader.next().await, Some(Ok(Message::Close(_)))));
    };
    tokio::join!(writing, reading);
}

#[tokio::test]
async fn an_end_is_opened_once() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    let channel = worker.result("engine::channels::create", json!({})).await;
    let _first = end(&setup, &channel["reader"]).await;
    let mut second = end(&setup, &channel["reader"]).await;
    assert!(matches!(second.next().await, Some(Ok(Message::Close(_)))));
}

#[tokio::test]
async fn a_wrong_key_finds_no_channel() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    let mut channel = worker.result("engine::channels::create", json!({})).await;
    channel["reader"]["access_key"] = json!("guess");
    let url = format!("ws://{}{}", setup.address, path(&channel["reader"]));
    let Err(Error::Http(response)) = tokio_tungstenite::connect_async(url).await else { panic!("refused") };
    assert_eq!(response.status(), 404);
    assert_eq!(response.body().as_deref(), Some(&b"Channel not found"[..]));
}

#[tokio::test]
async fn the_channels_of_a_worker_go_with_it() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    let channel = worker.result("engine::channels::create", json!({})).await;
    let mut reader = end(&setup, &channel["reader"]).await;
    drop(worker);
    assert!(matches!(reader.next().await, Some(Ok(Message::Close(_))) | None));
}

#[tokio::test]
async fn this_process_can_read_the_items_of_a_function() {
    let setup = engine().await;
    let mut channel = setup.engine.open_channel().await.unwrap();
    let mut writer = end(&setup, &serde_json::to_value(&channel.writer).unwrap()).await;
    writer.send(Message::text("head")).await.unwrap();
    writer.send(Message::binary(&b"body"[..])).await.unwrap();
    writer.close(None).await.unwrap();
    assert_eq!(channel.items.recv().await, Some(ChannelItem::Text("head".into())));
    assert_eq!(channel.items.recv().await, Some(ChannelItem::Bytes("body".into())));
    assert_eq!(channel.items.recv().await, None);
}

#[tokio::test]
async fn a_channel_that_is_not_read_any_more_is_closed() {
    let setup = engine().await;
    let channel = setup.engine.open_channel().await.unwrap();
    let mut writer = end(&setup, &serde_json::to_value(&channel.writer).unwrap()).await;
    drop(channel);
    assert!(matches!(writer.next().await, Some(Ok(Message::Close(_))) | None));
}

#[tokio::test]
async fn a_worker_has_a_limited_number_of_channels() {
    let setup = engine_with(|options| options.limits.channels = 1).await;
    let mut worker = setup.worker().await;
    worker.result("engine::channels::create", json!({})).await;
    assert_eq!(worker.error("engine::channels::create", json!({})).await, "too_many_channels");
}
