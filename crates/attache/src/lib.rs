//! A2A (Agent2Agent) agents in Rust.
//!
//! An agent that answers every message with itself, over JSON-RPC, HTTP+JSON and gRPC on one port:
//!
//! ```no_run
//! use attache::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> attache::Result<()> {
//!     Ok(Server::echo().bind("127.0.0.1:8080").run().await?)
//! }
//! ```
//!
//! An agent of your own is an async function that takes a [`Turn`](prelude::Turn):
//!
//! ```no_run
//! use attache::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> attache::Result<()> {
//!     Server::new(agent_fn(|turn: Turn| async move {
//!         turn.working("thinking").await?;
//!         turn.artifact("answer").text(format!("You said: {}", turn.text())).await?;
//!         turn.complete().await
//!     }))
//!     .card(Card::new("My Agent", "Does useful things").skill(Skill::new("chat", "General conversation")))
//!     .bind("127.0.0.1:8080")
//!     .run()
//!     .await?;
//!     Ok(())
//! }
//! ```
//!
//! A [`Client`](prelude::Client) talks to other agents:
//!
//! ```no_run
//! use attache::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> attache::Result<()> {
//!     let agent = Client::connect("http://localhost:3111").await?;
//!     let reply = agent.send("Hello").await?;
//!     eprintln!("{}", Texts::from(&reply).all());
//!     Ok(())
//! }
//! ```
//!
//! # Features
//!
//! Without features the crate has the types of the [`protocol`] alone. All of these are on by default:
//!
//! | feature | what it adds |
//! |---|---|
//! | `client` | [`client`]: talking to agents |
//! | `server` | [`server`] and [`core`]: serving agents, over JSON-RPC and HTTP+JSON |
//! | `grpc` | gRPC for the client and the server |
//! | `redis` | Redis Streams for the client and the server |
//! | `sqlite` | [`store`]: tasks in a file |
//! | `oauth` | OAuth 2.0 and OpenID Connect for the client |
//! | `signing` | [`signing`]: cards that are signed and verified |
//! | `cli` | the `attache` command, which needs all others. Libraries turn it off: `default-features = false` |

mod error;

#[cfg(feature = "client")]
pub use attache_client as client;
#[cfg(any(feature = "server", feature = "sqlite"))]
pub use attache_core as core;
pub use attache_protocol as protocol;
#[cfg(feature = "server")]
pub use attache_server as server;
#[cfg(feature = "signing")]
pub use attache_signing as signing;
#[cfg(feature = "sqlite")]
pub use attache_store as store;

pub use crate::error::{Error, Result};

/// The names that most agents and most clients need.
pub mod prelude {
    #[cfg(feature = "client")]
    pub use attache_client::{Client, ClientOptions, Outgoing, Reply, Texts};
    #[cfg(feature = "server")]
    pub use attache_core::{
        Agent, AgentError, AgentResult, Caller, Identity, MemoryStore, Principal, Turn, agent_fn, restartable,
    };
    pub use attache_protocol::{
        AgentCard as Card, AgentExtension as Extension, AgentSkill as Skill, Artifact, Message, Part, Role,
        Task, TaskState,
    };
    #[cfg(feature = "server")]
    pub use attache_server::{Policy, Server};
}

/// The examples on the page about testing are tests themselves.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/testing.md")]
struct TestingPage;

/// So are those on the page about reports and permissions.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reports.md")]
struct ReportsPage;

/// So are those on the page about conversations.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/conversations.md")]
struct ConversationsPage;
