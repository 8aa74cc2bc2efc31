//! Requests to addresses that users give: checked, pinned and bounded.
//!
//! A webhook makes the server call wherever a user says, with the server's place in the network. So a URL is checked when it is
//! stored ([`Policy::check_url`]) and again when it is called ([`Outbound::post`]), then on the addresses that are connected
//! to: the name is resolved once per connection, every address is checked, one bad address refuses all, and only those
//! addresses are dialled. No redirect is followed and no proxy is used, since either would dial something unchecked.
//!
//! ```
//! use attache_outbound::Policy;
//!
//! let policy = Policy::default();
//! assert!(policy.check_url("https://hooks.example.com/a2a").is_ok());
//! assert!(policy.check_url("http://169.254.169.254/latest/meta-data").is_err());
//! ```

mod careful;
mod client;
mod policy;
mod ranges;
mod refused;
mod resolver;

pub use careful::{Guard, build_client, careful_client, causes};
pub use client::{
    Answer, FRAMING, MAX_ANSWER, Outbound, OutboundError, OutboundRequest, SetupError, retry_after,
};
pub use ipnet::IpNet;
pub use policy::{MAX_URL, Policy, Target};
pub use refused::Refused;
pub use resolver::{Resolver, SystemResolver};
