//! Connects an end of a channel with a socket.

use std::time::Duration;

use futures::SinkExt;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::channels::{End, Joined, ReadSource};
use super::listener::{Socket, close_channel};
use crate::ChannelItem;
use crate::socket::next_item;

/// How long a late writer may keep writing.
const LATE_WRITER_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves a socket that opened an end, until the channel or the socket is closed.
pub(super) async fn serve(mut socket: Socket, joined: Joined) {
    match joined {
        Joined::Reader(end) => copy_to_socket(&mut socket, end).await,
        Joined::Writer(end) => copy_to_channel(&mut socket, end).await,
        Joined::Taken => {}
        // It is not the writer's fault that it is late, so it may finish writing.
        Joined::Late => drop(
            timeout(LATE_WRITER_TIMEOUT, async { while next_item(&mut socket).await.is_some() {} }).await,
        ),
    }
    close_channel(socket).await;
}

/// Writes the messages of the socket into the channel.
async fn copy_to_channel(socket: &mut Socket, end: End<mpsc::Sender<ChannelItem>>) {
    let (sender, closed) = (&end.end, &end.closed);
    loop {
        let item = tokio::select! {
            () = closed.cancelled() => return,
            () = sender.closed() => return,
            item = next_item(socket) => item,
        };
        let Some(item) = item else { return };
        tokio::select! {
            () = closed.cancelled() => return,
            sent = sender.send(item) => if sent.is_err() {
                return;
            },
        }
    }
}

/// Sends the items of the channel to the socket. Items that the socket sends are ignored.
async fn copy_to_socket(socket: &mut Socket, mut end: End<ReadSource>) {
    let closed = end.closed.clone();
    loop {
        let item = tokio::select! {
            () = closed.cancelled() => return,
            item = end.end.next() => item,
            ignored = next_item(socket) => match ignored {
                Some(_) => continue,
                None => return,
            },
        };
        let message = match item {
            Some(ChannelItem::Text(text)) => Message::text(text),
            Some(ChannelItem::Bytes(bytes)) => Message::Binary(bytes),
            None => return,
        };
        tokio::select! {
            () = closed.cancelled() => return,
            sent = socket.send(message) => if sent.is_err() {
                return;
            },
        }
    }
}
