//! Talks to A2A agents.
//!
//! [`Client::connect`] finds an agent by its card and picks the first of its interfaces that both sides speak. Then messages can
//! be [sent](Client::send) and [streamed](Client::stream), and tasks read, listed, followed, [waited for](Client::wait) and
//! canceled.
//!
//! What it promises:
//!
//! - A message is sent once. Only one with an [idempotency key](Outgoing::idempotency_key) is repeated when the connection breaks.
//!   What only reads is repeated.
//! - A stream that breaks is taken up again where it broke: with a server that numbers its events and knows `Last-Event-ID`, as
//!   Attaché's does, no event is lost and none comes twice.
//! - Nothing an agent answers makes the client wait forever, or take more memory than [allowed](ClientOptions).
//! - Dropping a future or a stream stops the waiting, not the task.
//! - [Credentials] go only to the origin of the agent's address and to those that are [trusted](TrustedOrigins), and only those
//!   that the card asks for; or, from an [address book](AddressBook), only to the address that they are written for. Somebody who has [logged in](OAuth) stays so for
//!   as long as the authorization server lets them.
//!
//! It speaks JSON-RPC, HTTP+JSON and gRPC, each of protocol 1.0 and of 0.3.

mod address_book;
mod beside;
mod client;
mod credentials;
mod deadline;
mod discovery;
mod error;
mod http;
mod interface;
mod listing;
mod oauth;
mod operations;
mod options;
mod origins;
mod outgoing;
mod remote;
mod stream;
mod texts;
mod tls;
mod transport;
mod waiting;

pub use address_book::{Address, AddressBook, AddressEntry};
pub use attache_outbound::{Policy, Refused};
pub use attache_signing::{Algorithm, KeySet, Rejected, Signer, Untrusted, Verifier, Why};
pub use client::{Client, Refreshed, Reply};
pub use credentials::{Asked, Beforehand, Credential, Credentials, Keyring, Secret};
pub use error::ClientError;
pub use interface::{Binding, Interface};
pub use listing::Listing;
pub use oauth::{
    FileTokens, Flow, LockedTokens, LoginError, LoginOffer, MemoryTokens, OAuth, Revocation, TokenKey,
    TokenStore, TokenStoreError, Tokens, Visit,
};
pub use options::{Backoff, ClientOptions, Pace};
pub use origins::TrustedOrigins;
pub use outgoing::Outgoing;
pub use remote::RemoteError;
pub use stream::Events;
pub use texts::Texts;
pub use tls::{Identity, RootCertificates};
#[doc(hidden)]
pub use transport::parsing;
