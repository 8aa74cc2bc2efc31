//! What the engine promises, one test each.

mod support;

mod cancel;
mod sending;
mod turns;
mod vanishing;
