//! Task ids that clients choose.
//!
//! In the older dialects a client names the task that its message creates. Such an id is its owner's: callers who choose the same id
//! have different tasks, and cannot find out about each other. The task is stored under an id with a suffix that stands for the
//! owner, `report~0f3a…`. The dialects in which ids can be chosen show it without.

use std::borrow::Cow;

use crate::{Message, StreamResponse, Task, TaskId, TaskPushNotificationConfig};

/// What separates the chosen id from its scope.
const SEPARATOR: char = '~';

/// How many hexadecimal digits a scope has.
const DIGITS: usize = 32;

impl TaskId {
    /// The id under which a task is stored whose owner chose this one. `scope` stands for the owner.
    pub fn scoped(&self, scope: [u8; DIGITS / 2]) -> Self {
        Self::from(format!("{self}{SEPARATOR}{:032x}", u128::from_be_bytes(scope)))
    }

    /// Whether this looks like an id that was [scoped](Self::scoped).
    pub fn is_scoped(&self) -> bool {
        self.chosen().len() < self.as_str().len()
    }

    /// The id as its owner chose it. For an id that was not chosen it is the id itself.
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

    fn show(&mut self) {
        if self.is_scoped() {
            *self = Self::from(self.chosen());
        }
    }
}

impl Task {
    /// The task with the id that its owner chose, if it did.
    pub fn with_chosen_id(&self) -> Cow<'_, Self> {
        if !self.id.is_scoped() {
            return Cow::Borrowed(self);
        }
        let mut task = self.clone();
        task.id.show();
        let asked = task.status.message.as_deref_mut().into_iter();
        task.history.iter_mut().chain(asked).for_each(show_in_message);
        Cow::Owned(task)
    }
}

fn show_in_message(message: &mut Message) {
    message.task_id.iter_mut().chain(&mut message.reference_task_ids).for_each(TaskId::show);
}

/// A message with the id that the owner of its task chose, if it did.
pub(crate) fn message(message: &Message) -> Cow<'_, Message> {
    if !message.task_id.as_ref().is_some_and(TaskId::is_scoped) {
        return Cow::Borrowed(message);
    }
    let mut message = message.clone();
    show_in_message(&mut message);
    Cow::Owned(message)
}

/// A webhook with the id that the owner of its task chose, if it did.
pub(crate) fn webhook(config: &TaskPushNotificationConfig) -> Cow<'_, TaskPushNotificationConfig> {
    let Some(task) = config.task_id.as_ref().filter(|task| task.is_scoped()) else {
        return Cow::Borrowed(config);
    };
    let mut shown = config.clone();
    // A webhook without a name bears the id of its task.
    if config.id.as_deref() == Some(task.as_str()) {
        shown.id = Some(task.chosen().to_owned());
    }
    shown.task_id = Some(TaskId::from(task.chosen()));
    Cow::Owned(shown)
}

/// An event with the id that the owner of its task chose, if it did.
pub(crate) fn event(event: &StreamResponse) -> Cow<'_, StreamResponse> {
    let shown = match event {
        StreamResponse::Task(task) => match task.with_chosen_id() {
            Cow::Borrowed(_) => return Cow::Borrowed(event),
            Cow::Owned(task) => StreamResponse::Task(task),
        },
        StreamResponse::Message(said) => match message(said) {
            Cow::Borrowed(_) => return Cow::Borrowed(event),
            Cow::Owned(message) => StreamResponse::Message(message),
        },
        StreamResponse::StatusUpdate(update) if update.task_id.is_scoped() => {
            let mut update = update.clone();
            update.task_id.show();
            update.status.message.as_deref_mut().into_iter().for_each(show_in_message);
            StreamResponse::StatusUpdate(update)
        }
        StreamResponse::ArtifactUpdate(update) if update.task_id.is_scoped() => {
            let mut update = update.clone();
            update.task_id.show();
            StreamResponse::ArtifactUpdate(update)
        }
        StreamResponse::StatusUpdate(_) | StreamResponse::ArtifactUpdate(_) => return Cow::Borrowed(event),
    };
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_id_comes_back_from_its_scope() {
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
