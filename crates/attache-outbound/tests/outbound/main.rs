//! What is refused, what is sent, and to which address.

mod addresses;
mod dialling;
mod environment;
mod exchange;
mod support;
mod urls;
