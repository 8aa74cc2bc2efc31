//! The operations of the protocol for one caller: which tasks it may see, what each state allows, and how long requests wait.

mod chosen_id;
mod compatible;
mod content;
mod credentials;
mod denial;
mod incoming;
mod maintenance;
mod page_token;
mod push;
mod read;
mod send;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use attache_protocol::{
    AgentCard, Error, ErrorKind, Extensions, GENERATION_EXTENSION, IDEMPOTENCY_EXTENSION, Message, Operation,
    PUSH_EVERY_EVENT_EXTENSION, Request, Role, TaskId, TaskState, Timestamp, Version,
};
use futures::future::{self, Either, FutureExt, TryFutureExt};
use tokio_util::task::TaskTracker;

pub use self::content::FoundContent;
pub use self::incoming::check_media_types;
pub use self::maintenance::Recovered;
use self::read::Ending;
use crate::conversation::{Homes, LiveContexts, MAX_RECORDS};
use crate::permission::OpenQuestions;
use crate::run;
use crate::signal::Progress;
use crate::turns::Turns;
use crate::{
    Agent, ArtifactLinks, BoxAgent, Caller, Clock, ContextRecords, Identity, Namespace, Options, Owner,
    Principal, REPORTS_EXTENSION, Reply, RequestTerms, Rights, Seq, Snapshot, Store, SystemClock, new_id,
};

/// Implements the operations of the protocol. Cheap to clone: all clones are the same service.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) agent: BoxAgent,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    pub(crate) turns: Turns,
    pub(crate) contexts: Arc<LiveContexts>,
    pub(crate) questions: OpenQuestions,
    pub(crate) records: ContextRecords,
    pub(crate) homes: Homes,
    card: ArcSwap<AgentCard>,
    extended: ArcSwapOption<CardFor>,
    running: TaskTracker,
    closing: AtomicBool,
    renewing_leases: AtomicBool,
}

/// A request whose caller is known and may make it, before its arguments are parsed.
pub struct Prepared<'a> {
    service: &'a Service,
    caller: Caller,
    links: Option<ArtifactLinks>,
}

impl<'a> Prepared<'a> {
    /// The caller, with the active extensions.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Executes the request. `resume` is the position of the last event that the reader of a stream has received.
    pub fn call(
        self,
        request: Request,
        resume: Option<Seq>,
    ) -> impl Future<Output = Result<Reply, Error>> + Send + use<'a> {
        let Self { service, mut caller, links } = self;
        caller.owner.tenant = request.tenant().map(Arc::from);
        let links = links.map(|links| links.for_tenant(caller.owner.tenant.clone()));
        // Every binding gets its replies from here, so references to stored content become URLs in one place.
        service.call_for(caller, request, resume).map_ok(move |reply| match &links {
            Some(links) => links.resolve(reply),
            None => reply,
        })
    }
}

/// Makes the extended card for callers with these rights.
type CardFor = Box<dyn Fn(&Rights) -> Arc<AgentCard> + Send + Sync>;

/// An internal error. Its cause goes to the server's log with an error id. The caller gets the id only.
pub fn internal(error: &dyn std::fmt::Display) -> Error {
    let id: String = new_id();
    tracing::error!(error_id = id, %error, "an operation failed");
    Error::new(ErrorKind::Internal, format!("something went wrong here: error {id}")).with("errorId", id)
}

/// Runs a future to completion, even if the request that started it is dropped. A future that is ready at its first poll is not
/// spawned.
async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let mut work = Box::pin(work);
    match poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        Poll::Ready(result) => result,
        Poll::Pending => match tokio::spawn(work).await {
            Ok(result) => result,
            Err(error) => Err(internal(&error)),
        },
    }
}

impl Service {
    /// A service for an agent, with a store and the clock of the system.
    pub fn new(agent: impl Agent, store: Arc<dyn Store>, card: AgentCard, options: Options) -> Self {
        Self::with_clock(agent, store, card, options, Arc::new(SystemClock))
    }

    /// A service with another clock.
    pub fn with_clock(
        agent: impl Agent,
        store: Arc<dyn Store>,
        card: AgentCard,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let contexts = Arc::<LiveContexts>::default();
        Self(Arc::new(Inner {
            agent: agent.boxed(),
            records: ContextRecords::with_live(store.clone(), contexts.clone(), MAX_RECORDS),
            contexts,
            homes: Homes::default(),
            questions: OpenQuestions::default(),
            store,
            clock,
            options,
            turns: Turns::default(),
            card: ArcSwap::from_pointee(card),
            extended: ArcSwapOption::empty(),
            running: TaskTracker::new(),
            closing: AtomicBool::new(false),
            renewing_leases: AtomicBool::new(false),
        }))
    }

    /// The store of the service.
    pub fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// The [name](Options::agent_name) that separates the tasks of this service from those of others.
    pub fn agent_name(&self) -> Option<&str> {
        self.0.options.agent_name.as_deref()
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Whether the agent [reports](Agent::reports) what it does.
    pub fn reports(&self) -> bool {
        self.0.agent.reports()
    }

    /// The current card.
    pub fn card(&self) -> Arc<AgentCard> {
        self.0.card.load_full()
    }

    /// Replaces the card.
    pub fn set_card(&self, card: AgentCard) {
        self.0.card.store(Arc::new(card));
    }

    /// Sets the card for authenticated callers.
    pub fn set_extended_card(&self, card: AgentCard) {
        let card = Arc::new(card);
        self.set_extended_card_for(move |_| card.clone());
    }

    /// Sets a function that makes the card for authenticated callers. It is called for each request.
    pub fn set_extended_card_for(&self, card: impl Fn(&Rights) -> Arc<AgentCard> + Send + Sync + 'static) {
        self.0.extended.store(Some(Arc::new(Box::new(card))));
    }

    /// The number of turns that run in this process. Messages in a queue do not count.
    pub fn running_turns(&self) -> usize {
        self.0.turns.len()
    }

    /// The number of requests for permission that wait for an answer in this process.
    pub fn open_questions(&self) -> usize {
        self.0.questions.len()
    }

    /// Prepares a request of a caller. Fails if the request does not name an extension that the agent requires, or if the card says
    /// that the agent does not offer the operation. This needs no arguments, so a client gets these errors before errors about
    /// arguments. `operation` is `None` if the operation is not known before the arguments are parsed.
    pub fn begin(
        &self,
        identity: Identity,
        terms: RequestTerms<'_>,
        operation: Option<Operation>,
    ) -> Result<Prepared<'_>, Error> {
        let links = terms.base.and_then(|base| self.links(base, None));
        let caller = self.caller(identity, terms)?;
        operation.map_or(Ok(()), |operation| self.require_offered(operation))?;
        Ok(Prepared { service: self, caller, links })
    }

    /// The caller of a request. Of the extensions that the request names, those that the agent knows are active.
    fn caller(&self, identity: Identity, terms: RequestTerms<'_>) -> Result<Caller, Error> {
        let RequestTerms {
            base: _,
            version,
            extensions: requested,
            idempotency_key,
            delivery_key,
            dialect,
            turns,
            trace_parent,
        } = terms;
        requested.validate()?;
        let card = self.0.card.load();
        if let Some(missing) = card.required_extensions().find(|uri| !requested.contains(uri)) {
            let text = match self.0.options.reports.namespace {
                Namespace::Attache => {
                    format!("this agent requires the extension `{missing}`: name it in `A2A-Extensions`")
                }
                Namespace::IacCode => {
                    let all: Vec<_> =
                        card.required_extensions().filter(|uri| !requested.contains(uri)).collect();
                    format!("Required A2A extensions were not requested: {}", all.join(", "))
                }
            };
            return Err(Error::new(ErrorKind::ExtensionSupportRequired, text).with("extension", missing));
        }
        let extensions = if requested.is_empty() {
            Extensions::default()
        } else {
            let is_supported = |uri: &str| {
                uri == IDEMPOTENCY_EXTENSION
                    || uri == GENERATION_EXTENSION
                    || uri == PUSH_EVERY_EVENT_EXTENSION
                    || uri == REPORTS_EXTENSION && self.0.options.reports.namespace == Namespace::Attache
                    || card.capabilities.extensions.iter().any(|extension| extension.uri == uri)
            };
            Extensions::parse(requested.iter().filter(|uri| is_supported(uri)))
        };
        let generations = version >= Version::V1_1 || extensions.contains(GENERATION_EXTENSION);
        let Identity { principal, rights, metadata } = identity;
        let owner = Owner { agent: self.0.options.agent_name.clone(), tenant: None, principal };
        Ok(Caller {
            owner,
            rights,
            metadata,
            version,
            extensions,
            generations,
            idempotency_key,
            delivery_key,
            dialect,
            turns,
            trace_parent,
        })
    }

    /// Fails if the card says that the agent does not offer the operation.
    fn require_offered(&self, operation: Operation) -> Result<(), Error> {
        match operation {
            Operation::SendStreamingMessage | Operation::SubscribeToTask => self.require_streaming(),
            Operation::CreateTaskPushNotificationConfig
            | Operation::GetTaskPushNotificationConfig
            | Operation::ListTaskPushNotificationConfigs
            | Operation::DeleteTaskPushNotificationConfig => self.require_push(),
            Operation::SendMessage
            | Operation::GetTask
            | Operation::ListTasks
            | Operation::CancelTask
            | Operation::GetExtendedAgentCard => Ok(()),
        }
    }

    /// Executes a request. `resume` is the position of the last event that the reader of a stream has received.
    ///
    /// References to stored content stay in the reply: [`Prepared::call`] makes URLs of them.
    pub fn call(
        &self,
        mut caller: Caller,
        request: Request,
        resume: Option<Seq>,
    ) -> impl Future<Output = Result<Reply, Error>> + Send {
        if let Some(tenant) = request.tenant() {
            caller.owner.tenant = Some(tenant.into());
        }
        self.call_for(caller, request, resume)
    }

    /// Executes a request of a caller whose tenant is set.
    fn call_for(
        &self,
        caller: Caller,
        request: Request,
        resume: Option<Seq>,
    ) -> impl Future<Output = Result<Reply, Error>> + Send {
        let checked = self.require_offered(request.operation()).and_then(|()| request.validate());
        let checked = checked.and_then(|()| compatible::check_ids(self.0.options.peer, &request));
        if let Err(error) = checked {
            return Either::Right(future::ready(Err(error)).boxed());
        }
        // The two most frequent operations get their own branch, so that the futures of the others do not make theirs larger.
        #[expect(clippy::wildcard_enum_match_arm, reason = "`call_other` lists all other operations")]
        match request {
            Request::SendMessage(request) => Either::Left(Either::Left(self.send(caller, request))),
            Request::GetTask(request) if request.current_generation.is_none() => {
                Either::Left(Either::Right(self.get(caller, request)))
            }
            request => Either::Right(self.call_other(caller, request, resume).boxed()),
        }
    }

    async fn call_other(
        &self,
        caller: Caller,
        request: Request,
        resume: Option<Seq>,
    ) -> Result<Reply, Error> {
        let sees_reports = caller.extensions.contains(REPORTS_EXTENSION);
        let reply = self.call_any(caller, request, resume).await?;
        Ok(match reply {
            Reply::Events(events, view) if !sees_reports => Reply::Events(events.without_reports(), view),
            Reply::Events(..)
            | Reply::Sent(..)
            | Reply::Message(_)
            | Reply::Task(..)
            | Reply::Tasks(_)
            | Reply::Push(_)
            | Reply::Pushes(_)
            | Reply::Done
            | Reply::Card(_) => reply,
        })
    }

    async fn call_any(&self, caller: Caller, request: Request, resume: Option<Seq>) -> Result<Reply, Error> {
        match request {
            Request::SendMessage(request) => self.send(caller, request).await,
            Request::SendStreamingMessage(request) => self.stream(caller, request, resume).await,
            Request::GetTask(request) => self.long_poll(caller, request).await,
            Request::ListTasks(request) => self.list(caller, request).await,
            Request::CancelTask(request) => self.cancel(caller, request).await,
            Request::SubscribeToTask(request) => self.subscribe(caller, request, resume).await,
            Request::CreateTaskPushNotificationConfig(config) => self.create_push(caller, config).await,
            Request::GetTaskPushNotificationConfig(request) => self.get_push(caller, request).await,
            Request::ListTaskPushNotificationConfigs(request) => self.list_push(caller, request).await,
            Request::DeleteTaskPushNotificationConfig(request) => self.delete_push(caller, request).await,
            Request::GetExtendedAgentCard(_) => self.extended_card(&caller),
        }
    }

    fn extended_card(&self, caller: &Caller) -> Result<Reply, Error> {
        if self.0.card.load().capabilities.extended_agent_card != Some(true) {
            return Err(Error::new(ErrorKind::UnsupportedOperation, "this agent has no extended card"));
        }
        if *caller.principal() == Principal::Anonymous && !self.0.options.extended_card_for_anyone {
            let text = "the extended card is for authenticated callers";
            return Err(Error::new(ErrorKind::Unauthenticated, text));
        }
        let card = self.0.extended.load_full().ok_or_else(|| {
            Error::new(ErrorKind::ExtendedAgentCardNotConfigured, "the extended card is not configured")
        })?;
        Ok(Reply::Card(card(&caller.rights)))
    }

    /// Rejects new messages, and waits up to `grace` for running turns. Turns that still run then are stopped: their tasks fail, or
    /// another process runs them again if the agent is [restartable](Agent::restartable).
    ///
    /// Returns the number of turns that were stopped.
    pub async fn shutdown(&self, grace: Duration) -> usize {
        self.0.closing.store(true, Ordering::Relaxed);
        self.0.running.close();
        if tokio::time::timeout(grace, self.0.running.wait()).await.is_ok() {
            return 0;
        }
        // A turn that waits for its context must not begin while the others are stopped.
        self.0.contexts.stop();
        let late = self.0.turns.running();
        for turn in &late {
            if self.0.restarts(turn.before().as_ref(), &turn.message) {
                run::hand_over(turn).await;
                continue;
            }
            let message = Message {
                message_id: new_id(),
                context_id: Some(turn.context_id.clone()),
                task_id: Some(turn.task_id.clone()),
                role: Role::Agent,
                parts: vec!["the server was stopped before the agent had finished".into()],
                ..Message::default()
            };
            let ending = Ending { state: TaskState::Failed, message: Some(message), metadata: None };
            if let Err(error) = self.end(&turn.caller, &turn.task_id, ending).await {
                tracing::debug!(task = %turn.task_id, %error, "a turn without a task was stopped");
                turn.signal.settle(Progress::Nothing);
                turn.cancel().cancel();
            }
        }
        late.len()
    }

    /// The task with this stored id. An error if it does not belong to the caller.
    async fn find(&self, caller: &Caller, id: &TaskId) -> Result<Snapshot, Error> {
        self.load(caller, id).await?.ok_or_else(|| Error::task_not_found(id))
    }
}

impl Inner {
    /// The name of the agent in its card.
    pub(crate) fn agent_name(&self) -> String {
        self.card.load().name.clone()
    }

    /// Whether a turn of a task may run again. The message is its first one, if the task does not tell.
    pub(crate) fn restarts(&self, task: Option<&Snapshot>, message: &Message) -> bool {
        let task = task.map(Snapshot::task);
        let first =
            task.as_ref().and_then(|task| task.history.iter().find(|message| message.role == Role::User));
        self.agent.restarts(first.unwrap_or(message))
    }

    /// The current time, but never before `last`: the clock of a machine can be set back, and events must stay in order.
    pub(crate) fn now_after(&self, last: Option<Timestamp>) -> Timestamp {
        let now = self.clock.now();
        last.map_or(now, |last| last.max(now))
    }

    /// Whether the service is stopping.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    pub(crate) fn lease_end(&self, now: Timestamp) -> Timestamp {
        now.after(self.options.lease)
    }

    /// Runs a turn independently of the request that started it.
    pub(crate) fn spawn(self: &Arc<Self>, turn: impl Future<Output = ()> + Send + 'static) {
        self.renew_leases();
        self.running.spawn(turn);
    }

    /// Starts the background task that renews the leases of running turns, unless it runs. It stops when the service is dropped.
    fn renew_leases(self: &Arc<Self>) {
        if self.renewing_leases.swap(true, Ordering::Relaxed) {
            return;
        }
        let service = Arc::downgrade(self);
        let every = self.options.lease / 3;
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let Some(service) = service.upgrade() else { return };
                let leases = service.turns.leases();
                if leases.is_empty() {
                    continue;
                }
                match service.store.renew(&leases, service.lease_end(service.clock.now())).await {
                    Ok(failures) => service.turns.handle_renew_failures(&leases, failures),
                    Err(error) => tracing::warn!(%error, "leases could not be renewed"),
                }
            }
        });
    }
}
