//! JSON as `google.protobuf.Value` and `google.protobuf.Struct`.
//!
//! Numbers are doubles in protobuf. So integers above 2^53 lose their last digits on this binding, and `42.0` becomes `42`.

use attache_protocol::{Error, ErrorKind, Json, JsonObject};
use prost::encoding::{WireType, encode_key, encode_varint};
use prost::{DecodeError, Message as _};
use prost_types::value::Kind;

use super::{ConvertError, ProtoConvert, entry};

/// An encoded `google.protobuf.Struct`, unless a field says otherwise.
///
/// A message and its encoded bytes look the same in protobuf. With a message type, prost would compute the length of all nested
/// messages again at every level, which makes deep values slow to encode. The drawback: if a peer repeats the field, the last
/// value counts and they are not merged. No known peer does that.
pub type Encoded = Vec<u8>;

impl ProtoConvert<Encoded> for Json {
    fn into_proto(self) -> Result<Encoded, Error> {
        let value = self.read().map_err(|error| unwritable(&error))?;
        ReverseEncoder::encode(|out| out.value(&value))
    }

    fn from_proto(proto: Encoded) -> Result<Self, ConvertError> {
        let value = prost_types::Value::decode(&*proto).map_err(unreadable)?;
        Self::new(&value_to_json(value)?).map_err(|error| ConvertError::new(error.to_string()))
    }
}

impl ProtoConvert<Encoded> for JsonObject {
    fn into_proto(self) -> Result<Encoded, Error> {
        let members = self.read().map_err(|error| unwritable(&error))?;
        ReverseEncoder::encode(|out| out.members(&members))
    }

    fn from_proto(proto: Encoded) -> Result<Self, ConvertError> {
        let object = prost_types::Struct::decode(&*proto).map_err(unreadable)?;
        Self::new(&object_to_json(object)?).map_err(|error| ConvertError::new(error.to_string()))
    }
}

pub(crate) fn unwritable(reason: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("a JSON value that protobuf cannot hold: {reason}"))
}

fn unreadable(_: DecodeError) -> ConvertError {
    ConvertError::new("cannot be decoded: it is malformed, or more than 100 messages are nested in it")
}

// The functions below recurse as deep as the value is nested. The parsers limit that depth: JSON to 128 levels, and protobuf to
// 50 levels of two messages each.

/// The members of an object.
pub(crate) type Object = serde_json::Map<String, serde_json::Value>;

/// Encodes `google.protobuf.Value` from the end to the start, so that the length of a message is known when it is written.
struct ReverseEncoder(Vec<u8>);

impl ReverseEncoder {
    fn encode(content: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<Vec<u8>, Error> {
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

    /// Writes the key and the length of a field whose bytes are already written.
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

fn value_to_json(proto: prost_types::Value) -> Result<serde_json::Value, ConvertError> {
    Ok(match proto.kind {
        // Some generated clients write `null` as a value without a kind.
        Some(Kind::NullValue(_)) | None => serde_json::Value::Null,
        Some(Kind::BoolValue(value)) => serde_json::Value::Bool(value),
        Some(Kind::NumberValue(value)) => serde_json::Value::Number(
            number_to_json(value)
                .ok_or_else(|| ConvertError::new(format!("`{value}` is not a number that JSON can hold")))?,
        ),
        Some(Kind::StringValue(text)) => serde_json::Value::String(text),
        Some(Kind::ListValue(list)) => {
            let item = |(index, item)| value_to_json(item).map_err(|e| e.in_item(index));
            serde_json::Value::Array(list.values.into_iter().enumerate().map(item).collect::<Result<_, _>>()?)
        }
        Some(Kind::StructValue(object)) => serde_json::Value::Object(object_to_json(object)?),
    })
}

fn object_to_json(proto: prost_types::Struct) -> Result<Object, ConvertError> {
    proto.fields.into_iter().map(|(key, value)| entry(key, value_to_json(value))).collect()
}

/// A double as other JSON writers write it: `42` and not `42.0`, up to the largest exact integer.
fn number_to_json(value: f64) -> Option<serde_json::Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let negative_zero = value == 0.0 && value.is_sign_negative();
    if value.fract() == 0.0 && value.abs() <= EXACT && !negative_zero {
        return Some(serde_json::Number::from(value as i64));
    }
    serde_json::Number::from_f64(value)
}
