//! Protocol 0.3, and 0.2 before it.
//!
//! Over JSON-RPC everything says of itself what `kind` it is, states and roles are in lower case, and what is answered is not
//! wrapped. Over HTTP+JSON the same is written as `proto_json` has it.

pub mod answer;
pub mod proto_json;
mod read;
pub mod request;
mod write;

pub(crate) use read::TaggedSend;
pub(super) use read::{field, part_field, read, read_task};
pub(super) use write::{Manner, write, write_event, write_task};
