//! The rules of conversations, as an operator or the author of an agent sets them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Workspaces;
use super::fetch::Fetch;

/// The rules for an agent that holds conversations. The defaults suit most agents.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Conversation {
    /// Which contexts live, and how turns follow each other.
    pub contexts: ContextRules,
    /// Which directories contexts work in.
    pub workspaces: Workspaces,
    /// What a message may contain.
    pub input: InputRules,
}

impl Conversation {
    /// Changes the rules.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// Which contexts live, and how the turns of a context follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextRules {
    /// What happens to a message for a context whose turn runs. It waits unless set.
    pub busy: Busy,
    /// How many messages may wait for one context. 16 unless set.
    pub queue_limit: usize,
    /// How long a context may be idle before it is put away. 30 minutes unless set.
    pub idle: Duration,
    /// How many contexts live at once. 1,024 unless set. For one more, the context that is idle for longest is put away. If all are in use,
    /// the message is refused.
    pub max: usize,
    /// The state of a task after a turn that was successful. Completed unless set.
    pub end_state: EndState,
}

impl Default for ContextRules {
    fn default() -> Self {
        Self {
            busy: Busy::Queue,
            queue_limit: 16,
            idle: Duration::from_secs(30 * 60),
            max: 1024,
            end_state: EndState::Completed,
        }
    }
}

/// What happens to a message for a context whose turn runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Busy {
    /// It waits for its turn.
    #[default]
    Queue,
    /// It is refused. The turn that runs is not affected.
    Reject,
}

/// The state of a task after a turn that was successful.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EndState {
    /// The task is completed. A follow-up is a new task of the same context.
    #[default]
    Completed,
    /// The task waits for a follow-up.
    InputRequired,
}

/// How the server behaves where peers differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PeerRules {
    /// As the specification says, with errors in this server's own words.
    #[default]
    Standard,
    /// Like the A2A server of iac-code: its limits on ids, its failed tasks, and its refusals for tasks that do not run.
    IacCode,
}

/// What a message may contain, and how large it may be.
#[derive(Clone)]
#[non_exhaustive]
pub struct InputRules {
    /// The media types of text, such as `text/*`.
    pub text_types: Vec<String>,
    /// The media types of other content, such as `image/png` or `*/*`.
    pub media_types: Vec<String>,
    /// The largest text of a part, inline or in a file, in bytes. 1 MiB unless set.
    pub max_text: usize,
    /// The largest data of a part, as compact JSON, in bytes. 1 MiB unless set.
    pub max_data: usize,
    /// The largest inline media of a part, in bytes. 5 MiB unless set.
    pub max_media: usize,
    /// The largest file of a workspace that is no text, in bytes. 25 MiB unless set.
    pub max_file: usize,
    /// The largest content of a message in all, in bytes. 64 MiB unless set.
    pub max_total: usize,
    /// Reads remote URLs. They are refused unless set.
    pub fetch: Option<Arc<dyn Fetch>>,
}

/// Types that are text although their name does not begin with `text/`.
pub(crate) const TEXT_TYPES: [&str; 6] = [
    "text/*",
    "application/json",
    "application/yaml",
    "application/x-yaml",
    "application/xml",
    "application/toml",
];

impl Default for InputRules {
    fn default() -> Self {
        Self {
            text_types: TEXT_TYPES.map(str::to_owned).into(),
            media_types: vec!["*/*".to_owned()],
            max_text: 1024 * 1024,
            max_data: 1024 * 1024,
            max_media: 5 * 1024 * 1024,
            max_file: 25 * 1024 * 1024,
            max_total: 64 * 1024 * 1024,
            fetch: None,
        }
    }
}

impl InputRules {
    /// The media types for the card: all that are accepted.
    pub fn modes(&self) -> Vec<String> {
        let mut modes = vec!["text/plain".to_owned()];
        if self.media_types.iter().any(|mode| mode == "*/*") {
            modes.push("*/*".to_owned());
            return modes;
        }
        for mode in self.text_types.iter().chain(&self.media_types) {
            if !modes.contains(mode) {
                modes.push(mode.clone());
            }
        }
        modes
    }

    pub(crate) fn is_text(&self, media_type: &str) -> bool {
        matches(&self.text_types, media_type)
    }

    pub(crate) fn is_media(&self, media_type: &str) -> bool {
        matches(&self.media_types, media_type)
    }
}

/// The media type without parameters, in lower case.
pub(crate) fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn matches(patterns: &[String], media_type: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix("/*") {
        Some("*") => true,
        Some(kind) => media_type.split('/').next().is_some_and(|given| given.eq_ignore_ascii_case(kind)),
        None => pattern.eq_ignore_ascii_case(media_type),
    })
}

impl fmt::Debug for InputRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputRules")
            .field("text_types", &self.text_types)
            .field("media_types", &self.media_types)
            .field("fetch", &self.fetch.is_some())
            .finish_non_exhaustive()
    }
}
