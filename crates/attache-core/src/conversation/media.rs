//! Content of a message that is no text: its manifest, and its bytes.

use std::fmt::{self, Write as _};

use sha2::{Digest, Sha256};

/// Where media come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaSource {
    /// They were in the message as bytes.
    Inline,
    /// They were in the message as data.
    Data,
    /// They are the file behind this URL, as the caller has named it.
    Url(String),
}

impl fmt::Display for MediaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline => f.write_str("inline"),
            Self::Data => f.write_str("data"),
            Self::Url(url) => f.write_str(url),
        }
    }
}

/// Content of a message that is no text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Media {
    /// The name of the file: without directories, and `attachment` if there is none.
    pub filename: String,
    /// The media type.
    pub media_type: String,
    /// The SHA-256 of the content, in hexadecimal.
    pub sha256: String,
    /// Where it comes from.
    pub source: MediaSource,
    /// The content.
    pub bytes: Vec<u8>,
}

impl Media {
    /// Media that were in the message as bytes.
    pub fn from_bytes(filename: &str, media_type: &str, bytes: Vec<u8>) -> Self {
        Self::new(Some(filename), media_type, MediaSource::Inline, bytes)
    }

    pub(crate) fn new(filename: Option<&str>, media_type: &str, source: MediaSource, bytes: Vec<u8>) -> Self {
        let sha256 = Sha256::digest(&bytes).iter().fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let filename = base_name(filename);
        Self { filename, media_type: media_type.to_owned(), sha256, source, bytes }
    }

    /// The manifest: what the media are, for a prompt.
    pub fn manifest(&self) -> String {
        format!(
            "A2A multimodal attachment:\n- filename={}\n- mediaType={}\n- byteSize={}\n- sha256={}\n- source={}",
            self.filename,
            self.media_type,
            self.bytes.len(),
            self.sha256,
            self.source
        )
    }
}

/// The last part of a path. Characters that would end a line of the manifest are left out.
fn base_name(name: Option<&str>) -> String {
    let last = name.unwrap_or_default().rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String = last.chars().filter(|c| !c.is_control()).collect();
    match clean.trim() {
        "" | "." | ".." => "attachment".to_owned(),
        clean => clean.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_has_the_documented_lines() {
        let media = Media::new(Some("../a/b.png\nx"), "image/png", MediaSource::Inline, vec![1, 2]);
        assert_eq!(
            media.manifest(),
            "A2A multimodal attachment:\n- filename=b.pngx\n- mediaType=image/png\n- byteSize=2\n\
             - sha256=a12871fee210fb8619291eaea194581cbd2531e4b23759d225f6806923f63222\n- source=inline"
        );
        for name in [None, Some(""), Some(".."), Some("a/"), Some("\u{0}")] {
            assert_eq!(Media::new(name, "a/b", MediaSource::Data, vec![]).filename, "attachment");
        }
    }
}
