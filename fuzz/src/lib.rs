//! The properties that must hold for any bytes.
//!
//! Each target is a function that takes bytes as an attacker would send them. It panics if a promise is broken: nothing crashes, there is
//! always a response, it is well-formed, it never blames the server, and it never shows one caller what belongs to another.
//!
//! `fuzz/libfuzzer` runs the targets for as long as needed. The tests here run them for a few seconds on the collected inputs.

mod agent_output;
mod artifacts;
mod card;
mod delegation;
mod dialects;
mod engine_http;
mod frames;
mod grpc;
mod headers;
mod http_json;
mod iii_frames;
mod jsonrpc;
mod jws;
mod jwt;
mod lines;
mod mcp;
mod oauth;
mod outbound_url;
mod page_tokens;
mod pem;
mod pieces;
mod protojson;
mod redaction;
mod redis_entries;
mod schemas;
mod sse;
mod test_server;
mod websocket;

pub use agent_output::agent_output;
pub use artifacts::artifacts;
pub use card::card;
pub use delegation::delegation;
pub use dialects::dialects;
pub use engine_http::engine_http;
pub use grpc::grpc;
pub use headers::headers;
pub use http_json::http_json;
pub use iii_frames::iii_frames;
pub use jsonrpc::jsonrpc;
pub use jws::jws;
pub use jwt::jwt;
pub use lines::lines;
pub use mcp::mcp;
pub use oauth::oauth;
pub use outbound_url::outbound_url;
pub use page_tokens::page_tokens;
pub use pem::pem;
pub use protojson::protojson;
pub use redaction::redaction;
pub use redis_entries::redis_entries;
pub use schemas::schemas;
pub use sse::sse;
pub use websocket::websocket;

/// What takes any bytes, and panics if something does not hold.
pub type Target = fn(&[u8]);

/// Every target by its name, which is that of its corpus and of its program as well.
pub const TARGETS: [(&str, Target); 25] = [
    ("agent_output", agent_output),
    ("artifacts", artifacts),
    ("card", card),
    ("delegation", delegation),
    ("dialects", dialects),
    ("engine_http", engine_http),
    ("grpc", grpc),
    ("headers", headers),
    ("http_json", http_json),
    ("iii_frames", iii_frames),
    ("jsonrpc", jsonrpc),
    ("jws", jws),
    ("jwt", jwt),
    ("lines", lines),
    ("mcp", mcp),
    ("oauth", oauth),
    ("outbound_url", outbound_url),
    ("page_tokens", page_tokens),
    ("pem", pem),
    ("protojson", protojson),
    ("redaction", redaction),
    ("redis_entries", redis_entries),
    ("schemas", schemas),
    ("sse", sse),
    ("websocket", websocket),
];

/// Takes the first byte of an input, to choose by.
fn choice(data: &[u8]) -> (usize, &[u8]) {
    data.split_first().map_or((0, data), |(first, rest)| (usize::from(*first), rest))
}

/// Takes the first line of an input, without its end.
fn line(data: &[u8]) -> (&[u8], &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n');
    end.map_or((data, &[]), |end| (&data[..end], &data[end + 1..]))
}

/// A token with some of its characters replaced.
fn changed(token: &str, data: &[u8]) -> String {
    let mut bytes = token.as_bytes().to_vec();
    for (byte, change) in bytes.iter_mut().zip(data) {
        *byte ^= change & 0x7f;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
