//! Task ids that clients choose.
//!
//! In the dialects before 1.0 a client may choose the id of the task that its message creates. The id belongs to its owner: two
//! callers who choose the same id have different tasks, and neither learns about the other's task. So the task is stored under an
//! id with a suffix that identifies the owner, `report~0f3a…`. These dialects write the id without the suffix.

use std::borrow::Cow;

use crate::{Message, StreamResponse, Task, TaskId, TaskPushNotificationConfig};

/// Separates the chosen id from its scope.
const SEPARATOR: char = '~';

/// The number of hexadecimal digits of a scope.
const DIGITS: usize = 32;

impl TaskId {
    /// The id under which a task is stored if its owner chose this id. `scope` identifies the owner.
    pub fn scoped(&self, scope: [u8; DIGITS / 2]) -> Self {
        Self::from(format!("{self}{SEPARATOR}{:032x}", u128::from_be_bytes(scope)))
    }

    /// Whether this id has a [scope](Self::scoped).
    pub fn is_scoped(&self) -> bool {
        self.chosen().len() < self.as_str().len()
    }

    /// The id that the owner chose. An id without a scope is returned unchanged.
    pub fn chosen(&self) -> &str {
        match self.as_str().rsplit_once(SEPARATOR) {
            Some((chosen, scope))
                if scope.len() == DIGITS
                    && scope.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) =>
            {
                chosen
            }
            Some(_) | None => self.as_str(),
        }
    }

    fn remove_scope(&mut self) {
        if self.is_scoped() {
            *self = Self::from(self.chosen());
        }
    }
}

impl Task {
    /// The task with the id that its owner chose.
    pub fn with_chosen_id(&self) -> Cow<'_, Self> {
        if !self.id.is_scoped() {
            return Cow::Borrowed(self);
        }
        let mut task = self.clone();
        task.id.remove_scope();
        let current = task.status.message.as_deref_mut().into_iter();
        task.history.iter_mut().chain(current).for_each(remove_scopes);
        Cow::Owned(task)
    }
}

fn remove_scopes(message: &mut Message) {
    message.task_id.iter_mut().chain(&mut message.reference_task_ids).for_each(TaskId::remove_scope);
}

/// The message with the task id that the owner chose.
pub(crate) fn message(message: &Message) -> Cow<'_, Message> {
    if !message.task_id.as_ref().is_some_and(TaskId::is_scoped) {
        return Cow::Borrowed(message);
    }
    let mut message = message.clone();
    remove_scopes(&mut message);
    Cow::Owned(message)
}

/// The webhook with the task id that the owner chose.
pub(crate) fn webhook(config: &TaskPushNotificationConfig) -> Cow<'_, TaskPushNotificationConfig> {
    let Some(task) = config.task_id.as_ref().filter(|task| task.is_scoped()) else {
        return Cow::Borrowed(config);
    };
    let mut config = config.clone();
    // A webhook that was created without an id has the id of its task.
    if config.id.as_deref() == Some(task.as_str()) {
        config.id = Some(task.chosen().to_owned());
    }
    config.task_id = Some(TaskId::from(task.chosen()));
    Cow::Owned(config)
}

/// The event with the task id that the owner chose.
pub(crate) fn event(event: &StreamResponse) -> Cow<'_, StreamResponse> {
    let unscoped = match event {
        StreamResponse::Task(task) => match task.with_chosen_id() {
            Cow::Borrowed(_) => return Cow::Borrowed(event),
            Cow::Owned(task) => StreamResponse::Task(task),
        },
        StreamResponse::Message(it) => match message(it) {
            Cow::Borrowed(_) => return Cow::Borrowed(event),
            Cow::Owned(message) => StreamResponse::Message(message),
        },
        StreamResponse::StatusUpdate(update) if update.task_id.is_scoped() => {
            let mut update = update.clone();
            update.task_id.remove_scope();
            update.status.message.as_deref_mut().into_iter().for_each(remove_scopes);
            StreamResponse::StatusUpdate(update)
        }
        StreamResponse::ArtifactUpdate(update) if update.task_id.is_scoped() => {
            let mut update = update.clone();
            update.task_id.remove_scope();
            StreamResponse::ArtifactUpdate(update)
        }
        StreamResponse::StatusUpdate(_) | StreamResponse::ArtifactUpdate(_) => return Cow::Borrowed(event),
    };
    Cow::Owned(unscoped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_id_is_restored_from_its_scoped_id() {
        for id in ["report", "", "a~b", "x~00000000000000000000000000000000", "täsk~"] {
            let id = TaskId::from(id);
            let scoped = id.scoped([0xAB; 16]);
            assert!(scoped.is_scoped());
            assert_eq!(scoped.chosen(), id.as_str());
            assert_ne!(scoped, id.scoped([0xAC; 16]));
        }
        for id in
            ["report", "0198c5a1-2b3c-7d4e-8f50-123456789abc", "a~0", "x~0000000000000000000000000000000G"]
        {
            assert!(!TaskId::from(id).is_scoped(), "{id}");
        }
    }
}
