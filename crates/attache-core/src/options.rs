//! What can be set about the service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{News, Retention};

/// Settings of a [`Service`](crate::Service). The defaults suit most agents.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long one turn of the agent may take; then the task fails.
    pub turn_timeout: Duration,
    /// How long a canceled turn may go on to clean up; then it is dropped.
    pub cancel_grace: Duration,
    /// How long a turn is believed to be alive without a sign of life.
    pub lease: Duration,
    /// How long a read may wait for the next generation of a task.
    pub long_poll: Duration,
    /// Whether a send's stream ends when the task asks for input. A subscription's never does.
    pub close_stream_on_input_required: bool,
    /// Whether the message id is a send's idempotency key where it carries none.
    pub message_id_is_idempotency_key: bool,
    /// Whether anonymous callers may read the extended card.
    pub extended_card_for_anyone: bool,
    /// How many parts a message may have.
    pub max_parts: usize,
    /// How many webhooks a task may have.
    pub max_push_configs: usize,
    /// What webhooks are told if their creator does not ask for everything.
    pub push_news: News,
    /// Which URLs are taken for webhooks.
    pub webhook_check: WebhookCheck,
    /// Which tasks that have ended are forgotten; none, if nothing is set.
    pub retention: Retention,
}

/// Decides whether a URL is taken for a webhook. What it says against one is told to whoever asked for it.
#[derive(Clone)]
pub struct WebhookCheck(Arc<Check>);

type Check = dyn Fn(&str) -> Result<(), String> + Send + Sync;

impl WebhookCheck {
    /// Decides by this function.
    pub fn new(check: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    /// What there is to say against a URL.
    pub fn check(&self, url: &str) -> Result<(), String> {
        (self.0)(url)
    }
}

/// Takes every URL.
impl Default for WebhookCheck {
    fn default() -> Self {
        Self::new(|_| Ok(()))
    }
}

impl fmt::Debug for WebhookCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookCheck")
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            turn_timeout: Duration::from_secs(60 * 60),
            cancel_grace: Duration::from_secs(5),
            lease: Duration::from_secs(30),
            long_poll: Duration::from_secs(30),
            close_stream_on_input_required: true,
            message_id_is_idempotency_key: false,
            extended_card_for_anyone: false,
            max_parts: 1_000,
            max_push_configs: 32,
            push_news: News::States,
            webhook_check: WebhookCheck::default(),
            retention: Retention::default(),
        }
    }
}
