//! The command and the examples, run as a user runs them.

mod audiences;
mod client;
mod command;
mod config;
mod crash;
mod delegation;
mod examples;
mod functions;
mod guarded;
mod home;
mod keys;
mod pages;
mod store;
mod support;
