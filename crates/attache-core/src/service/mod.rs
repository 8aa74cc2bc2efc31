//! The operations of the protocol, for one caller: who may see what, which state allows what, what waits until when.

mod chosen_id;
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
    AgentCard, Error, ErrorKind, Extensions, GENERATION_EXTENSION, IDEMPOTENCY_EXTENSION,
    ListTaskPushNotificationConfigsResponse, Message, PUSH_EVERY_EVENT_EXTENSION, Request, Role, TaskId,
    TaskPushNotificationConfig, TaskState, Timestamp, Version,
};
use futures::future::{self, Either, FutureExt};
use tokio_util::task::TaskTracker;

pub use self::maintenance::Recovered;
use self::read::Ending;
use crate::run::{self, Turns};
use crate::signal::Progress;
use crate::{
    Agent, BoxAgent, Caller, Clock, EventStream, Identity, Options, Owner, Principal, Rights, Seq, Snapshot, Store,
    SystemClock, View, new_id,
};

/// Carries out the operations of the protocol. Cheap to clone; all clones are one service.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) agent: BoxAgent,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    pub(crate) turns: Turns,
    card: ArcSwap<AgentCard>,
    extended: ArcSwapOption<CardFor>,
    running: TaskTracker,
    closing: AtomicBool,
    keeping_leases: AtomicBool,
}

/// What makes the card for callers with some rights.
type CardFor = Box<dyn Fn(&Rights) -> Arc<AgentCard> + Send + Sync>;

/// What an operation answers.
pub enum Reply {
    /// A task that a message led to, with what to show of it.
    Sent(Snapshot, View),
    /// A direct answer to a message.
    Message(Box<Message>),
    /// A task, with what to show of it.
    Task(Snapshot, View),
    /// A page of tasks.
    Tasks(Page),
    /// Events as they come, with what to show of tasks.
    Events(EventStream, View),
    /// A webhook.
    Push(Box<TaskPushNotificationConfig>),
    /// Webhooks.
    Pushes(ListTaskPushNotificationConfigsResponse),
    /// Done, with nothing to say.
    Done,
    /// The extended card.
    Card(Arc<AgentCard>),
}

/// A page of tasks.
pub struct Page {
    /// The tasks, latest status first.
    pub tasks: Vec<Snapshot>,
    /// What to show of each.
    pub view: View,
    /// Where to go on; empty on the last page.
    pub next_page_token: String,
    /// The limit that was used.
    pub page_size: i32,
    /// How many tasks match, on all pages together.
    pub total_size: i32,
}

/// The error for what nobody expected. What happened goes to the log with an id; the caller gets the id and nothing else.
pub fn internal(error: &dyn std::fmt::Display) -> Error {
    let id: String = new_id();
    tracing::error!(error_id = id, %error, "an operation failed");
    Error::new(ErrorKind::Internal, format!("something went wrong here: error {id}")).with("errorId", id)
}

/// Carries work to its end even if whoever asked for it goes away halfway. Work that needs no waiting is simply done.
async fn to_the_end<T: Send + 'static>(
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
    /// A service for an agent with a store.
    pub fn new(agent: impl Agent, store: Arc<dyn Store>, card: AgentCard, options: Options) -> Self {
        Self::with_clock(agent, store, card, options, Arc::new(SystemClock))
    }

    /// A service that takes the time from elsewhere.
    pub fn with_clock(
        agent: impl Agent,
        store: Arc<dyn Store>,
        card: AgentCard,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self(Arc::new(Inner {
            agent: agent.boxed(),
            store,
            clock,
            options,
            turns: Turns::default(),
            card: ArcSwap::from_pointee(card),
            extended: ArcSwapOption::empty(),
            running: TaskTracker::new(),
            closing: AtomicBool::new(false),
            keeping_leases: AtomicBool::new(false),
        }))
    }

    /// Where tasks are kept.
    pub fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// The card as it is now.
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

    /// Sets what makes the card for authenticated callers, each time one of them asks for it.
    pub fn set_extended_card_for(&self, card: impl Fn(&Rights) -> Arc<AgentCard> + Send + Sync + 'static) {
        self.0.extended.store(Some(Arc::new(Box::new(card))));
    }

    /// How many turns are under way in this process. Messages that wait for theirs do not count.
    pub fn running_turns(&self) -> usize {
        self.0.turns.len()
    }

    /// Lets a request in: checks the extensions it must ask for, and settles which of those it asks for are active.
    pub fn admit(
        &self,
        identity: Identity,
        version: Version,
        asked: &Extensions,
        idempotency_key: Option<String>,
    ) -> Result<Caller, Error> {
        asked.validate()?;
        let card = self.0.card.load();
        if let Some(missing) = card.required_extensions().find(|uri| !asked.contains(uri)) {
            let text = format!("this agent requires the extension `{missing}`: name it in `A2A-Extensions`");
            return Err(Error::new(ErrorKind::ExtensionSupportRequired, text).with("extension", missing));
        }
        let extensions = if asked.is_empty() {
            Extensions::default()
        } else {
            let known = |uri: &str| {
                uri == IDEMPOTENCY_EXTENSION
                    || uri == GENERATION_EXTENSION
                    || uri == PUSH_EVERY_EVENT_EXTENSION
                    || card.capabilities.extensions.iter().any(|extension| extension.uri == uri)
            };
            Extensions::parse(asked.iter().filter(|uri| known(uri)))
        };
        let generations = version >= Version::V1_1 || extensions.contains(GENERATION_EXTENSION);
        let Identity { principal, rights, metadata } = identity;
        let owner = Owner { tenant: None, principal };
        Ok(Caller {
            owner,
            rights,
            metadata,
            version,
            extensions,
            generations,
            idempotency_key,
            dialect: None,
            turns: None,
        })
    }

    /// Carries out a request. `resume` is the last event that a reader of streams has seen.
    pub fn call(
        &self,
        mut caller: Caller,
        request: Request,
        resume: Option<Seq>,
    ) -> impl Future<Output = Result<Reply, Error>> + Send {
        if let Some(tenant) = request.tenant() {
            caller.owner.tenant = Some(tenant.into());
        }
        if let Err(error) = request.validate() {
            return Either::Right(future::ready(Err(error)).boxed());
        }
        // The way of most requests is kept short: the others do not make its future larger.
        #[expect(clippy::wildcard_enum_match_arm, reason = "all the others are listed where they are called")]
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
        match request {
            Request::SendMessage(request) => self.send(caller, request).await,
            Request::SendStreamingMessage(request) => self.stream(caller, request, resume).await,
            Request::GetTask(request) => self.get_later(caller, request).await,
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

    /// Takes no more messages, lets running turns finish, and after `grace` ends those that have not: their tasks fail, or are left
    /// for the next process if the agent is [restartable](Agent::restartable).
    ///
    /// Returns how many turns had to be ended.
    pub async fn shutdown(&self, grace: Duration) -> usize {
        self.0.closing.store(true, Ordering::Relaxed);
        self.0.running.close();
        if tokio::time::timeout(grace, self.0.running.wait()).await.is_ok() {
            return 0;
        }
        let late = self.0.turns.all();
        let restartable = self.0.agent.restartable();
        for turn in &late {
            if restartable {
                run::leave(turn).await;
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
                tracing::debug!(task = %turn.task_id, %error, "a turn ended without a task");
                turn.signal.settle(Progress::Nothing);
                turn.cancel().cancel();
            }
        }
        late.len()
    }

    /// The task that is stored under an id, if there is one for this caller.
    async fn find(&self, caller: &Caller, id: &TaskId) -> Result<Snapshot, Error> {
        self.load(caller, id).await?.ok_or_else(|| Error::task_not_found(id))
    }
}

impl Inner {
    /// The time now, but never before `last`: the clock of a machine may be set back, the order of events may not.
    pub(crate) fn now_after(&self, last: Option<Timestamp>) -> Timestamp {
        let now = self.clock.now();
        last.map_or(now, |last| last.max(now))
    }

    pub(crate) fn lease_end(&self, now: Timestamp) -> Timestamp {
        now.after(self.options.lease)
    }

    /// Keeps a turn going after the request that started it is gone.
    pub(crate) fn spawn(self: &Arc<Self>, turn: impl Future<Output = ()> + Send + 'static) {
        self.keep_leases();
        self.running.spawn(turn);
    }

    /// Gives signs of life for all running turns, from the first that outlives a poll until the service is gone.
    fn keep_leases(self: &Arc<Self>) {
        if self.keeping_leases.swap(true, Ordering::Relaxed) {
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
