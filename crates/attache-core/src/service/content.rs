//! Stored content of a task: who may read it, and under which URL.

use std::sync::Arc;

use attache_protocol::{Error, TaskId};

use super::{Service, internal};
use crate::{
    ArtifactError, ArtifactLinks, ArtifactUrls, ContentId, OpenedContent, Owner, Principal, Swept,
    agent_parts, referenced_content,
};

/// Stored content that a caller may read.
pub struct FoundContent {
    /// The content itself.
    pub content: OpenedContent,
    /// Its id.
    pub id: ContentId,
    /// The name of the file, as the agent has given it.
    pub filename: Option<String>,
    /// The media type, as the agent has given it.
    pub media_type: Option<String>,
}

impl Service {
    /// Whether large content of artifacts is stored.
    pub fn stores_artifacts(&self) -> bool {
        self.0.options.artifacts.is_some()
    }

    /// The URLs of stored content for clients that know the agent under this base URL. `None` if the service stores none.
    pub fn links(&self, base_url: &Arc<str>, tenant: Option<&str>) -> Option<ArtifactLinks> {
        let artifacts = self.0.options.artifacts.as_ref()?;
        let files = match artifacts.urls {
            ArtifactUrls::Http => None,
            ArtifactUrls::File => Some(artifacts.store.clone()),
        };
        Some(ArtifactLinks::new(base_url.clone(), tenant.map(Arc::from), files))
    }

    /// Opens stored content of a task. The content must be in the task, and the task must belong to the caller: otherwise the error is
    /// that of a task that does not exist.
    pub async fn content(
        &self,
        principal: &Principal,
        tenant: Option<&str>,
        task: &TaskId,
        id: &str,
    ) -> Result<FoundContent, Error> {
        let not_found = || Error::task_not_found(task);
        let artifacts = self.0.options.artifacts.as_ref().ok_or_else(not_found)?;
        let owner = Owner {
            agent: self.0.options.agent_name.clone(),
            tenant: tenant.map(Arc::from),
            principal: principal.clone(),
        };
        let found = self.0.store.load(&owner, task).await.map_err(|error| internal(&error))?;
        let snapshot = found.ok_or_else(not_found)?;
        let id = ContentId::parse(id).ok_or_else(not_found)?;
        let (filename, media_type) = {
            let shown = snapshot.task();
            let mut parts = agent_parts(&shown);
            match parts.find(|part| referenced_content(part).as_ref() == Some(&id)) {
                Some(part) => (part.filename.clone(), part.media_type.clone()),
                None => return Err(not_found()),
            }
        };
        let opened = artifacts.store.open(task, &id, filename.as_deref()).await;
        let content = opened.map_err(|error| internal(&error))?;
        if matches!(content, OpenedContent::Missing) {
            tracing::error!(%task, content = %id, "the content of an artifact is missing from its store");
        }
        Ok(FoundContent { content, id, filename, media_type })
    }

    /// Removes stored content that no task refers to any more, and content that is too old. [Maintenance](Self::run_maintenance) calls
    /// it from time to time.
    pub async fn sweep_artifacts(&self) -> Result<Swept, ArtifactError> {
        match &self.0.options.artifacts {
            Some(artifacts) => artifacts.store.sweep(&*self.0.store).await,
            None => Ok(Swept::default()),
        }
    }
}
