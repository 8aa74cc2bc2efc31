//! A session of the program, and what arrives for it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use attache_core::WorkspaceFolder;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::permission::OpenRequest;
use super::terminals::Terminals;
use super::wire::SessionUpdate;
use super::workspace::Workspace;
use crate::child;

/// How many bytes of files of messages a session keeps.
const MAX_FILES: usize = 256 * 1024 * 1024;

/// A session of the program.
pub(super) struct Session {
    pub(super) id: String,
    pub(super) workspace: Arc<Workspace>,
    pub(super) terminals: Terminals,
    prompt: Mutex<Option<RunningPrompt>>,
    files: Mutex<Files>,
}

/// What the agent does during a prompt.
pub(super) enum Event {
    Update(Box<SessionUpdate>),
    Permission(Box<OpenRequest>),
    /// The agent has written too much. Later events are dropped.
    Flood,
}

struct RunningPrompt {
    events: mpsc::UnboundedSender<Event>,
    /// How many bytes the agent may still write in this turn. This also bounds the events that wait in the channel.
    left: usize,
    flooded: bool,
}

/// The files of messages.
#[derive(Default)]
struct Files {
    folder: Option<WorkspaceFolder>,
    count: usize,
    size: usize,
}

impl Session {
    pub(super) fn new(id: String, workspace: Arc<Workspace>) -> Self {
        Self {
            id,
            workspace,
            terminals: Terminals::default(),
            prompt: Mutex::default(),
            files: Mutex::default(),
        }
    }

    /// Begins a prompt. Events arrive until it [ends](Self::end).
    pub(super) fn begin(&self, budget: usize) -> mpsc::UnboundedReceiver<Event> {
        let (events, receiver) = mpsc::unbounded_channel();
        *self.prompt.lock() = Some(RunningPrompt { events, left: budget, flooded: false });
        receiver
    }

    /// Lets the agent write this many bytes more, for the next turn of a prompt.
    pub(super) fn refill(&self, budget: usize) {
        if let Some(prompt) = &mut *self.prompt.lock() {
            prompt.left = budget;
        }
    }

    /// Ends the prompt. What arrives later is dropped.
    pub(super) fn end(&self) {
        *self.prompt.lock() = None;
        self.terminals.clear();
    }

    /// Counts bytes that the agent wrote. Returns false if there is no prompt, or if it was too much.
    pub(super) fn spend(&self, size: usize) -> bool {
        let mut prompt = self.prompt.lock();
        let Some(prompt) = &mut *prompt else { return false };
        match prompt.left.checked_sub(size) {
            Some(left) if !prompt.flooded => {
                prompt.left = left;
                true
            }
            Some(_) | None => {
                if !std::mem::replace(&mut prompt.flooded, true) {
                    // The receiver lives as long as the prompt.
                    let _ = prompt.events.send(Event::Flood);
                }
                false
            }
        }
    }

    /// Passes an event to the turn that waits for it. Without one the event is dropped.
    pub(super) fn deliver(&self, size: usize, event: Event) {
        if self.spend(size)
            && let Some(prompt) = &*self.prompt.lock()
        {
            let _ = prompt.events.send(event);
        }
    }

    /// Writes a file of a message into a private folder of the workspace, which is removed with the session. Returns its path.
    pub(super) fn add_file(&self, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        let mut files = self.files.lock();
        let size = files.size + bytes.len();
        if size > MAX_FILES {
            let text = format!("the files of the conversation have more than {MAX_FILES} bytes");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        let number = files.count;
        let folder = match &mut files.folder {
            Some(folder) => folder,
            empty @ None => empty.insert(self.workspace.temporary_folder()?),
        };
        let name = child::file_name(name);
        let numbered = (number + 1..).map(|number| format!("{number}-{name}"));
        let mut added = std::iter::once(name.clone()).chain(numbered).map(|name| folder.add(&name, bytes));
        let is_free = |added: &io::Result<PathBuf>| {
            added.as_ref().err().is_none_or(|error| error.kind() != io::ErrorKind::AlreadyExists)
        };
        let taken = || Err(io::Error::from(io::ErrorKind::AlreadyExists));
        let path = added.find(is_free).unwrap_or_else(taken)?;
        (files.size, files.count) = (size, number + 1);
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn session(folder: &TempDir) -> Session {
        Session::new("s".into(), Arc::new(Workspace::open(folder.path(), 1000).unwrap()))
    }

    #[test]
    fn files_of_messages_stay_in_the_private_folder_and_are_removed_with_the_session() {
        let folder = tempfile::tempdir().unwrap();
        let session = session(&folder);
        let first = session.add_file("../../a.txt", b"one").unwrap();
        let second = session.add_file("a.txt", b"two").unwrap();
        assert_ne!(first, second);
        assert_eq!(first.parent(), second.parent());
        assert_eq!(first.parent().unwrap().parent().unwrap(), session.workspace.root());
        assert_eq!(std::fs::read(&second).unwrap(), b"two");
        drop(session);
        assert!(!first.exists() && folder.path().exists());
    }

    #[test]
    fn a_flood_is_reported_once_and_the_rest_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let session = session(&folder);
        session.deliver(1, Event::Update(Box::new(SessionUpdate::Other)));
        let mut events = session.begin(10);
        for _ in 0..5 {
            session.deliver(4, Event::Update(Box::new(SessionUpdate::Other)));
        }
        session.end();
        let mut received = Vec::new();
        while let Ok(event) = events.try_recv() {
            received.push(matches!(event, Event::Flood));
        }
        assert_eq!(received, [false, false, true]);
    }
}
