//! Everything that differs between operating systems, one module per concern. Each module states its fallback.

pub(crate) mod signals;
