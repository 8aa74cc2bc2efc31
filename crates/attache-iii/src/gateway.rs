//! The agent whose skills are the functions of an engine.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{Agent, AgentError, AgentResult, Caller, Rights, Turn};
use attache_protocol::{AgentCard, Content, Error, ErrorKind, Json, Message, Part};
use futures::stream::{self, Stream};
use serde_json::Value;

use crate::card::{self, Identity};
use crate::chunks::Chunks;
use crate::exposure::{Exposure, permits};
use crate::history::history;
use crate::hops::{MAX_HOPS, hops};
use crate::resolve::{Asked, Unresolved, plain_payload, resolve};
use crate::schema::Schemas;
use crate::{CallError, Channel, FunctionCall, FunctionInfo, Functions, ImportedFunctions, Updates};

/// The longest that a function's author may let it take.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a function that has returned may be silent before its channel counts as closed.
const DRAIN: Duration = Duration::from_secs(5);

/// How long a function that has returned something may take to begin writing.
const LATE: Duration = Duration::from_millis(500);

/// What a gateway shows and to whom.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Which functions are skills.
    pub exposure: Exposure,
    /// The function that gets messages in plain language.
    pub default_function: Option<String>,
    /// How long a function may take whose metadata does not say otherwise (`a2a.timeoutMs`).
    pub call_timeout: Duration,
    /// Whether tasks can be followed as they go.
    pub streaming: bool,
    /// How the agent describes itself.
    pub identity: Identity,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            exposure: Exposure::default(),
            default_function: None,
            call_timeout: Duration::from_secs(30),
            streaming: true,
            identity: Identity::default(),
        }
    }
}

/// The agent whose skills are the functions of an engine. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    functions: Arc<dyn Functions>,
    updates: Updates,
    imports: Option<Box<dyn ImportedFunctions>>,
    options: GatewayOptions,
    schemas: Schemas,
}

impl Gateway {
    /// A gateway to the functions of an engine.
    pub fn new(functions: Arc<dyn Functions>, options: GatewayOptions) -> Self {
        Self::build(functions, options, None)
    }

    /// A gateway to the functions of an engine, some of which this process has imported. Those are called without the engine,
    /// which could neither cancel a call nor tell how many agents a request has come through.
    pub fn with_imports(
        functions: Arc<dyn Functions>,
        options: GatewayOptions,
        imports: impl ImportedFunctions,
    ) -> Self {
        Self::build(functions, options, Some(Box::new(imports)))
    }

    fn build(
        functions: Arc<dyn Functions>,
        options: GatewayOptions,
        imports: Option<Box<dyn ImportedFunctions>>,
    ) -> Self {
        let updates = functions.updates();
        Self(Arc::new(Inner { functions, updates, imports, options, schemas: Schemas::default() }))
    }

    /// The card with the functions there are now.
    pub fn card(&self) -> AgentCard {
        self.card_for(&Rights::default())
    }

    /// The same for a caller: those whose credentials put them into a tier see the functions of that one.
    pub fn card_for(&self, rights: &Rights) -> AgentCard {
        let Inner { updates, options, schemas, functions: _, imports: _ } = &*self.0;
        let catalog = updates.borrow().clone();
        schemas.keep(|id| catalog.as_ref().is_some_and(|catalog| catalog.contains_key(id)));
        let exposure = options.exposure.to(rights);
        let exposed = exposure.exposed(catalog.as_deref());
        card::card(&options.identity, options.streaming, exposed.map(|function| &**function))
    }

    /// The card again whenever functions come or go.
    pub fn cards(&self) -> impl Stream<Item = AgentCard> + Send + 'static {
        let mut updates = self.0.updates.clone();
        // Whatever has happened since the first card was made counts as news.
        updates.mark_changed();
        stream::unfold((self.clone(), updates), async |(gateway, mut updates)| {
            updates.changed().await.ok()?;
            updates.mark_unchanged();
            Some((gateway.card(), (gateway, updates)))
        })
    }
}

impl Agent for Gateway {
    /// A function that is not there for a caller fails the task, as one that does not exist does. One that is, but asks for more
    /// than the caller has, is refused at the door: the card says what it takes.
    fn admits(&self, caller: &Caller, message: &Message) -> Result<(), Error> {
        let Inner { updates, options, .. } = &*self.0;
        let id = match resolve(message) {
            Ok(Asked::Function { id, .. }) => id,
            Ok(Asked::Plain(_)) if let Some(id) = &options.default_function => id.clone(),
            Ok(Asked::Plain(_)) | Err(_) => return Ok(()),
        };
        let catalog = updates.borrow().clone();
        let found = options.exposure.to(&caller.rights).check(&id, catalog.as_deref());
        match found {
            Ok(function) if !permits(&function, &caller.rights) => Err(Error::new(
                ErrorKind::PermissionDenied,
                "this takes rights that you do not have: the card says which",
            )),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn run(&self, turn: Turn) -> AgentResult {
        match self.0.prepare(&turn).await? {
            Ok(prepared) => self.0.carry_out(&turn, prepared).await,
            Err(refusal) => turn.fail(refusal).await,
        }
    }
}

/// A call that may be made.
struct Prepared {
    function: Arc<FunctionInfo>,
    payload: Json,
    /// Whether it was asked for in plain language, so that the answer is to be read and not parsed.
    plain: bool,
    /// Through how many agents the request has come.
    hops: u64,
}

impl Inner {
    /// What a message asks for, if it may be had.
    async fn prepare(&self, turn: &Turn) -> Result<Result<Prepared, String>, AgentError> {
        let hops = hops(turn.message());
        if hops > MAX_HOPS {
            return Ok(Err(format!(
                "The request has come through {hops} agents, and {MAX_HOPS} are allowed: they may be calling each other in a circle"
            )));
        }
        let (id, payload, plain) = match (resolve(turn.message()), &self.options.default_function) {
            (Ok(Asked::Function { id, payload }), _) => (id, payload, false),
            (Ok(Asked::Plain(text)), Some(id)) => {
                let history = history(turn).await?;
                (id.clone(), plain_payload(&text, turn.context_id(), &history), true)
            }
            (Ok(Asked::Plain(_)), None) => return Ok(Err(Unresolved::NoFunction.to_string())),
            (Err(error), _) => return Ok(Err(error.to_string())),
        };
        Ok(self.check(turn.caller(), id, payload, plain, hops).await)
    }

    /// A call, if it may be made and its payload fits.
    async fn check(
        &self,
        caller: &Caller,
        id: String,
        payload: Json,
        plain: bool,
        hops: u64,
    ) -> Result<Prepared, String> {
        let catalog = self.updates.borrow().clone();
        let checked = self.options.exposure.to(&caller.rights).check(&id, catalog.as_deref());
        let function = checked.map_err(|hidden| hidden.to_string())?;
        // What it asks for may have changed since the message was let in.
        if !permits(&function, &caller.rights) {
            return Err(format!("Function '{id}' takes rights that the caller does not have"));
        }
        self.schemas
            .check(&function, &payload)
            .await
            .map_err(|faults| format!("The payload does not fit the function '{id}': {faults}"))?;
        Ok(Prepared { function, payload, plain, hops })
    }

    async fn carry_out(&self, turn: &Turn, prepared: Prepared) -> AgentResult {
        let Prepared { function, payload, plain, hops } = prepared;
        turn.working("").await?;
        let streams = function.said("a2a.stream") == Some(&Value::Bool(true));
        let (result, streamed) = tokio::select! {
            biased;
            // What a canceled function still returns is nobody's any more.
            () = turn.cancelled() => return Ok(()),
            result = async {
                if streams {
                    self.stream(turn, &function, &payload, hops).await
                } else {
                    Ok((self.call(&function, &payload, hops).await, false))
                }
            } => result?,
        };
        match result {
            // A function that has said everything through its channel returns nothing.
            Ok(value) if streamed && value.as_str() == "null" => turn.complete().await,
            Ok(value) => {
                // What was streamed bears the name of the function: the result beside it does not take its place.
                let name = if streamed { "result" } else { &*function.id };
                turn.artifact(name).part(part(value, plain)).await?;
                turn.complete().await
            }
            Err(error) => turn.fail(format!("Error: {error}")).await,
        }
    }

    async fn call(&self, function: &FunctionInfo, payload: &Json, hops: u64) -> Result<Json, CallError> {
        let (payload, timeout) = (payload.as_raw(), self.time_limit(function));
        let direct = self.imports.as_ref();
        let result = match direct.and_then(|imports| imports.call(function, payload, timeout, hops + 1)) {
            Some(called) => called.await,
            None => self.functions.call(FunctionCall { function: &function.id, payload, timeout }).await,
        };
        result.map(Json::from)
    }

    /// Calls a function that writes to a channel, which it gets as `response` in its payload. What it writes are the pieces of an
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
            let text = "a function that streams takes an object as its payload";
            return Ok((Err(CallError::remote("invalid_payload", text)), false));
        };
        let mut chunks = Chunks::new(turn, function);
        let mut call = std::pin::pin!(self.call(function, &payload, hops));
        let mut result: Option<Result<Json, CallError>> = None;
        loop {
            // A function may go on writing after it has returned, begin only then, or forget to close its channel.
            let patience = match &result {
                Some(Ok(value)) if !chunks.begun() && value.as_str() != "null" => LATE,
                Some(_) | None => DRAIN,
            };
            tokio::select! {
                biased;
                item = items.recv() => match item {
                    Some(item) => chunks.add(item).await?,
                    // The channel is closed: what is left is the result.
                    None => break,
                },
                returned = &mut call, if result.is_none() => {
                    let failed = returned.is_err();
                    result = Some(returned);
                    // A function that failed writes no more.
                    if failed && items.is_empty() {
                        break;
                    }
                },
                () = tokio::time::sleep(Chunks::HOLD), if chunks.holds() => chunks.release().await?,
                () = tokio::time::sleep(patience), if result.is_some() => break,
            }
        }
        let streamed = chunks.begun();
        chunks.finish().await?;
        let result = match result {
            Some(result) => result,
            None => call.await,
        };
        Ok((result, streamed))
    }

    fn time_limit(&self, function: &FunctionInfo) -> Duration {
        let said = function.said("a2a.timeoutMs").and_then(Value::as_u64).filter(|millis| *millis > 0);
        said.map_or(self.options.call_timeout, |millis| Duration::from_millis(millis).min(LONGEST))
    }
}

/// What a function returned, as part of an artifact.
fn part(value: Json, plain: bool) -> Part {
    if plain && let Ok(text) = value.read::<String>() {
        return Part::text(text).media_type("text/plain");
    }
    Part::new(Content::Data(value)).media_type("application/json")
}

/// The payload with a channel to write to.
fn with_channel(payload: &Json, writer: &crate::wire::ChannelRef) -> Option<Json> {
    let rest = payload.as_str().trim().strip_prefix('{')?.trim_start();
    let writer = serde_json::to_string(writer).ok()?;
    let comma = if rest.starts_with('}') { "" } else { "," };
    Json::parse(&format!("{{\"response\":{writer}{comma}{rest}")).ok()
}
