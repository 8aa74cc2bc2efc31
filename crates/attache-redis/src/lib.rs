//! Redis Streams: what the server and the client of this transport share, and the push queue of the server.
//!
//! - [`RedisUrl`]: a Redis server with its credentials. They are never printed.
//! - [`StreamsAddress`]: the address of an agent in a card, `redis-streams://HOST:PORT/DB/REQUESTS/RESPONSES/GROUP`, without credentials.
//! - [`field`]: the names of the fields of entries.
//! - [`Entry`]: an entry of a stream, as Redis returns it.
//! - [`Consumer`]: a process in a consumer group, with the commands for the entries of the group.
//! - [`Outage`], [`Backoff`], [`is_transient`]: what to do while Redis does not answer.
//!
//! It knows no JSON-RPC, no operations and no tasks.

mod address;
mod connection;
mod entry;
mod group;
mod outage;
mod url;

pub use redis;

pub use crate::address::{InvalidAddress, ServerAddress, StreamsAddress};
pub use crate::connection::{AddressCheck, Connection, connect, is_missing_group, is_transient};
pub use crate::entry::{Entry, claimed, entries, field, list, pending_ids};
pub use crate::group::{Consumer, Pending, Whose};
pub use crate::outage::{Backoff, Outage};
pub use crate::url::{InvalidUrl, RedisUrl};
