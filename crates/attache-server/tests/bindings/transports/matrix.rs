//! The conformance suite over every transport that is compared with HTTP.

use super::{Transport, everywhere, transports};
use crate::conformance::{self, Case, Side, matrix, server};

async fn compare(transport: Transport, case: Case) {
    let (mut one, mut other) = (everywhere(server(case.access)).await, everywhere(server(case.access)).await);
    let (mut http, mut wire) = (one.wire(Transport::Http).await, other.wire(transport).await);
    let http = Side { wire: &mut *http, server: one.address.to_string() };
    let other = Side { wire: &mut *wire, server: other.address.to_string() };
    conformance::compare(http, other, case).await;
}

macro_rules! tests {
    ($($(#[$_about:meta])* $transport:ident $module:ident,)*) => {
        matrix! { $($module: |case| compare(Transport::$transport, case)),* }
    };
}

transports! { tests! }
