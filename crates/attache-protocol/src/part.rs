//! A part of a message or an artifact: text, a file (inline or by URL), or structured data.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD};
use serde::de::{Error as _, IgnoredAny, MapAccess};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Json, JsonObject};

/// The content of a [`Part`].
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Text.
    Text(String),
    /// The bytes of a file.
    Raw(Vec<u8>),
    /// The URL of a file.
    Url(String),
    /// Any JSON value, including `null`.
    Data(Json),
}

/// A part of a message or an artifact.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The content.
    pub content: Content,
    /// The name of the file.
    pub filename: Option<String>,
    /// The media type of the content.
    pub media_type: Option<String>,
    /// Additional data about the part.
    pub metadata: Option<JsonObject>,
}

impl Part {
    /// A part with only this content.
    pub fn new(content: Content) -> Self {
        Self { content, filename: None, media_type: None, metadata: None }
    }

    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Content::Text(text.into()))
    }

    /// A file by its bytes.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(Content::Raw(bytes.into()))
    }

    /// A file by its URL.
    pub fn url(url: impl Into<String>) -> Self {
        Self::new(Content::Url(url.into()))
    }

    /// A part with structured data. It is an error if `value` cannot be serialized as JSON.
    pub fn data<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Json::new(value).map(Content::Data).map(Self::new)
    }

    /// Sets the file name.
    pub fn filename(mut self, name: impl Into<String>) -> Self {
        self.filename = Some(name.into());
        self
    }

    /// Sets the media type.
    pub fn media_type(mut self, media_type: impl Into<String>) -> Self {
        self.media_type = Some(media_type.into());
        self
    }

    /// The text, if this is a text part.
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            Content::Raw(_) | Content::Url(_) | Content::Data(_) => None,
        }
    }

    /// The data, if this is a data part.
    pub fn as_data(&self) -> Option<&Json> {
        match &self.content {
            Content::Data(data) => Some(data),
            Content::Text(_) | Content::Raw(_) | Content::Url(_) => None,
        }
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut part = serializer.serialize_struct("Part", 4)?;
        match &self.content {
            Content::Text(text) => part.serialize_field("text", text)?,
            Content::Raw(bytes) => part.serialize_field("raw", &STANDARD.encode(bytes))?,
            Content::Url(url) => part.serialize_field("url", url)?,
            Content::Data(data) => part.serialize_field("data", data)?,
        }
        if let Some(metadata) = &self.metadata {
            part.serialize_field("metadata", metadata)?;
        }
        if let Some(filename) = &self.filename {
            part.serialize_field("filename", filename)?;
        }
        if let Some(media_type) = &self.media_type {
            part.serialize_field("mediaType", media_type)?;
        }
        part.end()
    }
}

const MEMBERS: &str = "exactly one of `text`, `raw`, `url` and `data`";

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Part;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a part: an object with {MEMBERS}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part, A::Error> {
                let (mut content, mut filename, mut media_type, mut metadata) = (None, None, None, None);
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    let member = match &*key {
                        "text" => map.next_value::<Option<String>>()?.map(Content::Text),
                        "url" => map.next_value::<Option<String>>()?.map(Content::Url),
                        "raw" => map.next_value::<Option<Base64>>()?.map(|Base64(bytes)| Content::Raw(bytes)),
                        // `null` is a valid value here.
                        "data" => Some(Content::Data(map.next_value()?)),
                        "filename" => once("filename", &mut filename, &mut map)?,
                        "mediaType" | "media_type" => once("mediaType", &mut media_type, &mut map)?,
                        "metadata" => once("metadata", &mut metadata, &mut map)?,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            None
                        }
                    };
                    if member.is_some() && content.is_some() {
                        return Err(A::Error::custom(format_args!("a part holds {MEMBERS}, not several")));
                    }
                    content = content.or(member);
                }
                let content =
                    content.ok_or_else(|| A::Error::custom(format_args!("a part needs {MEMBERS}")))?;
                let filled = |text: Option<Option<String>>| text.flatten().filter(|text| !text.is_empty());
                Ok(Part {
                    content,
                    filename: filled(filename),
                    media_type: filled(media_type),
                    metadata: metadata.flatten(),
                })
            }
        }

        /// Reads a member that is not content and may be present only once.
        fn once<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
            name: &'static str,
            member: &mut Option<T>,
            map: &mut A,
        ) -> Result<Option<Content>, A::Error> {
            match member.replace(map.next_value()?) {
                None => Ok(None),
                Some(_) => Err(A::Error::duplicate_field(name)),
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

/// Bytes in either base64 alphabet, with or without padding.
pub(crate) struct Base64(pub(crate) Vec<u8>);

const FORGIVING: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const ANY_STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, FORGIVING);
const ANY_URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, FORGIVING);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Base64;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a base64 string")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Base64, E> {
                let engine = if text.contains(['-', '_']) { &ANY_URL_SAFE } else { &ANY_STANDARD };
                engine
                    .decode(text)
                    .map(Base64)
                    .map_err(|error| E::custom(format_args!("not base64: {error}")))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Part, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn exactly_one_content_member_is_required() {
        assert_eq!(parse(r#"{"text":""}"#).unwrap(), Part::text(""));
        assert_eq!(parse(r#"{"data":null}"#).unwrap(), Part::data(&()).unwrap());
        assert_eq!(parse(r#"{"text":null,"url":"u"}"#).unwrap(), Part::url("u"));
        assert!(parse(r#"{"text":"a","url":"u"}"#).unwrap_err().contains("not several"));
        assert!(parse(r#"{"text":"a","data":null}"#).unwrap_err().contains("not several"));
        assert!(parse("{}").unwrap_err().contains("a part needs exactly one of"));
        assert!(parse(r#"{"kind":"text"}"#).unwrap_err().contains("a part needs exactly one of"));
    }

    #[test]
    fn a_repeated_member_is_an_error() {
        for twice in [
            r#""filename":"a","filename":"b""#,
            r#""mediaType":"a","media_type":"b""#,
            r#""metadata":{},"metadata":null"#,
        ] {
            let error = parse(&format!(r#"{{"text":"t",{twice}}}"#)).unwrap_err();
            assert!(error.contains("duplicate field"), "{error}");
        }
    }

    #[test]
    fn both_base64_alphabets_are_read_and_the_standard_one_is_written() {
        for text in ["-_-_", "+/+/"] {
            let part = parse(&format!(r#"{{"raw":"{text}"}}"#)).unwrap();
            assert_eq!(serde_json::to_string(&part).unwrap(), r#"{"raw":"+/+/"}"#);
        }
        assert_eq!(parse(r#"{"raw":"aGk"}"#).unwrap(), Part::raw("hi"));
        assert_eq!(parse(r#"{"raw":"aGk="}"#).unwrap(), Part::raw("hi"));
        assert!(parse(r#"{"raw":"!!!!"}"#).unwrap_err().contains("not base64"));
    }
}
