//! The writing end of a channel, for functions in this process.

use tokio::sync::mpsc;

use super::Engine;
use super::channels::{End, Joined};
use crate::wire::{ChannelRef, Direction};
use crate::{CallError, ChannelItem};

/// The writing end of a channel. When it is dropped, the reader gets the end of the channel.
pub struct ChannelWriter(End<mpsc::Sender<ChannelItem>>);

impl std::fmt::Debug for ChannelWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChannelWriter").finish_non_exhaustive()
    }
}

impl ChannelWriter {
    /// Writes an item, and waits if the channel is full. Fails if the reader is gone.
    pub async fn send(&self, item: ChannelItem) -> Result<(), CallError> {
        let gone = || CallError::remote("channel_send_failed", "the reader of this channel is gone");
        tokio::select! {
            biased;
            () = self.0.closed.cancelled() => Err(gone()),
            sent = self.0.end.send(item) => sent.map_err(|_| gone()),
        }
    }
}

impl Engine {
    /// Opens the writing end of a channel that a function in this process got in its payload.
    pub fn open_writer(&self, end: &ChannelRef) -> Result<ChannelWriter, CallError> {
        let joined = match end.direction {
            Direction::Write => {
                self.shared().channels.join(&end.channel_id, &end.access_key, Direction::Write)
            }
            Direction::Read => None,
        };
        match joined {
            Some(Joined::Writer(end)) => Ok(ChannelWriter(end)),
            Some(Joined::Taken) => {
                Err(CallError::remote("channel_taken", "this channel has a writer already"))
            }
            Some(Joined::Reader(_) | Joined::Late) | None => Err(CallError::remote(
                "channel_not_found",
                "no channel with this id and key can be written to",
            )),
        }
    }
}
