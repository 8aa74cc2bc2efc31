//! An end of a channel that is a socket.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::channels::{End, Feed, Joined};
use super::listener::{Socket, hang_up};
use crate::ChannelItem;

/// How long a writer that came too late may go on.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves a socket that has come for an end, until the channel or the socket ends.
pub(super) async fn serve(mut socket: Socket, joined: Joined) {
    match joined {
        Joined::Reader(end) => write_out(&mut socket, end).await,
        Joined::Writer(end) => read_in(&mut socket, end).await,
        Joined::Taken => {}
        // Its writer has no fault in being late: it may say what it has to say.
        Joined::Late => drop(timeout(PATIENCE, drain(&mut socket)).await),
    }
    hang_up(socket).await;
}

/// What the socket sends goes nowhere.
async fn drain(socket: &mut Socket) {
    while let Some(Ok(message)) = socket.next().await {
        if message.is_close() {
            return;
        }
    }
}

/// What the socket sends goes into the channel.
async fn read_in(socket: &mut Socket, end: End<mpsc::Sender<ChannelItem>>) {
    let (sender, over) = (&end.end, &end.over);
    loop {
        let message = tokio::select! {
            () = over.cancelled() => return,
            () = sender.closed() => return,
            message = socket.next() => message,
        };
        let item = match message {
            Some(Ok(Message::Text(text))) => ChannelItem::Text(text.as_str().to_owned()),
            Some(Ok(Message::Binary(bytes))) => ChannelItem::Bytes(bytes),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(Ok(Message::Close(_)) | Err(_)) | None => return,
        };
        tokio::select! {
            () = over.cancelled() => return,
            sent = sender.send(item) => if sent.is_err() {
                return;
            },
        }
    }
}

/// What comes out of the channel goes to the socket.
async fn write_out(socket: &mut Socket, mut end: End<Feed>) {
    let over = end.over.clone();
    loop {
        let item = tokio::select! {
            () = over.cancelled() => return,
            item = end.end.next() => item,
            message = socket.next() => match message {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(
                    Message::Text(_) | Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_),
                )) => continue,
            },
        };
        let message = match item {
            Some(ChannelItem::Text(text)) => Message::text(text),
            Some(ChannelItem::Bytes(bytes)) => Message::Binary(bytes),
            None => return,
        };
        tokio::select! {
            () = over.cancelled() => return,
            sent = socket.send(message) => if sent.is_err() {
                return;
            },
        }
    }
}
