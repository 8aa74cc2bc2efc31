//! Tests of the store in an engine's state.

mod foreign;
mod outages;
mod support;
mod writing;
