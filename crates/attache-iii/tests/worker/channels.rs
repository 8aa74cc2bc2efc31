//! Channels.

use attache_iii::wire::{ChannelRef, Direction};
use attache_iii::worker::Worker;
use attache_iii::{CallError, Channel, ChannelItem, Functions};
use bytes::Bytes;
use http::StatusCode;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message as Frame;

use crate::engine::{Engine, Peer, soon};

fn end(direction: Direction) -> ChannelRef {
    ChannelRef { channel_id: "c/1".to_owned(), access_key: "k&y".to_owned(), direction }
}

/// A channel that a worker has opened, and the engine's end of it.
async fn opened(engine: &Engine, peer: &mut Peer, worker: &Worker) -> (Channel, Peer) {
    let opening = tokio::spawn({
        let worker = worker.clone();
        async move { worker.open_channel().await }
    });
    let called = peer.call("engine::channels::create").await;
    let (writer, reader) = (end(Direction::Write), end(Direction::Read));
    peer.answer(&called, json!({"writer": writer, "reader": reader})).await;
    let socket = engine.accept().await;
    (soon(opening).await.unwrap().unwrap(), socket)
}

#[tokio::test]
async fn items_come_out_of_the_channel_in_order() {
    let (engine, mut peer, worker) = Engine::with_worker().await;
    let (mut channel, mut socket) = opened(&engine, &mut peer, &worker).await;
    assert_eq!(socket.path, "/ws/channels/c%2F1?key=k%26y&dir=read");
    assert_eq!(channel.writer, end(Direction::Write));
    socket.frame(Frame::text("one")).await;
    socket.frame(Frame::binary("two")).await;
    socket.frame(Frame::Close(None)).await;
    assert_eq!(soon(channel.items.recv()).await, Some(ChannelItem::Text("one".to_owned())));
    assert_eq!(soon(channel.items.recv()).await, Some(ChannelItem::Bytes(Bytes::from("two"))));
    assert_eq!(soon(channel.items.recv()).await, None);
}

#[tokio::test]
async fn a_channel_that_is_dropped_is_closed() {
    let (engine, mut peer, worker) = Engine::with_worker().await;
    let (channel, mut socket) = opened(&engine, &mut peer, &worker).await;
    drop(channel);
    assert!(socket.next_frame().await.unwrap().is_close());
}

#[tokio::test]
async fn a_channel_ends_with_the_connection_that_made_it() {
    let (engine, mut peer, worker) = Engine::with_worker().await;
    let (mut channel, _socket) = opened(&engine, &mut peer, &worker).await;
    drop(peer);
    assert_eq!(soon(channel.items.recv()).await, None);
}

#[tokio::test]
async fn a_writer_writes_text_and_bytes_and_closes() {
    let (engine, _peer, worker) = Engine::with_worker().await;
    let writer = end(Direction::Write);
    let (opening, mut socket) = tokio::join!(worker.open_writer(&writer), engine.accept());
    let mut channel = opening.unwrap();
    assert_eq!(socket.path, "/ws/channels/c%2F1?key=k%26y&dir=write");
    soon(channel.send_text(r#"{"type":"set_status","status_code":200}"#)).await.unwrap();
    // As much as SDKs write at once, and one byte more.
    soon(channel.send_bytes(vec![7; 64 * 1024 + 1])).await.unwrap();
    soon(channel.close()).await.unwrap();
    assert_eq!(socket.hear().await["status_code"], 200);
    assert_eq!(socket.next_frame().await.unwrap().len(), 64 * 1024);
    assert_eq!(socket.next_frame().await.unwrap(), Frame::binary(vec![7]));
    assert!(socket.next_frame().await.unwrap().is_close());
}

#[tokio::test]
async fn a_writer_notices_that_the_reader_is_gone() {
    let (engine, _peer, worker) = Engine::with_worker().await;
    let writer = end(Direction::Write);
    let (opening, socket) = tokio::join!(worker.open_writer(&writer), engine.accept());
    let mut channel = opening.unwrap();
    drop(socket);
    soon(channel.closed()).await;
    assert_eq!(channel.send_text("more").await, Err(CallError::Disconnected));
}

#[tokio::test]
async fn opening_an_unknown_channel_fails() {
    let (engine, _peer, worker) = Engine::with_worker().await;
    let reader = end(Direction::Read);
    let (opening, ()) = tokio::join!(worker.open_reader(&reader), engine.refuse(StatusCode::NOT_FOUND));
    assert!(matches!(opening, Err(CallError::Remote { code, .. }) if code == "channel_not_found"));
    // A wrong direction fails without a connection.
    assert!(
        matches!(worker.open_writer(&reader).await, Err(CallError::Remote { code, .. }) if code == "wrong_end")
    );
}
