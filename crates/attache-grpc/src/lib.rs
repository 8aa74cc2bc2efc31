//! The protobuf messages of A2A and their conversion to the model, for clients and servers of the gRPC binding.
//!
//! There is a [`Package`] for each version of the protocol: `lf.a2a.v1` for 1.0, with its messages in [`v1_0`], and `a2a.v1` for
//! 0.3, with its messages in [`v0_3`]. Everything here is pure: bytes in, bytes out.
//!
//! - A server reads requests with [`to_model`] and writes responses with [`to_proto`] and [`Package::status`].
//! - A client encodes calls with [`Package::write`]. It splits the response body into messages with [`Frames`] and decodes them
//!   with [`DecodeResponse`] or [`Event::read`]. [`call_result`] reads the status of the call from its trailers.

#[cfg(test)]
mod arbitrary;
mod card;
mod convert;
pub mod envelope;
mod error_status;
mod event;
mod frame;
mod package;
mod response;
mod status;
mod tolerant;
pub mod v0_3;
pub mod v1_0;
mod write;

pub use convert::{ConvertError, Encoded, ProtoConvert, to_model, to_proto};
pub use error_status::{ErrorStatus, call_result};
pub use event::Event;
pub use frame::{FrameError, Frames};
pub use package::Package;
pub use response::DecodeResponse;
pub use write::EncodedCall;
