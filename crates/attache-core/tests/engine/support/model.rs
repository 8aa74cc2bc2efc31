//! A simple model of the fold. Tests compare the fold and the streams with it.

use attache_protocol::{Artifact, Message, Part, Role, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent};

pub(crate) fn status(task: &mut Task, update: &TaskStatusUpdateEvent) {
    if let Some(said) = task.status.message.take() {
        let same = |last: &&mut Message| {
            last.role == Role::Agent && !said.message_id.is_empty() && last.message_id == said.message_id
        };
        match task.history.last_mut().filter(same) {
            // The pieces of a message are one message.
            Some(last) => last.parts = vec![Part::text(last.text() + &said.text())],
            None => task.history.push(*said),
        }
    }
    task.status = update.status.clone();
}

pub(crate) fn artifact(task: &mut Task, update: &TaskArtifactUpdateEvent) {
    let new = update.artifact.clone();
    let Some(at) = task.artifacts.iter().position(|known| known.artifact_id == new.artifact_id) else {
        return task.artifacts.push(new);
    };
    if !update.append {
        task.artifacts[at] = new;
        return;
    }
    let known = task.artifacts[at].clone();
    let mut extensions = known.extensions;
    for uri in new.extensions {
        if !extensions.contains(&uri) {
            extensions.push(uri);
        }
    }
    task.artifacts[at] = Artifact {
        artifact_id: known.artifact_id,
        name: new.name.or(known.name),
        description: new.description.or(known.description),
        parts: [known.parts, new.parts].concat(),
        metadata: new.metadata.or(known.metadata),
        extensions,
    };
}
