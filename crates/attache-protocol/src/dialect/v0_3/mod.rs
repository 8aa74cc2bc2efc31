//! Protocol 0.3, and 0.2 before it, over JSON-RPC.
//!
//! Everything says of itself what `kind` it is, states and roles are in lower case, and what is answered is not wrapped.

mod read;
mod write;

pub(super) use read::{field, read, read_task};
pub(super) use write::{Manner, write, write_event, write_task};
