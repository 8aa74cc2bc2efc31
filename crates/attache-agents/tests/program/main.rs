//! Programs as agents, with real processes.
#![cfg(unix)]

mod faults;
mod json;
mod places;
mod support;
mod text;
mod work;
