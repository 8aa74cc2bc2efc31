//! What an agent repeats from another system: a status or an artifact as a whole.
//!
//! Most agents use the other methods of [`Turn`]. These are for agents whose task is the task of someone else, such as a gateway.

use std::sync::Arc;

use attache_protocol::{Artifact, JsonObject, Message, Role, TaskState, TaskStatus, TaskStatusUpdateEvent};

use crate::{AgentError, AgentResult, ArtifactBuilder, TaskEvent, Turn, new_id};

impl Turn {
    /// Sets a state, with a whole status message and metadata. Readers of streams receive the metadata.
    ///
    /// The message gets a new id, the ids of this task and the role of the agent. Its references to tasks are left out, because they
    /// are those of the other system. [`TaskState::Canceled`] ends the task as a cancel of the client does. Fails for
    /// [`TaskState::Unspecified`], which is not a state of a task.
    pub async fn repeat_status(
        &self,
        state: TaskState,
        message: Option<Message>,
        metadata: Option<JsonObject>,
    ) -> AgentResult {
        if state == TaskState::Unspecified {
            return Err(AgentError::from("a task cannot be in an unspecified state".to_owned()));
        }
        let message = message.map(|message| {
            Box::new(Message {
                message_id: new_id(),
                context_id: Some(self.context_id().clone()),
                task_id: Some(self.task_id().clone()),
                role: Role::Agent,
                reference_task_ids: Vec::new(),
                ..message
            })
        });
        let update = TaskStatusUpdateEvent {
            task_id: self.task_id().clone(),
            context_id: self.context_id().clone(),
            status: TaskStatus { state, message, timestamp: None },
            metadata,
            ..TaskStatusUpdateEvent::default()
        };
        self.emit(TaskEvent::Status(Arc::new(update))).await
    }

    /// Builds an artifact from another one, with its id, name, description, parts, metadata and extensions. It replaces an earlier
    /// artifact of the same id.
    pub fn repeat_artifact(&self, artifact: Artifact) -> ArtifactBuilder<'_> {
        ArtifactBuilder::from_whole(self, artifact)
    }
}
