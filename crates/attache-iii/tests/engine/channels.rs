//! Channels.

use attache_iii::{ChannelItem, Functions};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::support::{House, engine, engine_with};

async fn end(house: &House, end: &Value) -> WebSocketStream<MaybeTlsStream<TcpStream>> {
    house.socket(&path(end)).await
}

fn path(end: &Value) -> String {
    let text = |name: &str| end[name].as_str().unwrap();
    format!("/ws/channels/{}?key={}&dir={}", text("channel_id"), text("access_key"), text("direction"))
}

#[tokio::test]
async fn what_is_written_is_read_in_order_until_the_end() {
    let house = engine().await;
    let mut worker = house.worker().await;
    let channel = worker.result("engine::channels::create", json!({ "buffer_size": 4 })).await;
    assert_eq!(channel["writer"]["channel_id"], channel["reader"]["channel_id"]);
    let (mut writer, mut reader) =
        (end(&house, &channel["writer"]).await, end(&house, &channel["reader"]).await);
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
async fn an_end_is_taken_once() {
    let house = engine().await;
    let mut worker = house.worker().await;
    let channel = worker.result("engine::channels::create", json!({})).await;
    let _first = end(&house, &channel["reader"]).await;
    let mut second = end(&house, &channel["reader"]).await;
    assert!(matches!(second.next().await, Some(Ok(Message::Close(_)))));
}

#[tokio::test]
async fn whoever_does_not_know_the_key_finds_nothing() {
    let house = engine().await;
    let mut worker = house.worker().await;
    let mut channel = worker.result("engine::channels::create", json!({})).await;
    channel["reader"]["access_key"] = json!("guess");
    let url = format!("ws://{}{}", house.address, path(&channel["reader"]));
    let Err(Error::Http(response)) = tokio_tungstenite::connect_async(url).await else { panic!("refused") };
    assert_eq!(response.status(), 404);
    assert_eq!(response.body().as_deref(), Some(&b"Channel not found"[..]));
}

#[tokio::test]
async fn the_channels_of_a_worker_go_with_it() {
    let house = engine().await;
    let mut worker = house.worker().await;
    let channel = worker.result("engine::channels::create", json!({})).await;
    let mut reader = end(&house, &channel["reader"]).await;
    drop(worker);
    assert!(matches!(reader.next().await, Some(Ok(Message::Close(_))) | None));
}

#[tokio::test]
async fn this_process_reads_what_a_function_writes() {
    let house = engine().await;
    let mut channel = house.engine.open_channel().await.unwrap();
    let mut writer = end(&house, &serde_json::to_value(&channel.writer).unwrap()).await;
    writer.send(Message::text("head")).await.unwrap();
    writer.send(Message::binary(&b"body"[..])).await.unwrap();
    writer.close(None).await.unwrap();
    assert_eq!(channel.items.recv().await, Some(ChannelItem::Text("head".into())));
    assert_eq!(channel.items.recv().await, Some(ChannelItem::Bytes("body".into())));
    assert_eq!(channel.items.recv().await, None);
}

#[tokio::test]
async fn a_channel_that_is_not_read_any_more_is_closed() {
    let house = engine().await;
    let channel = house.engine.open_channel().await.unwrap();
    let mut writer = end(&house, &serde_json::to_value(&channel.writer).unwrap()).await;
    drop(channel);
    assert!(matches!(writer.next().await, Some(Ok(Message::Close(_))) | None));
}

#[tokio::test]
async fn a_worker_has_a_limited_number_of_channels() {
    let house = engine_with(|options| options.limits.channels = 1).await;
    let mut worker = house.worker().await;
    worker.result("engine::channels::create", json!({})).await;
    assert_eq!(worker.error("engine::channels::create", json!({})).await, "too_many_channels");
}
