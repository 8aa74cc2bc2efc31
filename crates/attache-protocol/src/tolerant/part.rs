//! Parts of any version.

use serde_json::value::RawValue;

use super::members::{Members, json, text};
use super::{Reader, Source, excerpt};
use crate::dialect::data_part;
use crate::part::Base64;
use crate::{Content, JsonObject, Part};

impl Reader {
    /// The parts of a message or an artifact. A text alone is a part.
    pub(super) fn parts(&mut self, of: &Members<'_>) -> Vec<Part> {
        of.list(&["parts", "content"]).into_iter().map(|part| self.part(part)).collect()
    }

    /// A part. What is not one of the known kinds is data, so that nothing is lost.
    fn part(&mut self, raw: &RawValue) -> Part {
        let unknown = |reader: &mut Self, kind: &str| {
            reader.note(format!("a part of the unknown kind `{}` is read as data", excerpt(kind)));
            Part::new(Content::Data(json(raw)))
        };
        let Some(members) = Members::of(raw) else {
            return match text(raw) {
                Some(text) => Part::text(text),
                None => unknown(self, ""),
            };
        };
        let kind = members.text(&["kind", "type"]).unwrap_or_default().to_ascii_lowercase();
        let metadata = members.json_object("metadata");
        let file = members.object(&["file"]);
        let found = match kind.as_str() {
            "text" => members.text_content(),
            "file" => file.as_ref().and_then(Members::file_content).or_else(|| members.file_content()),
            "data" => members.get(&["data"]).map(|data| Content::Data(json(data))),
            "" => members
                .text_content()
                .or_else(|| file.as_ref().and_then(Members::file_content))
                .or_else(|| members.file_content())
                .or_else(|| members.get(&["data"]).map(|data| Content::Data(self.untagged_data(data)))),
            _ => None,
        };
        let Some(content) = found else { return unknown(self, &kind) };
        let about = |names: &[&str]| {
            let of_file = file.as_ref().and_then(|file| file.text(names));
            of_file.or_else(|| members.text(names))
        };
        let part = match content {
            Content::Data(data) => data_part(data, metadata),
            content @ (Content::Text(_) | Content::Raw(_) | Content::Url(_)) => {
                Part { metadata, ..Part::new(content) }
            }
        };
        Part { filename: about(&["filename", "name"]), media_type: about(&["mediaType", "mimeType"]), ..part }
    }

    /// The data of a part without a `kind`, which is in an object of its own over HTTP+JSON of 0.3.
    fn untagged_data(&self, data: &RawValue) -> crate::Json {
        let inner = match self.source {
            Source::HttpJson0_3 => Members::of(data).and_then(|members| members.get(&["data"])),
            Source::Other => None,
        };
        json(inner.unwrap_or(data))
    }
}

impl Members<'_> {
    fn text_content(&self) -> Option<Content> {
        self.get(&["text"]).and_then(text).map(Content::Text)
    }

    /// The bytes or the URL of a file. Bytes that are not base64 are none.
    fn file_content(&self) -> Option<Content> {
        let bytes = self.get(&["bytes", "fileWithBytes", "raw"]);
        let bytes = bytes.and_then(|bytes| serde_json::from_str::<Base64>(bytes.get()).ok());
        let url = || self.text(&["uri", "fileWithUri", "url"]).map(Content::Url);
        bytes.map(|Base64(bytes)| Content::Raw(bytes)).or_else(url)
    }
}

/// Metadata of an object.
pub(super) fn metadata(members: &Members<'_>) -> Option<JsonObject> {
    members.json_object("metadata")
}
