//! Requests to addresses that users give: checked, pinned and bounded.
//!
//! A webhook makes the server call an address that a user chose, from inside the server's network. So a URL is checked when it
//! is stored ([`Policy::check_url`]) and again when it is called ([`Outbound::post`]). Then the addresses are checked: the name
//! is resolved once per connection, one forbidden address refuses all, and the client connects only to checked addresses.
//! Redirects and proxies are not used, because either could connect to an address that was not checked.
//!
//! ```
//! use attache_outbound::Policy;
//!
//! let policy = Policy::default();
//! assert!(policy.check_url("https://hooks.example.com/a2a").is_ok());
//! assert!(policy.check_url("http://169.254.169.254/latest/meta-data").is_err());
//! ```

mod client;
mod http_client;
mod policy;
mod ranges;
mod refused;
mod resolver;

pub use client::{
    FRAMING, MAX_RESPONSE, Outbound, OutboundError, OutboundRequest, OutboundResponse, SetupError,
    retry_after,
};
pub use http_client::{PolicyResolver, build_client, causes, guarded_client, restricted_client};
pub use ipnet::IpNet;
pub use policy::{MAX_URL, Policy, Target};
pub use refused::Refused;
pub use resolver::{Resolver, SystemResolver};
