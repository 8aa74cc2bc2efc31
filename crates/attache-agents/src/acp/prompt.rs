//! The message of a turn as the content of a prompt.

use std::sync::Arc;

use attache_core::{AgentError, Input, InputPiece, Media};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use url::Url;

use super::session::Session;
use super::wire::{ContentBlock, PromptCapabilities, Resource};

/// The content of a message. Files that the agent does not take directly are written into the workspace.
pub(super) async fn blocks(
    input: &Input,
    session: &Arc<Session>,
    accepted: PromptCapabilities,
) -> Result<Vec<ContentBlock>, AgentError> {
    let mut blocks = Vec::with_capacity(input.pieces.len());
    for piece in &input.pieces {
        match piece {
            InputPiece::Text(text) => blocks.push(ContentBlock::Text { text: text.clone() }),
            InputPiece::TextFile { filename, media_type, text } => {
                let name = filename.as_deref().unwrap_or("file");
                blocks.push(match resource(name, media_type.clone(), accepted) {
                    Some(resource) => {
                        ContentBlock::Resource { resource: Resource { text: Some(text.clone()), ..resource } }
                    }
                    None => link(name, media_type.clone(), text.as_bytes(), session).await?,
                });
            }
            InputPiece::Media(media) => {
                blocks.push(ContentBlock::Text { text: media.manifest() });
                let media_type = Some(media.media_type.clone());
                blocks.push(match direct(media, accepted) {
                    Some(block) => block,
                    None => link(&media.filename, media_type, &media.bytes, session).await?,
                });
            }
        }
    }
    Ok(blocks)
}

/// Media as a block that the agent accepts.
fn direct(media: &Media, accepted: PromptCapabilities) -> Option<ContentBlock> {
    let media_type = media.media_type.clone();
    let data = || STANDARD.encode(&media.bytes);
    if accepted.image && media_type.starts_with("image/") {
        return Some(ContentBlock::Image { data: data(), mime_type: media_type });
    }
    if accepted.audio && media_type.starts_with("audio/") {
        return Some(ContentBlock::Audio { data: data(), mime_type: media_type });
    }
    let resource = resource(&media.filename, Some(media_type), accepted)?;
    Some(ContentBlock::Resource { resource: Resource { blob: Some(data()), ..resource } })
}

/// An embedded file without its content, if the agent takes such.
fn resource(name: &str, media_type: Option<String>, accepted: PromptCapabilities) -> Option<Resource> {
    if !accepted.embedded_context {
        return None;
    }
    let mut uri = Url::parse("attachment:///").ok()?;
    uri.set_path(name);
    Some(Resource { uri: uri.into(), mime_type: media_type, text: None, blob: None })
}

/// Writes the file into the workspace.
async fn link(
    name: &str,
    media_type: Option<String>,
    bytes: &[u8],
    session: &Arc<Session>,
) -> Result<ContentBlock, AgentError> {
    let (owned, shared, given) = (bytes.to_vec(), session.clone(), name.to_owned());
    let path =
        tokio::task::spawn_blocking(move || shared.add_file(&given, &owned)).await?.map_err(|error| {
            if error.kind() == std::io::ErrorKind::QuotaExceeded {
                return AgentError::public(error.to_string());
            }
            AgentError::from(format!("a file of the message cannot be written: {error}"))
        })?;
    let uri =
        Url::from_file_path(&path).map_err(|()| AgentError::from("the workspace has no absolute path"))?;
    Ok(ContentBlock::ResourceLink {
        name: name.to_owned(),
        uri: uri.into(),
        mime_type: media_type,
        size: i64::try_from(bytes.len()).ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::workspace::Workspace;
    use super::*;

    fn input() -> Input {
        let image = Media::from_bytes("a.png", "image/png", vec![1, 2]);
        let file = InputPiece::TextFile {
            filename: Some("a b.csv".to_owned()),
            media_type: Some("text/csv".to_owned()),
            text: "a,b".to_owned(),
        };
        Input { pieces: vec![InputPiece::Text("look".to_owned()), InputPiece::Media(image), file] }
    }

    fn session(folder: &tempfile::TempDir) -> Arc<Session> {
        Arc::new(Session::new("s".into(), Arc::new(Workspace::open(folder.path(), 1000).unwrap())))
    }

    #[tokio::test]
    async fn files_go_directly_to_an_agent_that_accepts_them() {
        let folder = tempfile::tempdir().unwrap();
        let accepted = PromptCapabilities { image: true, audio: true, embedded_context: true };
        let blocks = blocks(&input(), &session(&folder), accepted).await.unwrap();
        assert_eq!(blocks[0], ContentBlock::Text { text: "look".into() });
        assert!(matches!(&blocks[1], ContentBlock::Text { text } if text.contains("- byteSize=2")));
        assert_eq!(blocks[2], ContentBlock::Image { data: "AQI=".into(), mime_type: "image/png".into() });
        let ContentBlock::Resource { resource } = &blocks[3] else { panic!("{blocks:?}") };
        assert_eq!(
            (resource.uri.as_str(), resource.text.as_deref()),
            ("attachment:///a%20b.csv", Some("a,b"))
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn files_are_written_to_the_workspace_for_other_agents() {
        let folder = tempfile::tempdir().unwrap();
        let session = session(&folder);
        let blocks = blocks(&input(), &session, PromptCapabilities::default()).await.unwrap();
        for (number, content) in [(2, &[1, 2][..]), (3, b"a,b")] {
            let ContentBlock::ResourceLink { uri, .. } = &blocks[number] else { panic!("{blocks:?}") };
            let path = Url::parse(uri).unwrap().to_file_path().unwrap();
            assert!(path.starts_with(session.workspace.root()));
            assert_eq!(std::fs::read(path).unwrap(), content);
        }
    }
}
