//! Query parameters as the arguments of an operation.

use attache_protocol::{Error, Operation, Request};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// The decoded parameters of a query.
pub(super) fn pairs(query: &str) -> Result<Vec<(String, String)>, Error> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(key)?, decode(value)?))
        })
        .collect()
}

/// Parses the arguments of `operation` from a query; `fixed` are those of the path.
pub(super) fn read(
    operation: Operation,
    query: &[(String, String)],
    fixed: Map<String, Value>,
) -> Result<Request, Error> {
    let mut arguments = Map::new();
    for (key, value) in query {
        if key.eq_ignore_ascii_case("a2a-version") || value.is_empty() {
            continue;
        }
        let value = match (key.as_str(), value.as_str()) {
            ("includeArtifacts" | "include_artifacts", "true") => Value::Bool(true),
            ("includeArtifacts" | "include_artifacts", "false") => Value::Bool(false),
            // A plus sign that was not encoded is part of an offset, not a space.
            ("statusTimestampAfter" | "status_timestamp_after", time) => {
                Value::String(time.replace(' ', "+"))
            }
            (_, value) => Value::String(value.to_owned()),
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
