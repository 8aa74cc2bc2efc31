//! The gateway: an agent whose skills are the functions of an engine.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{Agent, AgentError, AgentResult, Caller, Rights, Turn};
use attache_protocol::{AgentCard, Content, Error, ErrorKind, Json, Message, Part};
use futures::stream::{self, Stream};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};

use crate::card::{self, CardDetails, CardOverrides};
use crate::chunks::Chunks;
use crate::exposure::{Exposure, permits};
use crate::history::history;
use crate::hops::{MAX_HOPS, hops};
use crate::input::{Scope, asking_function, left_out, message_payload, takes_messages};
use crate::metadata::MetadataCheck;
use crate::missing::{self, Departed};
use crate::outcome::{RunningCall, TimeLimit, failure};
use crate::progress::RunningCalls;
use crate::reply::{FunctionReply, progress};
use crate::resolve::{Resolved, Unresolved, resolve};
use crate::schema::Schemas;
use crate::{
    CallError, Channel, ChannelItem, FunctionCall, FunctionInfo, Functions, ImportedFunctions, Updates,
};

/// The longest timeout that a function's metadata can set.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// After a function has returned, its channel counts as closed after this time without output.
const DRAIN: Duration = Duration::from_secs(5);

/// After a function has returned a result, how long it may take to begin writing to its channel.
const LATE: Duration = Duration::from_millis(500);

/// The settings of a gateway.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FunctionGatewayOptions {
    /// Which functions are skills.
    pub exposure: Exposure,
    /// The function for messages in plain language.
    pub default_function: Option<String>,
    /// The timeout of functions whose metadata does not set one (`a2a.timeoutMs`).
    pub call_timeout: Duration,
    /// How many bytes a streaming function may write in one call. Each piece counts 256 bytes more. 64 MiB unless set.
    pub max_output: usize,
    /// Whether the agent offers streams.
    pub streaming: bool,
    /// The description of the agent in its card.
    pub card_details: CardDetails,
}

impl Default for FunctionGatewayOptions {
    fn default() -> Self {
        Self {
            exposure: Exposure::default(),
            default_function: None,
            call_timeout: Duration::from_secs(30),
            max_output: 64 * 1024 * 1024,
            streaming: true,
            card_details: CardDetails::default(),
        }
    }
}

impl FunctionGatewayOptions {
    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// The agent whose skills are the functions of an engine. Cloning is cheap, and all clones share their state.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    functions: Arc<dyn Functions>,
    updates: Updates,
    imports: Option<Box<dyn ImportedFunctions>>,
    options: FunctionGatewayOptions,
    schemas: Schemas,
    departed: Departed,
    metadata: MetadataCheck,
    overrides: watch::Sender<Arc<CardOverrides>>,
    running: RunningCalls,
}

impl Gateway {
    /// Creates a gateway to the functions of an engine.
    pub fn new(functions: Arc<dyn Functions>, options: FunctionGatewayOptions) -> Self {
        Self::build(functions, options, None)
    }

    /// A gateway to the functions of an engine, some of which this process has imported. Those are called without the engine,
    /// which could neither cancel a call nor tell how many agents a request has come through.
    pub fn with_imports(
        functions: Arc<dyn Functions>,
        options: FunctionGatewayOptions,
        imports: impl ImportedFunctions,
    ) -> Self {
        Self::build(functions, options, Some(Box::new(imports)))
    }

    fn build(
        functions: Arc<dyn Functions>,
        options: FunctionGatewayOptions,
        imports: Option<Box<dyn ImportedFunctions>>,
    ) -> Self {
        let updates = functions.updates();
        Self(Arc::new(Inner {
            functions,
            updates,
            imports,
            options,
            schemas: Schemas::default(),
            departed: Departed::default(),
            metadata: MetadataCheck::default(),
            overrides: watch::Sender::default(),
            running: RunningCalls::default(),
        }))
    }

    /// The card with the current functions.
    pub fn card(&self) -> AgentCard {
        self.card_for(&Rights::default())
    }

    /// The card for a caller. If the caller's credentials set a tier, it has the functions of that tier.
    pub fn card_for(&self, rights: &Rights) -> AgentCard {
        let Inner {
            updates,
            options,
            schemas,
            departed,
            metadata,
            overrides,
            functions: _,
            imports: _,
            running: _,
        } = &*self.0;
        let catalog = updates.borrow().clone();
        departed.observe(catalog.as_ref());
        metadata.observe(catalog.as_ref());
        schemas.retain(|id| catalog.as_ref().is_some_and(|catalog| catalog.contains_key(id)));
        let exposure = options.exposure.to(rights);
        let exposed = exposure.exposed(catalog.as_deref());
        let exposed = exposed.map(|function| &**function);
        let is_default = |function: &FunctionInfo| options.default_function.as_deref() == Some(&*function.id);
        let mut card = card::card(&options.card_details, options.streaming, exposed, |function| {
            is_default(function) || takes_messages(function)
        });
        overrides.borrow().apply(&mut card);
        card
    }

    /// Replaces members of the card, for all callers. Earlier replacements are undone.
    pub fn override_card(&self, overrides: CardOverrides) {
        self.0.overrides.send_if_modified(|current| {
            let changed = **current != overrides;
            *current = Arc::new(overrides);
            changed
        });
    }

    /// Takes the progress that a running function reports: an object with the `taskId` of its task and a `text`, which becomes the
    /// status message of the task. See [`PROGRESS_FUNCTION`](crate::PROGRESS_FUNCTION).
    pub fn report_progress(&self, payload: &RawValue) -> Result<(), CallError> {
        self.0.running.report(payload)
    }

    /// A new card each time that the functions change, or that members of the card are [replaced](Self::override_card).
    pub fn cards(&self) -> impl Stream<Item = AgentCard> + Send + 'static {
        let (mut updates, overrides) = (self.0.updates.clone(), self.0.overrides.subscribe());
        // Changes since the first card must not be missed.
        updates.mark_changed();
        stream::unfold((self.clone(), updates, overrides), async |(gateway, mut updates, mut overrides)| {
            tokio::select! {
                changed = updates.changed() => changed.ok()?,
                changed = overrides.changed() => changed.ok()?,
            }
            updates.mark_unchanged();
            overrides.mark_unchanged();
            Some((gateway.card(), (gateway, updates, overrides)))
        })
    }
}

impl Agent for Gateway {
    /// Rejects a message before a task is created if the caller lacks the scopes of the function, which the card shows, or if the
    /// function cannot get all of the message. If the function is hidden from the caller, the task fails later, exactly as for a
    /// function that does not exist.
    fn admits(&self, caller: &Caller, message: &Message) -> Result<(), Error> {
        let Inner { updates, options, .. } = &*self.0;
        let catalog = updates.borrow().clone();
        let exposure = options.exposure.to(&caller.rights);
        let (found, named) = match resolve(message) {
            Ok(Resolved::Function { id, .. }) => (exposure.check(&id, catalog.as_deref()), true),
            Ok(Resolved::Plain) if message.task_id.is_some() => return Ok(()),
            Ok(Resolved::Plain) if let Some(id) = &options.default_function => {
                (exposure.check_default(id, catalog.as_deref()), false)
            }
            Ok(Resolved::Plain) | Err(_) => return Ok(()),
        };
        match found {
            Ok(function) if !permits(&function, &caller.rights) => Err(Error::new(
                ErrorKind::PermissionDenied,
                "this function requires scopes that the caller does not have: the card lists them",
            )),
            Ok(function) => {
                let scope = if named { scope_of(&function) } else { Scope::Message };
                let left_out = left_out(message, &function, scope);
                left_out.map_or(Ok(()), |text| Err(Error::invalid_params("message.parts", text)))
            }
            Err(_) => Ok(()),
        }
    }

    async fn run(&self, turn: Turn) -> AgentResult {
        match self.0.prepare(&turn).await? {
            Ok(prepared) => self.0.carry_out(&turn, prepared).await,
            Err(reason) => turn.fail(reason).await,
        }
    }
}

/// What a message requests.
enum Requested {
    /// The function that it names, with the payload that it has for it.
    Function { id: String, payload: Json },
    /// The function that has asked a question, with the payload of its first call.
    Answer { id: String, payload: Json },
    /// The default function.
    Default { id: String },
}

/// What a function gets of a message that names it.
fn scope_of(function: &FunctionInfo) -> Scope {
    if takes_messages(function) { Scope::Message } else { Scope::Payload }
}

/// A call that has been checked.
struct Prepared {
    function: Arc<FunctionInfo>,
    payload: Json,
    /// Whether the request is in plain language. If so, the result is for people and not for programs.
    plain: bool,
    /// How many agents the request has passed through.
    hops: u64,
}

impl Inner {
    /// Resolves and checks the call that a message requests. The inner error is the reason for the client.
    async fn prepare(&self, turn: &Turn) -> Result<Result<Prepared, String>, AgentError> {
        let hops = hops(turn.message());
        if hops > MAX_HOPS {
            return Ok(Err(format!(
                "The request has passed through {hops} agents, and the limit is {MAX_HOPS}: the agents may be calling each other in a circle"
            )));
        }
        let request = match (resolve(turn.message()), &self.options.default_function) {
            (Ok(Resolved::Function { id, payload }), _) => Requested::Function { id, payload },
            (Ok(Resolved::Plain), default) => match (asking_function(turn), default) {
                (Some((id, payload)), _) => Requested::Answer { id, payload },
                (None, Some(id)) => Requested::Default { id: id.clone() },
                (None, None) => return Ok(Err(Unresolved::NoFunction.to_string())),
            },
            (Err(error), _) => return Ok(Err(error.to_string())),
        };
        let function = match self.find(turn, &request) {
            Ok(function) => function,
            Err(reason) => return Ok(Err(reason)),
        };
        let plain = matches!(request, Requested::Default { .. });
        let scope = match request {
            Requested::Function { .. } => scope_of(&function),
            Requested::Answer { .. } | Requested::Default { .. } => Scope::Message,
        };
        if let Some(reason) = left_out(turn.message(), &function, scope) {
            return Ok(Err(reason));
        }
        let payload = match request {
            Requested::Function { payload, .. } if scope == Scope::Payload => payload,
            Requested::Function { payload, .. } | Requested::Answer { payload, .. } => {
                message_payload(turn, &function, Some(&payload), &history(turn).await?)?
            }
            Requested::Default { .. } => message_payload(turn, &function, None, &history(turn).await?)?,
        };
        let checked = self.schemas.check(&function, &payload).await.map_err(|faults| {
            let id = &function.id;
            format!("The payload does not match the schema of the function '{id}': {faults}")
        });
        Ok(checked.map(|()| Prepared { function, payload, plain, hops }))
    }

    /// The function of a request, if the caller may call it.
    fn find(&self, turn: &Turn, request: &Requested) -> Result<Arc<FunctionInfo>, String> {
        let (caller, catalog) = (turn.caller(), self.updates.borrow().clone());
        self.departed.observe(catalog.as_ref());
        let (exposure, catalog) = (self.options.exposure.to(&caller.rights), catalog.as_deref());
        let checked = match request {
            Requested::Function { id, .. } | Requested::Answer { id, .. } => exposure.check(id, catalog),
            Requested::Default { id } => exposure.check_default(id, catalog),
        };
        let function =
            checked.map_err(|hidden| missing::explain(turn, &hidden, &exposure, catalog, &self.departed))?;
        // The scopes may have changed since the message was admitted.
        if !permits(&function, &caller.rights) {
            let id = &function.id;
            return Err(format!("Function '{id}' requires scopes that the caller does not have"));
        }
        Ok(function)
    }

    async fn carry_out(&self, turn: &Turn, prepared: Prepared) -> AgentResult {
        let Prepared { function, payload, plain, hops } = prepared;
        turn.working("").await?;
        let streams = function.metadata_value("a2a.stream") == Some(&Value::Bool(true));
        let running = RunningCall::begin(turn, &function);
        let mut reports = self.running.begin(turn.task_id());
        let mut work = std::pin::pin!(async {
            if streams {
                self.stream(turn, &function, &payload, hops).await
            } else {
                Ok::<_, AgentError>((self.call(turn, &function, &payload, hops).await, false))
            }
        });
        let (result, streamed) = loop {
            tokio::select! {
                biased;
                // The result of a canceled call is dropped.
                () = turn.cancelled() => return Ok(()),
                result = &mut work => break result?,
                progress = reports.next() => turn.working(progress).await?,
            }
        };
        drop(reports);
        running.end(result.as_ref().err());
        // The streamed artifact has the name of the function, so the result needs another name.
        let name = if streamed { "result" } else { &*function.id };
        let reply = match &result {
            Ok(value) => FunctionReply::read(&function, value),
            Err(error) => FunctionReply::read_error(&function, error),
        };
        if let Some(reply) = reply {
            return reply.apply(turn, name).await;
        }
        match result {
            // A function that has written everything to its channel returns `null`.
            Ok(value) if streamed && value.as_str() == "null" => turn.complete().await,
            Ok(value) => {
                turn.artifact(name).part(part(value, plain)).await?;
                turn.complete().await
            }
            Err(error) => turn.fail(failure(&function, &error, self.time_limit(&function))).await,
        }
    }

    async fn call(
        &self,
        turn: &Turn,
        function: &FunctionInfo,
        payload: &Json,
        hops: u64,
    ) -> Result<Json, CallError> {
        let trace_parent = turn.trace_parent();
        let (payload, timeout) = (payload.as_raw(), self.time_limit(function).duration());
        let direct = self.imports.as_ref();
        let result = match direct
            .and_then(|imports| imports.call(function, payload, timeout, hops + 1, trace_parent))
        {
            Some(called) => called.await,
            None => {
                self.functions
                    .call(FunctionCall { function: &function.id, payload, timeout, trace_parent })
                    .await
            }
        };
        result.map(Json::from)
    }

    /// Calls a function that writes to a channel. The payload has the channel as `response`. The items are the chunks of an
    /// artifact.
    async fn stream(
        &self,
        turn: &Turn,
        function: &FunctionInfo,
        payload: &Json,
        hops: u64,
    ) -> Result<(Result<Json, CallError>, bool), AgentError> {
        let Channel { writer, mut items } = match self.functions.open_channel().await {
            Ok(channel) => channel,
            Err(error) => return Ok((Err(error), false)),
        };
        let Some(payload) = with_channel(payload, &writer) else {
            let text = "the payload of a streaming function must be an object";
            return Ok((Err(CallError::remote("invalid_payload", text)), false));
        };
        let mut chunks = Chunks::new(turn, function, self.options.max_output);
        let call = self.call(turn, function, &payload, hops);
        let reading = read_output(turn, &mut chunks, &mut items, call);
        // A function that never stops writing is ended even if each piece comes in time.
        let limit = self.time_limit(function).duration().saturating_add(DRAIN);
        let result = tokio::time::timeout(limit, reading).await.unwrap_or_else(|_| {
            let text = format!("the function did not end its output within {} s", limit.as_secs_f64());
            Ok(Err(CallError::remote("output_too_long", text)))
        })?;
        let streamed = chunks.begun();
        chunks.finish().await?;
        Ok((result, streamed))
    }

    fn time_limit(&self, function: &FunctionInfo) -> TimeLimit {
        let set =
            function.metadata_value("a2a.timeoutMs").and_then(Value::as_u64).filter(|millis| *millis > 0);
        match set {
            Some(millis) => TimeLimit::Function(Duration::from_millis(millis).min(MAX_TIMEOUT)),
            None => TimeLimit::Gateway(self.options.call_timeout),
        }
    }
}

/// Reads what a function writes, until it has returned and its channel is closed.
async fn read_output(
    turn: &Turn,
    chunks: &mut Chunks<'_>,
    items: &mut mpsc::Receiver<ChannelItem>,
    call: impl Future<Output = Result<Json, CallError>>,
) -> Result<Result<Json, CallError>, AgentError> {
    let mut call = std::pin::pin!(call);
    let mut result: Option<Result<Json, CallError>> = None;
    loop {
        // A function may write after it has returned, begin to write only then, or forget to close its channel.
        let wait = match &result {
            Some(Ok(value)) if !chunks.begun() && value.as_str() != "null" => LATE,
            Some(_) | None => DRAIN,
        };
        tokio::select! {
            // The call comes first: it has the time limit, and output that never pauses must not keep it from being polled.
            biased;
            returned = &mut call, if result.is_none() => {
                let failed = returned.is_err();
                result = Some(returned);
                // A function that failed writes no more.
                if failed && items.is_empty() {
                    break;
                }
            },
            item = items.recv() => {
                // The channel is closed. Only the result is missing.
                let Some(item) = item else { break };
                if let Err(limit) = chunks.count(&item) {
                    let text = format!("the function wrote more than the limit of {limit} bytes");
                    return Ok(Err(CallError::remote("output_too_large", text)));
                }
                match item {
                    ChannelItem::Text(text) if let Some(progress) = progress(&text) => {
                        turn.working(progress).await?;
                    }
                    item @ (ChannelItem::Text(_) | ChannelItem::Bytes(_)) => chunks.add(item).await?,
                }
            },
            () = tokio::time::sleep(Chunks::HOLD), if chunks.holds() => chunks.release().await?,
            () = tokio::time::sleep(wait), if result.is_some() => break,
        }
    }
    Ok(match result {
        Some(result) => result,
        None => call.await,
    })
}

/// The result of a function, as part of an artifact.
fn part(value: Json, plain: bool) -> Part {
    if plain && let Ok(text) = value.read::<String>() {
        return Part::text(text).media_type("text/plain");
    }
    Part::new(Content::Data(value)).media_type("application/json")
}

/// Adds the channel to the payload.
fn with_channel(payload: &Json, writer: &crate::wire::ChannelRef) -> Option<Json> {
    let rest = payload.as_str().trim().strip_prefix('{')?.trim_start();
    let writer = serde_json::to_string(writer).ok()?;
    let comma = if rest.starts_with('}') { "" } else { "," };
    Json::parse(&format!("{{\"response\":{writer}{comma}{rest}")).ok()
}
