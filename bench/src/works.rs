//! The works: what is measured, against what, and what is asked of it.

use std::sync::Arc;

use anyhow::Result;
use clap::ValueEnum;

use crate::harness::Harness;
use crate::load::{Plan, Reply};
use crate::report::Row;
use crate::requests::Request;

mod agents;
mod asked;
mod called;
mod durable;
mod guarded;
mod kept;
pub(crate) mod queued;
mod sent;
mod stored;
mod streamed;
mod transports;

/// A thing to measure. One work may give several rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Work {
    /// SendMessage, small and blocking, from 1 to 256 connections
    Send,
    /// A small message in the words of 0.3, against the same in those of 1.0
    Dialect,
    /// A small message sent with our client, against the same written with the HTTP client alone
    Client,
    /// A small message from a caller with a bearer token, against the same without authentication
    Auth,
    /// The same with a signed token that was seen before
    AuthJwt,
    /// GetTask among 100,000 stored
    Get,
    /// Streams of 100 chunks
    Stream,
    /// Time to the first event of a stream
    FirstEvent,
    /// What an event costs in a stream of 3,000 chunks against one of 100
    StreamGrowth,
    /// ListTasks of 50 among 100,000 stored, and among 1,000
    List,
    /// SendMessage with 1 MiB of structured data
    Data,
    /// What a send costs while 1,000 streams are open and idle
    IdleStreams,
    /// Memory per finished task and per open stream
    Memory,
    /// SendMessage with the store in a file, against the one in memory
    SqliteSend,
    /// Streams of 100 chunks with the store in a file, against the one in memory
    SqliteStream,
    /// GetTask from a file with 1,000,000 tasks, against one with 10,000
    SqliteGet,
    /// ListTasks of 50 from a file with 1,000,000 tasks, against one with 10,000
    SqliteList,
    /// Time from the start with a file of 1,000,000 tasks to the first answer
    SqliteStart,
    /// A function of an iii worker called with SendMessage, against the echo agent
    FunctionCall,
    /// The same call with 200 workers and 5,000 functions, against one of each
    FunctionCrowd,
    /// The card with 1,000 functions, against one with 10, both as multiples of the bare server
    #[value(name = "card-1000")]
    Card1000,
    /// A message to a program as an agent, against starting the program
    Program,
    /// Time to the first token of a model as an agent, against its endpoint
    FirstToken,
    /// SendMessage to a remote agent through a gateway, against the remote agent
    RemoteGateway,
    /// SendMessage over Redis Streams with 64 in flight, against HTTP and against a bare echo
    Redis,
    /// SendMessage over the other transports with 64 in flight, against HTTP, and over the gRPC envelope, against gRPC
    Transports,
}

impl Work {
    /// Every work, in the order they are run.
    pub(crate) fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// The name by which `--only` knows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Dialect => "dialect",
            Self::Client => "client",
            Self::Auth => "auth",
            Self::AuthJwt => "auth-jwt",
            Self::Get => "get",
            Self::Stream => "stream",
            Self::FirstEvent => "first-event",
            Self::StreamGrowth => "stream-growth",
            Self::List => "list",
            Self::Data => "data",
            Self::IdleStreams => "idle-streams",
            Self::Memory => "memory",
            Self::SqliteSend => "sqlite-send",
            Self::SqliteStream => "sqlite-stream",
            Self::SqliteGet => "sqlite-get",
            Self::SqliteList => "sqlite-list",
            Self::SqliteStart => "sqlite-start",
            Self::FunctionCall => "function-call",
            Self::FunctionCrowd => "function-crowd",
            Self::Card1000 => "card-1000",
            Self::Program => "program",
            Self::FirstToken => "first-token",
            Self::RemoteGateway => "remote-gateway",
            Self::Redis => "redis",
            Self::Transports => "transports",
        }
    }

    /// Measures it.
    pub(crate) async fn run(self, harness: &mut Harness) -> Result<Vec<Row>> {
        match self {
            Self::Send => sent::send(harness).await,
            Self::Dialect => sent::dialect(harness).await,
            Self::Client => asked::client(harness).await,
            Self::Auth => guarded::token(harness).await,
            Self::AuthJwt => guarded::jwt(harness).await,
            Self::Get => stored::get(harness).await,
            Self::Stream => streamed::stream(harness).await,
            Self::FirstEvent => streamed::first_event(harness).await,
            Self::StreamGrowth => streamed::growth(harness).await,
            Self::List => stored::list(harness).await,
            Self::Data => sent::data(harness).await,
            Self::IdleStreams => kept::idle_streams(harness).await,
            Self::Memory => kept::memory(harness).await,
            Self::SqliteSend => durable::send(harness).await,
            Self::SqliteStream => durable::stream(harness).await,
            Self::SqliteGet => durable::get(harness).await,
            Self::SqliteList => durable::list(harness).await,
            Self::SqliteStart => durable::start(harness).await,
            Self::FunctionCall => called::call(harness).await,
            Self::FunctionCrowd => called::crowd(harness).await,
            Self::Card1000 => called::card(harness).await,
            Self::Program => agents::program(harness).await,
            Self::FirstToken => agents::first_token(harness).await,
            Self::RemoteGateway => agents::remote_gateway(harness).await,
            Self::Redis => queued::redis(harness).await,
            Self::Transports => transports::transports(harness).await,
        }
    }
}

/// The small message of the works that send one, and the plan to send it.
pub(crate) const SMALL: &str = "hello, agent";

fn send_small(connections: usize) -> Arc<Plan> {
    Arc::new(Plan {
        requests: vec![Request::send(SMALL)],
        connections,
        reply: Reply::Whole,
        marker: "TASK_STATE_COMPLETED",
    })
}

/// The same from someone with a bearer token.
fn send_with(token: &str, connections: usize) -> Arc<Plan> {
    Arc::new(Plan {
        requests: vec![Request::send_with(token, SMALL)],
        connections,
        reply: Reply::Whole,
        marker: "TASK_STATE_COMPLETED",
    })
}

/// The same in the words of 0.3.
fn send_in_0_3(connections: usize) -> Arc<Plan> {
    Arc::new(Plan {
        requests: vec![Request::send_in_0_3(SMALL)],
        connections,
        reply: Reply::Whole,
        marker: "\"completed\"",
    })
}

/// The plan to get tasks with these ids, at random.
fn get_tasks(ids: &[String]) -> Arc<Plan> {
    Arc::new(Plan {
        requests: ids.iter().map(|id| Request::get_task(id)).collect(),
        connections: 64,
        reply: Reply::Whole,
        marker: "TASK_STATE_COMPLETED",
    })
}

/// The plan to list the latest tasks.
fn list_tasks() -> Arc<Plan> {
    Arc::new(Plan {
        requests: vec![Request::list_tasks(50)],
        connections: 4,
        reply: Reply::Whole,
        marker: "nextPageToken",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_work_is_named_as_the_command_line_names_it() {
        for work in Work::all() {
            let value = work.to_possible_value().expect("no work is hidden");
            assert_eq!(value.get_name(), work.name());
        }
    }
}
