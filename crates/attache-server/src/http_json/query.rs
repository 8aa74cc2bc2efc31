//! Query parameters as the arguments of an operation.

use attache_protocol::{Error, Operation, Request};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// Reads the arguments of `operation` from a query; `fixed` are those that the path gives.
pub(super) fn read(operation: Operation, query: &str, fixed: Map<String, Value>) -> Result<Request, Error> {
    let mut arguments = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, mut value) = (decode(key)?, decode(value)?);
        if key.eq_ignore_ascii_case("a2a-version") || value.is_empty() {
            continue;
        }
        if key == "statusTimestampAfter" || key == "status_timestamp_after" {
            // A plus sign that was not encoded: an offset, not a space.
            value = value.replace(' ', "+");
        }
        let value = match (key.as_str(), value.as_str()) {
            ("includeArtifacts" | "include_artifacts", "true") => Value::Bool(true),
            ("includeArtifacts" | "include_artifacts", "false") => Value::Bool(false),
            _ => Value::String(value),
        };
        if arguments.insert(key.clone(), value).is_some() {
            return Err(Error::invalid_params(key, "is given more than once"));
        }
    }
    for (key, value) in fixed {
        if arguments.get(&key).is_some_and(|given| *given != value) {
            return Err(Error::invalid_params(key, "the query and the path disagree"));
        }
        arguments.insert(key, value);
    }
    operation.parse(Value::Object(arguments).to_string().as_bytes())
}

fn decode(text: &str) -> Result<String, Error> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| Error::invalid_params("", "the query is not UTF-8"))
}
