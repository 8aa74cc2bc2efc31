//! The kinds of agents that `attache serve` knows, whether they are at the root or have names.
//!
//! A kind is a type that implements [`AgentKind`] in a module of its own, and one line in [`KINDS`]. Everything else follows from
//! that: its name in `--agent` and in the settings, and how it is checked and built. Agents are built through [`AgentKinds`].

mod acp;
mod built;
mod connecting;
mod echo;
mod mcp;
mod model;
mod program;
mod remote;
mod router;
mod times;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use attache::client::AddressBook;
use attache::core::{AgentKinds, BuildAgentError, Store};
use attache_agents::budget::Budget;
use attache_agents::router::RoutedAgent;

pub(super) use self::built::BuiltAgent;
pub(super) use self::connecting::OnFailure;
use self::connecting::{Unconnected, connect};
pub(crate) use self::model::MODEL_KEY_VARIABLE;
pub(super) use self::times::TurnTimes;
use super::Serve;
use super::tools::ToolSources;
use crate::command::Failure;
use crate::config::{self, CardOverrides, ConversationSettings, NamedAgent, Problems, ResolvedSettings};

/// All kinds, in the order in which they are shown. Functions are not among them: they need an engine.
pub(super) static KINDS: [RegisteredKind; 7] = [
    RegisteredKind::of::<echo::EchoKind>(),
    RegisteredKind::of::<program::ProgramKind>(),
    RegisteredKind::of::<model::ModelKind>(),
    RegisteredKind::of::<acp::AcpKind>(),
    RegisteredKind::of::<mcp::McpKind>(),
    RegisteredKind::of::<remote::RemoteKind>(),
    RegisteredKind::of::<router::RouterKind>(),
];

/// A kind of agent: its name, its settings and how it is built.
pub(super) trait AgentKind: 'static {
    /// Its section of the file.
    type Settings: Clone + Send + Sync + 'static;

    /// Its name, for `--agent` and for the file. Its flag, if it has one, has the same name.
    const NAME: &'static str;

    /// What it is, for `--help` and for the schema.
    const ABOUT: &'static str;

    /// Whether its agents pass messages to other agents of the server. They are built after those, and change with them.
    const USES_OTHERS: bool = false;

    /// If its agents connect to something when they are built: what is known of them before.
    const CONNECTS: Option<Unconnected> = None;

    /// Whether a flag asks for an agent of this kind.
    fn is_asked_for(serve: &Serve) -> bool;

    /// The settings of the agent at the root: the section of the file, with what the flags say. An error is about the URL of the agent.
    fn at_root(serve: &Serve, file: &config::Settings) -> Result<Self::Settings, Failure>;

    /// The settings of a named agent, if it is of this kind.
    fn of_named(agent: &NamedAgent) -> Option<Self::Settings>;

    /// Checks the settings, before the server takes a port. The paths of errors are below the section.
    fn check(settings: &Self::Settings, context: &CheckContext<'_>, problems: &mut Problems<'_>);

    /// How long its turns need at most.
    fn times(_settings: &Self::Settings) -> TurnTimes {
        TurnTimes::default()
    }

    /// The files with secrets that its settings name. A reload builds the agent anew if one of them has changed.
    fn secret_files(_settings: &Self::Settings) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Builds an agent.
    fn build(
        settings: Self::Settings,
        request: BuildRequest,
    ) -> impl Future<Output = Result<BuiltAgent, Failure>> + Send;
}

/// Where an agent is, and what it can refer to.
pub(crate) struct CheckContext<'a> {
    pub(crate) settings: &'a ResolvedSettings,
    /// The agents with names.
    pub(crate) named: &'a BTreeMap<String, NamedAgent>,
    pub(crate) is_root: bool,
    /// Whether functions are at the root.
    pub(crate) has_functions: bool,
}

impl CheckContext<'_> {
    /// The failure for a name that no agent has.
    pub(super) fn no_agent(&self, name: &str) -> Failure {
        let names: Vec<_> = self.named.keys().map(String::as_str).collect();
        Failure::usage(format!("there is no agent `{name}`")).hint(match names.is_empty() {
            true => "define it below `agents` in the configuration file".to_owned(),
            false => format!("`agents` in the configuration file has: {}", names.join(", ")),
        })
    }
}

/// The settings of an agent, with the name of its kind.
#[derive(Clone)]
pub(crate) struct AgentSection {
    kind: &'static str,
    settings: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for AgentSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSection").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl AgentSection {
    pub(super) fn new<T: Send + Sync + 'static>(kind: &'static str, settings: T) -> Self {
        Self { kind, settings: Arc::new(settings) }
    }

    fn settings<T: 'static>(&self) -> Result<&T, Failure> {
        let settings = self.settings.downcast_ref();
        settings
            .ok_or_else(|| Failure::new(format!("the settings are not those of the kind `{}`", self.kind)))
    }

    /// The name of its kind.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    /// Whether the agent passes messages to other agents.
    pub(super) fn uses_others(&self) -> bool {
        KINDS.iter().any(|kind| kind.name == self.kind && kind.uses_others)
    }

    /// How long the turns of the agent need at most.
    pub(super) fn times(&self) -> TurnTimes {
        let kind = KINDS.iter().find(|kind| kind.name == self.kind);
        kind.map_or_else(TurnTimes::default, |kind| (kind.times)(self))
    }

    /// The files with secrets that the settings name.
    pub(crate) fn secret_files(&self) -> Vec<PathBuf> {
        let kind = KINDS.iter().find(|kind| kind.name == self.kind);
        kind.map_or_else(Vec::new, |kind| (kind.secret_files)(self))
    }

    /// Checks the settings. The paths of errors are below the section.
    pub(crate) fn check(&self, context: &CheckContext<'_>, problems: &mut Problems<'_>) {
        if let Some(kind) = KINDS.iter().find(|kind| kind.name == self.kind) {
            (kind.check)(self, context, problems);
        }
    }
}

/// An [`AgentKind`] in the table of all kinds.
pub(crate) struct RegisteredKind {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    uses_others: bool,
    connects: Option<Unconnected>,
    pub(super) is_asked_for: fn(&Serve) -> bool,
    pub(super) at_root: fn(&Serve, &config::Settings) -> Result<AgentSection, Failure>,
    of_named: fn(&NamedAgent) -> Option<AgentSection>,
    check: fn(&AgentSection, &CheckContext<'_>, &mut Problems<'_>),
    times: fn(&AgentSection) -> TurnTimes,
    secret_files: fn(&AgentSection) -> Vec<PathBuf>,
    register: fn(&mut Kinds),
}

impl RegisteredKind {
    const fn of<K: AgentKind>() -> Self {
        Self {
            name: K::NAME,
            about: K::ABOUT,
            uses_others: K::USES_OTHERS,
            connects: K::CONNECTS,
            is_asked_for: K::is_asked_for,
            at_root: |serve, file| Ok(AgentSection::new(K::NAME, K::at_root(serve, file)?)),
            of_named: |agent| K::of_named(agent).map(|settings| AgentSection::new(K::NAME, settings)),
            check: |section, context, problems| {
                if let Some(settings) = problems.take_placed(section.settings()) {
                    K::check(settings, context, problems);
                }
            },
            times: |section| section.settings().map_or_else(|_| TurnTimes::default(), K::times),
            secret_files: |section| section.settings().map_or_else(|_| Vec::new(), K::secret_files),
            register: |kinds| {
                kinds.register_with(K::NAME, |request: BuildRequest| async {
                    let settings = request.section.settings::<K::Settings>()?.clone();
                    Ok(K::build(settings, request).await?)
                });
            },
        }
    }
}

impl fmt::Debug for RegisteredKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Kinds are the same if they have the same name.
impl PartialEq for RegisteredKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for RegisteredKind {}

/// What a named agent is, as its sections say. There should be one.
pub(crate) fn sections(agent: &NamedAgent) -> Vec<AgentSection> {
    KINDS.iter().filter_map(|kind| (kind.of_named)(agent)).collect()
}

/// How agents are built, by the names of their kinds.
pub(super) type Kinds = AgentKinds<BuiltAgent, BuildRequest>;

/// All kinds of the command.
pub(super) fn kinds() -> Kinds {
    let mut kinds = Kinds::default();
    KINDS.iter().for_each(|kind| (kind.register)(&mut kinds));
    kinds
}

/// What agents get from the server that they run in.
#[derive(Clone)]
pub(super) struct BuildContext {
    /// How agents are built.
    pub(super) kinds: Kinds,
    /// The store of the server.
    pub(super) store: Arc<dyn Store>,
    /// The credentials for other agents.
    pub(super) agents: AddressBook,
    /// The URL of the server, as far as it is known before the server listens.
    pub(super) own_url: Option<String>,
    /// What models can call.
    pub(super) tools: ToolSources,
    /// The rules for conversations.
    pub(super) conversation: ConversationSettings,
}

/// An agent to build.
#[derive(Clone)]
pub(super) struct BuildRequest {
    /// Its name, if it has one.
    pub(super) name: Option<String>,
    pub(super) section: AgentSection,
    /// What the operator says about it.
    pub(super) card: CardOverrides,
    /// The agents that it can pass messages to, if its kind does so.
    pub(super) others: Vec<(String, RoutedAgent)>,
    pub(super) context: BuildContext,
}

impl BuildRequest {
    /// The budget of the callers of the agent, with what they have used.
    async fn budget(&self, settings: &config::BudgetSettings) -> Result<Budget, Failure> {
        // The agent at the root has no name, and no other agent has an empty one.
        let name = self.name.as_deref().unwrap_or_default();
        let budget = Budget::new(settings.options(), self.context.store.clone(), name);
        budget.load().await.map_err(|error| Failure::new(format!("a budget cannot be read: {error}")))?;
        Ok(budget)
    }

    /// Builds one of several agents. What it connects to may be down.
    pub(super) async fn build_named(self, on_failure: OnFailure) -> Result<BuiltAgent, Failure> {
        let kind = KINDS.iter().find(|kind| kind.name == self.section.kind);
        match kind.and_then(|kind| kind.connects) {
            Some(unconnected) => connect(self, unconnected, on_failure).await,
            None => self.build().await,
        }
    }

    /// Builds the agent.
    pub(super) async fn build(self) -> Result<BuiltAgent, Failure> {
        let (kinds, kind) = (self.context.kinds.clone(), self.section.kind);
        kinds.build(kind, self).await.map_err(|error| {
            let BuildAgentError::Factory { error, .. } = error else { return Failure::new(error) };
            match error.downcast::<Failure>() {
                Ok(failure) => *failure,
                Err(error) => Failure::new(error),
            }
        })
    }
}

/// The variables of the server that an agent at the root gets: those of its own section, or else those of the flag. The flag is that of
/// coding agents, whose section in the file does not count here.
fn passed_variables(serve: &Serve, file: &config::Settings, own: &[String]) -> Vec<String> {
    let flag = &serve.acp.pass_env;
    if *flag == file.acp.pass_environment { own.to_vec() } else { flag.clone() }
}

#[cfg(test)]
mod tests {
    use attache::prelude::*;
    use attache::server::LocalAddress;

    use super::*;

    /// A context with one kind more, whose agents reply with their settings.
    fn context() -> BuildContext {
        let mut kinds = kinds();
        kinds.register_with("say", |request: BuildRequest| async move {
            let text = request.section.settings::<String>()?.clone();
            let agent = agent_fn(move |turn: Turn| {
                let text = text.clone();
                async move { turn.reply(text).await }
            });
            Ok(BuiltAgent::new(agent, Card::new("Say", "Says one thing"), request.card))
        });
        BuildContext {
            kinds,
            store: Arc::new(MemoryStore::default()),
            agents: AddressBook::default(),
            own_url: None,
            tools: ToolSources::default(),
            conversation: config::Settings::default().conversation(None).unwrap(),
        }
    }

    fn request(section: AgentSection) -> BuildRequest {
        let (card, context) = (CardOverrides::default(), context());
        BuildRequest { name: None, section, card, others: Vec::new(), context }
    }

    #[tokio::test]
    async fn an_agent_of_a_kind_that_was_registered_is_served() {
        let built = request(AgentSection::new("say", "good morning".to_owned())).build().await.unwrap();
        let server = Server::new(built.agent.clone()).card(built.current_card()).bind("127.0.0.1:0");
        let listening = server.listen().await.unwrap();
        let address = match listening.local_addresses().unwrap().remove(0) {
            LocalAddress::Tcp(address) => address,
            LocalAddress::Unix(path) => panic!("{}", path.display()),
        };
        tokio::spawn(listening.run());
        let client = Client::connect(&format!("http://{address}")).await.unwrap();
        assert_eq!(client.card().name, "Say");
        let reply = client.send("hi").await.unwrap();
        assert_eq!(Texts::from(&reply).all(), "good morning");
    }

    #[tokio::test]
    async fn a_kind_that_is_not_registered_or_gets_other_settings_is_an_error() {
        let failed = async |section| request(section).build().await.err().unwrap().to_string();
        let unknown = failed(AgentSection::new("sya", ())).await;
        assert!(unknown.contains("`sya` is not a kind of agent"), "{unknown}");
        let other = failed(AgentSection::new("say", 5)).await;
        assert!(other.contains("not those of the kind `say`"), "{other}");
    }
}
