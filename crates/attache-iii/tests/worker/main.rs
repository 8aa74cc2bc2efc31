//! A worker against an engine that says what the test says.

mod calling;
mod catalog;
mod channels;
mod connecting;
mod engine;
mod handling;
mod leaving;
