//! A language model as an agent, through any endpoint with the chat completion API of OpenAI.
//!
//! The conversation is the tasks of a context, which are in the store of the server. The agent keeps nothing itself, so a restart
//! loses nothing. The reply of the model is streamed as it arrives. [`Tool`]s are called in a loop until the model is done.

mod charge;
mod conversation;
mod earlier;
mod endpoint;
mod options;
mod reply;
mod run;
mod sample;
mod tool;
mod transcript;
mod watch;
mod wire;

use std::sync::Arc;

use attache_core::{Agent, AgentError, AgentResult, Conversation, Turn, Usage};
use attache_outbound::SetupError;
use attache_protocol::Message;

pub use self::options::ModelOptions;
pub use self::tool::Tool;

use attache_protocol::TaskId;

use crate::answer::Answer;
use crate::budget::Budget;
use crate::waiting::Waiting;

use self::charge::Charge;
use self::endpoint::Endpoint;
use self::reply::{Added, Finish, Reply};
use self::run::Paused;
pub(crate) use self::sample::{Sample, SampleMessage, SamplePart};
use self::watch::Watch;
use self::wire::ChatMessage;

/// An agent that passes messages to a language model.
#[derive(Clone)]
pub struct Model {
    options: Arc<ModelOptions>,
    endpoint: Endpoint,
    rules: Arc<Conversation>,
    tools: Vec<ToolSource>,
    budget: Option<Budget>,
    /// The turns that wait for a permission.
    waiting: Waiting<Paused>,
}

/// Gives the tools for one turn.
type ToolSource = Arc<dyn Fn(&Turn) -> Vec<Tool> + Send + Sync>;

impl Model {
    /// An agent with these options. Fails if the HTTP client cannot be set up.
    pub fn new(options: ModelOptions) -> Result<Self, SetupError> {
        let rules = Arc::new(options.conversation.clone());
        let options = Arc::new(options);
        let endpoint = Endpoint::new(options.clone())?;
        Ok(Self { options, endpoint, rules, tools: Vec::new(), budget: None, waiting: Waiting::default() })
    }

    /// Gives the model tools that it can call, in addition to those that it has.
    pub fn tools(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        let tools: Vec<Tool> = tools.into_iter().collect();
        self.tools_from(move |_| tools.clone())
    }

    /// Gives the model tools that depend on the turn: on the caller, or on what is connected at the moment. If two tools have the same
    /// name, the first one counts.
    pub fn tools_from(mut self, source: impl Fn(&Turn) -> Vec<Tool> + Send + Sync + 'static) -> Self {
        self.tools.push(Arc::new(source));
        self
    }

    /// Counts the tokens of each request against the budget of the caller. [`Budget::limit`] refuses callers that have none left.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    fn tools_for(&self, turn: &Turn) -> Vec<Tool> {
        let mut tools: Vec<Tool> = Vec::new();
        for tool in self.tools.iter().flat_map(|source| source(turn)) {
            // Endpoints reject requests with two tools of one name.
            if !tools.iter().any(|known| known.name == tool.name) {
                tools.push(tool);
            }
        }
        tools
    }

    /// Sends the conversation, and streams the text of the reply.
    async fn ask(
        &self,
        turn: &Turn,
        messages: &[ChatMessage],
        tools: &[Tool],
        stream: &mut Answer<'_>,
        used: &mut Usage,
    ) -> Result<Reply, AgentError> {
        let mut events = self.endpoint.complete(messages, tools).await?;
        let mut reply = Reply::default();
        let mut watch = Watch::new(turn);
        let mut charge = self.budget.as_ref().map(|budget| Charge::new(budget, turn, messages));
        loop {
            let Some(chunk) = stream.wait(events.next()).await?? else { break };
            if let Some(usage) = &chunk.usage {
                used.add(&Usage::new(usage.prompt_tokens, usage.completion_tokens));
                if let Some(charge) = &mut charge {
                    charge.count(usage);
                }
                tracing::info!(
                    target: "attache::model", task = %turn.task_id(), model = self.options.model,
                    input_tokens = usage.prompt_tokens, output_tokens = usage.completion_tokens,
                    "the model replied"
                );
            }
            let Added { text, thought } = reply.add(chunk)?;
            if let Some(charge) = &mut charge {
                charge.received(reply.size());
            }
            watch.see(&thought, &text, &reply, stream).await?;
            stream.write(text).await?;
        }
        if let (Some(charge), Some(budget)) = (charge, &self.budget) {
            let has_left = charge.settle().await?;
            if !has_left && reply.finish == Finish::ToolCalls {
                return Err(AgentError::public(budget.explain()));
            }
        }
        reply.check_complete()?;
        watch.end(&mut reply, stream).await?;
        Ok(reply)
    }
}

impl Agent for Model {
    async fn run(&self, turn: Turn) -> AgentResult {
        // Dropping the request closes the connection, so the provider stops as well.
        tokio::select! {
            result = self.answer(&turn) => result,
            () = turn.cancelled() => Ok(()),
        }
    }

    fn conversation(&self, _: &Message) -> Option<Arc<Conversation>> {
        Some(self.rules.clone())
    }

    /// A question to a model has no effects, so it can be asked again. Tools can have effects.
    fn restartable(&self) -> bool {
        self.tools.is_empty()
    }

    fn reports(&self) -> bool {
        true
    }

    fn task_ended(&self, task: &TaskId) {
        drop(self.waiting.take(task));
    }
}
