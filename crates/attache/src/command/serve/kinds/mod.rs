//! The kinds of agents that `attache serve` knows, whether they are at the root or have names.
//!
//! A kind is a type that implements [`AgentKind`] in a module of its own, and one line in [`KINDS`]. Everything else follows from
//! that: its name in `--agent` and in the settings, and how it is checked and built. Agents are built through [`AgentKinds`].

mod acp;
mod built;
mod checked;
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
#[cfg(test)]
pub(super) use self::checked::SecretFiles;
pub(super) use self::checked::{CheckedAgent, named_agents};
pub(super) use self::connecting::OnFailure;
use self::connecting::{Unconnected, connect};
pub(crate) use self::model::MODEL_KEY_VARIABLE;
pub(super) use self::times::TurnTimes;
use super::Serve;
use super::tools::ToolSources;
use crate::command::Failure;
use crate::config::{self, CardOverrides, ConversationSettings, NamedAgent, Problems};

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

    /// Whether the file has `NAME: true` for it, instead of a section.
    const IS_SWITCH: bool = false;

    /// Whether a model can use its agents as tools.
    const OFFERS_TOOLS: bool = false;

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

    /// Whether its agents can call other agents of the server.
    fn calls_agents(_settings: &Self::Settings) -> bool {
        Self::USES_OTHERS
    }

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
pub(super) struct CheckContext<'a> {
    /// The agents with names.
    pub(super) named: &'a BTreeMap<String, NamedAgent>,
    pub(super) is_root: bool,
    /// Whether functions are at the root.
    pub(super) has_functions: bool,
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

/// The settings of an agent, with its kind.
#[derive(Clone)]
pub(crate) struct AgentSection {
    kind: &'static RegisteredKind,
    settings: AnySettings,
}

/// The settings of an agent of some kind.
type AnySettings = Arc<dyn Any + Send + Sync>;

impl fmt::Debug for AgentSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSection").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl AgentSection {
    fn settings<T: 'static>(&self) -> Result<&T, Failure> {
        let settings = self.settings.downcast_ref();
        settings.ok_or_else(|| {
            Failure::new(format!("the settings are not those of the kind `{}`", self.kind.name))
        })
    }

    /// The name of its kind.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind.name
    }

    /// Whether the agent passes messages to other agents of the server, so that it is built after them.
    pub(super) fn uses_others(&self) -> bool {
        self.kind.uses_others
    }

    /// Whether the agent can call other agents of the server.
    fn calls_agents(&self) -> bool {
        (self.kind.calls_agents)(self)
    }

    /// Whether a model can use the agent as tools.
    fn offers_tools(&self) -> bool {
        self.kind.offers_tools
    }

    /// How long the turns of the agent need at most.
    pub(super) fn times(&self) -> TurnTimes {
        (self.kind.times)(self)
    }

    /// The files with secrets that the settings name.
    fn secret_files(&self) -> Vec<PathBuf> {
        (self.kind.secret_files)(self)
    }

    /// Checks the settings. The paths of errors are below the section.
    pub(super) fn check(&self, context: &CheckContext<'_>, problems: &mut Problems<'_>) {
        (self.kind.check)(self, context, problems);
    }
}

/// An [`AgentKind`] in the table of all kinds.
pub(crate) struct RegisteredKind {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    is_switch: bool,
    uses_others: bool,
    offers_tools: bool,
    connects: Option<Unconnected>,
    pub(super) is_asked_for: fn(&Serve) -> bool,
    at_root: fn(&Serve, &config::Settings) -> Result<AnySettings, Failure>,
    of_named: fn(&NamedAgent) -> Option<AnySettings>,
    check: fn(&AgentSection, &CheckContext<'_>, &mut Problems<'_>),
    calls_agents: fn(&AgentSection) -> bool,
    times: fn(&AgentSection) -> TurnTimes,
    secret_files: fn(&AgentSection) -> Vec<PathBuf>,
    register: fn(&mut Kinds),
}

impl RegisteredKind {
    const fn of<K: AgentKind>() -> Self {
        Self {
            name: K::NAME,
            about: K::ABOUT,
            is_switch: K::IS_SWITCH,
            uses_others: K::USES_OTHERS,
            offers_tools: K::OFFERS_TOOLS,
            connects: K::CONNECTS,
            is_asked_for: K::is_asked_for,
            at_root: |serve, file| Ok(Arc::new(K::at_root(serve, file)?)),
            of_named: |agent| Some(Arc::new(K::of_named(agent)?)),
            check: |section, context, problems| {
                if let Some(settings) = problems.take_placed(section.settings()) {
                    K::check(settings, context, problems);
                }
            },
            calls_agents: |section| section.settings().is_ok_and(K::calls_agents),
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

    /// The settings of the agent at the root: the section of the file, with what the flags say.
    pub(super) fn at_root(
        &'static self,
        serve: &Serve,
        file: &config::Settings,
    ) -> Result<AgentSection, Failure> {
        Ok(AgentSection { kind: self, settings: (self.at_root)(serve, file)? })
    }

    /// The settings of a named agent, if it is of this kind.
    fn of_named(&'static self, agent: &NamedAgent) -> Option<AgentSection> {
        Some(AgentSection { kind: self, settings: (self.of_named)(agent)? })
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
pub(super) fn sections(agent: &NamedAgent) -> Vec<AgentSection> {
    KINDS.iter().filter_map(|kind| kind.of_named(agent)).collect()
}

/// Whether this is so for the kind of a named agent.
fn is_of_kind(agent: &NamedAgent, test: fn(&AgentSection) -> bool) -> bool {
    sections(agent).iter().any(test)
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
        match self.section.kind.connects {
            Some(unconnected) => connect(self, unconnected, on_failure).await,
            None => self.build().await,
        }
    }

    /// Builds the agent.
    pub(super) async fn build(self) -> Result<BuiltAgent, Failure> {
        let (kinds, kind) = (self.context.kinds.clone(), self.section.kind());
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

    /// A kind of agent that replies with its settings.
    struct Say;

    impl AgentKind for Say {
        type Settings = String;
        const NAME: &'static str = "say";
        const ABOUT: &'static str = "Says one thing";

        fn is_asked_for(_: &Serve) -> bool {
            false
        }

        fn at_root(_: &Serve, _: &config::Settings) -> Result<String, Failure> {
            Ok("good morning".to_owned())
        }

        fn of_named(_: &NamedAgent) -> Option<String> {
            Some("good evening".to_owned())
        }

        fn check(_: &String, _: &CheckContext<'_>, _: &mut Problems<'_>) {}

        async fn build(text: String, request: BuildRequest) -> Result<BuiltAgent, Failure> {
            let agent = agent_fn(move |turn: Turn| {
                let text = text.clone();
                async move { turn.reply(text).await }
            });
            Ok(BuiltAgent::new(agent, Card::new("Say", "Says one thing"), request.card))
        }
    }

    static SAY: RegisteredKind = RegisteredKind::of::<Say>();

    fn request(kinds: Kinds, section: AgentSection) -> BuildRequest {
        let context = BuildContext {
            kinds,
            store: Arc::new(MemoryStore::default()),
            agents: AddressBook::default(),
            own_url: None,
            tools: ToolSources::default(),
            conversation: config::Settings::default().conversation(None).unwrap(),
        };
        BuildRequest { name: None, section, card: CardOverrides::default(), others: Vec::new(), context }
    }

    /// All kinds and one more.
    fn with_say() -> Kinds {
        let mut kinds = kinds();
        (SAY.register)(&mut kinds);
        kinds
    }

    #[tokio::test]
    async fn an_agent_of_a_kind_that_was_registered_is_served() {
        let section = SAY.of_named(&NamedAgent::default()).unwrap();
        let built = request(with_say(), section).build().await.unwrap();
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
        assert_eq!(Texts::from(&reply).all(), "good evening");
    }

    #[tokio::test]
    async fn a_kind_that_is_not_registered_or_gets_other_settings_is_an_error() {
        let failed = async |kinds, section| request(kinds, section).build().await.err().unwrap().to_string();
        let section = SAY.of_named(&NamedAgent::default()).unwrap();
        let unknown = failed(kinds(), section).await;
        assert!(unknown.contains("`say` is not a kind of agent"), "{unknown}");
        let other = failed(with_say(), AgentSection { kind: &SAY, settings: Arc::new(5) }).await;
        assert!(other.contains("not those of the kind `say`"), "{other}");
    }
}
