//! Agents for tests: lists of steps, and latches at which an agent and a test wait for each other.

use std::sync::Arc;

use attache_core::{Agent, AgentResult, Turn};
use proptest::prelude::*;
use tokio::sync::Semaphore;

use super::soon;

/// A point where an agent waits for the test, and the test for the agent.
#[derive(Clone)]
pub(crate) struct Latch {
    arrived: Arc<Semaphore>,
    opened: Arc<Semaphore>,
}

impl Latch {
    pub(crate) fn new() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), opened: Arc::new(Semaphore::new(0)) }
    }

    /// The agent waits here until the test opens the latch.
    pub(crate) async fn pass(&self) {
        self.arrived.add_permits(1);
        self.opened.acquire().await.expect("the semaphore is never closed").forget();
    }

    /// The test waits here until an agent has arrived.
    pub(crate) async fn reached(&self) {
        soon(self.arrived.acquire()).await.expect("the semaphore is never closed").forget();
    }

    /// Lets one agent pass, now or when it arrives.
    pub(crate) fn open(&self) {
        self.opened.add_permits(1);
    }
}

/// One action of an agent.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Working(String),
    Artifact {
        name: String,
        text: String,
    },
    Chunks {
        name: String,
        texts: Vec<String>,
    },
    Ask(String),
    RequireAuth(String),
    Complete,
    Fail(String),
    Reject(String),
    Reply(String),
    /// Yields to the runtime once.
    Yield,
}

/// An agent that takes the same steps in every turn.
#[derive(Debug, Clone)]
pub(crate) struct Script(pub(crate) Vec<Step>);

impl Agent for Script {
    async fn run(&self, turn: Turn) -> AgentResult {
        for what in &self.0 {
            step(&turn, what).await?;
        }
        Ok(())
    }
}

/// Executes one step.
pub(crate) async fn step(turn: &Turn, step: &Step) -> AgentResult {
    match step {
        Step::Working(text) => turn.working(text).await,
        Step::Artifact { name, text } => turn.artifact(name).text(text).await,
        Step::Chunks { name, texts } => {
            let mut stream = turn.artifact(name).stream();
            for text in texts {
                stream.chunk(text.as_str()).await?;
            }
            stream.last("").await
        }
        Step::Ask(text) => turn.ask(text.as_str()).await,
        Step::RequireAuth(text) => turn.require_auth(text.as_str()).await,
        Step::Complete => turn.complete().await,
        Step::Fail(text) => turn.fail(text.as_str()).await,
        Step::Reject(text) => turn.reject(text.as_str()).await,
        Step::Reply(text) => turn.reply(text.as_str()).await,
        Step::Yield => {
            tokio::task::yield_now().await;
            Ok(())
        }
    }
}

/// Random scripts of a valid agent.
pub(crate) fn scripts() -> impl Strategy<Value = Script> {
    let name = || prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned);
    let text = || "[a-z]{0,4}";
    let step = prop_oneof![
        2 => text().prop_map(Step::Working),
        3 => (name(), text()).prop_map(|(name, text)| Step::Artifact { name, text }),
        2 => (name(), prop::collection::vec(text(), 0..4)).prop_map(|(name, texts)| Step::Chunks { name, texts }),
        1 => text().prop_map(Step::RequireAuth),
        3 => Just(Step::Yield),
    ];
    let end = prop_oneof![
        Just(vec![]),
        Just(vec![Step::Complete]),
        text().prop_map(|text| vec![Step::Ask(text)]),
        text().prop_map(|text| vec![Step::Fail(text)]),
        text().prop_map(|text| vec![Step::Reject(text)]),
    ];
    (prop::collection::vec(step, 0..12), end).prop_map(|(steps, end)| Script([steps, end].concat()))
}
