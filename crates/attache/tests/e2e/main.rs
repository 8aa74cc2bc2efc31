//! The command and the examples, run as a user runs them.

mod command;
mod crash;
mod examples;
mod functions;
mod store;
mod support;
