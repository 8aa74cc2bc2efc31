//! Protocol 0.3, and 0.2 before it.
//!
//! Over JSON-RPC every object has a `kind`, states and roles are in lower case, and results are not wrapped. [`proto_json`] is
//! the format over HTTP+JSON.

pub mod proto_json;
mod read;
pub mod request;
pub mod response;

pub(crate) use read::TaggedSend;
pub(super) use read::{field, part_field, read, read_task};
