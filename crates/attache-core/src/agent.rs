//! Agents: the code that answers messages.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use attache_protocol::{Error, Message, Part, TaskId};

use crate::{BoxFuture, Caller, Conversation, Turn};

/// The result of an agent's turn.
pub type AgentResult = Result<(), AgentError>;

/// Answers messages of clients, one message per [`Turn`].
///
/// [`agent_fn`] makes an agent of an async function. A type becomes an agent by implementing [`run`](Self::run). The agent reports
/// progress and results through its turn. If `run` returns and has neither ended the task nor asked for input, the task is completed.
/// If `run` returns an error, panics or takes too long, the task fails.
///
/// ```
/// use attache_core::{Agent, AgentResult, Turn};
///
/// struct Shout;
///
/// impl Agent for Shout {
///     async fn run(&self, turn: Turn) -> AgentResult {
///         turn.artifact("answer").text(turn.text().to_uppercase()).await?;
///         turn.complete().await
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an agent",
    note = "implement `Agent` for it, or wrap an `async fn(Turn) -> AgentResult` in `agent_fn`"
)]
pub trait Agent: Send + Sync + 'static {
    /// Answers one message.
    fn run(&self, turn: Turn) -> impl Future<Output = AgentResult> + Send;

    /// Whether a caller may send this message. It is called before a task is created, so a rejected message leaves no task.
    fn admits(&self, caller: &Caller, message: &Message) -> Result<(), Error> {
        let _ = (caller, message);
        Ok(())
    }

    /// Prepares a message that begins a task, after it was [admitted](Self::admits) and before it is stored.
    ///
    /// An agent that passes tasks on to others notes in the metadata of the message which one it has chosen. The later turns of the
    /// task then go to the same one, whatever has changed in the meantime.
    fn prepare(&self, first: &mut Message) {
        let _ = first;
    }

    /// Whether a turn that died with its process may run again. Otherwise its task fails.
    ///
    /// The new turn gets the same message. The events of the first turn stay in the task. [`Turn::is_rerun`] is true in the new turn.
    fn restartable(&self) -> bool {
        false
    }

    /// Whether the turns of one task may [run again](Self::restartable). `first` is the message that the task began with. An agent whose
    /// tasks differ in this implements it.
    fn restarts(&self, first: &Message) -> bool {
        let _ = first;
        self.restartable()
    }

    /// Whether the agent [reports](Turn::report) what it does. Its card then lists the extension for reports. Readers can activate
    /// the extension in any case.
    fn reports(&self) -> bool {
        false
    }

    /// The rules for the conversations that the agent holds, or none. `first` is the message that its task began with.
    ///
    /// With rules, one turn of a [context](crate::Context) runs at a time, and its messages are checked before a task is created.
    /// [`conversational`] gives rules to any agent.
    fn conversation(&self, first: &Message) -> Option<Arc<Conversation>> {
        let _ = first;
        None
    }

    /// Tells the agent that a task was ended from outside its turn, for example by a cancel. An agent that keeps something for the next
    /// message of a task, such as a process that waits for an answer, releases it here.
    fn task_ended(&self, task: &TaskId) {
        let _ = task;
    }

    /// The agent as a [`BoxAgent`], for code that chooses agents at run time.
    fn boxed(self) -> BoxAgent
    where
        Self: Sized,
    {
        BoxAgent(Arc::new(self))
    }
}

/// Declares that the turns of an agent may [run again](Agent::restartable).
pub fn restartable(agent: impl Agent) -> impl Agent {
    struct Restartable<A>(A);

    impl<A: Agent> Agent for Restartable<A> {
        fn run(&self, turn: Turn) -> impl Future<Output = AgentResult> + Send {
            self.0.run(turn)
        }

        fn admits(&self, caller: &Caller, message: &Message) -> Result<(), Error> {
            self.0.admits(caller, message)
        }

        fn prepare(&self, first: &mut Message) {
            self.0.prepare(first);
        }

        fn restartable(&self) -> bool {
            true
        }

        fn reports(&self) -> bool {
            self.0.reports()
        }

        fn conversation(&self, first: &Message) -> Option<Arc<Conversation>> {
            self.0.conversation(first)
        }

        fn task_ended(&self, task: &TaskId) {
            self.0.task_ended(task);
        }
    }

    Restartable(agent)
}

/// Gives an agent the rules of conversations.
///
/// ```
/// use attache_core::{Busy, Conversation, Turn, agent_fn, conversational};
///
/// let agent = agent_fn(|turn: Turn| async move { turn.reply(turn.text()).await });
/// let agent = conversational(agent, Conversation::default().with(|rules| rules.contexts.busy = Busy::Reject));
/// ```
pub fn conversational(agent: impl Agent, rules: Conversation) -> impl Agent {
    struct Conversational<A>(A, Arc<Conversation>);

    impl<A: Agent> Agent for Conversational<A> {
        fn run(&self, turn: Turn) -> impl Future<Output = AgentResult> + Send {
            self.0.run(turn)
        }

        fn admits(&self, caller: &Caller, message: &Message) -> Result<(), Error> {
            self.0.admits(caller, message)
        }

        fn prepare(&self, first: &mut Message) {
            self.0.prepare(first);
        }

        fn restartable(&self) -> bool {
            self.0.restartable()
        }

        fn restarts(&self, first: &Message) -> bool {
            self.0.restarts(first)
        }

        fn reports(&self) -> bool {
            self.0.reports()
        }

        fn conversation(&self, _: &Message) -> Option<Arc<Conversation>> {
            Some(self.1.clone())
        }

        fn task_ended(&self, task: &TaskId) {
            self.0.task_ended(task);
        }
    }

    Conversational(agent, Arc::new(rules))
}

/// An agent whose type is hidden, so that agents of different types can be chosen at run time. Cheap to clone: all clones are the
/// same agent.
///
/// ```
/// use attache_core::{Agent, BoxAgent, Echo, Turn, agent_fn};
///
/// fn choose(name: &str) -> Option<BoxAgent> {
///     match name {
///         "echo" => Some(Echo.boxed()),
///         "greeter" => Some(agent_fn(|turn: Turn| async move { turn.reply("Hello").await }).boxed()),
///         _ => None,
///     }
/// }
///
/// assert!(choose("echo").is_some_and(|agent| agent.restartable()));
/// ```
#[derive(Clone)]
pub struct BoxAgent(Arc<dyn DynAgent>);

impl fmt::Debug for BoxAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxAgent").finish_non_exhaustive()
    }
}

impl Agent for BoxAgent {
    fn run(&self, turn: Turn) -> impl Future<Output = AgentResult> + Send {
        self.0.run(turn)
    }

    fn admits(&self, caller: &Caller, message: &Message) -> Result<(), Error> {
        self.0.admits(caller, message)
    }

    fn prepare(&self, first: &mut Message) {
        self.0.prepare(first);
    }

    fn restartable(&self) -> bool {
        self.0.restartable()
    }

    fn restarts(&self, first: &Message) -> bool {
        self.0.restarts(first)
    }

    fn reports(&self) -> bool {
        self.0.reports()
    }

    fn conversation(&self, first: &Message) -> Option<Arc<Conversation>> {
        self.0.conversation(first)
    }

    fn task_ended(&self, task: &TaskId) {
        self.0.task_ended(task);
    }

    /// The same agent. It is not boxed a second time.
    fn boxed(self) -> BoxAgent {
        self
    }
}

/// The object-safe form of [`Agent`].
trait DynAgent: Send + Sync + 'static {
    fn run(&self, turn: Turn) -> BoxFuture<'_, AgentResult>;
    fn admits(&self, caller: &Caller, message: &Message) -> Result<(), Error>;
    fn prepare(&self, first: &mut Message);
    fn restartable(&self) -> bool;
    fn restarts(&self, first: &Message) -> bool;
    fn reports(&self) -> bool;
    fn conversation(&self, first: &Message) -> Option<Arc<Conversation>>;
    fn task_ended(&self, task: &TaskId);
}

impl<A: Agent> DynAgent for A {
    fn prepare(&self, first: &mut Message) {
        Agent::prepare(self, first);
    }

    fn restartable(&self) -> bool {
        Agent::restartable(self)
    }

    fn restarts(&self, first: &Message) -> bool {
        Agent::restarts(self, first)
    }

    fn reports(&self) -> bool {
        Agent::reports(self)
    }

    fn admits(&self, caller: &Caller, message: &Message) -> Result<(), Error> {
        Agent::admits(self, caller, message)
    }

    fn conversation(&self, first: &Message) -> Option<Arc<Conversation>> {
        Agent::conversation(self, first)
    }

    fn task_ended(&self, task: &TaskId) {
        Agent::task_ended(self, task);
    }

    fn run(&self, turn: Turn) -> BoxFuture<'_, AgentResult> {
        Box::pin(Agent::run(self, turn))
    }
}

/// Makes an agent of an async function.
///
/// ```
/// use attache_core::{Turn, agent_fn};
///
/// let agent = agent_fn(|turn: Turn| async move {
///     turn.working("thinking").await?;
///     turn.artifact("answer").text(format!("You said: {}", turn.text())).await?;
///     turn.complete().await
/// });
/// ```
pub fn agent_fn<F, Fut>(function: F) -> impl Agent
where
    F: Fn(Turn) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = AgentResult> + Send + 'static,
{
    struct AgentFn<F>(F);

    impl<F, Fut> Agent for AgentFn<F>
    where
        F: Fn(Turn) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = AgentResult> + Send + 'static,
    {
        fn run(&self, turn: Turn) -> impl Future<Output = AgentResult> + Send {
            (self.0)(turn)
        }
    }

    AgentFn(function)
}

/// Why an agent could not finish its turn.
///
/// `?` converts any error into one. The text of such an error goes to the server's log, and the client gets an error id only. A text
/// for the client is made with [`AgentError::public`].
pub struct AgentError(Kind);

pub(crate) enum Kind {
    Public(Cow<'static, str>),
    Internal(Box<dyn StdError + Send + Sync>),
    /// The turn cannot write any more: the task was canceled, has ended, or runs in another process.
    Over(&'static str),
}

impl AgentError {
    /// A failure whose text the client may read.
    pub fn public(text: impl Into<Cow<'static, str>>) -> Self {
        Self(Kind::Public(text.into()))
    }

    pub(crate) fn over(why: &'static str) -> Self {
        Self(Kind::Over(why))
    }

    pub(crate) fn into_kind(self) -> Kind {
        self.0
    }

    /// Whether the task is over for this turn: it was canceled, has ended, or runs in another process.
    pub fn is_over(&self) -> bool {
        matches!(self.0, Kind::Over(_))
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Public(text) => f.write_str(text),
            Kind::Internal(error) => error.fmt(f),
            Kind::Over(why) => f.write_str(why),
        }
    }
}

impl fmt::Debug for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentError({self})")
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for AgentError {
    fn from(error: E) -> Self {
        Self(Kind::Internal(error.into()))
    }
}

/// An agent that returns the parts of each message as an artifact.
#[derive(Debug, Clone, Copy, Default)]
pub struct Echo;

impl Agent for Echo {
    async fn run(&self, turn: Turn) -> AgentResult {
        let parts: Vec<Part> = turn.message().parts.clone();
        turn.artifact("echo").parts(parts).await?;
        turn.complete().await
    }

    fn restartable(&self) -> bool {
        true
    }
}
