//! Unparsed JSON values, and the lenient parsing rules of ProtoJSON.
//!
//! `data` and `metadata` stay JSON text. The server does not parse or copy them, and 64-bit integers stay exact. Callers parse
//! them into a type with [`Json::read`].

mod pretty;
mod write;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

pub use pretty::pretty;
pub use write::{WriteError, write};

/// Any JSON value, stored as text on a single line. Cheap to clone.
#[derive(Clone)]
pub struct Json(Arc<Box<RawValue>>);

impl Json {
    /// Serializes a value.
    ///
    /// ```
    /// # use attache_protocol::Json;
    /// assert_eq!(Json::new(&[1, 2]).unwrap().as_str(), "[1,2]");
    /// ```
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self::from_raw)
    }

    /// Parses JSON text.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Reads the value as a type of the caller's choice.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0.get())
    }

    /// The JSON text. It has no line breaks.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The raw value, for use inside of another value.
    pub fn as_raw(&self) -> &RawValue {
        &self.0
    }

    fn from_raw(raw: Box<RawValue>) -> Self {
        // A line break would end an event of a stream. JSON strings cannot contain one, so only whitespace changes here.
        if memchr::memchr2(b'\n', b'\r', raw.get().as_bytes()).is_none() {
            return Self(Arc::new(raw));
        }
        let flat: String =
            raw.get().chars().map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }).collect();
        Self(Arc::new(RawValue::from_string(flat).unwrap_or(raw)))
    }
}

impl From<Box<RawValue>> for Json {
    fn from(raw: Box<RawValue>) -> Self {
        Self::from_raw(raw)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
            || match (self.read::<serde_json::Value>(), other.read::<serde_json::Value>()) {
                (Ok(a), Ok(b)) => a == b,
                (Ok(_) | Err(_), _) => false,
            }
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from_raw)
    }
}

/// A JSON object as text: the `Struct` of the protocol, used for metadata and parameters.
#[derive(Clone, PartialEq)]
pub struct JsonObject(Json);

impl JsonObject {
    /// Serializes a value. It is an error if the result is not an object.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Self::try_from_json(Json::new(value)?)
    }

    /// Reads the whole object as a type of the caller's choice.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.0.read()
    }

    /// The member `key`, if it exists and is a valid `T`.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let members: std::collections::BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(self.as_str()).ok()?;
        serde_json::from_str(members.get(key)?.get()).ok()
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    fn try_from_json<E: serde::de::Error>(json: Json) -> Result<Self, E> {
        if json.as_str().starts_with('{') {
            return Ok(Self(json));
        }
        let found = match json.as_str().as_bytes().first() {
            Some(b'[') => serde::de::Unexpected::Seq,
            Some(b'"') => serde::de::Unexpected::Other("a string"),
            Some(b't' | b'f') => serde::de::Unexpected::Other("a boolean"),
            Some(_) | None => serde::de::Unexpected::Other("a number"),
        };
        Err(E::invalid_type(found, &"an object"))
    }
}

impl fmt::Debug for JsonObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for JsonObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from_json(Json::deserialize(deserializer)?)
    }
}

/// Whether arrays and objects in `text` are nested deeper than `limit`. The text need not be valid JSON.
///
/// The depth is at most the number of opening brackets, which can be counted quickly. So the brackets are counted first.
pub fn is_deeper_than(text: &[u8], limit: usize) -> bool {
    has_more_brackets_than(text, limit) && depth(text) > limit
}

/// Whether `text` has more than `limit` opening brackets. Brackets in strings count as well, which makes it fast.
fn has_more_brackets_than(text: &[u8], limit: usize) -> bool {
    let mut counted = 0;
    // The count of a chunk fits into a byte, so the compiler can use vector instructions.
    text.chunks(128).any(|chunk| {
        let brackets: u8 = chunk.iter().map(|byte| u8::from(matches!(byte, b'{' | b'['))).sum();
        counted += usize::from(brackets);
        counted > limit
    })
}

/// The nesting depth of arrays and objects in `text`. The text need not be valid JSON.
///
/// A parser that leaves values as text does not check their depth. This check protects the code that parses the values later.
pub fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut i) = (0usize, 0usize, 0usize);
    while let Some(byte) = text.get(i) {
        match byte {
            b'"' => {
                i += 1;
                while let Some(byte) = text.get(i) {
                    match byte {
                        b'"' => break,
                        b'\\' => i += 2,
                        _ => i += 1,
                    }
                }
            }
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        i += 1;
    }
    deepest
}

/// Functions for `#[serde(deserialize_with)]` with the lenient rules of ProtoJSON.
pub(crate) mod lenient {
    use std::collections::BTreeMap;
    use std::fmt;

    use super::*;

    /// `null` means the default value, as for an absent field.
    pub(crate) fn null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
        d: D,
    ) -> Result<T, D::Error> {
        Option::<T>::deserialize(d).map(Option::unwrap_or_default)
    }

    /// A message, which must be an object. serde also accepts an array of the fields; this type rejects it.
    pub(crate) struct Object<T>(pub(crate) T);

    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            T::deserialize(OnlyObject(d)).map(Self)
        }
    }

    struct OnlyObject<D>(D);

    impl<'de, D: Deserializer<'de>> Deserializer<'de> for OnlyObject<D> {
        type Error = D::Error;

        fn deserialize_any<V: serde::de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.deserialize_map(visitor)
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
        }
    }

    /// A required message. `null` is an empty message.
    pub(crate) fn object<'de, D, T>(d: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de> + Default,
    {
        optional_object(d).map(Option::unwrap_or_default)
    }

    /// An optional message.
    pub(crate) fn optional_object<'de, D, T>(d: D) -> Result<Option<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
    {
        Ok(Option::<Object<T>>::deserialize(d)?.map(|Object(message)| message))
    }

    /// A list of messages. `null` is an empty list.
    pub(crate) fn objects<'de, D, T>(d: D) -> Result<Vec<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
    {
        let messages = null::<D, Vec<Object<T>>>(d)?;
        Ok(messages.into_iter().map(|Object(message)| message).collect())
    }

    /// A map of messages. `null` is an empty map.
    pub(crate) fn named_objects<'de, D, T>(d: D) -> Result<BTreeMap<String, T>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
    {
        let messages = null::<D, BTreeMap<String, Object<T>>>(d)?;
        Ok(messages.into_iter().map(|(name, Object(message))| (name, message)).collect())
    }

    /// An optional string. An empty string counts as absent.
    pub(crate) fn string<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
        Ok(Option::<String>::deserialize(d)?.filter(|s| !s.is_empty()))
    }

    /// An optional id. An empty id counts as absent.
    pub(crate) fn id<'de, D, T>(d: D) -> Result<Option<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de> + AsRef<str>,
    {
        Ok(Option::<T>::deserialize(d)?.filter(|id| !id.as_ref().is_empty()))
    }

    /// An integer. An absent one is zero.
    pub(crate) fn int_or_zero<'de, D, T>(d: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: TryFrom<i64> + Default,
    {
        int(d).map(Option::unwrap_or_default)
    }

    /// An integer. It may be a number, a number with a zero fraction, or a string.
    pub(crate) fn int<'de, D, T>(d: D) -> Result<Option<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: TryFrom<i64>,
    {
        struct Visitor<T>(std::marker::PhantomData<T>);

        impl<T: TryFrom<i64>> Visitor<T> {
            fn fit<E: serde::de::Error>(value: i64) -> Result<Option<T>, E> {
                T::try_from(value)
                    .map(Some)
                    .map_err(|_| E::custom(format_args!("the number {value} is out of range")))
            }
        }

        impl<'de, T: TryFrom<i64>> serde::de::Visitor<'de> for Visitor<T> {
            type Value = Option<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer")
            }
            fn visit_none<E>(self) -> Result<Option<T>, E> {
                Ok(None)
            }
            fn visit_unit<E>(self) -> Result<Option<T>, E> {
                Ok(None)
            }
            fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Option<T>, D::Error> {
                d.deserialize_any(self)
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Option<T>, E> {
                Self::fit(value)
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Option<T>, E> {
                let value = i64::try_from(value)
                    .map_err(|_| E::custom(format_args!("the number {value} is out of range")))?;
                Self::fit(value)
            }
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Option<T>, E> {
                // In this range every integral double is an exact i64.
                if value.fract() != 0.0 || value.abs() > 9_007_199_254_740_992.0 {
                    return Err(E::invalid_type(serde::de::Unexpected::Float(value), &self));
                }
                Self::fit(value as i64)
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Option<T>, E> {
                match text.parse::<i64>() {
                    Ok(value) => Self::fit(value),
                    Err(_) => match text.parse::<f64>() {
                        Ok(value) if !text.starts_with(char::is_whitespace) => self.visit_f64(value),
                        Ok(_) | Err(_) => Err(E::invalid_type(serde::de::Unexpected::Str(text), &self)),
                    },
                }
            }
        }

        d.deserialize_option(Visitor(std::marker::PhantomData))
    }

    /// A 64-bit integer, which ProtoJSON writes as a string.
    pub(crate) fn int64_out<S: Serializer>(value: &Option<u64>, s: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => s.collect_str(value),
            None => s.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_nesting_and_not_brackets_in_strings() {
        assert_eq!(depth(b""), 0);
        assert_eq!(depth(b"1"), 0);
        assert_eq!(depth(br#"{"a":[{"b":1}],"c":"[[[[{{{{\"[["}"#), 3);
        assert_eq!(depth("[".repeat(100_000).as_bytes()), 100_000);
        assert_eq!(depth(br#""\"#), 0);
    }

    #[test]
    fn values_have_no_line_breaks() {
        let json = Json::parse("{\n  \"a\": \"x\\ny\",\r\n \"b\": [1,\n2]\n}").unwrap();
        assert!(!json.as_str().contains(['\n', '\r']));
        assert_eq!(json.read::<serde_json::Value>().unwrap(), serde_json::json!({"a": "x\ny", "b": [1, 2]}));
    }

    #[test]
    fn large_integers_stay_exact() {
        let text = r#"{"id":12345678901234567890,"n":-9007199254740993}"#;
        assert_eq!(serde_json::to_string(&JsonObject(Json::parse(text).unwrap())).unwrap(), text);
    }
}
