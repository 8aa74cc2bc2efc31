//! Channels: streams of items, separate from calls. Each end is a WebSocket of its own.

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
use super::calls::Outgoing;
use super::socket::{DialError, Socket};
use crate::functions::{CallError, Channel, ChannelItem, FunctionCall};
use crate::socket::{feed_text, next_item};
use crate::wire::{ChannelRef, Direction};

/// How long the engine may take to create a channel.
const CREATE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long closing may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How many items are buffered for the reader.
const BUFFER: usize = 64;

/// The largest binary message, in bytes. It is the size that the SDKs use; readers may not accept more.
const PIECE: usize = 64 * 1024;

/// The writing end of a channel.
///
/// Each write is sent at once. [`close`](Self::close) ends the channel after everything is written. Dropping the writer ends it
/// too, but the last items may be lost.
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
        feed_text(&mut self.socket, text.into()).await.map_err(send_failed)?;
        self.socket.flush().await.map_err(send_failed)
    }

    /// Writes bytes. They may arrive in several items.
    pub async fn send_bytes(&mut self, bytes: impl Into<Bytes>) -> Result<(), CallError> {
        let mut rest = bytes.into();
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(PIECE));
            self.socket.feed(Frame::Binary(piece)).await.map_err(send_failed)?;
        }
        self.socket.flush().await.map_err(send_failed)
    }

    /// Waits until the reader is gone, which a write notices only later. Dropping this future loses nothing.
    pub async fn closed(&mut self) {
        while let Some(Ok(_)) = self.socket.next().await {}
    }

    /// Ends the channel.
    pub async fn close(mut self) -> Result<(), CallError> {
        tokio::time::timeout(CLOSE_TIMEOUT, self.socket.close(None))
            .await
            .map_err(|_| CallError::TimedOut)?
            .map_err(send_failed)
    }
}

fn send_failed(error: WsError) -> CallError {
    tracing::debug!(%error, "the connection of a channel failed");
    CallError::Disconnected
}

impl Inner {
    pub(super) async fn open_writer(&self, end: &ChannelRef) -> Result<ChannelWriter, CallError> {
        let socket = self.open_end(end, Direction::Write).await?;
        Ok(ChannelWriter { socket })
    }

    pub(super) async fn open_reader(
        &self,
        end: &ChannelRef,
    ) -> Result<mpsc::Receiver<ChannelItem>, CallError> {
        let outgoing = self.calls.outgoing().ok_or(CallError::Disconnected)?;
        let socket = self.open_end(end, Direction::Read).await?;
        let (items, read) = mpsc::channel(BUFFER);
        self.runtime.spawn(copy_to_reader(socket, items, outgoing));
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
        let call =
            FunctionCall { function: create, payload: &payload, timeout: CREATE_TIMEOUT, trace_parent: None };
        let created: Box<RawValue> = self.invoke(call, None).await?;
        let Created { writer, reader } = serde_json::from_str(created.get()).map_err(|error| {
            CallError::remote("bad_result", format!("`{create}` returned an invalid result: {error}"))
        })?;
        let items = self.open_reader(&reader).await?;
        Ok(Channel { writer, items })
    }

    async fn open_end(&self, end: &ChannelRef, wanted: Direction) -> Result<Socket, CallError> {
        if end.direction != wanted {
            let message = format!(
                "this is not the end to {}",
                match wanted {
                    Direction::Read => "read from",
                    Direction::Write => "write to",
                }
            );
            return Err(CallError::remote("wrong_end", message));
        }
        self.dialer.channel(end).await.map_err(|error| match error {
            DialError::Status(StatusCode::NOT_FOUND) => {
                CallError::remote("channel_not_found", "the channel does not exist or was closed")
            }
            DialError::Status(status) => {
                CallError::remote("channel_refused", format!("the engine responded with {status}"))
            }
            DialError::TimedOut => CallError::TimedOut,
            DialError::Io(_) | DialError::WebSocket(_) => {
                tracing::debug!(%error, "cannot connect to a channel");
                CallError::Disconnected
            }
        })
    }
}

/// Reads until the writer, the reader or the connection to the engine is gone. A channel ends with the connection that it belongs
/// to, but its own socket does not always notice that.
async fn copy_to_reader(mut socket: Socket, items: mpsc::Sender<ChannelItem>, outgoing: Arc<Outgoing>) {
    loop {
        let item = tokio::select! {
            () = items.closed() => break,
            () = outgoing.gone.cancelled() => break,
            item = next_item(&mut socket) => item,
        };
        let Some(item) = item else { break };
        if items.send(item).await.is_err() {
            break;
        }
    }
    drop(items);
    // It is closed either way.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, socket.close(None)).await;
}
