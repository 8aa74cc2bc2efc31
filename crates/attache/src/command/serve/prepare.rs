//! The checks of all settings, before the server takes a port.

use std::collections::BTreeMap;
use std::path::Path;

use attache::client::AddressBook;
use attache::server::{PushQueue, RedisStreams, SigningKeys, SigningSecret, is_loopback_url};
use attache_iii::secrets;
use tracing_subscriber::EnvFilter;

use super::agents::AgentName;
use super::functions::Tokens;
use super::kinds::{AgentSection, CheckContext, CheckedAgent, KINDS, TurnTimes, named_agents};
use super::{Serve, is_here, is_http, log, network};
use crate::command::{Failure, keys};
use crate::config::{
    self, ArtifactUrlKind, Callers, CardArgs, CardOverrides, ConversationSettings, DisplayValue, Problems,
    PushArgs, SafeMode, Source,
};

/// The settings after all checks.
pub(in crate::command) struct Prepared {
    pub(super) filter: EnvFilter,
    /// The secret that signs notifications.
    pub(super) push: Option<SigningSecret>,
    /// The keys that sign the card.
    pub(super) keys: Option<SigningKeys>,
    /// The callers. Without any, no authentication is configured.
    pub(in crate::command) callers: Option<Callers>,
    pub(super) tokens: Tokens,
    /// The credentials for other agents.
    pub(super) agents: AddressBook,
    /// What the operator says about the agent.
    pub(super) card: CardOverrides,
    /// The agents with names.
    pub(super) named: BTreeMap<String, CheckedAgent>,
    /// The agent at the root, unless it is functions or a named one.
    pub(super) root: Option<AgentSection>,
    /// The rules for conversations.
    pub(super) conversation: ConversationSettings,
    /// The transport over Redis Streams.
    pub(super) redis: Option<RedisStreams>,
    /// The push queue in Redis.
    pub(super) queue: Option<PushQueue>,
    /// How long turns at the root may take.
    pub(super) root_times: TurnTimes,
}

impl Serve {
    /// Checks all settings.
    pub(super) fn prepare(&self) -> Result<Prepared, Failure> {
        let mut problems = Problems::of(&self.settings);
        let prepared = self.prepare_all(&mut problems);
        problems.result()?;
        prepared.ok_or_else(Failure::consequence)
    }

    /// Checks all settings, and adds all errors. With errors, the result is not to be used.
    pub(in crate::command) fn prepare_all(&self, problems: &mut Problems<'_>) -> Option<Prepared> {
        let filter = log::filter(&self.log.log).map_err(|error| {
            Failure::usage(format!("`{}` is not a filter: {error}", self.log.log)).hint("try `info`")
        });
        let filter = problems.take(["log.filter"], filter);
        if let Some(url) = self.server.base_url.as_ref().filter(|url| !is_http(url)) {
            let failure = Failure::usage(format!("`{url}` is not an `http` or `https` URL"));
            problems.add(["base-url"], failure.hint("try `https://agents.example.com`"));
        }
        problems.take(["store"], self.store.url());
        network::check_addresses(&self.addresses(), problems);
        let callers = problems.take_placed(self.settings.callers());
        let known = callers.as_ref().and_then(Option::as_ref);
        let redis = self.redis_streams(problems);
        if callers.is_some() {
            self.guard(&self.addresses(), known, problems);
            self.guard_redis(redis.as_ref(), known, problems);
        }
        self.tls.check(known, problems);
        self.paths.check(!self.artifacts.no_artifacts, problems);
        self.check_artifacts(redis.as_ref(), problems);
        self.push.check(problems);
        let queue = self.push_queue(problems);
        let root = self.check_root(known, problems);
        let has_functions = self.agent().is_ok_and(|name| name == AgentName::Functions);
        let mut named = named_agents(&self.settings, has_functions, problems);
        let CardArgs { card_grpc, card_transports } = self.card;
        named.values_mut().for_each(|agent| agent.card.follow_server(card_grpc, card_transports));
        let push = self.push_secret(problems);
        let keys = self.signing_keys(problems);
        let agents = problems.take_placed(self.settings.agents());
        let card = problems.take_placed(self.settings.card());
        let conversation = self.conversation(problems);
        let (tokens, root) = root?;
        Some(Prepared {
            filter: filter?,
            push,
            keys,
            callers: callers?,
            agents: agents?,
            card: card?,
            named,
            redis,
            queue,
            root_times: TurnTimes::default(),
            tokens,
            root,
            conversation: conversation?,
        })
    }

    /// The keys that sign the card.
    fn signing_keys(&self, problems: &mut Problems<'_>) -> Option<SigningKeys> {
        let written = self.settings.secret("signing.secret", |settings| {
            (settings.signing.secret.as_ref(), settings.signing.secret_file.as_ref())
        });
        let written = problems.take_placed(written)?;
        let file = self.settings.file.as_ref().and_then(|file| file.settings.signing.secret_file.as_deref());
        let in_file = problems.take(["signing.secret-file"], secret_in(file))?;
        let secret = in_file.or(written.map(|secret| secret.reveal().into()));
        let place = match (&self.signing.signing_keys, file) {
            (Some(_), _) => "signing.keys",
            (None, Some(_)) => "signing.secret-file",
            (None, None) => "signing.secret",
        };
        problems.take([place], keys::for_serving(self.signing.signing_keys.as_ref(), secret)).flatten()
    }

    /// The secret that signs notifications.
    fn push_secret(&self, problems: &mut Problems<'_>) -> Option<SigningSecret> {
        let in_file = problems.take(["push.secret-file"], secret_in(self.push.push_secret_file.as_deref()));
        let written = self.settings.secret("push.secret", |settings| {
            (settings.push.secret.as_ref(), settings.push.secret_file.as_ref())
        });
        let written = problems.take_placed(written).flatten().map(|secret| secret.reveal().into());
        in_file.flatten().or(written).map(SigningSecret::new)
    }

    /// The rules for conversations.
    fn conversation(&self, problems: &mut Problems<'_>) -> Option<ConversationSettings> {
        let default = config::Settings::default();
        let settings = self.settings.file.as_ref().map_or(&default, |file| &file.settings);
        settings.check_conversation(self.compat(), problems);
        let mut conversation = problems.take_placed(settings.conversation(self.compat()))?;
        let workspaces = self.keep_private(conversation.rules().workspaces);
        // Only the store can be wrong here, which is reported above.
        conversation.set_workspaces(workspaces.ok()?);
        Some(conversation)
    }

    /// The agent to serve. The flag of a kind, such as `--program`, names it too.
    pub(super) fn agent(&self) -> Result<AgentName, Failure> {
        let named = self.settings.resolved.iter().find(|setting| setting.key == "agent");
        let is_named = named.is_some_and(|setting| setting.source != Source::Default);
        let mut wanted = Vec::new();
        wanted.extend(is_named.then(|| ("agent", self.server.agent.clone())));
        let asked_for = KINDS.iter().filter(|kind| (kind.is_asked_for)(self));
        wanted.extend(asked_for.map(|kind| (kind.name, AgentName::Kind(kind))));
        match wanted.as_slice() {
            [] => Ok(self.server.agent.clone()),
            [(_, first), others @ ..] if others.iter().all(|(_, other)| other == first) => Ok(first.clone()),
            [(one, _), others @ ..] => {
                let other = others.last().map_or(*one, |(other, _)| *other);
                Err(Failure::usage(format!(
                    "`{one}` and `{other}` name different agents, and a server has one"
                ))
                .hint("leave out all but one"))
            }
        }
    }

    /// Checks the settings of the agent at the root.
    fn check_root(
        &self,
        callers: Option<&Callers>,
        problems: &mut Problems<'_>,
    ) -> Option<(Tokens, Option<AgentSection>)> {
        let name = problems.take(["agent"], self.agent())?;
        if problems.is_wrong("agent") {
            return None;
        }
        if name == AgentName::Functions {
            return Some((self.functions.check(&self.settings, callers, problems), None));
        }
        if self.functions.demo.demo {
            let failure = Failure::usage(format!("the agent `{name}` has no sample functions"));
            problems.add(["functions.demo", "agent"], failure.hint("leave out one of them"));
        }
        let default = config::Settings::default();
        let file = self.settings.file.as_ref().map_or(&default, |file| &file.settings);
        let context = CheckContext { named: &file.agents, is_root: true, has_functions: false };
        let section = match &name {
            AgentName::Kind(kind) => problems.section_or(kind.name, "agent", |problems| {
                let section = problems.take(["url"], kind.at_root(self, file))?;
                section.check(&context, problems);
                Some(Some(section))
            })?,
            AgentName::Named(name) => {
                if !file.agents.contains_key(name) {
                    problems.add(["agent", &format!("agents.{name}")], context.no_agent(name));
                }
                None
            }
            AgentName::Functions => None,
        };
        Some((Tokens::default(), section))
    }

    /// Refuses to serve other machines without authentication, unless `--insecure` is given.
    pub(super) fn guard(&self, addresses: &[String], callers: Option<&Callers>, problems: &mut Problems<'_>) {
        if callers.is_some() {
            return;
        }
        // The address that other machines can reach decides.
        let wide = addresses.iter().position(|listen| !is_here(std::slice::from_ref(listen)));
        let Some((index, listen)) = wide.and_then(|index| Some((index, addresses.get(index)?))) else {
            match self.server.base_url.as_deref().filter(|url| is_http(url) && !is_loopback_url(url)) {
                Some(url) if !self.access.insecure => problems.add(
                    ["base-url", "insecure"],
                    Failure::usage(format!(
                        "others reach the server at `{url}`, and no authentication is configured"
                    ))
                    .hint(LET_IN),
                ),
                Some(_) | None => {
                    network::check_pages(&self.hosts, &self.cors, self.access.insecure, problems);
                }
            }
            return;
        };
        let place = format!("listen[{index}]");
        if !self.access.insecure {
            problems.add(
                [&place, "insecure"],
                Failure::usage(format!(
                    "on `{listen}` other machines can connect, and no authentication is configured"
                ))
                .hint(
                    "list who may call below `auth` in the configuration file, listen on `127.0.0.1`, or let everyone in with `--insecure`",
                ),
            );
        } else if self.hosts.allowed_host.is_empty() {
            problems.add(
                [&place, "allowed-hosts"],
                Failure::usage(format!(
                    "on `{listen}` everyone is let in, and the host names of the server are not set"
                ))
                .hint(
                    "list them in `allowed-hosts`, such as `--allowed-host agents.example.com`; `--allowed-host '*'` lets every web page in",
                ),
            );
        }
    }

    /// Refuses a Redis server that other machines can reach if callers are not authenticated, unless `--insecure` is given.
    fn guard_redis(
        &self,
        redis: Option<&RedisStreams>,
        callers: Option<&Callers>,
        problems: &mut Problems<'_>,
    ) {
        let Some(redis) = redis else { return };
        if redis.is_for_this_machine() || callers.is_some() || self.access.insecure {
            return;
        }
        let (place, reached) = match redis.card_host.clone().filter(|_| redis.url.is_local()) {
            Some(host) => ("redis.card-host", host),
            None => ("redis.url", redis.url.to_string()),
        };
        let text =
            format!("other machines can reach Redis at `{reached}`, and no authentication is configured");
        problems.add([place, "insecure"], Failure::usage(text).hint(LET_IN));
    }

    /// Refuses URLs of artifacts that callers cannot use or must not see.
    fn check_artifacts(&self, redis: Option<&RedisStreams>, problems: &mut Problems<'_>) {
        if self.artifacts.no_artifacts || self.artifacts.artifacts_urls != ArtifactUrlKind::File {
            return;
        }
        if self.is_remote(redis) {
            problems.add(
                ["artifacts.urls", "artifacts.stored"],
                Failure::usage(
                    "`file:` URLs of artifacts tell callers on other machines paths of this machine, which they cannot open",
                )
                .hint("set `artifacts.urls` to `http`, or listen on this machine only"),
            );
        }
        if self.safe_mode() == SafeMode::Always {
            problems.add(
                ["artifacts.urls", "artifacts.stored"],
                Failure::usage(
                    "`file:` URLs of artifacts are paths of this machine, which `safe-mode: always` hides",
                )
                .hint("set `artifacts.urls` to `http`, or `safe-mode` to `remote`"),
            );
        }
    }

    /// The transport over Redis Streams.
    fn redis_streams(&self, problems: &mut Problems<'_>) -> Option<RedisStreams> {
        let file = self.settings.file.as_ref().map(|file| &file.settings.redis);
        config::redis_streams(self.redis.redis.as_deref(), file, problems)
    }

    /// The push queue in Redis. Without push notifications there is none.
    fn push_queue(&self, problems: &mut Problems<'_>) -> Option<PushQueue> {
        let file = self.settings.file.as_ref()?;
        config::push_queue(&file.settings.push, problems).filter(|_| !self.push.no_push)
    }
}

/// What to do where callers are not authenticated.
const LET_IN: &str =
    "list who may call below `auth` in the configuration file, or let everyone in with `--insecure`";

impl PushArgs {
    /// Refuses flags about push notifications together with `--no-push`. Such settings in the file are ignored.
    fn check(&self, problems: &mut Problems<'_>) {
        if !self.no_push {
            return;
        }
        for setting in &problems.settings().resolved {
            let is_useless = setting.key.starts_with("push.") && setting.value != DisplayValue::Switch(false);
            match &setting.source {
                Source::Flag(_) if is_useless => problems.add(
                    [&setting.key],
                    Failure::usage("this is about push notifications, and there are none")
                        .hint("leave it out, or `--no-push`"),
                ),
                Source::Flag(_) | Source::Default | Source::File { .. } | Source::Environment(_) => {}
            }
        }
    }
}

/// Reads the secret in a file.
pub(in crate::command) fn secret_in(file: Option<&Path>) -> Result<Option<Vec<u8>>, Failure> {
    let Some(path) = file else { return Ok(None) };
    let secret = std::fs::read(path)
        .map_err(|error| Failure::usage(format!("`{}` cannot be read: {error}", path.display())))?;
    let secret = secret.trim_ascii();
    // A secret that is not text is a random key. Only its length is checked.
    let flaw = match std::str::from_utf8(secret) {
        Ok(text) => secrets::flaw(text),
        Err(_) => {
            (secret.len() < secrets::SHORTEST).then(|| format!("is shorter than {} bytes", secrets::SHORTEST))
        }
    };
    match flaw {
        Some(flaw) => Err(Failure::usage(format!("the secret in `{}` {flaw}", path.display()))
            .hint("make one with `openssl rand -hex 32`")),
        None => Ok(Some(secret.to_vec())),
    }
}
