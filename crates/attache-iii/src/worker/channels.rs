//! Channels: streams of messages beside the calls, each end a WebSocket of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::Message as Frame;

use super::Inner;
use super::calls::Line;
use super::socket::{DialError, Socket, feed_text};
use crate::functions::{CallError, Channel, ChannelItem, FunctionCall};
use crate::wire::{ChannelRef, Direction};

/// How long an engine may take to make a channel.
const CREATING: Duration = Duration::from_secs(10);

/// How long goodbyes may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// How many items wait to be read before the writer has to.
const ITEMS: usize = 64;

/// The largest piece of bytes that goes out at once, as the SDKs have it: readers may not take more.
const PIECE: usize = 64 * 1024;

/// The writing end of a channel.
///
/// Each write leaves at once. [`close`](Self::close) tells the reader that all is written; dropping this does so too, though
/// what was written last may be lost then.
pub struct ChannelWriter {
    socket: Socket,
}

impl std::fmt::Debug for ChannelWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChannelWriter").finish_non_exhaustive()
    }
}

impl ChannelWriter {
    /// Writes a text message.
    pub async fn send_text(&mut self, text: impl Into<String>) -> Result<(), CallError> {
        feed_text(&mut self.socket, text.into()).await.map_err(gone)?;
        self.socket.flush().await.map_err(gone)
    }

    /// Writes bytes. They may arrive in pieces.
    pub async fn send_bytes(&mut self, bytes: impl Into<Bytes>) -> Result<(), CallError> {
        let mut rest = bytes.into();
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(PIECE));
            self.socket.feed(Frame::Binary(piece)).await.map_err(gone)?;
        }
        self.socket.flush().await.map_err(gone)
    }

    /// Waits until the reader is gone, which a write would notice only later. Nothing is lost where this is not waited out.
    pub async fn closed(&mut self) {
        while let Some(Ok(_)) = self.socket.next().await {}
    }

    /// Tells the reader that this is the end.
    pub async fn close(mut self) -> Result<(), CallError> {
        tokio::time::timeout(GOODBYE, self.socket.close(None))
            .await
            .map_err(|_| CallError::TimedOut)?
            .map_err(gone)
    }
}

fn gone(error: WsError) -> CallError {
    tracing::debug!(%error, "a channel is gone");
    CallError::Disconnected
}

impl Inner {
    pub(super) async fn open_writer(&self, end: &ChannelRef) -> Result<ChannelWriter, CallError> {
        let socket = self.take_end(end, Direction::Write).await?;
        Ok(ChannelWriter { socket })
    }

    pub(super) async fn open_reader(
        &self,
        end: &ChannelRef,
    ) -> Result<mpsc::Receiver<ChannelItem>, CallError> {
        let line = self.calls.line().ok_or(CallError::Disconnected)?;
        let socket = self.take_end(end, Direction::Read).await?;
        let (items, read) = mpsc::channel(ITEMS);
        self.runtime.spawn(relay(socket, items, line));
        Ok(read)
    }

    pub(super) async fn open_channel(&self) -> Result<Channel, CallError> {
        #[derive(Deserialize)]
        struct Created {
            writer: ChannelRef,
            reader: ChannelRef,
        }
        let payload = serde_json::value::to_raw_value(&serde_json::json!({})).unwrap_or_default();
        let create = "engine::channels::create";
        let call = FunctionCall { function: create, payload: &payload, timeout: CREATING };
        let created: Box<RawValue> = self.invoke(call, None).await?;
        let Created { writer, reader } = serde_json::from_str(created.get()).map_err(|error| {
            CallError::remote("bad_result", format!("`{create}` gave no channel: {error}"))
        })?;
        let items = self.open_reader(&reader).await?;
        Ok(Channel { writer, items })
    }

    async fn take_end(&self, end: &ChannelRef, wanted: Direction) -> Result<Socket, CallError> {
        if end.direction != wanted {
            let message = format!(
                "this is not the end of the channel to {}",
                match wanted {
                    Direction::Read => "read from",
                    Direction::Write => "write to",
                }
            );
            return Err(CallError::remote("wrong_end", message));
        }
        self.dialer.channel(end).await.map_err(|error| match error {
            DialError::Refused(StatusCode::NOT_FOUND) => {
                CallError::remote("channel_not_found", "the channel is gone, or never was")
            }
            DialError::Refused(status) => {
                CallError::remote("channel_refused", format!("the engine answered {status}"))
            }
            DialError::TimedOut => CallError::TimedOut,
            DialError::Io(_) | DialError::WebSocket(_) => {
                tracing::debug!(%error, "a channel cannot be reached");
                CallError::Disconnected
            }
        })
    }
}

/// Reads until the writer, the reader or the engine has gone. A channel does not outlive the connection that it belongs to, and a
/// socket alone would not tell.
async fn relay(mut socket: Socket, items: mpsc::Sender<ChannelItem>, line: Arc<Line>) {
    loop {
        let frame = tokio::select! {
            () = items.closed() => break,
            () = line.gone.cancelled() => break,
            frame = socket.next() => frame,
        };
        let item = match frame {
            Some(Ok(Frame::Text(text))) => ChannelItem::Text(text.as_str().to_owned()),
            Some(Ok(Frame::Binary(bytes))) => ChannelItem::Bytes(bytes),
            Some(Ok(Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_))) => continue,
            Some(Ok(Frame::Close(_)) | Err(_)) | None => break,
        };
        if items.send(item).await.is_err() {
            break;
        }
    }
    drop(items);
    // It is closed either way.
    let _ = tokio::time::timeout(GOODBYE, socket.close(None)).await;
}
