//! Parts: text, a file in a message of its own, or data in one of its own.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error as _, IgnoredAny, MapAccess};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::dialect::part::{Marked, Value, once, unwrapped};
use crate::json::{lenient, lenient::Object};
use crate::part::Base64;
use crate::{Content, Json, Part};

const MEMBERS: &str = "exactly one of `text`, `file` and `data`";

/// A part as it is read. One that has a `kind` is read too: its data is not wrapped, and its file may have the shorter names.
pub(super) struct ReadPart(Part);

impl From<ReadPart> for Part {
    fn from(ReadPart(part): ReadPart) -> Self {
        part
    }
}

impl<'de> Deserialize<'de> for ReadPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = ReadPart;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a part: an object with {MEMBERS}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ReadPart, A::Error> {
                let (mut kind, mut text, mut file, mut data, mut metadata) = (None, None, None, None, None);
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    match &*key {
                        "kind" => once::<_, IgnoredAny>(&mut kind, "kind", &mut map)?,
                        "text" => once(&mut text, "text", &mut map)?,
                        "file" => once(&mut file, "file", &mut map)?,
                        "data" => once::<_, Json>(&mut data, "data", &mut map)?,
                        "metadata" => once(&mut metadata, "metadata", &mut map)?,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                let part = match (text, file, data) {
                    (Some(text), None, None) => Part::new(Content::Text(text)),
                    (None, Some(Object(File { content, filename, media_type })), None) => {
                        Part { content, filename, media_type, metadata: None }
                    }
                    (None, None, Some(data)) => {
                        let data = if kind.is_some() { data } else { inner(&data)? };
                        let (data, rest) = unwrapped(data, metadata);
                        metadata = rest;
                        Part::new(Content::Data(data))
                    }
                    (None, None, None) => {
                        return Err(A::Error::custom(format_args!("a part needs {MEMBERS}")));
                    }
                    (Some(_) | None, _, _) => {
                        return Err(A::Error::custom(format_args!("a part holds {MEMBERS}, not several")));
                    }
                };
                Ok(ReadPart(Part { metadata, ..part }))
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

/// The data in its message. What stands beside it would be lost, so it is refused.
fn inner<E: serde::de::Error>(data: &Json) -> Result<Json, E> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct DataPart {
        data: Json,
    }
    let Object(DataPart { data }) = data.read::<Object<DataPart>>().map_err(|_| {
        E::custom("data is written as `{\"data\": {\"data\": …}}`, or as `{\"kind\": \"data\", \"data\": …}`")
    })?;
    Ok(data)
}

/// A file, by its bytes or by its address.
#[derive(Deserialize)]
#[serde(try_from = "FileMembers")]
struct File {
    content: Content,
    filename: Option<String>,
    media_type: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FileMembers {
    #[serde(deserialize_with = "lenient::string")]
    name: Option<String>,
    #[serde(alias = "mime_type", deserialize_with = "lenient::string")]
    mime_type: Option<String>,
    #[serde(alias = "file_with_bytes", alias = "bytes")]
    file_with_bytes: Option<Base64>,
    #[serde(alias = "file_with_uri", alias = "uri")]
    file_with_uri: Option<String>,
}

impl TryFrom<FileMembers> for File {
    type Error = &'static str;

    fn try_from(members: FileMembers) -> Result<Self, &'static str> {
        let FileMembers { name, mime_type, file_with_bytes, file_with_uri } = members;
        let content = match (file_with_bytes, file_with_uri) {
            (Some(Base64(bytes)), None) => Content::Raw(bytes),
            (None, Some(uri)) => Content::Url(uri),
            (Some(_), Some(_)) => return Err("a file has either `fileWithBytes` or `fileWithUri`, not both"),
            (None, None) => return Err("a file needs `fileWithBytes` or `fileWithUri`"),
        };
        Ok(Self { content, filename: name, media_type: mime_type })
    }
}

/// A part as it is written.
pub(super) struct ShownPart<'a>(pub(super) &'a Part);

impl Serialize for ShownPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct ShownFile<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            file_with_uri: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            file_with_bytes: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            mime_type: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            name: Option<&'a str>,
        }
        #[derive(Serialize)]
        struct DataPart<T> {
            data: T,
        }

        let Self(part) = self;
        let file = |file_with_uri, file_with_bytes| ShownFile {
            file_with_uri,
            file_with_bytes,
            mime_type: part.media_type.as_deref(),
            name: part.filename.as_deref(),
        };
        let mut wrapped = false;
        let mut map = serializer.serialize_map(None)?;
        match &part.content {
            Content::Text(text) => map.serialize_entry("text", text)?,
            Content::Url(url) => map.serialize_entry("file", &file(Some(url), None))?,
            Content::Raw(bytes) => {
                map.serialize_entry("file", &file(None, Some(STANDARD.encode(bytes))))?;
            }
            // It is a `Struct`, which only objects are.
            Content::Data(data) if data.as_str().starts_with('{') => {
                map.serialize_entry("data", &DataPart { data })?;
            }
            Content::Data(data) => {
                wrapped = true;
                map.serialize_entry("data", &DataPart { data: Value { value: data } })?;
            }
        }
        match (&part.metadata, wrapped) {
            (None, false) => {}
            (Some(metadata), false) => map.serialize_entry("metadata", metadata)?,
            (metadata, true) => map.serialize_entry("metadata", &Marked(metadata.as_ref()))?,
        }
        map.end()
    }
}
