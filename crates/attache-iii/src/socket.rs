//! WebSocket code that the engine and the worker share.

use bytes::Bytes;
use futures::{Sink, SinkExt, Stream, StreamExt};
use tokio_tungstenite::tungstenite::protocol::frame::Frame as RawFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use crate::ChannelItem;

/// The largest frame that is sent, in bytes. Engines, and Rust workers before 0.24, disconnect at a frame of more than 16 MiB,
/// though they accept larger messages.
const MAX_FRAME: usize = 8 * 1024 * 1024;

/// Adds a text message to the write buffer of a socket. A large message is split into several frames. The next flush sends it.
pub(crate) async fn feed_text<S>(sink: &mut S, text: impl Into<Utf8Bytes>) -> Result<(), Error>
where
    S: Sink<Message, Error = Error> + Unpin,
{
    let text = text.into();
    if text.len() <= MAX_FRAME {
        return sink.feed(Message::Text(text)).await;
    }
    let (mut rest, mut kind) = (Bytes::from(text), Data::Text);
    while !rest.is_empty() {
        let piece = rest.split_to(rest.len().min(MAX_FRAME));
        let frame = RawFrame::message(piece, OpCode::Data(kind), rest.is_empty());
        sink.feed(Message::Frame(frame)).await?;
        kind = Data::Continue;
    }
    Ok(())
}

/// Reads the next item of a channel from its socket. Returns `None` when the socket is closed or broken.
pub(crate) async fn next_item<S>(stream: &mut S) -> Option<ChannelItem>
where
    S: Stream<Item = Result<Message, Error>> + Unpin,
{
    loop {
        match stream.next().await? {
            Ok(Message::Text(text)) => return Some(ChannelItem::Text(text.as_str().to_owned())),
            Ok(Message::Binary(bytes)) => return Some(ChannelItem::Bytes(bytes)),
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            Ok(Message::Close(_)) | Err(_) => return None,
        }
    }
}
