//! The bytes of files, which some SDKs encode twice.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::dialect::write::Format;
use crate::{Content, Part};

/// How often a peer encodes the bytes of files in base64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FileEncoding {
    /// Once, as ProtoJSON has it.
    #[default]
    Once,
    /// Twice. The Python SDK writes the base64 text of a file into a field of bytes, which ProtoJSON then encodes again.
    Twice,
}

impl FileEncoding {
    pub(in crate::dialect) const fn format(self) -> Format {
        match self {
            Self::Once => Format::Proto,
            Self::Twice => Format::PythonProto,
        }
    }

    /// Decodes the files that have been decoded once, as often as it takes. Files that are encoded once by others stay as they are.
    pub fn decode<'a>(self, parts: impl Iterator<Item = &'a mut Part>) {
        if self == Self::Once {
            return;
        }
        for part in parts {
            if let Content::Raw(bytes) = &mut part.content
                && let Ok(decoded) = STANDARD.decode(&*bytes)
            {
                *bytes = decoded;
            }
        }
    }
}
