//! What is refused, what is sent, and where to.

mod addresses;
mod dialling;
mod environment;
mod exchange;
mod support;
mod urls;
