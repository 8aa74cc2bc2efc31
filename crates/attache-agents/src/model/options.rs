//! The options of a model.

use std::fmt;
use std::time::Duration;

use attache_client::Secret;
use attache_core::Conversation;
use serde_json::{Map, Value};

/// Which model replies, and how.
#[derive(Clone)]
#[non_exhaustive]
pub struct ModelOptions {
    /// The URL of the API, such as `https://api.openai.com/v1`.
    pub url: String,
    /// The name of the model.
    pub model: String,
    /// The key of the API.
    pub key: Option<Secret>,
    /// The system prompt, at the beginning of every conversation.
    pub system: Option<String>,
    /// Further members of the request, such as `temperature`.
    pub parameters: Map<String, Value>,
    /// How many bytes of conversation the model gets. If it would be more, the oldest images and files are left out, then the oldest
    /// turns, then the oldest results of tools. A message that is larger by itself is rejected. 256 KiB unless set.
    pub max_context: usize,
    /// The media types of files that the model gets as they are, such as `application/pdf` and `audio/*`. None unless set. Images are
    /// always passed.
    pub files: Vec<String>,
    /// How many earlier tasks of the conversation the model gets. 100 unless set.
    pub max_tasks: usize,
    /// How often a request is repeated if the endpoint is overloaded or does not respond. 3 unless set.
    pub max_retries: u32,
    /// How long the endpoint may add nothing to a reply. 2 minutes unless set.
    pub silence: Duration,
    /// How long a tool may take. 1 minute unless set.
    pub tool_timeout: Duration,
    /// How many times in a row the model may call tools before it replies. 16 unless set.
    pub max_rounds: usize,
    /// The rules for conversations.
    pub conversation: Conversation,
}

impl ModelOptions {
    /// A model at an endpoint.
    pub fn new(url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            model: model.into(),
            key: None,
            system: None,
            parameters: Map::new(),
            max_context: 256 * 1024,
            files: Vec::new(),
            max_tasks: 100,
            max_retries: 3,
            silence: Duration::from_secs(120),
            tool_timeout: Duration::from_secs(60),
            max_rounds: 16,
            conversation: Conversation::default(),
        }
    }

    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl fmt::Debug for ModelOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelOptions")
            .field("url", &self.url)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}
