//! A client for A2A agents.
//!
//! [`Client::connect`] reads the card of an agent and selects the first of its interfaces that the client supports. Then the
//! client can [send](Client::send) and [stream](Client::stream) messages, and read, list, follow, [wait for](Client::wait) and
//! cancel tasks.
//!
//! Guarantees:
//!
//! - A message is sent once. It is repeated after a broken connection only if it has an [idempotency
//!   key](Outgoing::idempotency_key). Requests that only read are repeated.
//! - A stream that breaks is resumed. If the server numbers its events and supports `Last-Event-ID`, as Attaché does, no event
//!   is lost or duplicated.
//! - No response of an agent makes the client wait forever or use more memory than its [options](ClientOptions) allow.
//! - Dropping a future or a stream ends the wait. The task continues.
//! - [Credentials] are sent only to the origin of the agent's address and to [trusted origins](TrustedOrigins), and only those
//!   that the card asks for. Credentials of an [address book](AddressBook) are sent only to the address that they were written
//!   for. A [login](OAuth) is renewed as long as the authorization server allows it.
//!
//! The client supports JSON-RPC, HTTP+JSON and gRPC, each with protocol 1.0 and 0.3. JSON-RPC is also spoken over Unix sockets
//! (`unix:PATH`), over the standard input and output of a command (`stdio:COMMAND`), over WebSocket (`ws://`, `wss://`) and in the gRPC
//! envelope (`grpc-jsonrpc://`).
//!
//! Features, all on by default: `grpc` (the gRPC binding), `oauth` (login at authorization servers), `signing` (cards that must
//! be signed).

mod address_book;
mod agent_address;
mod card_trust;
mod client;
mod connect_failure;
mod credentials;
mod deadline;
mod direct;
mod discovery;
mod download;
mod error;
mod http;
mod interface;
mod listing;
mod named_agents;
#[cfg(feature = "oauth")]
mod oauth;
mod operations;
mod options;
mod origins;
mod outgoing;
mod remote;
mod request_auth;
mod request_headers;
mod sdk;
mod stream;
mod texts;
mod tls;
mod transport;
mod waiting;

pub use address_book::{Address, AddressBook, AddressEntry};
pub use agent_address::{complete_address, is_agent_url};
pub use attache_outbound::{Policy, Refused};
#[cfg(feature = "redis")]
pub use attache_redis::{InvalidUrl as InvalidRedisUrl, RedisUrl};
#[cfg(feature = "signing")]
pub use attache_signing::{
    Algorithm, KeySet, RejectedSignature, SignatureError, Signer, UntrustedCard, Verifier,
};
pub use client::{Client, Refreshed, Reply};
pub use connect_failure::ConnectFailure;
pub use credentials::{
    Credential, CredentialFuture, CredentialRequest, Credentials, PresetCredentials, SchemeCredentials,
    Secret,
};
pub use download::{Download, DownloadedPart};
pub use error::ClientError;
pub use interface::{Binding, Interface};
pub use listing::Listing;
pub use named_agents::ListedAgent;
#[cfg(feature = "oauth")]
#[doc(hidden)]
pub use oauth::parsing as oauth_parsing;
#[cfg(feature = "oauth")]
pub use oauth::{
    FileTokens, Flow, LockedTokens, LoginError, LoginMethod, LoginPrompt, MemoryTokens, OAuth,
    RegisteredClient, ResourceTokens, Revocation, TokenKey, TokenStore, TokenStoreError, Tokens,
};
pub use options::{Backoff, ClientOptions, Pace};
pub use origins::TrustedOrigins;
pub use outgoing::Outgoing;
pub use remote::RemoteError;
pub use stream::{Events, UnreadableEvent};
pub use texts::Texts;
pub use tls::{RootCertificates, TlsIdentity};
#[doc(hidden)]
pub use transport::parsing;
pub use transport::{CommandErrors, Commands, Forwarded, ForwardedResponse, commands_ended};
