//! Tests of a worker with a scripted engine.

mod calling;
mod catalog;
mod channels;
mod connecting;
mod engine;
mod handling;
mod leaving;
mod sizes;
