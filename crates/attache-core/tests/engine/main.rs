//! What the engine promises, one test each.

mod support;

mod agents;
mod cancel;
mod crowd;
mod folding;
mod gates;
mod generations;
mod idempotency;
mod isolation;
mod keys;
mod leases;
mod listing;
mod listing_model;

mod push;
mod recovery;
mod resuming;
mod sending;
mod shutdown;
mod streams;
mod turn_limits;
mod turns;
mod vanishing;
mod writing;
