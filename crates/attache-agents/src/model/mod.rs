//! A language model as an agent, through any endpoint with the chat completion API of OpenAI.
//!
//! The conversation is the tasks of a context, which are in the store of the server. The agent keeps nothing itself, so a restart
//! loses nothing. The reply of the model is streamed as it arrives. [`Tool`]s are called in a loop until the model is done.

mod charge;
mod conversation;
mod endpoint;
mod options;
mod reply;
mod sample;
mod tool;
mod wire;

use std::sync::Arc;

use attache_core::{Agent, AgentError, AgentResult, Conversation, TextStream, Turn};
use attache_outbound::SetupError;
use attache_protocol::Message;

pub use self::options::ModelOptions;
pub use self::tool::Tool;

use crate::budget::Budget;

use self::charge::Charge;
use self::endpoint::Endpoint;
use self::reply::{Finish, Reply};
pub(crate) use self::sample::{Sample, SampleMessage, SamplePart};
use self::wire::ChatMessage;

/// An agent that passes messages to a language model.
#[derive(Clone)]
pub struct Model {
    options: Arc<ModelOptions>,
    endpoint: Endpoint,
    rules: Arc<Conversation>,
    tools: Vec<ToolSource>,
    budget: Option<Budget>,
}

/// Gives the tools for one turn.
type ToolSource = Arc<dyn Fn(&Turn) -> Vec<Tool> + Send + Sync>;

impl Model {
    /// An agent with these options. Fails if the HTTP client cannot be set up.
    pub fn new(options: ModelOptions) -> Result<Self, SetupError> {
        let rules = Arc::new(options.conversation.clone());
        let options = Arc::new(options);
        let endpoint = Endpoint::new(options.clone())?;
        Ok(Self { options, endpoint, rules, tools: Vec::new(), budget: None })
    }

    /// Gives the model tools that it can call, in addition to those that it has.
    pub fn tools(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        let tools: Vec<Tool> = tools.into_iter().collect();
        self.tools_from(move |_| tools.clone())
    }

    /// Gives the model tools that depend on the turn: on the caller, or on what there is at the moment. If two tools have the same
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

    async fn answer(&self, turn: &Turn) -> AgentResult {
        let mut messages = conversation::messages(turn, &self.options).await?;
        let mut stream = TextStream::new(turn.artifact("reply").stream());
        let tools = self.tools_for(turn);
        for _ in 0..=self.options.max_rounds {
            let reply = match self.ask(turn, &messages, &tools, &mut stream).await {
                Ok(reply) => reply,
                Err(error) => {
                    // The caller gets what arrived before the failure.
                    stream.finish().await?;
                    return Err(error);
                }
            };
            match reply.finish {
                Finish::Stop => {
                    stream.finish().await?;
                    return turn.complete().await;
                }
                Finish::Length => {
                    stream.finish().await?;
                    return turn
                        .complete_with("the reply is incomplete: the model reached its length limit")
                        .await;
                }
                Finish::Filtered => {
                    stream.finish().await?;
                    return turn.reject("the model's provider filtered the reply").await;
                }
                Finish::ToolCalls => {
                    let calls = reply.calls.clone();
                    messages.push(ChatMessage::assistant(reply));
                    for call in calls {
                        turn.working(format!("calling {}", call.name)).await?;
                        let result =
                            stream.wait(tool::call(&tools, &call, self.options.tool_timeout)).await?;
                        messages.push(ChatMessage::tool(call.id, result));
                    }
                }
            }
        }
        let limit = self.options.max_rounds;
        Err(AgentError::public(format!("the model called tools more than {limit} times in a row")))
    }

    /// Sends the conversation, and streams the text of the reply.
    async fn ask(
        &self,
        turn: &Turn,
        messages: &[ChatMessage],
        tools: &[Tool],
        stream: &mut TextStream<'_>,
    ) -> Result<Reply, AgentError> {
        let mut events = self.endpoint.complete(messages, tools).await?;
        let mut reply = Reply::default();
        let mut charge = self.budget.as_ref().map(|budget| Charge::new(budget, turn, messages));
        loop {
            let Some(chunk) = stream.wait(events.next()).await?? else { break };
            if let Some(usage) = &chunk.usage {
                if let Some(charge) = &mut charge {
                    charge.count(usage);
                }
                tracing::info!(
                    target: "attache::model", task = %turn.task_id(), model = self.options.model,
                    input_tokens = usage.prompt_tokens, output_tokens = usage.completion_tokens,
                    "the model replied"
                );
            }
            let text = reply.add(chunk)?;
            if let Some(charge) = &mut charge {
                charge.add(&text);
            }
            stream.write(text).await?;
        }
        if let (Some(charge), Some(budget)) = (charge, &self.budget) {
            let has_left = charge.settle().await?;
            if !has_left && reply.finish == Finish::ToolCalls {
                return Err(AgentError::public(budget.explain()));
            }
        }
        reply.check_complete()?;
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
}
