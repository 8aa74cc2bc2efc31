//! Protocol 0.3 over HTTP+JSON: the ProtoJSON of its proto, as the SDKs write it.
//!
//! States and roles have the names of 1.0, except `TASK_STATE_CANCELLED`. A message has `content`. Files and data are objects of
//! their own. Responses and events are wrapped. Webhooks have resource names such as `tasks/t`.

mod files;
mod read;
pub mod request;
pub mod response;

pub use files::FileEncoding;
pub(in crate::dialect) use read::read;
