//! Protocol 0.3 over HTTP+JSON: the ProtoJSON of its proto, as the SDKs of its time wrote it.
//!
//! Names of states and roles are those of 1.0, but for `TASK_STATE_CANCELLED`. A message has `content`, a file and data are
//! messages of their own, answers and events are wrapped, and webhooks go by resource names such as `tasks/t`.

pub mod answer;
mod part;
mod read;
pub mod request;
pub(in crate::dialect) mod twice;
mod write;

pub(in crate::dialect) use read::read;
pub(in crate::dialect) use write::{write, write_event};
