//! Serializes JSON into memory.
//!
//! The output is the same as that of serde_json, with fewer instructions: the names of members are not searched for characters to
//! escape, and strings are searched several bytes at a time.

use std::fmt;
use std::io::Write;

use serde::ser::{
    Error as _, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple,
};

/// A value cannot be serialized: its own `Serialize` failed, or a map has keys that are not strings.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WriteError(String);

impl serde::ser::Error for WriteError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

/// Writes a value as JSON to the end of `out`. The types of this crate cannot fail.
pub fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<(), WriteError> {
    value.serialize(Writer { out })
}

/// The name of the struct as which serde_json serializes a raw value.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

/// An object or an array that is being written.
struct Compound<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
    close: &'static [u8],
    /// The only member is JSON text.
    raw: bool,
}

impl<'a> Compound<'a> {
    fn open(out: &'a mut Vec<u8>, open: u8, close: &'static [u8]) -> Self {
        out.push(open);
        Self { out, empty: true, close, raw: false }
    }

    #[inline]
    fn next(&mut self) {
        if !std::mem::replace(&mut self.empty, false) {
            self.out.push(b',');
        }
    }

    fn finish(self) -> Result<(), WriteError> {
        self.out.extend_from_slice(self.close);
        Ok(())
    }
}

fn number<T: fmt::Display>(out: &mut Vec<u8>, value: T) -> Result<(), WriteError> {
    write!(out, "{value}").map_err(WriteError::custom)
}

impl<'a> serde::Serializer for Writer<'a> {
    type Ok = ();
    type Error = WriteError;
    type SerializeSeq = Compound<'a>;
    type SerializeTuple = Compound<'a>;
    type SerializeTupleStruct = Impossible<(), WriteError>;
    type SerializeTupleVariant = Impossible<(), WriteError>;
    type SerializeMap = Compound<'a>;
    type SerializeStruct = Compound<'a>;
    type SerializeStructVariant = Impossible<(), WriteError>;

    fn serialize_bool(self, value: bool) -> Result<(), WriteError> {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_i8(self, value: i8) -> Result<(), WriteError> {
        number(self.out, value)
    }

    fn serialize_i16(self, value: i16) -> Result<(), WriteError> {
        number(self.out, value)
    }

    fn serialize_i32(self, value: i32) -> Result<(), WriteError> {
        number(self.out, value)
    }

    fn serialize_i64(self, value: i64) -> Result<(), WriteError> {
        number(self.out, value)
    }

    fn serialize_u8(self, value: u8) -> Result<(), WriteError> {
        number(self.out, value)
    }

    fn serialize_u16(self, value: u16) -> Result<(), WriteError> {
        number(self.out, value)
    }

    fn serialize_u32(self, value: u32) -> Result<(), WriteError> {
        number(self.out, value)
    }

    fn serialize_u64(self, value: u64) -> Result<(), WriteError> {
        number(self.out, value)
    }

    fn serialize_f32(self, value: f32) -> Result<(), WriteError> {
        self.serialize_f64(f64::from(value))
    }

    fn serialize_f64(self, value: f64) -> Result<(), WriteError> {
        serde_json::to_writer(self.out, &value).map_err(WriteError::custom)
    }

    fn serialize_char(self, value: char) -> Result<(), WriteError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, text: &str) -> Result<(), WriteError> {
        string(self.out, text);
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), WriteError> {
        self.collect_seq(bytes)
    }

    fn serialize_none(self) -> Result<(), WriteError> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), WriteError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), WriteError> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), WriteError> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), WriteError> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), WriteError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), WriteError> {
        let mut map = Compound::open(self.out, b'{', b"}");
        SerializeStruct::serialize_field(&mut map, variant, value)?;
        map.finish()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Compound<'a>, WriteError> {
        Ok(Compound::open(self.out, b'[', b"]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Compound<'a>, WriteError> {
        Ok(Compound::open(self.out, b'[', b"]"))
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, WriteError> {
        Err(WriteError::custom("tuple structs have no form in JSON here"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, WriteError> {
        Err(WriteError::custom("tuple variants have no form in JSON here"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Compound<'a>, WriteError> {
        Ok(Compound::open(self.out, b'{', b"}"))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Compound<'a>, WriteError> {
        if name == RAW_VALUE {
            return Ok(Compound { out: self.out, empty: true, close: b"", raw: true });
        }
        Ok(Compound::open(self.out, b'{', b"}"))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, WriteError> {
        Err(WriteError::custom("struct variants have no form in JSON here"))
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<(), WriteError> {
        /// Escapes each text that is written to it.
        struct Escaper<'a>(&'a mut Vec<u8>);

        impl fmt::Write for Escaper<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                escape(self.0, text);
                Ok(())
            }
        }

        self.out.push(b'"');
        fmt::Write::write_fmt(&mut Escaper(self.out), format_args!("{value}")).map_err(WriteError::custom)?;
        self.out.push(b'"');
        Ok(())
    }
}

impl SerializeSeq for Compound<'_> {
    type Ok = ();
    type Error = WriteError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WriteError> {
        self.next();
        value.serialize(Writer { out: self.out })
    }

    fn end(self) -> Result<(), WriteError> {
        self.finish()
    }
}

impl SerializeTuple for Compound<'_> {
    type Ok = ();
    type Error = WriteError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WriteError> {
        SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<(), WriteError> {
        self.finish()
    }
}

impl SerializeMap for Compound<'_> {
    type Ok = ();
    type Error = WriteError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), WriteError> {
        self.next();
        let start = self.out.len();
        key.serialize(Writer { out: self.out })?;
        if self.out.get(start) != Some(&b'"') {
            return Err(WriteError::custom("the keys of a JSON object are strings"));
        }
        self.out.push(b':');
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WriteError> {
        value.serialize(Writer { out: self.out })
    }

    fn end(self) -> Result<(), WriteError> {
        self.finish()
    }
}

impl SerializeStruct for Compound<'_> {
    type Ok = ();
    type Error = WriteError;

    // When this is inlined, the length of the name is a constant, so copying it takes few instructions.
    #[inline(always)]
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), WriteError> {
        if self.raw {
            return value.serialize(RawText { out: self.out });
        }
        self.next();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        value.serialize(Writer { out: self.out })
    }

    fn end(self) -> Result<(), WriteError> {
        self.finish()
    }
}

/// Writes JSON text unchanged.
struct RawText<'a> {
    out: &'a mut Vec<u8>,
}

macro_rules! reject {
    ($($method:ident($($type:ty),*) -> $result:ty;)+) => {
        $( fn $method(self $(, _: $type)*) -> Result<$result, WriteError> {
            Err(WriteError::custom("a raw value is a text"))
        } )+
    };
}

impl serde::Serializer for RawText<'_> {
    type Ok = ();
    type Error = WriteError;
    type SerializeSeq = Impossible<(), WriteError>;
    type SerializeTuple = Impossible<(), WriteError>;
    type SerializeTupleStruct = Impossible<(), WriteError>;
    type SerializeTupleVariant = Impossible<(), WriteError>;
    type SerializeMap = Impossible<(), WriteError>;
    type SerializeStruct = Impossible<(), WriteError>;
    type SerializeStructVariant = Impossible<(), WriteError>;

    fn serialize_str(self, text: &str) -> Result<(), WriteError> {
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), WriteError> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), WriteError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), WriteError> {
        Err(WriteError::custom("a raw value is a text"))
    }

    reject! {
        serialize_bool(bool) -> ();
        serialize_i8(i8) -> ();
        serialize_i16(i16) -> ();
        serialize_i32(i32) -> ();
        serialize_i64(i64) -> ();
        serialize_u8(u8) -> ();
        serialize_u16(u16) -> ();
        serialize_u32(u32) -> ();
        serialize_u64(u64) -> ();
        serialize_f32(f32) -> ();
        serialize_f64(f64) -> ();
        serialize_char(char) -> ();
        serialize_bytes(&[u8]) -> ();
        serialize_none() -> ();
        serialize_unit() -> ();
        serialize_unit_struct(&'static str) -> ();
        serialize_unit_variant(&'static str, u32, &'static str) -> ();
        serialize_seq(Option<usize>) -> Self::SerializeSeq;
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
        serialize_map(Option<usize>) -> Self::SerializeMap;
        serialize_struct(&'static str, usize) -> Self::SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    escape(out, text);
    out.push(b'"');
}

fn escape(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    loop {
        let clean = clean_prefix(rest);
        out.extend_from_slice(&rest[..clean]);
        let Some(byte) = rest.get(clean) else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            byte => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
        }
        rest = &rest[clean + 1..];
    }
}

fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Whether no byte needs an escape. It checks all bytes without a branch, so the compiler can use vector instructions.
#[inline]
fn is_clean<const N: usize>(bytes: &[u8; N]) -> bool {
    !bytes.iter().fold(false, |found, byte| found | needs_escape(*byte))
}

/// The number of bytes at the start that need no escape.
fn clean_prefix(bytes: &[u8]) -> usize {
    let clean = match bytes.len() {
        0..4 => 0,
        4..8 => whole_chunks::<4>(bytes),
        8..16 => whole_chunks::<8>(bytes),
        16.. => whole_chunks::<16>(bytes),
    };
    clean + bytes[clean..].iter().position(|byte| needs_escape(*byte)).unwrap_or(bytes.len() - clean)
}

/// The number of bytes at the start that need no escape, in whole chunks of `N`. There must be at least `N` bytes.
#[inline]
fn whole_chunks<const N: usize>(bytes: &[u8]) -> usize {
    let chunks = bytes.as_chunks::<N>().0;
    let clean = chunks.iter().take_while(|chunk| is_clean(chunk)).count();
    // If all chunks are clean, the remaining bytes are checked with the last `N` bytes.
    if clean == chunks.len() && bytes.last_chunk::<N>().is_some_and(is_clean) {
        return bytes.len();
    }
    clean * N
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Json;

    fn written<T: Serialize + ?Sized>(value: &T) -> String {
        let mut out = Vec::new();
        write(&mut out, value).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn writes_what_serde_json_writes(value in any_json()) {
            prop_assert_eq!(written(&value), value.to_string());
        }

        #[test]
        fn escapes_the_same_characters_as_serde_json(text in "[\\x00-\\x7fé\u{2028}🦀]{0,40}") {
            prop_assert_eq!(written(&text), serde_json::to_string(&text).unwrap());
        }
    }

    #[test]
    fn raw_json_is_written_unchanged() {
        let json = Json::parse(r#"{"n": 12345678901234567890, "s": "\u0041"}"#).unwrap();
        assert_eq!(written(&json), json.as_str());
        assert_eq!(written(&vec![Some(&json), None]), format!("[{},null]", json.as_str()));
    }

    #[test]
    fn keys_that_are_not_strings_are_rejected() {
        assert!(write(&mut Vec::new(), &std::collections::BTreeMap::from([(1, 2)])).is_err());
    }
}
