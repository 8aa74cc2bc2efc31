//! What JSON-RPC requests in frames are answered with, over lines and over WebSocket.

use std::collections::BTreeMap;

use attache_protocol::json;
use attache_protocol::jsonrpc::Call;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::jsonrpc::MAX_DEPTH;

/// The method that returns the card, which needs no credentials.
const CARD_METHOD: &str = "GetAgentCard";

/// What is known about the answer to a frame.
#[derive(Debug)]
pub(crate) struct Expected {
    /// The id of the request, as JSON text.
    pub(crate) id: String,
    /// Whether the answer can have no id, because the frame is refused before its id is read.
    can_be_null: bool,
    /// Whether there must be an answer. A notification has none, unless it is refused.
    pub(crate) must_be_answered: bool,
    pub(crate) asks_for_card: bool,
}

impl Expected {
    /// A frame after which the connection ends.
    pub(crate) fn broken(must_be_answered: bool) -> Self {
        Self { id: "null".to_owned(), can_be_null: true, must_be_answered, asks_for_card: false }
    }

    pub(crate) fn accepts(&self, id: &str) -> bool {
        self.ids().any(|own| own == id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        [Some(&*self.id), self.can_be_null.then_some("null").filter(|_| self.id != "null")]
            .into_iter()
            .flatten()
    }
}

/// The answer that a frame must get.
pub(crate) fn expect(frame: &[u8]) -> Expected {
    let call = Call::parse(frame);
    let is_deep = json::is_deeper_than(frame, MAX_DEPTH);
    Expected {
        id: Call::peek_id(frame).as_json().to_owned(),
        can_be_null: is_deep,
        must_be_answered: is_deep || !call.as_ref().is_ok_and(|call| call.id.is_none()),
        asks_for_card: call.is_ok_and(|call| call.method == CARD_METHOD),
    }
}

/// What a frame of the server says.
pub(crate) struct Response {
    /// The id of the request, as JSON text.
    pub(crate) id: String,
    pub(crate) has_result: bool,
    pub(crate) has_error: bool,
}

/// Checks that a frame is a JSON-RPC response, or the end of a stream, and does not blame the server.
pub(crate) fn check(text: &[u8]) -> Response {
    let shown = || String::from_utf8_lossy(text);
    let members: BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(text).unwrap_or_else(|error| panic!("not an object: {error}: {}", shown()));
    let member = |name: &str| members.get(name).map(|value| value.get());
    assert_eq!(member("jsonrpc"), Some("\"2.0\""), "{}", shown());
    if let Some(error) = member("error") {
        let error: Value = serde_json::from_str(error).expect("errors are made by us");
        let code = error["code"].as_i64().unwrap_or_else(|| panic!("no code: {}", shown()));
        assert!(error["message"].is_string(), "no message: {}", shown());
        assert!(![-32603, -32006].contains(&code), "we are to blame: {}", shown());
    }
    let (has_result, has_error) = (member("result").is_some(), member("error").is_some());
    assert!(!(has_result && has_error), "a result and an error: {}", shown());
    let id = member("id").unwrap_or_else(|| panic!("no id: {}", shown())).to_owned();
    Response { id, has_result, has_error }
}
