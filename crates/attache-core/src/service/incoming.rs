//! An incoming message, and the checks that need no access to the store.

use std::sync::atomic::Ordering;
use std::time::Duration;

use attache_protocol::{
    AgentCard, ContextId, Error, ErrorKind, IDEMPOTENCY_EXTENSION, JsonObject, Message,
    SendMessageConfiguration, SendMessageRequest, TaskId, limits,
};
use sha2::{Digest, Sha256};

use super::{Service, credentials};
use crate::conversation::{Arriving, ContextAdmission, ContextKey};
use crate::store::Idempotency;
use crate::turn_state::TurnRequest;
use crate::{Agent, Caller, Namespace, Permit, View, Webhook, new_id};

/// When a caller with too many turns should try again. The server cannot know when a turn will end.
const RETRY_IN: Duration = Duration::from_secs(1);

/// How the client wants its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyMode {
    Single,
    Stream,
}

/// The idempotency key of a send.
enum SendKey {
    /// The client has chosen it. It can send the message twice at the same time.
    OfClient(String),
    /// The transport has made it for a message that it may deliver again.
    OfDelivery(String),
}

/// A message that has passed the checks that need no access to the store.
pub(super) struct Incoming {
    pub(super) caller: Caller,
    pub(super) message: Message,
    pub(super) configuration: SendMessageConfiguration,
    pub(super) metadata: Option<JsonObject>,
    pub(super) push: Option<Webhook>,
    pub(super) idempotency: Option<Idempotency>,
    /// Whether the key is stored before the turn starts. Otherwise it is stored with the first events: the store does not outlive a crash, and
    /// the transport processes no delivery while another one of the same message is processed.
    pub(super) stores_key_first: bool,
    pub(super) reply_mode: ReplyMode,
    /// Whether the agent holds conversations, as far as this message tells.
    pub(super) is_conversation: bool,
    /// The place of the turn in its conversation.
    pub(super) place: ContextAdmission,
    /// The id of the task that the message creates, if its place needs one.
    pub(super) new_task: Option<TaskId>,
}

impl Incoming {
    /// The request for a turn of the task.
    pub(super) fn into_turn(
        self: Box<Self>,
        task_id: TaskId,
        context_id: ContextId,
        followed: bool,
    ) -> TurnRequest {
        let Self { caller, message, configuration, metadata, place, .. } = *self;
        TurnRequest {
            caller,
            message,
            configuration,
            metadata,
            task_id,
            context_id,
            followed,
            rerun: false,
            place,
            denial: None,
        }
    }
}

impl Service {
    /// Runs all checks that need no access to the store.
    pub(super) fn check_send(
        &self,
        mut caller: Caller,
        request: Box<SendMessageRequest>,
        reply_mode: ReplyMode,
    ) -> Result<Box<Incoming>, Error> {
        if self.0.closing.load(Ordering::Relaxed) {
            return Err(stopping());
        }
        let (idempotency, stores_key_first) = match self.send_key(&mut caller, &request)? {
            None => (None, false),
            Some(SendKey::OfDelivery(key)) if self.0.store.is_volatile() => {
                (Some(Idempotency { key, fingerprint: [0; 32] }), false)
            }
            Some(SendKey::OfClient(key) | SendKey::OfDelivery(key)) => {
                (Some(Idempotency { key, fingerprint: fingerprint(&request) }), true)
            }
        };
        let SendMessageRequest { mut message, configuration, mut metadata, .. } = *request;
        if self.0.options.reports.namespace == Namespace::IacCode {
            credentials::remove(&mut message.metadata);
            credentials::remove(&mut metadata);
        }
        let mut configuration = configuration.unwrap_or_default();
        // A stream opens immediately in any case.
        configuration.return_immediately &= reply_mode == ReplyMode::Single;
        let push = match configuration.task_push_notification_config.take() {
            Some(config) => {
                Some(self.check_push(&caller, *config, "configuration.taskPushNotificationConfig.")?)
            }
            None => None,
        };
        let card = self.0.card.load();
        let limit = self.0.options.max_parts;
        if message.parts.len() > limit {
            return Err(Error::invalid_params(
                "message.parts",
                format!("at most {limit} parts are accepted"),
            ));
        }
        if message.task_id.is_none() {
            check_media_types(&card, &message)?;
        }
        self.0.agent.admits(&caller, &message)?;
        if message.task_id.is_none() {
            self.0.agent.prepare(&mut message);
        }
        // The rules of a task that exists are those of its first message.
        let is_conversation = message.task_id.is_some() || self.0.agent.conversation(&message).is_some();
        let place = ContextAdmission::None;
        Ok(Box::new(Incoming {
            caller,
            message,
            configuration,
            metadata,
            push,
            idempotency,
            stores_key_first,
            reply_mode,
            is_conversation,
            place,
            new_task: None,
        }))
    }

    /// Gives the turn of a message its place in the conversation. `first` is the message that the task began with, if the task
    /// exists.
    pub(super) async fn place(&self, incoming: &mut Incoming, first: Option<&Message>) -> Result<(), Error> {
        let Some(rules) = self.0.agent.conversation(first.unwrap_or(&incoming.message)) else {
            return Ok(());
        };
        let context = incoming.message.context_id.get_or_insert_with(new_id).clone();
        let task = match &incoming.message.task_id {
            Some(task) => task.clone(),
            None => incoming.new_task.insert(new_id()).clone(),
        };
        let arriving = Arriving {
            owner: &incoming.caller.owner,
            context: &context,
            task: &task,
            message: &incoming.message,
            metadata: incoming.metadata.as_ref(),
            creates_task: first.is_none(),
        };
        incoming.place = self.0.place(rules, arriving).await?;
        Ok(())
    }

    /// Takes a permit and then a place: a message that gets no permit puts no context away, and binds none to a workspace. One that its
    /// context refuses does not wait for a permit.
    pub(super) async fn permit_and_place(
        &self,
        incoming: &mut Incoming,
        first: Option<&Message>,
    ) -> Result<Option<Permit>, Error> {
        let permit = match self.is_refused(incoming, first) {
            true => None,
            false => incoming.turn_permit().await?,
        };
        self.place(incoming, first).await?;
        match (&permit, &incoming.place) {
            // The context has become free in this moment.
            (None, ContextAdmission::Admitted(_)) => incoming.turn_permit().await,
            (Some(_), _) | (None, ContextAdmission::None | ContextAdmission::Refused(_)) => Ok(permit),
        }
    }

    /// Whether the context of a message refuses it now.
    fn is_refused(&self, incoming: &Incoming, first: Option<&Message>) -> bool {
        let (Some(rules), Some(context)) =
            (self.0.agent.conversation(first.unwrap_or(&incoming.message)), &incoming.message.context_id)
        else {
            return false;
        };
        let key = ContextKey { owner: incoming.caller.owner.clone(), id: context.clone() };
        let task = incoming.message.task_id.clone().unwrap_or_default();
        self.0.contexts.refuses(&key, &task, &rules.contexts)
    }

    /// The idempotency key of a send: from the header, from the metadata, the message id if that option is set, or else the key of the
    /// delivery.
    fn send_key(&self, caller: &mut Caller, request: &SendMessageRequest) -> Result<Option<SendKey>, Error> {
        let in_metadata = [&request.metadata, &request.message.metadata]
            .into_iter()
            .flatten()
            .find_map(|object| object.get::<serde_json::Value>(IDEMPOTENCY_EXTENSION));
        let key = match (caller.idempotency_key.take(), in_metadata) {
            (Some(key), _) => SendKey::OfClient(key),
            (None, Some(serde_json::Value::String(key))) => SendKey::OfClient(key),
            (None, Some(_)) => {
                let field = format!("metadata[\"{IDEMPOTENCY_EXTENSION}\"]");
                return Err(Error::invalid_params(field, "expected a string"));
            }
            (None, None)
                if self.0.options.message_id_is_idempotency_key
                    && !caller.dialect_rules().nameless_messages =>
            {
                SendKey::OfClient(request.message.message_id.clone())
            }
            (None, None) => match caller.delivery_key.take() {
                Some(key) => SendKey::OfDelivery(key),
                None => return Ok(None),
            },
        };
        let (SendKey::OfClient(text) | SendKey::OfDelivery(text)) = &key;
        let limit = limits::IDEMPOTENCY_KEY;
        if text.is_empty() || text.len() > limit || !text.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            let text = format!("expected 1 to {limit} printable ASCII characters");
            return Err(Error::invalid_params("Idempotency-Key", text));
        }
        Ok(Some(key))
    }
}

impl Incoming {
    /// Whether the turn can start without a lookup in the store.
    pub(super) fn needs_no_lookup(&self) -> bool {
        self.message.task_id.is_none() && self.idempotency.is_none() && !self.is_conversation
    }

    /// Takes a permit for a turn from the quota of the caller.
    pub(super) async fn turn_permit(&self) -> Result<Option<Permit>, Error> {
        let Some(quota) = &self.caller.turns else { return Ok(None) };
        let full = |_| {
            let limit = quota.limit;
            let text = format!("you may run at most {limit} turns at once: wait for one to end");
            Error::new(ErrorKind::ResourceExhausted, text).with("limit", limit).retry_in(RETRY_IN)
        };
        match quota.try_acquire() {
            Some(permit) => Ok(Some(permit)),
            None => Box::pin(quota.acquire()).await.map(Some).map_err(full),
        }
    }

    /// The parts of the task that the client wants to see.
    pub(super) fn view(&self) -> View {
        View {
            history: self.configuration.history_length.map(|length| length.max(0) as usize),
            artifacts: true,
            generation: self.caller.generations,
        }
    }
}

pub(super) fn stopping() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the server is stopping: send the message to another server, or try again later",
    )
}

/// A digest of the request. It is the same for all bindings.
fn fingerprint(request: &SendMessageRequest) -> [u8; 32] {
    let mut bytes = Vec::new();
    crate::event::write_json(&mut bytes, request);
    Sha256::digest(&bytes).into()
}

/// Checks the media types of a message against the input modes in the card of an agent.
pub fn check_media_types(card: &AgentCard, message: &Message) -> Result<(), Error> {
    let essence = |text: &str| text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    for (i, part) in message.parts.iter().enumerate() {
        let Some(media_type) = &part.media_type else { continue };
        let given = essence(media_type);
        let accepted = card.all_input_modes().any(|mode| {
            let mode = essence(mode);
            match mode.strip_suffix("/*") {
                Some("*") => true,
                Some(kind) => given.split('/').next() == Some(kind),
                None => mode == given || !mode.contains('/') && given.starts_with(&format!("{mode}/")),
            }
        });
        if !accepted {
            let modes: Vec<_> = card.all_input_modes().collect();
            let text = format!("`{media_type}` is not accepted, expected one of: {}", modes.join(", "));
            return Err(Error::new(ErrorKind::ContentTypeNotSupported, text)
                .with("field", format_args!("message.parts[{i}].mediaType"))
                .with("mediaType", media_type));
        }
    }
    Ok(())
}
