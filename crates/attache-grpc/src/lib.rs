//! The A2A protobuf messages on the wire and their conversion to the model, for the two sides of the gRPC binding.
//!
//! There is a [`Package`] for each version of the protocol: `lf.a2a.v1` for 1.0, with its messages in [`v1_0`], and `a2a.v1` for
//! 0.3, with its messages in [`v0_3`]. Everything here is pure: bytes in, bytes out.
//!
//! - A server reads requests with [`to_model`] and writes answers with [`to_proto`] and [`Package::status`].
//! - A client writes calls with [`Package::write`], cuts what comes back into messages with [`Frames`], and reads those as an
//!   [`Answer`] or as an [`Event`]. How a call ended is a [`Refusal`] or nothing: see [`ending`].

mod answer;
#[cfg(test)]
mod arbitrary;
mod card;
mod event;
mod frame;
mod package;
mod refusal;
mod status;
pub mod v0_3;
pub mod v1_0;
mod wire;
mod write;

pub use answer::Answer;
pub use event::Event;
pub use frame::{FrameError, Frames};
pub use package::Package;
pub use refusal::{Refusal, ending};
pub use wire::{Encoded, Misfit, Wire, to_model, to_proto};
pub use write::Written;
