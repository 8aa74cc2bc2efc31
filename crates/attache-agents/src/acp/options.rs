//! The options of a coding agent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use attache_core::Conversation;

/// Who decides when the coding agent asks for permission.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Permissions {
    /// Every request is allowed.
    Allow,
    /// Every request is denied.
    Deny,
    /// The caller is asked: the task is `input-required` until it answers.
    #[default]
    Ask,
}

/// Which coding agent runs, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AcpOptions {
    /// The program that speaks ACP on its standard input and output, and its arguments.
    pub command: Vec<String>,
    /// The name in the card, and of the records in the store. Agents that share a store need different names. The name of the
    /// program unless set.
    pub name: Option<String>,
    /// The description in the card. What the agent says about itself unless set.
    pub description: Option<String>,
    /// Environment variables for the program.
    pub environment: BTreeMap<String, String>,
    /// Environment variables of the server that the program gets as well. It always gets `PATH`, `HOME`, `LANG`, `LC_ALL`, `TZ` and
    /// `TMPDIR`, and no others: the environment of a server often has secrets.
    pub pass_environment: Vec<String>,
    /// The method of authentication that the program is told to use when it starts, such as `gemini-api-key`. None unless set.
    pub auth_method: Option<String>,
    /// The directory that all conversations work in. Unless set, each conversation has a private one below `data_directory`.
    pub workspace: Option<PathBuf>,
    /// Where the private directories of conversations are. Unless set, they are temporary and removed with the agent.
    pub data_directory: Option<PathBuf>,
    /// Who decides when the program asks for permission. The caller unless set.
    pub permissions: Permissions,
    /// How long the caller has to answer a request for permission. Then it is denied. 10 minutes unless set.
    pub permission_timeout: Duration,
    /// Whether the program may run commands through the server, in terminals. No unless set.
    pub terminal: bool,
    /// Whether the caller sees the thoughts of the agent, as status updates. No unless set.
    pub show_thoughts: bool,
    /// How long an unused session is kept. 30 minutes unless set. The program ends with its last session.
    pub idle: Duration,
    /// How many sessions there are at once. 64 unless set. A new one replaces the unused one that was used least recently. If all are
    /// in use, the message is refused.
    pub max_sessions: usize,
    /// How long the program may take to start, and to create or load a session. 2 minutes unless set, because a package manager may
    /// have to download it.
    pub start_timeout: Duration,
    /// How long a turn may take. 1 hour unless set.
    pub timeout: Duration,
    /// How long the program has to end a canceled prompt, and to end after SIGTERM. 2 seconds unless set.
    pub grace: Duration,
    /// How many bytes the program may write for a session in a turn. 16 MiB unless set.
    pub max_output: usize,
    /// The longest line that the program may write, in bytes. 16 MiB unless set.
    pub max_line: usize,
    /// The largest text file that the program may read or write through the server, in bytes. 1 MiB unless set.
    pub max_file: usize,
    /// How many bytes of the earlier conversation a new session of an old conversation gets. 256 KiB unless set.
    pub max_context: usize,
    /// The rules for conversations. `idle`, `max_sessions`, `workspace` and `data_directory` are set in them.
    pub conversation: Conversation,
}

impl AcpOptions {
    /// Runs this program with its arguments.
    pub fn new<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            name: None,
            description: None,
            environment: BTreeMap::new(),
            pass_environment: Vec::new(),
            auth_method: None,
            workspace: None,
            data_directory: None,
            permissions: Permissions::Ask,
            permission_timeout: Duration::from_secs(600),
            terminal: false,
            show_thoughts: false,
            idle: Duration::from_secs(1800),
            max_sessions: 64,
            start_timeout: Duration::from_secs(120),
            timeout: Duration::from_secs(3600),
            grace: Duration::from_secs(2),
            max_output: 16 * 1024 * 1024,
            max_line: 16 * 1024 * 1024,
            max_file: 1024 * 1024,
            max_context: 256 * 1024,
            conversation: Conversation::default(),
        }
    }

    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The name of the agent, as far as it is known before the program runs.
    pub(super) fn name(&self) -> String {
        let program = self.command.first().map(PathBuf::from);
        let own = || program?.file_stem().map(|name| name.to_string_lossy().into_owned());
        self.name.clone().or_else(own).unwrap_or_else(|| "agent".to_owned())
    }
}
