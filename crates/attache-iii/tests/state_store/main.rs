//! What the store in an engine's state promises.

mod others;
mod outages;
mod support;
mod writing;
