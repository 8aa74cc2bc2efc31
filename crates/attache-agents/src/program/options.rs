//! The options of a program.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use attache_core::Conversation;

/// How a program and the server talk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Text in, text out.
    #[default]
    Text,
    /// One JSON object per line, in both directions.
    Json,
}

/// Which program runs, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProgramOptions {
    /// The program and its arguments. Relative paths of files are below the server's directory; below `directory`, if that is set.
    pub command: Vec<String>,
    /// How the program and the server talk.
    pub protocol: Protocol,
    /// The working directory. The server's own, if there is none.
    pub directory: Option<PathBuf>,
    /// Environment variables for the program.
    pub environment: BTreeMap<String, String>,
    /// Environment variables of the server that the program gets as well. It always gets `PATH`, `HOME`, `LANG`, `LC_ALL`, `TZ` and
    /// `TMPDIR`, and no others: the environment of a server often has secrets.
    pub pass_environment: Vec<String>,
    /// How long the program may take for a message. 10 minutes unless set. A turn may wait as long for its program to start.
    pub timeout: Duration,
    /// How long the program has after SIGTERM, before it is killed. 2 seconds unless set.
    pub grace: Duration,
    /// How long a process that asked a question waits for the answer. 30 minutes unless set. After that the answer starts a new
    /// process.
    pub idle: Duration,
    /// How long a request for permission waits for the caller, unless the operator has set it for all agents. Then it is denied. 10
    /// minutes unless set.
    pub permission_timeout: Duration,
    /// How many bytes the program may write in a turn. 16 MiB unless set.
    pub max_output: usize,
    /// How many processes run at once. 16 unless set. More turns wait. A process that waits for an answer is stopped if another one
    /// needs its place: the oldest one of the caller with the most. The answer then starts a new process.
    pub max_processes: usize,
    /// Whether the caller sees the last lines of standard error if the program fails. They can contain secrets and paths, so they
    /// only go to the log unless set.
    pub show_errors: bool,
    /// The rules for conversations of a program that talks in JSON. One that talks in text holds no conversations.
    pub conversation: Conversation,
}

impl ProgramOptions {
    /// Runs this program with its arguments.
    pub fn new<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            protocol: Protocol::Text,
            directory: None,
            environment: BTreeMap::new(),
            pass_environment: Vec::new(),
            timeout: Duration::from_secs(600),
            grace: Duration::from_secs(2),
            idle: Duration::from_secs(1800),
            permission_timeout: Duration::from_secs(600),
            max_output: 16 * 1024 * 1024,
            max_processes: 16,
            show_errors: false,
            conversation: Conversation::default(),
        }
    }

    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}
