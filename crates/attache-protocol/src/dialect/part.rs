//! Reads the parts of messages and artifacts before 1.0. [`write_part`](super::write_part) writes them.
//!
//! A part is text, a file (by its bytes or its URL) or data. Over JSON-RPC a member names its type: `kind` in 0.3, `type` in 0.1.
//! The ProtoJSON of 0.3 has no such member and puts files and data into objects of their own.
//!
//! Data is an object in 0.3, and an object or an array in 0.1. Other values are wrapped in `{"value": …}`. The writer
//! adds a mark to the metadata, and the reader then unwraps them again.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, IgnoredAny, MapAccess};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::{lenient, lenient::Object};
use crate::part::Base64;
use crate::{Content, Json, JsonObject, Part};

/// The member of the metadata that marks wrapped data. The official SDKs use the same.
pub(super) const WRAPPED: &str = "data_part_compat";

/// The member that names the type of a part.
pub(super) trait Tag {
    const NAME: &'static str;
}

pub(super) enum KindTag {}

impl Tag for KindTag {
    const NAME: &'static str = "kind";
}

pub(super) enum TypeTag {}

impl Tag for TypeTag {
    const NAME: &'static str = "type";
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PartType {
    Text,
    File,
    Data,
}

impl PartType {
    pub(super) const fn of(content: &Content) -> Self {
        match content {
            Content::Text(_) => Self::Text,
            Content::Raw(_) | Content::Url(_) => Self::File,
            Content::Data(_) => Self::Data,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::File => "file",
            Self::Data => "data",
        }
    }
}

/// Reads parts. `null` is an empty list.
pub(super) fn parts<'de, D, P>(deserializer: D) -> Result<Vec<Part>, D::Error>
where
    D: Deserializer<'de>,
    P: Deserialize<'de> + Into<Part>,
{
    let parts = lenient::null::<D, Vec<P>>(deserializer)?;
    Ok(parts.into_iter().map(Into::into).collect())
}

/// The members of a part that is being read. `T` is the type of its tag, `F` that of its file.
struct PartMembers<T, F> {
    tag: Option<T>,
    text: Option<String>,
    file: Option<Object<F>>,
    data: Option<Json>,
    metadata: Option<JsonObject>,
}

impl<'de, T: Deserialize<'de>, F: Deserialize<'de>> PartMembers<T, F> {
    fn read<A: MapAccess<'de>>(tag: &'static str, mut map: A) -> Result<Self, A::Error> {
        let mut it = Self { tag: None, text: None, file: None, data: None, metadata: None };
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match &*key {
                name if name == tag => read_once(&mut it.tag, tag, &mut map)?,
                "text" => read_once(&mut it.text, "text", &mut map)?,
                "file" => read_once(&mut it.file, "file", &mut map)?,
                "data" => read_once(&mut it.data, "data", &mut map)?,
                "metadata" => read_once(&mut it.metadata, "metadata", &mut map)?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(it)
    }
}

/// Reads a member that may be present only once. `null` counts as absent.
fn read_once<'de, A: MapAccess<'de>, V: Deserialize<'de>>(
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

/// A part with a tag, as the formats over JSON-RPC have it.
pub(super) struct TaggedPart<T>(Part, PhantomData<T>);

impl<T> From<TaggedPart<T>> for Part {
    fn from(TaggedPart(part, _): TaggedPart<T>) -> Self {
        part
    }
}

impl<'de, T: Tag> Deserialize<'de> for TaggedPart<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);

        impl<'de, T: Tag> serde::de::Visitor<'de> for Visitor<T> {
            type Value = TaggedPart<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a part: an object with `{}`", T::NAME)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TaggedPart<T>, A::Error> {
                let it = PartMembers::<PartType, TaggedFile>::read(T::NAME, map)?;
                let part_type = it.tag.ok_or_else(|| {
                    let tag = T::NAME;
                    A::Error::custom(format_args!("a part needs `{tag}`: one of `text`, `file` and `data`"))
                })?;
                let missing = || {
                    let (tag, name) = (T::NAME, part_type.name());
                    A::Error::custom(format_args!("a part of {tag} `{name}` needs `{name}`"))
                };
                let part = match part_type {
                    PartType::Text => text_part(it.text.ok_or_else(missing)?, it.metadata),
                    PartType::File => {
                        let Object(TaggedFile(file)) = it.file.ok_or_else(missing)?;
                        file.into_part(it.metadata)
                    }
                    PartType::Data => data_part(it.data.ok_or_else(missing)?, it.metadata),
                };
                Ok(TaggedPart(part, PhantomData))
            }
        }

        deserializer.deserialize_map(Visitor(PhantomData))
    }
}

const PROTO_MEMBERS: &str = "exactly one of `text`, `file` and `data`";

/// A part of ProtoJSON. A part with a `kind` is read as well: its data is not in an object of its own, and its file may have the
/// names that files have over JSON-RPC.
pub(super) struct ProtoPart(Part);

impl From<ProtoPart> for Part {
    fn from(ProtoPart(part): ProtoPart) -> Self {
        part
    }
}

impl<'de> Deserialize<'de> for ProtoPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = ProtoPart;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a part: an object with {PROTO_MEMBERS}")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ProtoPart, A::Error> {
                let it = PartMembers::<IgnoredAny, ProtoFile>::read(KindTag::NAME, map)?;
                match (it.text, it.file, it.data) {
                    (Some(text), None, None) => Ok(text_part(text, it.metadata)),
                    (None, Some(Object(ProtoFile(file))), None) => Ok(file.into_part(it.metadata)),
                    (None, None, Some(data)) => {
                        let data = if it.tag.is_some() { data } else { inner_data(&data)? };
                        Ok(data_part(data, it.metadata))
                    }
                    (None, None, None) => Err(A::Error::custom(format_args!("a part needs {PROTO_MEMBERS}"))),
                    (Some(_) | None, _, _) => {
                        Err(A::Error::custom(format_args!("a part holds {PROTO_MEMBERS}, not several")))
                    }
                }
                .map(ProtoPart)
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

/// The data inside its object. Other members of the object would be lost, so they are an error.
fn inner_data<E: serde::de::Error>(data: &Json) -> Result<Json, E> {
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

fn text_part(text: String, metadata: Option<JsonObject>) -> Part {
    Part { metadata, ..Part::new(Content::Text(text)) }
}

/// A part of data, which is unwrapped if the metadata has the mark. The mark is removed.
pub(crate) fn data_part(data: Json, metadata: Option<JsonObject>) -> Part {
    let (data, metadata) = unwrap_data(data, metadata);
    Part { metadata, ..Part::new(Content::Data(data)) }
}

/// A file, by its bytes or by its URL.
struct File {
    content: Content,
    filename: Option<String>,
    media_type: Option<String>,
}

impl File {
    /// `names` are the members for the bytes and for the URL.
    fn new(
        (filename, media_type): (Option<String>, Option<String>),
        bytes: Option<Base64>,
        url: Option<String>,
        names: [&str; 2],
    ) -> Result<Self, String> {
        let [bytes_name, url_name] = names;
        let content = match (bytes, url) {
            (Some(Base64(bytes)), None) => Content::Raw(bytes),
            (None, Some(url)) => Content::Url(url),
            (Some(_), Some(_)) => {
                return Err(format!("a file has either `{bytes_name}` or `{url_name}`, not both"));
            }
            (None, None) => return Err(format!("a file needs `{bytes_name}` or `{url_name}`")),
        };
        Ok(Self { content, filename, media_type })
    }

    fn into_part(self, metadata: Option<JsonObject>) -> Part {
        Part { content: self.content, filename: self.filename, media_type: self.media_type, metadata }
    }
}

#[derive(Deserialize)]
#[serde(try_from = "TaggedFileMembers")]
struct TaggedFile(File);

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TaggedFileMembers {
    #[serde(deserialize_with = "lenient::string")]
    name: Option<String>,
    #[serde(deserialize_with = "lenient::string")]
    mime_type: Option<String>,
    bytes: Option<Base64>,
    uri: Option<String>,
}

impl TryFrom<TaggedFileMembers> for TaggedFile {
    type Error = String;

    fn try_from(it: TaggedFileMembers) -> Result<Self, String> {
        File::new((it.name, it.mime_type), it.bytes, it.uri, ["bytes", "uri"]).map(Self)
    }
}

#[derive(Deserialize)]
#[serde(try_from = "ProtoFileMembers")]
struct ProtoFile(File);

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ProtoFileMembers {
    #[serde(deserialize_with = "lenient::string")]
    name: Option<String>,
    #[serde(alias = "mime_type", deserialize_with = "lenient::string")]
    mime_type: Option<String>,
    #[serde(alias = "file_with_bytes", alias = "bytes")]
    file_with_bytes: Option<Base64>,
    #[serde(alias = "file_with_uri", alias = "uri")]
    file_with_uri: Option<String>,
}

impl TryFrom<ProtoFileMembers> for ProtoFile {
    type Error = String;

    fn try_from(it: ProtoFileMembers) -> Result<Self, String> {
        let names = ["fileWithBytes", "fileWithUri"];
        File::new((it.name, it.mime_type), it.file_with_bytes, it.file_with_uri, names).map(Self)
    }
}

/// The members of an object in their order, each value as it was written.
pub(super) struct Members<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    pub(super) fn of(object: &'a str) -> Self {
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

fn unwrap_data(data: Json, metadata: Option<JsonObject>) -> (Json, Option<JsonObject>) {
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
