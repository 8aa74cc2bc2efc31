//! The embedded engine, as workers see it: raw frames over real sockets.

mod calls;
mod catalog;
mod channels;
mod frames;
mod http;
mod joining;
mod limits;
mod state;
mod support;
mod triggers;
