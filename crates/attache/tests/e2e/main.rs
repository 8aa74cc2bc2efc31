//! The command and the examples, run as a user runs them.

mod agents;
mod amplification;
mod artifacts;
mod audiences;
mod beside;
mod bombs;
mod client;
mod command;
mod config;
mod conversations;
mod crash;
mod delegation;
mod examples;
#[cfg(unix)]
mod full;
mod functions;
mod gateway_killed;
mod guarded;
mod health;
mod home;
mod iac_code;
mod keys;
mod killed;
mod log;
#[path = "../shared/model.rs"]
mod model;
mod model_tools;
mod models;
mod named_settings;
mod pages;
mod programs;
mod removed_agents;
mod router_faults;
#[cfg(target_os = "linux")]
mod stopped_readers;
mod store;
mod support;
#[cfg(unix)]
mod terminal;
mod triggers;
#[cfg(unix)]
mod unix_callers;
#[cfg(unix)]
mod work;
