//! The conformance suite over every transport that is compared with HTTP.

use super::{Transport, everywhere};
use crate::conformance::{self, Generation, Side, matrix, server};

async fn compare(transport: Transport, generation: Generation, guarded: bool) {
    let (mut one, mut other) = (everywhere(server(guarded)).await, everywhere(server(guarded)).await);
    let (mut http, mut wire) = (one.wire(Transport::Http).await, other.wire(transport).await);
    let http = Side { wire: &mut *http, server: one.address.to_string() };
    let other = Side { wire: &mut *wire, server: other.address.to_string() };
    conformance::compare(http, other, generation, guarded).await;
}

matrix! {
    unix: compare(Transport::Unix),
    lines: compare(Transport::Lines),
    websocket: compare(Transport::WebSocket),
    envelope: compare(Transport::Envelope),
}
