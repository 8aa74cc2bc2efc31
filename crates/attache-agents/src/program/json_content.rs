//! The content of an event: text, data, parts and files.

use std::path::{Path, PathBuf};

use attache_core::{AccessError, AgentError, AgentResult};
use attache_protocol::Part;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::ProgramOptions;
use super::process::Process;

/// The content of an event: any of these.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Content {
    text: Option<String>,
    data: Option<Value>,
    #[serde(default)]
    parts: Vec<OutputPart>,
    /// Other members of the event.
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

/// A part, or a file that the program has written.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OutputPart {
    File {
        path: PathBuf,
        filename: Option<String>,
        #[serde(rename = "mediaType")]
        media_type: Option<String>,
    },
    Part(Part),
}

impl Content {
    /// All parts, at least one. Files are read from the disk.
    pub(super) async fn parts(
        self,
        process: &mut Process,
        options: &ProgramOptions,
    ) -> Result<Vec<Part>, AgentError> {
        if self.is_empty() {
            return Err(AgentError::public("the program wrote an event without content"));
        }
        let mut parts: Vec<Part> = self.text.map(Part::text).into_iter().collect();
        if let Some(data) = &self.data {
            parts.push(Part::data(data)?);
        }
        for part in self.parts {
            parts.push(match part {
                OutputPart::Part(part) => part,
                OutputPart::File { path, filename, media_type } => {
                    let own_name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                    let mut part = Part::raw(read(&path, process, options).await?);
                    part.filename = filename.or(own_name);
                    part.media_type = media_type;
                    part
                }
            });
        }
        Ok(parts)
    }

    /// The same for an event that needs no content. Content under another name is an error, because it would be lost.
    pub(super) async fn parts_if_any(
        self,
        process: &mut Process,
        options: &ProgramOptions,
    ) -> Result<Vec<Part>, AgentError> {
        if !self.is_empty() {
            return self.parts(process, options).await;
        }
        self.check()?;
        Ok(Vec::new())
    }

    fn is_empty(&self) -> bool {
        self.text.is_none() && self.data.is_none() && self.parts.is_empty()
    }

    fn check(&self) -> AgentResult {
        match self.unknown.keys().next() {
            None => Ok(()),
            Some(name) => {
                let text = format!("the program wrote an event with the unknown content `{name}`");
                Err(AgentError::public(text))
            }
        }
    }
}

/// Reads a file of the program. It counts as output.
async fn read(path: &Path, process: &mut Process, options: &ProgramOptions) -> Result<Vec<u8>, AgentError> {
    match process.location_of(path).read(process.budget).await {
        Ok(bytes) => {
            process.spend(bytes.len(), options)?;
            Ok(bytes)
        }
        Err(AccessError::TooLarge(limit)) => {
            process.spend(limit.saturating_add(1), options)?;
            Ok(Vec::new())
        }
        Err(error @ (AccessError::Refused(_) | AccessError::Io(_))) => {
            tracing::warn!(target: "attache::program", path = %path.display(), %error, "a file of a program cannot be read");
            Err(AgentError::public("the program named a file that cannot be read"))
        }
    }
}
