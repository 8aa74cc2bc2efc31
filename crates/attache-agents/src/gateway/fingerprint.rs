//! Fingerprints, to compare parts and states of a task without keeping them.

use std::hash::{DefaultHasher, Hash, Hasher};

use attache_protocol::{Content, Part, Task, TaskStatus};

/// The fingerprint of a part.
pub(super) fn of_part(part: &Part) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_part(part, &mut hasher);
    hasher.finish()
}

/// The fingerprint of a status, without its time and the id of its message: ours differ from those of the remote agent.
pub(super) fn of_status(status: &TaskStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_status(status, &mut hasher);
    hasher.finish()
}

/// The fingerprint of everything in a task that is repeated.
pub(super) fn of_task(task: &Task) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_status(&task.status, &mut hasher);
    for artifact in &task.artifacts {
        artifact.artifact_id.hash(&mut hasher);
        artifact.parts.len().hash(&mut hasher);
        artifact.parts.iter().for_each(|part| hash_part(part, &mut hasher));
    }
    hasher.finish()
}

fn hash_status(status: &TaskStatus, hasher: &mut DefaultHasher) {
    status.state.hash(hasher);
    if let Some(message) = &status.message {
        message.parts.iter().for_each(|part| hash_part(part, hasher));
    }
}

fn hash_part(part: &Part, hasher: &mut DefaultHasher) {
    match &part.content {
        Content::Text(text) => (0, text).hash(hasher),
        Content::Url(url) => (1, url).hash(hasher),
        Content::Raw(bytes) => (2, &bytes[..]).hash(hasher),
        Content::Data(data) => (3, data.as_str()).hash(hasher),
    }
    (&part.filename, &part.media_type).hash(hasher);
}
