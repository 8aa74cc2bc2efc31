//! JSON-RPC in gRPC messages: the service `iac_code.a2a.transports.proto.A2AJsonRpc`, as existing peers have it.
//!
//! ```proto
//! message JsonRpcEnvelope { bytes payload = 1; bool final = 2; }
//! service A2AJsonRpc {
//!   rpc Send(JsonRpcEnvelope) returns (JsonRpcEnvelope);
//!   rpc Stream(JsonRpcEnvelope) returns (stream JsonRpcEnvelope);
//! }
//! ```

use bytes::Bytes;
use prost::Message;

/// The prefix of the service's paths, without the slash at the end.
pub const SERVICE: &str = "/iac_code.a2a.transports.proto.A2AJsonRpc";

/// A JSON-RPC request or response.
#[derive(Clone, PartialEq, Message)]
pub struct JsonRpcEnvelope {
    /// The request or the response, as JSON text.
    #[prost(bytes = "bytes", tag = "1")]
    pub payload: Bytes,
    /// Whether no further message belongs to the response.
    #[prost(bool, tag = "2")]
    pub r#final: bool,
}

/// A call of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// One response.
    Send,
    /// A stream of responses, or one.
    Stream,
}

impl Method {
    /// The call with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Send, Self::Stream].into_iter().find(|method| method.name() == name)
    }

    /// The name of the call, which follows the service in its path.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "Send",
            Self::Stream => "Stream",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_fields_that_existing_peers_have() {
        let message = JsonRpcEnvelope { payload: Bytes::from_static(b"{}"), r#final: true };
        assert_eq!(message.encode_to_vec(), [0x0a, 2, b'{', b'}', 0x10, 1]);
        assert_eq!(JsonRpcEnvelope::decode(&[0x0a, 2, b'{', b'}', 0x10, 1][..]).unwrap(), message);
    }
}
