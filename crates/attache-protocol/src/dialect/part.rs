//! Parts that say what they are, by `kind` in 0.3 and by `type` in 0.1.
//!
//! Both know three of them: text, a file by its bytes or its address, and data. Data was an object in 0.3 (in 0.1 also an
//! array); other values travel as `{"value": …}`, marked in the metadata so that they come back as they were.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error as _, IgnoredAny, MapAccess};
use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::{self, lenient, lenient::Object};
use crate::part::Base64;
use crate::{Content, Json, JsonObject, Part};

/// The member of the metadata that marks wrapped data. The official SDKs use the same.
const WRAPPED: &str = "data_part_compat";

/// The member by which a part says what it is.
pub(super) trait Tag {
    const NAME: &'static str;
}

pub(super) enum Kind {}

impl Tag for Kind {
    const NAME: &'static str = "kind";
}

pub(super) enum Type {}

impl Tag for Type {
    const NAME: &'static str = "type";
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum What {
    Text,
    File,
    Data,
}

impl What {
    const fn of(content: &Content) -> Self {
        match content {
            Content::Text(_) => Self::Text,
            Content::Raw(_) | Content::Url(_) => Self::File,
            Content::Data(_) => Self::Data,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::File => "file",
            Self::Data => "data",
        }
    }
}

/// A part as it is read.
pub(super) struct Tagged<T>(Part, PhantomData<T>);

impl<T> From<Tagged<T>> for Part {
    fn from(Tagged(part, _): Tagged<T>) -> Self {
        part
    }
}

impl<'de, T: Tag> Deserialize<'de> for Tagged<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);

        impl<'de, T: Tag> serde::de::Visitor<'de> for Visitor<T> {
            type Value = Tagged<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a part: an object with `{}`", T::NAME)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tagged<T>, A::Error> {
                let (mut what, mut text, mut file, mut data, mut metadata) = (None, None, None, None, None);
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    match &*key {
                        name if name == T::NAME => once(&mut what, T::NAME, &mut map)?,
                        "text" => once(&mut text, "text", &mut map)?,
                        "file" => once(&mut file, "file", &mut map)?,
                        "data" => once::<_, Json>(&mut data, "data", &mut map)?,
                        "metadata" => once(&mut metadata, "metadata", &mut map)?,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                let what: What = what.ok_or_else(|| {
                    let tag = T::NAME;
                    A::Error::custom(format_args!("a part needs `{tag}`: one of `text`, `file` and `data`"))
                })?;
                let missing = || {
                    let (tag, what) = (T::NAME, what.name());
                    A::Error::custom(format_args!("a part of {tag} `{what}` needs `{what}`"))
                };
                let part = match what {
                    What::Text => Part::new(Content::Text(text.ok_or_else(missing)?)),
                    What::File => {
                        let Object(File { content, filename, media_type }) = file.ok_or_else(missing)?;
                        Part { content, filename, media_type, metadata: None }
                    }
                    What::Data => {
                        let (data, rest) = unwrapped(data.ok_or_else(missing)?, metadata);
                        metadata = rest;
                        Part::new(Content::Data(data))
                    }
                };
                Ok(Tagged(Part { metadata, ..part }, PhantomData))
            }
        }

        deserializer.deserialize_map(Visitor(PhantomData))
    }
}

/// Reads a member that may be there only once; `null` is as if it were absent.
pub(super) fn once<'de, A: MapAccess<'de>, V: Deserialize<'de>>(
    member: &mut Option<V>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    let value = map.next_value::<Option<V>>()?;
    if value.is_some() && member.is_some() {
        return Err(A::Error::duplicate_field(name));
    }
    *member = value.or(member.take());
    Ok(())
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
    #[serde(deserialize_with = "lenient::string")]
    mime_type: Option<String>,
    bytes: Option<Base64>,
    uri: Option<String>,
}

impl TryFrom<FileMembers> for File {
    type Error = &'static str;

    fn try_from(members: FileMembers) -> Result<Self, &'static str> {
        let FileMembers { name, mime_type, bytes, uri } = members;
        let content = match (bytes, uri) {
            (Some(Base64(bytes)), None) => Content::Raw(bytes),
            (None, Some(uri)) => Content::Url(uri),
            (Some(_), Some(_)) => return Err("a file has either `bytes` or `uri`, not both"),
            (None, None) => return Err("a file needs `bytes` or `uri`"),
        };
        Ok(Self { content, filename: name, media_type: mime_type })
    }
}

/// The members of an object in their order, each value as it was written.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    fn of(object: &'a str) -> Self {
        serde_json::from_str(object).unwrap_or(Self(Vec::new()))
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// Data that is not an object, made one.
#[derive(Serialize)]
pub(super) struct Value<'a> {
    pub(super) value: &'a Json,
}

/// The value that was wrapped, if the metadata says so, and the metadata without the mark.
pub(super) fn unwrapped(data: Json, metadata: Option<JsonObject>) -> (Json, Option<JsonObject>) {
    let Some(object) = metadata.as_ref().filter(|object| object.get::<bool>(WRAPPED) == Some(true)) else {
        return (data, metadata);
    };
    let value = match Members::of(data.as_str()).0.as_slice() {
        [(key, value)] if key == "value" => Json::from((*value).to_owned()),
        _ => return (data, metadata),
    };
    let mut rest = Members::of(object.as_str());
    rest.0.retain(|(key, _)| key != WRAPPED);
    let rest = if rest.0.is_empty() { None } else { JsonObject::new(&rest).ok() };
    (value, rest)
}

/// The form in which a part is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// That of 0.3.
    Kind,
    /// That of 0.1.
    Type,
    /// One that is read by all, in a message.
    Either,
    /// The same in a result, where readers of iii expect data as text.
    EitherResult,
}

/// Parts as they are written.
pub(super) struct ShownParts<'a> {
    pub(super) parts: &'a [Part],
    pub(super) form: Form,
}

impl Serialize for ShownParts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.parts.iter().map(|part| ShownPart { part, form: self.form }))
    }
}

/// A part as it is written.
struct ShownPart<'a> {
    part: &'a Part,
    form: Form,
}

impl Serialize for ShownPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct ShownFile<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            name: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            mime_type: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            bytes: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            uri: Option<&'a str>,
        }
        let Self { part, form } = *self;
        let what = What::of(&part.content).name();
        let (name, mime_type) = (part.filename.as_deref(), part.media_type.as_deref());
        let file = |bytes, uri| ShownFile { name, mime_type, bytes, uri };
        let mut wrapped = false;
        // As a struct, whose members are known to need no escapes. How many there are is of no account in JSON, but none is.
        let mut map = serializer.serialize_struct("Part", 1)?;
        match form {
            Form::Kind => map.serialize_field(Kind::NAME, what)?,
            Form::Type => map.serialize_field(Type::NAME, what)?,
            Form::Either | Form::EitherResult => {
                map.serialize_field(Kind::NAME, what)?;
                map.serialize_field(Type::NAME, what)?;
            }
        }
        match &part.content {
            Content::Text(text) => map.serialize_field("text", text)?,
            Content::Raw(bytes) => {
                map.serialize_field("file", &file(Some(STANDARD.encode(bytes)), None))?;
            }
            Content::Url(url) => map.serialize_field("file", &file(None, Some(url)))?,
            Content::Data(data) => {
                let fits = match data.as_str().as_bytes().first() {
                    Some(b'{') => true,
                    Some(b'[') => form == Form::Type,
                    Some(_) | None => false,
                };
                wrapped = !fits;
                if wrapped {
                    map.serialize_field("data", &Value { value: data })?;
                } else {
                    map.serialize_field("data", data)?;
                }
            }
        }
        match (&part.metadata, wrapped) {
            (None, false) => {}
            (Some(metadata), false) => map.serialize_field("metadata", metadata)?,
            (metadata, true) => map.serialize_field("metadata", &Marked(metadata.as_ref()))?,
        }
        if matches!(form, Form::Either | Form::EitherResult) {
            flat(part, form, &mut map)?;
        }
        map.end()
    }
}

/// Adds what readers of iii look for. The bytes of a file are not said twice.
fn flat<M: SerializeStruct>(part: &Part, form: Form, map: &mut M) -> Result<(), M::Error> {
    let mut media_type = part.media_type.as_deref();
    match &part.content {
        Content::Text(_) | Content::Raw(_) => {}
        Content::Url(url) => map.serialize_field("url", url)?,
        Content::Data(data) => {
            if form == Form::EitherResult {
                map.serialize_field("text", &json::pretty(data.as_str()))?;
                media_type = media_type.or(Some("application/json"));
            }
        }
    }
    if let Some(filename) = &part.filename {
        map.serialize_field("filename", filename)?;
    }
    if let Some(media_type) = media_type {
        map.serialize_field("mediaType", media_type)?;
    }
    Ok(())
}

/// Metadata with the mark that the data is wrapped.
pub(super) struct Marked<'a>(pub(super) Option<&'a JsonObject>);

impl Serialize for Marked<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let Members(members) = Members::of(self.0.map_or("{}", JsonObject::as_str));
        for (key, value) in members.iter().filter(|(key, _)| key != WRAPPED) {
            map.serialize_entry(key, value)?;
        }
        map.serialize_entry(WRAPPED, &true)?;
        map.end()
    }
}
