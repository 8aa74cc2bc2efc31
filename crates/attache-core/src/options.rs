//! Settings of the service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Artifacts, PeerRules, PermissionPolicy, PushEvents, Redaction, ReportOptions, Retention};

/// Settings of a [`Service`](crate::Service). The defaults suit most agents.
///
/// ```
/// use std::time::Duration;
///
/// use attache_core::{Options, Retention};
///
/// let options = Options::default()
///     .turn_timeout(Duration::from_secs(600))
///     .retention(Retention::default().max_age(Duration::from_secs(24 * 60 * 60)));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The name of the agent, where a server has several. It separates the tasks of this service from those of others in the same
    /// store. None unless set.
    pub agent_name: Option<Arc<str>>,
    /// How long one turn of the agent may take. Then the task fails. One hour unless set.
    pub turn_timeout: Duration,
    /// How long a canceled turn may go on to clean up. Then its future is dropped. 5 seconds unless set.
    pub cancel_grace: Duration,
    /// How long a turn counts as alive after its last sign of life. Leases are renewed three times in that time. 30 seconds unless
    /// set.
    pub lease: Duration,
    /// How long a read may wait for the next generation of a task. 30 seconds unless set.
    pub long_poll: Duration,
    /// Whether the stream of a send ends when the task asks for input. The stream of a subscription never does. Yes unless set.
    pub close_stream_on_input_required: bool,
    /// Whether the message id is the idempotency key of a send that carries none. No unless set.
    pub message_id_is_idempotency_key: bool,
    /// Whether anonymous callers may read the extended card. No unless set.
    pub extended_card_for_anyone: bool,
    /// How many parts a message may have. 1,000 unless set.
    pub max_parts: usize,
    /// How many webhooks a task may have. 32 unless set.
    pub max_push_configs: usize,
    /// Which events a webhook receives if the client that created it does not ask for all.
    pub push_events: PushEvents,
    /// Which URLs are accepted for webhooks. All unless set.
    pub webhook_check: WebhookCheck,
    /// Which tasks that have ended are deleted. None unless set.
    pub retention: Retention,
    /// How agents report what they do, and what callers see of it.
    pub reports: ReportOptions,
    /// What agents may do, and when the caller is asked.
    pub permissions: PermissionPolicy,
    /// What must not get into the events of agents. Nothing unless set.
    pub redaction: Option<Redaction>,
    /// Where large content of artifacts is stored. Unless set, all content is in the events.
    pub artifacts: Option<Artifacts>,
    /// How the service behaves where peers differ: limits on ids, failed tasks, and refusals for tasks that do not run. As the
    /// specification says unless set.
    pub peer: PeerRules,
}

macro_rules! setters {
    ($($field:ident: $type:ty),+ $(,)?) => {
        impl Options {
            $(
                #[doc = concat!("Sets `", stringify!($field), "`.")]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}

setters!(
    agent_name: Option<Arc<str>>,
    turn_timeout: Duration,
    cancel_grace: Duration,
    lease: Duration,
    long_poll: Duration,
    close_stream_on_input_required: bool,
    message_id_is_idempotency_key: bool,
    extended_card_for_anyone: bool,
    max_parts: usize,
    max_push_configs: usize,
    push_events: PushEvents,
    webhook_check: WebhookCheck,
    retention: Retention,
    reports: ReportOptions,
    permissions: PermissionPolicy,
    redaction: Option<Redaction>,
    artifacts: Option<Artifacts>,
    peer: PeerRules,
);

/// Decides whether the URL of a webhook is accepted. The text of its error goes to the client.
#[derive(Clone)]
pub struct WebhookCheck(Arc<Check>);

type Check = dyn Fn(&str) -> Result<(), String> + Send + Sync;

impl WebhookCheck {
    /// Decides by this function.
    pub fn new(check: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    /// Checks a URL. The error says why it is not accepted.
    pub fn check(&self, url: &str) -> Result<(), String> {
        (self.0)(url)
    }
}

/// Accepts every URL.
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
            agent_name: None,
            turn_timeout: Duration::from_secs(60 * 60),
            cancel_grace: Duration::from_secs(5),
            lease: Duration::from_secs(30),
            long_poll: Duration::from_secs(30),
            close_stream_on_input_required: true,
            message_id_is_idempotency_key: false,
            extended_card_for_anyone: false,
            max_parts: 1_000,
            max_push_configs: 32,
            push_events: PushEvents::States,
            webhook_check: WebhookCheck::default(),
            retention: Retention::default(),
            reports: ReportOptions::default(),
            permissions: PermissionPolicy::default(),
            redaction: None,
            artifacts: None,
            peer: PeerRules::Standard,
        }
    }
}
