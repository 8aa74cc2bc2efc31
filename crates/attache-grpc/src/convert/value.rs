//! JSON as `google.protobuf.Value` and `google.protobuf.Struct`.
//!
//! Numbers are doubles in protobuf: on this binding, integers beyond 2^53 lose their last digits, and `42.0` comes back as
//! `42`.

use attache_protocol::{Error, ErrorKind, Json, JsonObject};
use prost::encoding::{WireType, encode_key, encode_varint};
use prost::{DecodeError, Message as _};
use prost_types::value::Kind;

use super::{Misfit, Wire, entry};

/// A `google.protobuf.Struct`, if nothing else is said, in its encoded form.
///
/// A field that holds a message looks the same as one that holds its bytes. As a message, prost would count the length of
/// all that is nested in it again at every level, which makes a deep value slow to write. The price is that one which
/// arrives in several pieces is its last piece, not all of them merged; nobody sends such.
pub type Encoded = Vec<u8>;

impl Wire<Encoded> for Json {
    fn into_proto(self) -> Result<Encoded, Error> {
        let value = self.read().map_err(|error| unwritable(&error))?;
        Backwards::write(|out| out.value(&value))
    }

    fn from_proto(proto: Encoded) -> Result<Self, Misfit> {
        let value = prost_types::Value::decode(&*proto).map_err(unreadable)?;
        Self::new(&value_to_json(value)?).map_err(|error| Misfit::new(error.to_string()))
    }
}

impl Wire<Encoded> for JsonObject {
    fn into_proto(self) -> Result<Encoded, Error> {
        let members = self.read().map_err(|error| unwritable(&error))?;
        Backwards::write(|out| out.members(&members))
    }

    fn from_proto(proto: Encoded) -> Result<Self, Misfit> {
        let object = prost_types::Struct::decode(&*proto).map_err(unreadable)?;
        Self::new(&object_to_json(object)?).map_err(|error| Misfit::new(error.to_string()))
    }
}

pub(crate) fn unwritable(reason: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("a JSON value that protobuf cannot hold: {reason}"))
}

fn unreadable(_: DecodeError) -> Misfit {
    Misfit::new("cannot be decoded: it is malformed, or more than 100 messages are nested in it")
}

// What follows recurses as deep as a value nests. What is read from JSON nests at most 128 levels, and what is read from
// protobuf at most 50, of two messages each; both parsers see to that.

/// The members of an object.
pub(crate) type Object = serde_json::Map<String, serde_json::Value>;

/// Writes `google.protobuf.Value` from the end to the beginning, so that the length of a message is known when it is due.
struct Backwards(Vec<u8>);

impl Backwards {
    fn write(content: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<Vec<u8>, Error> {
        let mut out = Self(Vec::new());
        content(&mut out)?;
        out.0.reverse();
        Ok(out.0)
    }

    fn value(&mut self, json: &serde_json::Value) -> Result<(), Error> {
        match json {
            serde_json::Value::Null => self.varint(1, 0),
            serde_json::Value::Number(number) => {
                let number = number.as_f64().filter(|number| number.is_finite());
                let number = number.ok_or_else(|| unwritable(&"number out of range"))?;
                self.bytes(&number.to_le_bytes());
                self.key(2, WireType::SixtyFourBit);
            }
            serde_json::Value::String(text) => self.text(3, text),
            serde_json::Value::Bool(value) => self.varint(4, u8::from(*value)),
            serde_json::Value::Object(members) => self.message(5, |out| out.members(members))?,
            serde_json::Value::Array(items) => self.message(6, |out| {
                items.iter().rev().try_for_each(|item| out.message(1, |out| out.value(item)))
            })?,
        }
        Ok(())
    }

    fn members(&mut self, members: &Object) -> Result<(), Error> {
        members.iter().rev().try_for_each(|(key, value)| {
            self.message(1, |entry| {
                entry.message(2, |out| out.value(value))?;
                entry.text(1, key);
                Ok(())
            })
        })
    }

    fn message(
        &mut self,
        tag: u32,
        content: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let end = self.0.len();
        content(self)?;
        self.length(tag, self.0.len() - end);
        Ok(())
    }

    fn text(&mut self, tag: u32, text: &str) {
        self.bytes(text.as_bytes());
        self.length(tag, text.len());
    }

    /// Begins a field of so many bytes, which are there already.
    fn length(&mut self, tag: u32, length: usize) {
        self.forward(|buf| encode_varint(length as u64, buf));
        self.key(tag, WireType::LengthDelimited);
    }

    fn varint(&mut self, tag: u32, value: u8) {
        self.bytes(&[value]);
        self.key(tag, WireType::Varint);
    }

    fn key(&mut self, tag: u32, wire_type: WireType) {
        self.forward(|buf| encode_key(tag, wire_type, buf));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().rev());
    }

    fn forward(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.0.len();
        write(&mut self.0);
        self.0[start..].reverse();
    }
}

fn value_to_json(proto: prost_types::Value) -> Result<serde_json::Value, Misfit> {
    Ok(match proto.kind {
        // Some generated clients write `null` as a value of no kind.
        Some(Kind::NullValue(_)) | None => serde_json::Value::Null,
        Some(Kind::BoolValue(value)) => serde_json::Value::Bool(value),
        Some(Kind::NumberValue(value)) => serde_json::Value::Number(
            number_to_json(value)
                .ok_or_else(|| Misfit::new(format!("`{value}` is not a number that JSON can hold")))?,
        ),
        Some(Kind::StringValue(text)) => serde_json::Value::String(text),
        Some(Kind::ListValue(list)) => {
            let item = |(index, item)| value_to_json(item).map_err(|m| m.in_item(index));
            serde_json::Value::Array(list.values.into_iter().enumerate().map(item).collect::<Result<_, _>>()?)
        }
        Some(Kind::StructValue(object)) => serde_json::Value::Object(object_to_json(object)?),
    })
}

fn object_to_json(proto: prost_types::Struct) -> Result<Object, Misfit> {
    proto.fields.into_iter().map(|(key, value)| entry(key, value_to_json(value))).collect()
}

/// A double in the form that JSON writers choose: `42`, not `42.0`, as far as every integer is a double.
fn number_to_json(value: f64) -> Option<serde_json::Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let negative_zero = value == 0.0 && value.is_sign_negative();
    if value.fract() == 0.0 && value.abs() <= EXACT && !negative_zero {
        return Some(serde_json::Number::from(value as i64));
    }
    serde_json::Number::from_f64(value)
}
