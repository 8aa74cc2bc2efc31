//! The registry of agent kinds: which agents can be built by name from settings.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Agent, BoxAgent, BoxFuture};

/// Kinds of agents by name. Each kind has a factory that builds an agent from its settings.
///
/// ```
/// use attache_core::{Agent, AgentKinds, BuildAgentError, Echo, Turn, agent_fn};
/// use serde_json::json;
///
/// #[derive(serde::Deserialize)]
/// struct Greeting {
///     greeting: String,
/// }
///
/// # async fn example() -> Result<(), BuildAgentError> {
/// let mut kinds = AgentKinds::new();
/// kinds.register("echo", |_: serde_json::Value| async { Ok(Echo) });
/// kinds.register("greeter", |Greeting { greeting }| async move {
///     Ok(agent_fn(move |turn: Turn| {
///         let greeting = greeting.clone();
///         async move { turn.reply(greeting).await }
///     }))
/// });
/// let agent = kinds.build("greeter", json!({"greeting": "Good morning"})).await?;
/// # Ok(())
/// # }
/// ```
///
/// A program that keeps more than the agent, such as its card, chooses what its factories return (`A`), and what they get beside or
/// instead of JSON (`S`). It starts with [`AgentKinds::default`] and uses [`AgentKinds::register_with`].
pub struct AgentKinds<A = BoxAgent, S = Value>(BTreeMap<String, Factory<A, S>>);

type Factory<A, S> = Arc<dyn Fn(S) -> BoxFuture<'static, Result<A, FactoryError>> + Send + Sync>;

type FactoryError = Box<dyn StdError + Send + Sync>;

/// Why an agent was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildAgentError {
    /// No kind has this name.
    #[error("`{name}` is not a kind of agent, expected {}", one_of(known))]
    UnknownKind {
        /// The name that was asked for.
        name: String,
        /// The names of all kinds.
        known: Vec<String>,
    },
    /// The factory did not accept the settings, or could not build the agent.
    #[error("an agent of the kind `{kind}` cannot be built: {error}")]
    Factory {
        /// The name of the kind.
        kind: String,
        /// What the factory returned.
        error: Box<dyn StdError + Send + Sync>,
    },
}

fn one_of(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => "no kind, because none is registered".to_owned(),
        [name] => name.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

impl AgentKinds {
    /// A registry without kinds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind. It replaces an earlier kind of the same name.
    ///
    /// The settings are deserialized before the factory runs. A factory that reads them itself takes a [`serde_json::Value`].
    pub fn register<S, F, Fut, A>(&mut self, name: impl Into<String>, factory: F) -> &mut Self
    where
        S: DeserializeOwned,
        F: Fn(S) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<A, FactoryError>> + Send + 'static,
        A: Agent,
    {
        self.register_with(name, move |settings| {
            let built = serde_json::from_value(settings).map(&factory);
            async move { built?.await.map(Agent::boxed) }
        })
    }
}

impl<A, S> AgentKinds<A, S> {
    /// Adds a kind whose factory gets its input as it is. It replaces an earlier kind of the same name.
    pub fn register_with<F, Fut>(&mut self, name: impl Into<String>, factory: F) -> &mut Self
    where
        F: Fn(S) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<A, FactoryError>> + Send + 'static,
    {
        self.0.insert(name.into(), Arc::new(move |input| Box::pin(factory(input))));
        self
    }

    /// The names of all kinds, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Builds an agent of the kind `name`.
    pub async fn build(&self, name: &str, settings: S) -> Result<A, BuildAgentError> {
        let factory = self.0.get(name).ok_or_else(|| BuildAgentError::UnknownKind {
            name: name.to_owned(),
            known: self.0.keys().cloned().collect(),
        })?;
        factory(settings).await.map_err(|error| BuildAgentError::Factory { kind: name.to_owned(), error })
    }
}

impl<A, S> Clone for AgentKinds<A, S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<A, S> Default for AgentKinds<A, S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<A, S> fmt::Debug for AgentKinds<A, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
