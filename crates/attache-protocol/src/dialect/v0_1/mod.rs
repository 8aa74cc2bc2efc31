//! Protocol 0.1, from before there were contexts and message ids: `tasks/send`, and AgentOS to this day.
//!
//! The client chooses the id of its task. Every answer is a task, parts say what `type` they are, artifacts are known by their
//! number. A message has no id; it gets one here that follows from what it says, so that the same request is read the same
//! way twice. There are fewer states, and the one of a task that was ended by its client is written `cancelled`, as AgentOS
//! does; `canceled`, as the schema had it, is read as well.

mod read;
mod write;

pub(super) use read::{read, read_task, renamed};
pub(super) use write::{write, write_event, write_task};
