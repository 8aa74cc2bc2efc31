//! The agent card: how it is built from what the author wrote, and how it is served.

pub(crate) mod build;
pub(crate) mod runtime;
pub(crate) mod schemes;
mod serve;
pub(crate) mod transports;

pub(crate) use self::serve::{CardFor, CardHost, OLDEST_PATH, PATH, etag_of, has_tag};
