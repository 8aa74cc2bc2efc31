//! The result of a tool, as parts.

use attache_protocol::{Content, Part};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use super::error::excerpt;

/// What a tool returned.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolOutput {
    /// The content: text, data, files and links.
    pub parts: Vec<Part>,
    /// Whether the tool says that it failed. Then the content describes the failure.
    pub is_error: bool,
    /// The structured result, which is also among the parts.
    pub structured: Option<Value>,
}

impl ToolOutput {
    pub(super) fn new(result: CallToolResult) -> Self {
        let mut parts = Vec::with_capacity(result.content.len() + 1);
        let data = result.structured_content.as_ref().and_then(|value| Part::data(value).ok());
        for block in result.content {
            // Servers repeat the structured result as text, for clients that do not know it.
            let is_repeated = matches!((&block, &result.structured_content), (ContentBlock::Text(text), Some(value))
                if serde_json::from_str::<Value>(&text.text).is_ok_and(|text| text == *value));
            if !is_repeated {
                parts.push(part(block));
            }
        }
        parts.extend(data.map(|part| part.media_type("application/json")));
        let is_error = result.is_error.unwrap_or(false);
        Self { parts, is_error, structured: result.structured_content }
    }

    /// How many bytes the content has.
    pub(super) fn size(&self) -> usize {
        let size = |part: &Part| match &part.content {
            Content::Text(text) | Content::Url(text) => text.len(),
            Content::Data(data) => data.as_str().len(),
            Content::Raw(bytes) => bytes.len(),
        };
        self.parts.iter().map(size).sum()
    }

    /// The text, for people and for models.
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self.parts.iter().filter_map(Part::as_text).collect();
        texts.join("\n")
    }

    /// The words of a tool that failed.
    pub(super) fn failure(&self) -> String {
        let mut text = excerpt(&self.text());
        if text.is_empty() {
            text = self.structured.as_ref().map(|value| excerpt(&value.to_string())).unwrap_or_default();
        }
        if text.is_empty() { "The tool failed without a message".to_owned() } else { text }
    }

    /// The result for a model: the structured result if there is one, otherwise the text. Files are named only.
    pub(super) fn for_model(&self) -> Value {
        if let Some(value) = &self.structured {
            return value.clone();
        }
        let lines = self.parts.iter().map(|part| match &part.content {
            Content::Text(text) | Content::Url(text) => text.clone(),
            Content::Data(data) => data.as_str().to_owned(),
            Content::Raw(bytes) => {
                let kind = part.media_type.as_deref().unwrap_or("unknown type");
                format!("({kind}, {} bytes)", bytes.len())
            }
        });
        Value::String(lines.collect::<Vec<_>>().join("\n"))
    }
}

fn part(block: ContentBlock) -> Part {
    match block {
        ContentBlock::Text(text) => Part::text(text.text).media_type("text/plain"),
        ContentBlock::Image(image) => raw(&image.data, Some(image.mime_type)),
        ContentBlock::Audio(audio) => raw(&audio.data, Some(audio.mime_type)),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, mime_type, text, .. } => {
                let mut part = Part::text(text);
                part.media_type = mime_type.or_else(|| Some("text/plain".to_owned()));
                named(part, &uri, None)
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                named(raw(&blob, mime_type), &uri, None)
            }
            _ => unknown(),
        },
        ContentBlock::ResourceLink(link) => {
            let mut part = Part::url(&link.uri);
            part.media_type = link.mime_type;
            named(part, &link.uri, Some(link.name))
        }
        _ => unknown(),
    }
}

/// Content of a type that a later version of MCP adds.
fn unknown() -> Part {
    Part::text("(content of an unknown type)")
}

/// Bytes. What is not base64 is passed on as it is, since the caller may know what it means.
fn raw(data: &str, media_type: Option<String>) -> Part {
    let compact: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let decoded = STANDARD.decode(&compact).or_else(|_| STANDARD_NO_PAD.decode(&compact));
    let mut part = Part::raw(decoded.unwrap_or_else(|_| data.as_bytes().to_vec()));
    part.media_type = media_type.or_else(|| Some("application/octet-stream".to_owned()));
    part
}

/// Adds the name of a file: the given one, or the last segment of the URI.
fn named(mut part: Part, uri: &str, name: Option<String>) -> Part {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let last = path.rsplit('/').next().filter(|last| !last.is_empty()).map(str::to_owned);
    part.filename = name.filter(|name| !name.is_empty()).or(last);
    part
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn output(result: Value) -> ToolOutput {
        ToolOutput::new(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn every_kind_of_content_is_a_part() {
        let parts = output(json!({"content": [
            {"type": "text", "text": "hello"},
            {"type": "image", "data": "AQID", "mimeType": "image/png"},
            {"type": "audio", "data": "AQ", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a/notes.md?x=1", "mimeType": "text/markdown", "text": "# a"}},
            {"type": "resource", "resource": {"uri": "db://rows/7", "blob": "AQI="}},
            {"type": "resource_link", "uri": "https://a.example/b.pdf", "name": "Report", "mimeType": "application/pdf"},
        ]}))
        .parts;
        let shown: Vec<String> = parts
            .iter()
            .map(|part| {
                let content = match &part.content {
                    Content::Text(text) => text.clone(),
                    Content::Url(url) => url.clone(),
                    Content::Raw(bytes) => format!("{bytes:?}"),
                    Content::Data(data) => data.as_str().to_owned(),
                };
                format!(
                    "{content} {} {}",
                    part.media_type.as_deref().unwrap_or("-"),
                    part.filename.as_deref().unwrap_or("-")
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                "hello text/plain -",
                "[1, 2, 3] image/png -",
                "[1] audio/wav -",
                "# a text/markdown notes.md",
                "[1, 2] application/octet-stream 7",
                "https://a.example/b.pdf application/pdf Report",
            ]
        );
    }

    #[test]
    fn a_structured_result_is_one_part_even_if_it_is_repeated_as_text() {
        let both = output(
            json!({"content": [{"type": "text", "text": "{\"sum\": 5}"}, {"type": "text", "text": "done"}],
            "structuredContent": {"sum": 5}}),
        );
        assert_eq!(both.parts.len(), 2);
        assert_eq!(both.text(), "done");
        assert_eq!(both.for_model(), json!({"sum": 5}));
    }

    #[test]
    fn a_failure_has_the_words_of_the_tool() {
        let failed =
            output(json!({"content": [{"type": "text", "text": "no such\u{7} city"}], "isError": true}));
        assert!(failed.is_error);
        assert_eq!(failed.failure(), "no such city");
        let silent = output(json!({"content": [], "isError": true}));
        assert_eq!(silent.failure(), "The tool failed without a message");
    }

    #[test]
    fn a_model_gets_text_and_the_names_of_files() {
        let output = output(json!({"content": [{"type": "text", "text": "a cat"},
            {"type": "image", "data": "AQID", "mimeType": "image/png"}]}));
        assert_eq!(output.for_model(), json!("a cat\n(image/png, 3 bytes)"));
    }
}
