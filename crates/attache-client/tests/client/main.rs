//! What the client promises, against our server and against servers that promise nothing.

mod discovery;
mod hostile;
mod refusals;
mod resuming;
mod sending;
mod streaming;
mod support;
