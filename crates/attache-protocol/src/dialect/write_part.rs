//! Writes the parts of messages and artifacts in the formats before 1.0. [`part`](super::part) describes and reads them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::part::{KindTag, Members, PartType, Tag, TypeTag, WRAPPED};
use super::write::{Format, ObjectWriter, Single};
use crate::{Content, JsonObject, Part, json};

/// A part in the JSON of a format.
pub(super) struct PartJson<'a> {
    pub(super) part: &'a Part,
    pub(super) format: Format,
    pub(super) in_artifact: bool,
}

impl Serialize for PartJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { part, format, in_artifact } = *self;
        if format == Format::Iii {
            return serialize_for_iii(part, in_artifact, serializer);
        }
        let type_name = PartType::of(&part.content).name();
        let mut wrapped = false;
        let mut json = ObjectWriter::begin(serializer)?;
        if format.has_kinds() {
            json.member(KindTag::NAME, type_name)?;
        }
        if format.has_v0_1_members() {
            json.member(TypeTag::NAME, type_name)?;
        }
        match &part.content {
            Content::Text(text) => json.member("text", text)?,
            Content::Raw(_) | Content::Url(_) => json.member("file", &FileJson { part, format })?,
            Content::Data(data) => {
                wrapped = match data.as_str().as_bytes().first() {
                    Some(b'{') => false,
                    Some(b'[') => format != Format::V0_1,
                    Some(_) | None => true,
                };
                match (wrapped, format.is_proto()) {
                    (false, false) => json.member("data", data)?,
                    (true, false) => json.member("data", &Single("value", data))?,
                    (false, true) => json.member("data", &Single("data", data))?,
                    (true, true) => json.member("data", &Single("data", Single("value", data)))?,
                }
            }
        }
        if wrapped {
            json.member("metadata", &MarkedMetadata(part.metadata.as_ref()))?;
        } else {
            json.optional("metadata", part.metadata.as_ref())?;
        }
        if format == Format::Merged {
            write_iii_members(part, in_artifact, &mut json)?;
        }
        json.end()
    }
}

/// The object of a file.
struct FileJson<'a> {
    part: &'a Part,
    format: Format,
}

impl FileJson<'_> {
    fn write_content<S: Serializer>(&self, json: &mut ObjectWriter<S>) -> Result<(), S::Error> {
        let is_proto = self.format.is_proto();
        match &self.part.content {
            Content::Raw(bytes) => {
                let mut text = STANDARD.encode(bytes);
                if self.format == Format::PythonProto {
                    text = STANDARD.encode(text);
                }
                json.member(if is_proto { "fileWithBytes" } else { "bytes" }, &text)
            }
            Content::Url(url) => json.member(if is_proto { "fileWithUri" } else { "uri" }, url),
            Content::Text(_) | Content::Data(_) => Ok(()),
        }
    }
}

impl Serialize for FileJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Part { filename, media_type, .. } = self.part;
        let mut json = ObjectWriter::begin(serializer)?;
        if self.format.is_proto() {
            self.write_content(&mut json)?;
            json.optional("mimeType", media_type.as_ref())?;
            json.optional("name", filename.as_ref())?;
        } else {
            json.optional("name", filename.as_ref())?;
            json.optional("mimeType", media_type.as_ref())?;
            self.write_content(&mut json)?;
        }
        json.end()
    }
}

/// The media type of data that has none, where it is written as text.
const JSON_MEDIA_TYPE: &str = "application/json";

/// A part for readers of iii: a part of 1.0. In an artifact, data is indented text, which people can read.
fn serialize_for_iii<S: Serializer>(
    part: &Part,
    in_artifact: bool,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match &part.content {
        Content::Data(data) if in_artifact => {
            let media_type = part.media_type.clone().unwrap_or_else(|| JSON_MEDIA_TYPE.to_owned());
            let content = Content::Text(json::pretty(data.as_str()));
            Part { content, media_type: Some(media_type), ..part.clone() }.serialize(serializer)
        }
        Content::Data(_) | Content::Text(_) | Content::Raw(_) | Content::Url(_) => part.serialize(serializer),
    }
}

/// Adds the members that readers of iii expect. The bytes of a file are not repeated.
fn write_iii_members<S: Serializer>(
    part: &Part,
    in_artifact: bool,
    json: &mut ObjectWriter<S>,
) -> Result<(), S::Error> {
    let mut media_type = part.media_type.as_deref();
    match &part.content {
        Content::Text(_) | Content::Raw(_) => {}
        Content::Url(url) => json.member("url", url)?,
        Content::Data(data) => {
            if in_artifact {
                json.member("text", &json::pretty(data.as_str()))?;
                media_type = media_type.or(Some(JSON_MEDIA_TYPE));
            }
        }
    }
    json.optional("filename", part.filename.as_ref())?;
    json.optional("mediaType", media_type)
}

/// Metadata with the mark that the data is wrapped.
struct MarkedMetadata<'a>(Option<&'a JsonObject>);

impl Serialize for MarkedMetadata<'_> {
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
