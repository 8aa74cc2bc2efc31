//! Files that the remote agent serves itself.
//!
//! The URL of such a file needs the credentials of the gateway, which its callers do not have. So the gateway downloads the file and stores
//! it, and its callers get it from the gateway. URLs of other origins are repeated as they are: the gateway fetches nothing on the word of
//! the remote agent alone.

use std::collections::HashMap;

use attache_client::{Client, ClientError};
use attache_core::{AgentError, Turn};
use attache_protocol::{Content, JsonObject, Part};
use serde_json::{Map, Value};

use super::fault::Fault;
use super::mirror::Mirror;

/// Whether parts have files that are downloaded: this server stores artifacts, and the remote agent serves the files.
pub(super) fn has_files(client: &Client, turn: &Turn, parts: &[Part]) -> bool {
    turn.stores_artifacts() && parts.iter().any(|part| url(client, part).is_some())
}

/// The URL of a file that the remote agent serves.
fn url<'a>(client: &Client, part: &'a Part) -> Option<&'a str> {
    match &part.content {
        Content::Url(url) if client.is_own_url(url) => Some(url),
        Content::Url(_) | Content::Text(_) | Content::Raw(_) | Content::Data(_) => None,
    }
}

/// The files of one turn. Each is downloaded once, although the remote agent repeats its artifacts.
#[derive(Default)]
pub(super) struct RemoteFiles {
    by_url: HashMap<String, Part>,
}

impl RemoteFiles {
    /// Downloads the files of parts. Their content counts as a part of the answer. A file that cannot be downloaded keeps its URL.
    pub(super) async fn fetch(
        &mut self,
        client: &Client,
        turn: &Turn,
        mirror: &mut Mirror<'_>,
        parts: &mut [Part],
    ) -> Result<(), Fault> {
        for part in parts {
            let Some(url) = url(client, part).map(str::to_owned) else { continue };
            if let Some(known) = self.by_url.get(&url) {
                *part = known.clone();
                continue;
            }
            match download(client, turn, mirror, &url, part).await {
                Ok((stored, size)) => {
                    // Content that is kept in the part is counted with the part.
                    if !matches!(stored.content, Content::Url(_)) {
                        mirror.uncount(size);
                    }
                    self.by_url.insert(url, stored.clone());
                    *part = stored;
                }
                Err(DownloadError::TooLarge(fault)) => return Err(fault),
                Err(DownloadError::Failed(error)) => {
                    tracing::warn!(task = %turn.task_id(), %error, "a file of the remote agent could not be downloaded");
                }
            }
        }
        Ok(())
    }
}

/// Why there is no copy of a file.
enum DownloadError {
    /// The answer of the remote agent is too large with it.
    TooLarge(Fault),
    Failed(AgentError),
}

impl From<AgentError> for DownloadError {
    fn from(error: AgentError) -> Self {
        Self::Failed(error)
    }
}

impl From<ClientError> for DownloadError {
    fn from(error: ClientError) -> Self {
        Self::Failed(error.into())
    }
}

/// Downloads a file. Returns the part with its copy, and its size in bytes.
async fn download(
    client: &Client,
    turn: &Turn,
    mirror: &mut Mirror<'_>,
    url: &str,
    part: &Part,
) -> Result<(Part, usize), DownloadError> {
    let mut download = client.download(url, None).await?;
    let media_type = part.media_type.clone().or_else(|| download.media_type().map(str::to_owned));
    let mut writer =
        turn.part_writer(part.filename.clone().unwrap_or_default(), media_type.unwrap_or_default());
    let mut size = 0;
    while let Some(chunk) = download.chunk().await? {
        size += chunk.len();
        mirror.count_bytes(chunk.len()).map_err(DownloadError::TooLarge)?;
        writer.write(chunk).await?;
    }
    if let Some(total) = download.total().filter(|total| usize::try_from(*total) != Ok(size)) {
        return Err(AgentError::from(format!("{size} of {total} bytes have arrived")).into());
    }
    let mut stored = writer.finish().await?;
    let metadata = merged(part.metadata.as_ref(), stored.metadata.as_ref());
    // The hash that the remote agent states is what its callers rely on.
    let stated = |metadata: Option<&JsonObject>| members(metadata).remove("sha256");
    if let (Some(theirs), Some(ours)) = (stated(part.metadata.as_ref()), stated(stored.metadata.as_ref()))
        && theirs != ours
    {
        let text = "its content has another hash than the remote agent says";
        return Err(AgentError::from(text.to_owned()).into());
    }
    stored.metadata = metadata;
    Ok((stored, size))
}

fn members(metadata: Option<&JsonObject>) -> Map<String, Value> {
    metadata.and_then(|metadata| metadata.read().ok()).unwrap_or_default()
}

/// The metadata of the remote part, with what we know about the file.
fn merged(theirs: Option<&JsonObject>, ours: Option<&JsonObject>) -> Option<JsonObject> {
    let mut all = members(theirs);
    all.extend(members(ours));
    if all.is_empty() { None } else { JsonObject::new(&all).ok() }
}
