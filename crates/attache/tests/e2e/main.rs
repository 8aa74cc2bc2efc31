//! The command and the examples, run as a user runs them.

mod amplification;
mod audiences;
mod bombs;
mod client;
mod command;
mod config;
mod crash;
mod delegation;
mod examples;
#[cfg(unix)]
mod full;
mod functions;
mod guarded;
mod home;
mod keys;
mod pages;
mod store;
mod support;
mod triggers;
