//! JSON that every parser reads in the same way: no duplicate members and limited depth.
//!
//! Of a duplicate member some parsers take the first value and others the last. A verifier could accept the signature for one
//! value while people see the other.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The maximum nesting depth.
const MAX_DEPTH: usize = 100;

/// Why a text is not strict JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrictJsonError {
    /// It is not JSON.
    #[error("it is not JSON (line {line}, column {column})")]
    Malformed {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// An object has a duplicate member.
    #[error("the member `{0}` is there twice")]
    Duplicate(String),
    /// The nesting is too deep.
    #[error("it nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The value is not an object.
    #[error("it is not a JSON object")]
    NotAnObject,
}

/// Parses an object.
pub(crate) fn object(json: &[u8]) -> Result<Map<String, Value>, StrictJsonError> {
    match value(json)? {
        Value::Object(object) => Ok(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(StrictJsonError::NotAnObject)
        }
    }
}

/// Parses a value.
pub(crate) fn value(json: &[u8]) -> Result<Value, StrictJsonError> {
    let fault = Cell::new(None);
    let mut reader = serde_json::Deserializer::from_slice(json);
    let read = Strict { depth: 0, fault: &fault }.deserialize(&mut reader);
    let read = read.and_then(|value| reader.end().map(|()| value));
    let text =
        |error: serde_json::Error| StrictJsonError::Malformed { line: error.line(), column: error.column() };
    read.map_err(|error| fault.take().unwrap_or_else(|| text(error)))
}

/// Shortens and escapes a foreign text, so that it can be shown on one line.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

#[derive(Clone, Copy)]
struct Strict<'a> {
    depth: usize,
    /// The reason, which the parser's own error cannot carry.
    fault: &'a Cell<Option<StrictJsonError>>,
}

impl Strict<'_> {
    fn below<E: Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(self.refuse(StrictJsonError::TooDeep));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    fn refuse<E: Error>(self, fault: StrictJsonError) -> E {
        let error = E::custom(&fault);
        self.fault.set(Some(fault));
        error
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let below = self.below()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(below)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let below = self.below()?;
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(self.refuse(StrictJsonError::Duplicate(shown(&name))));
            }
            let value = members.next_value_seed(below)?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strict_json_is_read_as_it_is() {
        let text = r#"{"a":[1,-2,2.5,true,null,"é\u0041"],"b":{"a":{}}}"#;
        let expected = json!({"a": [1, -2, 2.5, true, null, "éA"], "b": {"a": {}}});
        assert_eq!(Value::Object(object(text.as_bytes()).unwrap()), expected);
    }

    #[test]
    fn json_that_parsers_read_differently_is_refused() {
        let read = |text: &str| object(text.as_bytes()).unwrap_err();
        let twice = |name: &str| StrictJsonError::Duplicate(name.to_owned());
        assert_eq!(read(r#"{"url":1,"name":2,"url":1}"#), twice("url"));
        assert_eq!(read(r#"{"x":[{"\u0061":1,"a":1}]}"#), twice("a"));
        assert_eq!(read("[]"), StrictJsonError::NotAnObject);
        assert_eq!(read("{}x"), StrictJsonError::Malformed { line: 1, column: 3 });
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(object(nested(MAX_DEPTH - 1).as_bytes()).is_ok());
        for depth in [MAX_DEPTH, 5_000, 1_000_000] {
            assert_eq!(read(&nested(depth)), StrictJsonError::TooDeep);
        }
    }
}
