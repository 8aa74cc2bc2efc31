//! Deserializes types from the tree of a file. Errors have a position.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};

use super::error::ConfigError;
use super::tree::{Entry, Node, Value};

/// Deserializes from a node.
pub(super) struct NodeReader<'a>(pub(super) &'a Node);

impl<'a> NodeReader<'a> {
    fn position(&self, error: ConfigError) -> ConfigError {
        error.or_at(self.0.position, &self.0.path)
    }

    fn unexpected(&self) -> Unexpected<'a> {
        match &self.0.value {
            Value::Nothing => Unexpected::Other("nothing"),
            Value::Text { .. } => Unexpected::Other("text"),
            Value::List(_) => Unexpected::Other("a list"),
            Value::Map(_) => Unexpected::Other("settings with keys"),
        }
    }

    fn error<'de>(&self, expected: &impl Visitor<'de>) -> ConfigError {
        self.position(ConfigError::invalid_type(self.unexpected(), expected))
    }

    fn text(&self) -> Option<&'a str> {
        match &self.0.value {
            Value::Text { text, .. } => Some(text),
            Value::Nothing | Value::List(_) | Value::Map(_) => None,
        }
    }
}

impl<'de> Deserializer<'de> for NodeReader<'_> {
    type Error = ConfigError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        let read = match &self.0.value {
            Value::Nothing => visitor.visit_unit(),
            Value::Text { text, .. } => visitor.visit_str(text),
            Value::List(nodes) => visitor.visit_seq(List(nodes.iter())),
            Value::Map(entries) => visitor.visit_map(Map { entries: entries.iter(), value: None }),
        };
        read.map_err(|error| self.position(error))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        let value = match self.text() {
            Some("true" | "True" | "TRUE") => true,
            Some("false" | "False" | "FALSE") => false,
            Some(text) => {
                return Err(
                    self.position(ConfigError::new(format!("expected `true` or `false`, not `{text}`")))
                );
            }
            None => return Err(self.error(&visitor)),
        };
        visitor.visit_bool(value).map_err(|error: ConfigError| self.position(error))
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        let Some(text) = self.text() else { return Err(self.error(&visitor)) };
        match text.parse() {
            Ok(number) => visitor.visit_u32(number).map_err(|error: ConfigError| self.position(error)),
            Err(_) => Err(self.position(ConfigError::new(format!("expected a number, not `{text}`")))),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        match self.text() {
            Some(text) => visitor.visit_str(text).map_err(|error: ConfigError| self.position(error)),
            None => Err(self.error(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        match &self.0.value {
            Value::Nothing => visitor.visit_none(),
            Value::Text { .. } | Value::List(_) | Value::Map(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        match &self.0.value {
            Value::List(nodes) => visitor.visit_seq(List(nodes.iter())).map_err(|error| self.position(error)),
            Value::Nothing => visitor.visit_seq(List([].iter())),
            Value::Text { .. } | Value::Map(_) => {
                Err(self.error(&visitor).hint("a list is written `[one, two]`"))
            }
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        // A heading with nothing below it is an empty section: its settings may be commented out.
        let entries = match &self.0.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Nothing => &[],
            Value::Text { .. } | Value::List(_) => {
                let expected = "expected settings with keys";
                let found = self.unexpected();
                return Err(self.position(ConfigError::new(format!("{expected}, not {found}"))));
            }
        };
        let map = Map { entries: entries.iter(), value: None };
        visitor.visit_map(map).map_err(|error| self.position(error))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        match self.text() {
            Some(text) => visitor.visit_enum(Word(text)).map_err(|error| self.position(error)),
            None => {
                let known = known.join("`, `");
                Err(self.position(ConfigError::new(format!(
                    "expected one of `{known}`, not {}",
                    self.unexpected()
                ))))
            }
        }
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct map identifier ignored_any
    }
}

struct List<'a>(std::slice::Iter<'a, Node>);

impl<'de> SeqAccess<'de> for List<'_> {
    type Error = ConfigError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ConfigError> {
        self.0.next().map(|node| value(seed, node)).transpose()
    }
}

struct Map<'a> {
    entries: std::slice::Iter<'a, Entry>,
    value: Option<&'a Node>,
}

impl<'de> MapAccess<'de> for Map<'_> {
    type Error = ConfigError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ConfigError> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        self.value = Some(&entry.node);
        let key: StrDeserializer<'_, ConfigError> = entry.key.as_str().into_deserializer();
        let above = entry.node.path.strip_suffix(&entry.key).unwrap_or_default().trim_end_matches('.');
        seed.deserialize(key)
            .map(Some)
            .map_err(|error| error.or_at_key(entry.position, above, &entry.node.path))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ConfigError> {
        let node = self.value.take().ok_or_else(|| ConfigError::new("a key without a value"))?;
        value(seed, node)
    }
}

/// Deserializes a value. An error gets the position of the value.
fn value<'de, T: DeserializeSeed<'de>>(seed: T, node: &Node) -> Result<T::Value, ConfigError> {
    seed.deserialize(NodeReader(node)).map_err(|error| error.or_at(node.position, &node.path))
}

/// One of several words.
struct Word<'a>(&'a str);

impl<'de> EnumAccess<'de> for Word<'_> {
    type Error = ConfigError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), ConfigError> {
        let word: StrDeserializer<'_, ConfigError> = self.0.into_deserializer();
        Ok((seed.deserialize(word)?, self))
    }
}

impl<'de> VariantAccess<'de> for Word<'_> {
    type Error = ConfigError;

    fn unit_variant(self) -> Result<(), ConfigError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, ConfigError> {
        Err(ConfigError::new("expected a word"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, ConfigError> {
        Err(ConfigError::new("expected a word"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ConfigError> {
        Err(ConfigError::new("expected a word"))
    }
}
