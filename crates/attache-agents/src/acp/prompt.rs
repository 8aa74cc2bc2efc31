//! The message of a turn as the content of a prompt.

use std::sync::Arc;

use attache_core::AgentError;
use attache_protocol::{Content, Message, Part};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use url::Url;

use super::session::Session;
use super::wire::{ContentBlock, PromptCapabilities, Resource};

/// The content of a message. Files that the agent does not take directly are written into the workspace.
pub(super) async fn blocks(
    message: &Message,
    session: &Arc<Session>,
    accepted: PromptCapabilities,
) -> Result<Vec<ContentBlock>, AgentError> {
    let mut blocks = Vec::with_capacity(message.parts.len());
    for part in &message.parts {
        blocks.push(match &part.content {
            Content::Text(text) => ContentBlock::Text { text: text.clone() },
            Content::Data(data) => ContentBlock::Text { text: data.as_str().to_owned() },
            Content::Url(url) => ContentBlock::ResourceLink {
                name: part.filename.clone().unwrap_or_else(|| url.clone()),
                uri: url.clone(),
                mime_type: part.media_type.clone(),
                size: None,
            },
            Content::Raw(bytes) => match direct(part, bytes, accepted) {
                Some(block) => block,
                None => link(part, bytes, session).await?,
            },
        });
    }
    Ok(blocks)
}

/// The file as a block that the agent accepts.
fn direct(part: &Part, bytes: &[u8], accepted: PromptCapabilities) -> Option<ContentBlock> {
    let media_type = part.media_type.clone();
    let is = |kind: &str| media_type.as_deref().is_some_and(|media_type| media_type.starts_with(kind));
    let data = || STANDARD.encode(bytes);
    if accepted.image && is("image/") {
        return Some(ContentBlock::Image { data: data(), mime_type: media_type? });
    }
    if accepted.audio && is("audio/") {
        return Some(ContentBlock::Audio { data: data(), mime_type: media_type? });
    }
    if !accepted.embedded_context {
        return None;
    }
    let name = part.filename.as_deref().unwrap_or("file");
    let mut uri = Url::parse("attachment:///").ok()?;
    uri.set_path(name);
    let (text, blob) = match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(data())),
    };
    let resource = Resource { uri: uri.into(), mime_type: media_type, text, blob };
    Some(ContentBlock::Resource { resource })
}

/// Writes the file into the workspace.
async fn link(part: &Part, bytes: &[u8], session: &Arc<Session>) -> Result<ContentBlock, AgentError> {
    let name = part.filename.clone().unwrap_or_else(|| "file".to_owned());
    let (owned, shared, given) = (bytes.to_vec(), session.clone(), name.clone());
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
        name,
        uri: uri.into(),
        mime_type: part.media_type.clone(),
        size: i64::try_from(bytes.len()).ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::workspace::Workspace;
    use super::*;

    fn message() -> Message {
        Message::user("m", "look")
            .part(Part::data(&serde_json::json!({"a": 1})).unwrap())
            .part(Part::raw([1, 2]).media_type("image/png"))
            .part(Part::raw("a,b").filename("a b.csv").media_type("text/csv"))
            .part(Part::url("https://example.org/x").media_type("text/html"))
    }

    fn session(folder: &tempfile::TempDir) -> Arc<Session> {
        Arc::new(Session::new("s".into(), Arc::new(Workspace::open(folder.path(), 1000).unwrap())))
    }

    #[tokio::test]
    async fn files_go_directly_to_an_agent_that_accepts_them() {
        let folder = tempfile::tempdir().unwrap();
        let accepted = PromptCapabilities { image: true, audio: true, embedded_context: true };
        let blocks = blocks(&message(), &session(&folder), accepted).await.unwrap();
        assert_eq!(blocks[0], ContentBlock::Text { text: "look".into() });
        assert_eq!(blocks[1], ContentBlock::Text { text: r#"{"a":1}"#.into() });
        assert_eq!(blocks[2], ContentBlock::Image { data: "AQI=".into(), mime_type: "image/png".into() });
        let ContentBlock::Resource { resource } = &blocks[3] else { panic!("{blocks:?}") };
        assert_eq!(
            (resource.uri.as_str(), resource.text.as_deref()),
            ("attachment:///a%20b.csv", Some("a,b"))
        );
        assert!(
            matches!(&blocks[4], ContentBlock::ResourceLink { uri, .. } if uri == "https://example.org/x")
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn files_are_written_to_the_workspace_for_other_agents() {
        let folder = tempfile::tempdir().unwrap();
        let session = session(&folder);
        let blocks = blocks(&message(), &session, PromptCapabilities::default()).await.unwrap();
        for (number, content) in [(2, &[1, 2][..]), (3, b"a,b")] {
            let ContentBlock::ResourceLink { uri, .. } = &blocks[number] else { panic!("{blocks:?}") };
            let path = Url::parse(uri).unwrap().to_file_path().unwrap();
            assert!(path.starts_with(session.workspace.root()));
            assert_eq!(std::fs::read(path).unwrap(), content);
        }
    }
}
