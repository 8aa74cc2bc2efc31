//! Programs as agents, with real processes.
#![cfg(unix)]

mod json;
mod support;
mod text;
mod work;
