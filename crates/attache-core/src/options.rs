//! What can be set about the service.

use std::time::Duration;

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
        }
    }
}
