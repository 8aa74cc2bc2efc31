//! What the engine promises, one test each.

mod support;

mod admission;
mod agents;
mod cancel;
mod closed_contexts;
mod compatible;
mod concurrency;
mod context_model;
mod contexts;
mod dropped_requests;
mod folding;
mod generations;
mod idempotency;
mod isolation;
mod keys;
mod leases;
mod listing;
mod listing_model;
#[cfg(unix)]
mod permission_paths;
mod permissions;
mod push;
mod recovery;
mod resuming;
mod retention;
mod sending;
mod shutdown;
mod streams;
mod turn_limits;
mod turns;
mod work;
mod workspaces;
mod writing;
