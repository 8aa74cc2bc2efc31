//! Small builders of what goes over the wire, and ways to look at what comes back.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A client's message with one text part and an id of its own.
pub(crate) fn message(text: &str) -> Value {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = format!("m{}", NEXT.fetch_add(1, Ordering::Relaxed));
    json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]})
}

/// The arguments of a send with one text part.
pub(crate) fn send(text: &str) -> Value {
    json!({"message": message(text)})
}

/// The text of all parts of an artifact or a message, one after the other.
pub(crate) fn text(parts_of: &Value) -> String {
    let parts = parts_of["parts"].as_array().expect("something with parts");
    parts.iter().map(|part| part["text"].as_str().unwrap_or_default()).collect()
}

/// A document as the published SDK reads and writes it, without what is only another way to write the same.
pub(crate) fn canonical<T: DeserializeOwned + Serialize>(json: &Value) -> Value {
    let theirs: T = serde_json::from_value(json.clone()).unwrap_or_else(|error| panic!("{error}: {json}"));
    serde_json::to_value(theirs).unwrap()
}

/// JSON as a protobuf type, by way of the published SDK's ProtoJSON.
pub(crate) fn to_proto<J, P>(json: Value) -> P
where
    J: DeserializeOwned + prost::Message,
    P: prost::Message + Default,
{
    let theirs: J = serde_json::from_value(json).expect("ProtoJSON");
    P::decode(theirs.encode_to_vec().as_slice()).unwrap()
}

/// A protobuf type as JSON, by way of the published SDK's ProtoJSON.
pub(crate) fn to_json<J, P>(proto: &P) -> Value
where
    J: Serialize + prost::Message + Default,
    P: prost::Message,
{
    let theirs = J::decode(proto.encode_to_vec().as_slice()).unwrap();
    serde_json::to_value(theirs).unwrap()
}
