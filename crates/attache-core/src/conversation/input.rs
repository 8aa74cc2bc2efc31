//! The message of a turn as the agent reads it: text, and media with their manifest.
//!
//! A message is checked before a task is created for it, and read when its turn runs. So a message that waits for its turn keeps no
//! copy of files in memory.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use attache_protocol::{Content, Error, ErrorKind, Message, Part};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::fetch::FetchError;
use super::media::{Media, MediaSource};
use super::rules::{InputRules, PeerRules, essence};
use super::workspace::{AccessError, Workspace};

/// The words of iac-code for a message without text.
const EMPTY_IAC_CODE: &str = "A2A server currently accepts text input only.";

/// The same in our words.
const EMPTY: &str = "the message is empty: send at least one part with text, data or a file";

/// The message of a turn as the agent reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Input {
    /// The parts of the message, in order.
    pub pieces: Vec<InputPiece>,
}

/// A part of a message as the agent reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputPiece {
    /// Text, or data as compact JSON.
    Text(String),
    /// A file of text.
    TextFile {
        /// Its name.
        filename: Option<String>,
        /// Its media type.
        media_type: Option<String>,
        /// Its content.
        text: String,
    },
    /// Other content.
    Media(Media),
}

impl Input {
    /// The whole input as text: files of text with their names, media as manifests.
    pub fn text(&self) -> String {
        self.pieces.iter().map(InputPiece::text).collect::<Vec<_>>().join("\n")
    }

    /// The media.
    pub fn media(&self) -> impl Iterator<Item = &Media> {
        self.pieces.iter().filter_map(|piece| match piece {
            InputPiece::Media(media) => Some(media),
            InputPiece::Text(_) | InputPiece::TextFile { .. } => None,
        })
    }
}

impl InputPiece {
    /// The piece as text: media as a manifest.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => text.into(),
            Self::TextFile { filename: Some(name), text, .. } => format!("{name}:\n{text}").into(),
            Self::TextFile { filename: None, text, .. } => text.into(),
            Self::Media(media) => media.manifest().into(),
        }
    }
}

/// Why a message is not accepted.
pub(crate) enum Unaccepted {
    /// The request is wrong.
    Error(Error),
    /// A task fails with this text.
    Failed(&'static str),
}

/// Why a part cannot be read.
enum Fault {
    /// The media type is not accepted.
    Type,
    /// Something else is wrong: in our words, and in those of iac-code.
    Invalid(String, &'static str),
}

impl Fault {
    fn text(&self, peer: PeerRules) -> Cow<'_, str> {
        match (self, peer) {
            (Self::Type, PeerRules::Standard) => "its media type is not accepted".into(),
            (Self::Type, PeerRules::IacCode) => "A2A part has unsupported media type.".into(),
            (Self::Invalid(ours, _), PeerRules::Standard) => ours.into(),
            (Self::Invalid(_, theirs), PeerRules::IacCode) => (*theirs).into(),
        }
    }
}

/// What is to be done with a part.
enum Plan {
    Ready(InputPiece),
    /// Read a file of the workspace. `None` means that its content decides whether it is text.
    File {
        url: String,
        path: PathBuf,
        media_type: Option<String>,
        is_text: Option<bool>,
    },
    /// Read a remote URL.
    Remote {
        url: String,
        media_type: Option<String>,
    },
}

/// Turns parts into input.
pub(crate) struct Reader<'a> {
    pub(crate) rules: &'a InputRules,
    pub(crate) peer: PeerRules,
}

impl Reader<'_> {
    /// Whether a message has files of the workspace.
    pub(crate) fn needs_workspace(message: &Message) -> bool {
        message
            .parts
            .iter()
            .any(|part| matches!(&part.content, Content::Url(url) if file_path(url).is_some()))
    }

    /// Checks a message, without reading files. This may block.
    pub(crate) fn check(&self, message: &Message, workspace: Option<&Workspace>) -> Result<(), Unaccepted> {
        let (mut total, mut is_empty) = (0_u64, true);
        for (number, part) in message.parts.iter().enumerate() {
            let fault = |fault: Fault| Unaccepted::Error(self.error(number, part, &fault));
            let size = match self.plan(part).map_err(fault)? {
                Plan::Ready(InputPiece::Text(text) | InputPiece::TextFile { text, .. }) => {
                    is_empty &= text.trim().is_empty();
                    text.len() as u64
                }
                Plan::Ready(InputPiece::Media(media)) => {
                    is_empty = false;
                    media.bytes.len() as u64
                }
                Plan::File { path, is_text, .. } => {
                    is_empty = false;
                    let size = workspace
                        .map_or(Err(no_workspace()), |workspace| workspace.size(&path).map_err(file_fault));
                    let size = size.map_err(fault)?;
                    self.check_file_size(size, is_text).map_err(fault)?;
                    size
                }
                Plan::Remote { .. } => {
                    is_empty = false;
                    0
                }
            };
            total = total.saturating_add(size);
        }
        if is_empty {
            return Err(Unaccepted::Failed(match self.peer {
                PeerRules::Standard => EMPTY,
                PeerRules::IacCode => EMPTY_IAC_CODE,
            }));
        }
        if total > self.rules.max_total as u64 {
            let text = format!("the content is larger than {} bytes in all", self.rules.max_total);
            return Err(Unaccepted::Error(Error::invalid_params("message.parts", text)));
        }
        Ok(())
    }

    /// Reads a message. The error is for the caller.
    pub(crate) async fn read(
        &self,
        message: &Message,
        workspace: Option<Arc<Workspace>>,
    ) -> Result<Input, String> {
        let mut pieces = Vec::with_capacity(message.parts.len());
        let mut left = self.rules.max_total;
        for (number, part) in message.parts.iter().enumerate() {
            let fault =
                |fault: Fault| format!("part {} of the message: {}", number + 1, fault.text(self.peer));
            let piece = match self.plan(part).map_err(fault)? {
                Plan::Ready(piece) => piece,
                Plan::File { url, path, media_type, is_text } => {
                    let Some(workspace) = workspace.clone() else { return Err(fault(no_workspace())) };
                    let limit = if is_text == Some(true) { self.rules.max_text } else { self.rules.max_file };
                    let name = file_name(part, &path);
                    let read = tokio::task::spawn_blocking(move || workspace.read(&path, limit)).await;
                    let bytes =
                        read.map_err(|error| error.to_string())?.map_err(file_fault).map_err(fault)?;
                    self.content(bytes, name, media_type, is_text, MediaSource::Url(url)).map_err(fault)?
                }
                Plan::Remote { url, media_type } => {
                    self.fetch(part, url, media_type, left).await.map_err(fault)?
                }
            };
            let size = match &piece {
                InputPiece::Text(text) | InputPiece::TextFile { text, .. } => text.len(),
                InputPiece::Media(media) => media.bytes.len(),
            };
            left = left.checked_sub(size).ok_or_else(|| {
                format!("the content of the message is larger than {} bytes in all", self.rules.max_total)
            })?;
            pieces.push(piece);
        }
        Ok(Input { pieces })
    }

    fn plan(&self, part: &Part) -> Result<Plan, Fault> {
        let given = part.media_type.as_deref().map(essence).filter(|given| !given.is_empty());
        let media_type = match self.peer {
            PeerRules::Standard => given,
            // There a part without a media type is plain text, but for data.
            PeerRules::IacCode if matches!(part.content, Content::Data(_)) => given,
            PeerRules::IacCode => given.or(Some("text/plain".to_owned())),
        };
        match &part.content {
            Content::Text(text) => match media_type {
                Some(other) if !self.rules.is_text(&other) => Err(Fault::Type),
                Some(_) | None => Ok(Plan::Ready(InputPiece::Text(text.clone()))),
            },
            Content::Data(data) => self.data(data.as_str(), part, media_type).map(Plan::Ready),
            Content::Raw(bytes) => {
                let is_text = self.is_text(media_type.as_deref())?;
                let limit = if is_text == Some(true) { self.rules.max_text } else { self.rules.max_media };
                if bytes.len() > limit {
                    let theirs = match is_text {
                        Some(true) => "A2A raw part content is too large.",
                        Some(false) | None => "A2A binary raw part content is too large.",
                    };
                    return Err(too_large(limit, theirs));
                }
                let name = part.filename.clone();
                self.content(bytes.clone(), name, media_type, is_text, MediaSource::Inline).map(Plan::Ready)
            }
            Content::Url(url) => match file_path(url) {
                Some(Some(path)) => {
                    let is_text = self.is_text(media_type.as_deref())?;
                    Ok(Plan::File { url: url.clone(), path, media_type, is_text })
                }
                Some(None) => Err(Fault::Invalid(
                    "expected a local URL such as `file:///directory/file`, without a host, a query or a fragment"
                        .to_owned(),
                    "A2A file URL parts must use local file:// URLs.",
                )),
                None if self.rules.fetch.is_some() => Ok(Plan::Remote { url: url.clone(), media_type }),
                None => Err(Fault::Invalid(
                    "remote URLs are not read: send the content itself, or a `file://` URL inside of the workspace"
                        .to_owned(),
                    "A2A file URL parts must use local file:// URLs.",
                )),
            },
        }
    }

    /// Whether a media type is text. `None` if there is no type. An error if the type is not accepted.
    fn is_text(&self, media_type: Option<&str>) -> Result<Option<bool>, Fault> {
        match media_type {
            None => Ok(None),
            Some(text) if self.rules.is_text(text) => Ok(Some(true)),
            Some(media) if self.rules.is_media(media) => Ok(Some(false)),
            Some(_) => Err(Fault::Type),
        }
    }

    fn data(&self, json: &str, part: &Part, media_type: Option<String>) -> Result<InputPiece, Fault> {
        let is_json = |media_type: &str| media_type == "application/json" || media_type.ends_with("+json");
        match media_type {
            Some(media_type) if !is_json(&media_type) => {
                if self.rules.is_text(&media_type) || !self.rules.is_media(&media_type) {
                    return Err(Fault::Invalid(
                        "data has the media type `application/json`, or that of media".to_owned(),
                        "A2A data parts must use application/json media type.",
                    ));
                }
                let bytes = self.binary_data(json)?;
                let media = Media::new(part.filename.as_deref(), &media_type, MediaSource::Data, bytes);
                Ok(InputPiece::Media(media))
            }
            Some(_) | None => {
                let text = match self.peer {
                    PeerRules::Standard => compact(json),
                    // There the members are sorted, which reading them does.
                    PeerRules::IacCode => serde_json::from_str::<Value>(json)
                        .map_or_else(|_| compact(json), |value| value.to_string()),
                };
                match text.len() > self.rules.max_data {
                    true => Err(too_large(self.rules.max_data, "A2A data part content is too large.")),
                    false => Ok(InputPiece::Text(text)),
                }
            }
        }
    }

    /// The bytes of media that were sent as data: an object with `bytes` or `base64`.
    fn binary_data(&self, json: &str) -> Result<Vec<u8>, Fault> {
        let Ok(Value::Object(object)) = serde_json::from_str(json) else {
            return Err(Fault::Invalid(
                "media as data are an object with `base64`".to_owned(),
                "A2A binary data parts must contain an object.",
            ));
        };
        let Some(text) = ["bytes", "base64"].iter().find_map(|key| object.get(*key)?.as_str()) else {
            return Err(Fault::Invalid(
                "media as data are an object with `base64`".to_owned(),
                "A2A binary data parts must include base64 bytes.",
            ));
        };
        let bytes = STANDARD.decode(text).map_err(|_| {
            Fault::Invalid(
                "`base64` is not valid base64".to_owned(),
                "A2A binary data part bytes must be valid base64.",
            )
        })?;
        match bytes.len() > self.rules.max_media {
            true => Err(too_large(self.rules.max_media, "A2A binary data part content is too large.")),
            false => Ok(bytes),
        }
    }

    /// Bytes as text or media.
    fn content(
        &self,
        bytes: Vec<u8>,
        name: Option<String>,
        media_type: Option<String>,
        is_text: Option<bool>,
        source: MediaSource,
    ) -> Result<InputPiece, Fault> {
        let is_file = matches!(source, MediaSource::Url(_));
        let text_fits = bytes.len() <= self.rules.max_text;
        let media = |bytes: Vec<u8>| {
            let media_type = media_type.as_deref().unwrap_or("application/octet-stream");
            if !self.rules.is_media(media_type) {
                return Err(Fault::Type);
            }
            Ok(InputPiece::Media(Media::new(name.as_deref(), media_type, source.clone(), bytes)))
        };
        if is_text == Some(false) || is_text.is_none() && !text_fits {
            return media(bytes);
        }
        match String::from_utf8(bytes) {
            Ok(text) if self.peer == PeerRules::IacCode => Ok(InputPiece::Text(text)),
            Ok(text) => Ok(InputPiece::TextFile { filename: name, media_type, text }),
            Err(error) if is_text.is_none() => media(error.into_bytes()),
            Err(_) => Err(Fault::Invalid(
                "text must be valid UTF-8".to_owned(),
                if is_file {
                    "A2A file URL part must contain valid UTF-8."
                } else {
                    "A2A raw parts must contain valid UTF-8."
                },
            )),
        }
    }

    fn check_file_size(&self, size: u64, is_text: Option<bool>) -> Result<(), Fault> {
        let limit = if is_text == Some(true) { self.rules.max_text } else { self.rules.max_file };
        match size > limit as u64 {
            true => Err(too_large(limit, "A2A file URL part content is too large.")),
            false => Ok(()),
        }
    }

    async fn fetch(
        &self,
        part: &Part,
        url: String,
        media_type: Option<String>,
        left: usize,
    ) -> Result<InputPiece, Fault> {
        let fault = |FetchError(text)| Fault::Invalid(text, "A2A remote URL cannot be read.");
        let Some(fetch) = &self.rules.fetch else { return Err(no_workspace()) };
        let limit = self.rules.max_file.min(left);
        let fetched = fetch.fetch(&url, limit).await.map_err(fault)?;
        let media_type = media_type.or_else(|| fetched.media_type.as_deref().map(essence));
        let is_text = self.is_text(media_type.as_deref())?;
        if is_text == Some(true) && fetched.bytes.len() > self.rules.max_text {
            return Err(too_large(self.rules.max_text, "A2A file URL part content is too large."));
        }
        let name = part.filename.clone().or_else(|| {
            let path = url.split(['?', '#']).next()?;
            path.rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned)
        });
        self.content(fetched.bytes, name, media_type, is_text, MediaSource::Url(url))
    }

    fn error(&self, number: usize, part: &Part, fault: &Fault) -> Error {
        match fault {
            Fault::Type => {
                let modes = self.rules.modes().join(", ");
                let given = part.media_type.as_deref().unwrap_or_default();
                let text = format!("`{given}` is not accepted here, expected one of: {modes}");
                Error::new(ErrorKind::ContentTypeNotSupported, text)
                    .with("field", format_args!("message.parts[{number}].mediaType"))
                    .with("mediaType", given)
            }
            Fault::Invalid(..) => {
                Error::invalid_params(format!("message.parts[{number}]"), fault.text(self.peer).into_owned())
            }
        }
    }
}

fn too_large(limit: usize, theirs: &'static str) -> Fault {
    Fault::Invalid(format!("it is too large: the limit is {limit} bytes"), theirs)
}

fn no_workspace() -> Fault {
    Fault::Invalid(
        "`file://` URLs need a workspace, and there is none: send the content itself".to_owned(),
        "A2A file URL part is outside the allowed workspace.",
    )
}

fn file_fault(error: AccessError) -> Fault {
    match error {
        AccessError::TooLarge(limit) => too_large(limit, "A2A file URL part content is too large."),
        AccessError::Refused(rule) => {
            Fault::Invalid(rule.to_owned(), "A2A file URL part is outside the allowed workspace.")
        }
        AccessError::Io(_) => Fault::Invalid(
            "there is no such file in the workspace".to_owned(),
            "A2A file URL part must reference an existing file.",
        ),
    }
}

/// The name of a file of the workspace.
fn file_name(part: &Part, path: &std::path::Path) -> Option<String> {
    let own = || path.file_name().map(|name| name.to_string_lossy().into_owned());
    part.filename.clone().or_else(own)
}

/// The path of a local URL. `None` for other URLs, and `Some(None)` for a local URL that names no path.
fn file_path(url: &str) -> Option<Option<PathBuf>> {
    let scheme = url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("file:"))?;
    let path = || {
        let encoded = url[scheme.len()..].strip_prefix("//")?;
        if !encoded.starts_with('/') || encoded.contains(['?', '#']) {
            return None;
        }
        let mut bytes = Vec::with_capacity(encoded.len());
        let mut rest = encoded.as_bytes();
        while let Some((first, others)) = rest.split_first() {
            if *first == b'%' {
                let digits = others.get(..2).and_then(|digits| std::str::from_utf8(digits).ok())?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &others[2..];
            } else {
                bytes.push(*first);
                rest = others;
            }
        }
        String::from_utf8(bytes).ok().map(PathBuf::from)
    };
    Some(path())
}

/// JSON without white space between its tokens. Numbers and the order of members stay as they are.
fn compact(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in json.chars() {
        if in_string || !c.is_ascii_whitespace() {
            text.push(c);
        }
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests;
