//! The command and the examples, run as a user runs them.

mod command;
mod examples;
mod support;
