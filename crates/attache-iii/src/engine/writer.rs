//! The writing end of a channel, for functions of this process.

use tokio::sync::mpsc;

use super::Engine;
use super::channels::{End, Joined};
use crate::wire::{ChannelRef, Direction};
use crate::{CallError, ChannelItem};

/// The writing end of a channel. Dropping it tells the reader that this is the end.
pub struct ChannelWriter(End<mpsc::Sender<ChannelItem>>);

impl std::fmt::Debug for ChannelWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChannelWriter").finish_non_exhaustive()
    }
}

impl ChannelWriter {
    /// Writes, as soon as there is room. An error means that nobody reads any more.
    pub async fn send(&self, item: ChannelItem) -> Result<(), CallError> {
        let gone = || CallError::remote("channel_send_failed", "nobody reads from this channel any more");
        tokio::select! {
            biased;
            () = self.0.over.cancelled() => Err(gone()),
            sent = self.0.end.send(item) => sent.map_err(|_| gone()),
        }
    }
}

impl Engine {
    /// Takes the writing end of a channel that a function of this process got in its payload.
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
                Err(CallError::remote("channel_taken", "someone else writes to this channel"))
            }
            Some(Joined::Reader(_) | Joined::Late) | None => {
                Err(CallError::remote("channel_not_found", "there is no such channel to write to"))
            }
        }
    }
}
