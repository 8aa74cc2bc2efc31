//! The content of earlier messages, as the model gets it again.
//!
//! No URL of an earlier message goes to the endpoint, which could read what this server refuses to read. A file of the workspace is read
//! again through the workspace. What cannot be passed again is described: its name, its media type and its size.

use std::path::PathBuf;
use std::sync::Arc;

use attache_core::{AccessError, Context, Input, InputPiece, InputRules, Media, Turn, Workspace};
use attache_protocol::{Content, Message, Part};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use url::Url;

use super::conversation::{is_listed, is_passed};

/// Reads the content of earlier messages.
pub(super) struct Earlier<'a> {
    /// The context of the messages, for its workspace.
    context: Option<Context>,
    /// The media types of files that the model gets as they are.
    files: &'a [String],
    rules: InputRules,
    /// The workspace, when it was needed once.
    workspace: Option<Option<Arc<Workspace>>>,
    /// How many bytes of images and files the model can still get.
    left: usize,
}

/// Content with the same name and type as its part.
struct Named<'a> {
    name: Option<&'a str>,
    media_type: Option<&'a str>,
}

impl<'a> Earlier<'a> {
    /// The model gets at most so many bytes of images and files.
    pub(super) fn new(turn: &Turn, files: &'a [String], limit: usize) -> Self {
        let context = turn.context();
        let rules = context.rules().map_or_else(InputRules::default, |rules| rules.input.clone());
        Self { context: Some(context), files, rules, workspace: None, left: limit }
    }

    /// The content of a message. Read the latest messages first, since they get what is left of the limit.
    pub(super) async fn read(&mut self, message: &Message) -> Input {
        let mut pieces = Vec::with_capacity(message.parts.len());
        for part in &message.parts {
            pieces.push(self.piece(part).await);
        }
        Input { pieces }
    }

    async fn piece(&mut self, part: &Part) -> InputPiece {
        let named = Named { name: part.filename.as_deref(), media_type: part.media_type.as_deref() };
        match &part.content {
            Content::Text(text) => InputPiece::Text(text.clone()),
            Content::Raw(bytes) => self.bytes(&named, bytes),
            Content::Data(data) => match named.media_type {
                Some(media_type) if !is_json(media_type) => match media_bytes(data.as_str()) {
                    Some(bytes) => self.bytes(&named, &bytes),
                    None => named.described(None),
                },
                Some(_) | None => InputPiece::Text(data.as_str().to_owned()),
            },
            Content::Url(url) => match local_path(url) {
                Some(path) => {
                    let own_name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                    let named = Named { name: named.name.or(own_name.as_deref()), ..named };
                    let Some(bytes) = self.file(path).await else { return named.described(None) };
                    let piece = self.bytes(&named, &bytes);
                    if let InputPiece::TextFile { text, .. } = &piece {
                        self.left = self.left.saturating_sub(text.len());
                    }
                    piece
                }
                None => named.described(None),
            },
        }
    }

    /// Bytes as the same kind of content that they were for the turn of their message.
    fn bytes(&mut self, named: &Named<'_>, bytes: &[u8]) -> InputPiece {
        let is_text = named.media_type.is_none_or(|media_type| {
            self.rules.text_types.iter().any(|listed| is_listed(listed, &essence(media_type)))
        });
        if is_text && let Ok(text) = std::str::from_utf8(bytes) {
            return InputPiece::TextFile {
                filename: named.name.map(str::to_owned),
                media_type: named.media_type.map(str::to_owned),
                text: text.to_owned(),
            };
        }
        let Some(media_type) = named.media_type.filter(|media_type| is_passed(media_type, self.files)) else {
            return named.described(Some(bytes.len()));
        };
        match self.left.checked_sub(bytes.len().div_ceil(3) * 4) {
            Some(left) => {
                self.left = left;
                let name = named.name.unwrap_or_default();
                InputPiece::Media(Media::from_bytes(name, media_type, bytes.to_vec()))
            }
            None => named.described(Some(bytes.len())),
        }
    }

    /// Reads a file of the workspace again.
    async fn file(&mut self, path: PathBuf) -> Option<Vec<u8>> {
        let workspace = match &self.workspace {
            Some(known) => known.clone(),
            // Without it, the turn itself can still go on.
            None => {
                let opened = match &self.context {
                    Some(context) => context.workspace_if_any().await.ok().flatten(),
                    None => None,
                };
                self.workspace.insert(opened).clone()
            }
        }?;
        let limit = self.rules.max_file.min(self.left);
        let read = tokio::task::spawn_blocking(move || workspace.read(&path, limit)).await;
        let read = read.unwrap_or_else(|error| Err(AccessError::Io(std::io::Error::other(error))));
        read.inspect_err(|error| {
            tracing::debug!(target: "attache::model", %error, "a file of an earlier message cannot be read again");
        })
        .ok()
    }
}

impl Named<'_> {
    /// A line about content that is not passed again.
    fn described(&self, size: Option<usize>) -> InputPiece {
        let mut text = format!("({}", self.name.unwrap_or("a file"));
        if let Some(media_type) = self.media_type {
            text.push_str(&format!(", {media_type}"));
        }
        if let Some(size) = size {
            text.push_str(&format!(", {size} bytes"));
        }
        text.push_str(", of an earlier message, is not shown again)");
        InputPiece::Text(text)
    }
}

/// The path of a local URL.
fn local_path(url: &str) -> Option<PathBuf> {
    let url = Url::parse(url).ok().filter(|url| url.scheme() == "file")?;
    url.to_file_path().ok()
}

/// The bytes of media that were sent as data: an object with `bytes` or `base64`.
fn media_bytes(json: &str) -> Option<Vec<u8>> {
    let object: Value = serde_json::from_str(json).ok()?;
    let text = ["bytes", "base64"].iter().find_map(|key| object.get(*key)?.as_str())?;
    STANDARD.decode(text).ok()
}

fn is_json(media_type: &str) -> bool {
    let essence = essence(media_type);
    essence == "application/json" || essence.ends_with("+json")
}

/// The media type without parameters, in lower case.
fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn earlier(files: &[String], left: usize) -> Earlier<'_> {
        Earlier { context: None, files, rules: InputRules::default(), workspace: None, left }
    }

    async fn texts(earlier: &mut Earlier<'_>, parts: Vec<Part>) -> Vec<String> {
        let input = earlier.read(&Message { parts, ..Message::user("m", "") }).await;
        input.pieces.iter().map(|piece| piece.text().into_owned()).collect()
    }

    #[tokio::test]
    async fn images_and_listed_files_are_passed_again_and_other_files_are_described() {
        let files = ["application/pdf".to_owned()];
        let parts = vec![
            Part::text("look"),
            Part::raw([1, 2]).media_type("image/png").filename("a.png"),
            Part::raw([0xff]).media_type("application/PDF; v=1"),
            Part::raw("a,b").filename("a.csv"),
            Part::raw([0xff]).filename("x"),
            Part::raw([0xff]).media_type("video/mp4").filename("v"),
            Part::data(&serde_json::json!({"base64": "AQI="})).unwrap().media_type("image/gif"),
        ];
        let input = earlier(&files, 1000).read(&Message { parts, ..Message::user("m", "") }).await;
        let media: Vec<_> =
            input.media().map(|media| (media.media_type.as_str(), media.bytes.len())).collect();
        assert_eq!(media, [("image/png", 2), ("application/PDF; v=1", 1), ("image/gif", 2)]);
        let text = input.text();
        for expected in [
            "a.csv:\na,b",
            "(x, 1 bytes, of an earlier message, is not shown again)",
            "(v, video/mp4, 1 bytes, of an earlier message, is not shown again)",
        ] {
            assert!(text.contains(expected), "{text}");
        }
    }

    #[tokio::test]
    async fn no_url_is_passed_again() {
        let urls =
            ["https://10.0.0.1/secret.png", "file:///etc/passwd", "attache-artifact:1", "data:,x", "x"];
        let part = |url: &str| Part { content: Content::Url(url.to_owned()), ..Part::text("") };
        let parts = urls.map(|url| part(url).media_type("image/png").filename("a.png"));
        for text in texts(&mut earlier(&[], 1000), parts.into()).await {
            assert_eq!(text, "(a.png, image/png, of an earlier message, is not shown again)");
        }
    }

    #[tokio::test]
    async fn images_beyond_the_limit_are_described() {
        let image = |name: &str| vec![Part::raw([0; 30]).media_type("image/png").filename(name)];
        let mut earlier = earlier(&[], 70);
        assert!(texts(&mut earlier, image("last")).await[0].contains("sha256"));
        let described = "(first, image/png, 30 bytes, of an earlier message, is not shown again)";
        assert_eq!(texts(&mut earlier, image("first")).await, [described]);
    }
}
