//! Tests of the embedded engine with raw frames over real sockets.

mod calls;
mod catalog;
mod channels;
mod frames;
mod http;
mod http_bodies;
mod joining;
mod limits;
mod state;
mod support;
mod triggers;
