//! The bindings of the protocol over HTTP. Each parses a request, hands it to the [dispatcher](crate::dispatch) and writes what comes
//! back.

#[cfg(feature = "grpc")]
pub(crate) mod grpc;
pub(crate) mod http_json;
pub(crate) mod jsonrpc;
