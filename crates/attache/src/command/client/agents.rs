//! `attache agents`: names for agents.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use attache::client::{ClientError, TokenKey, Tokens, complete_address, is_agent_url};
use attache::core::{Clock, SystemClock};
use attache::protocol::Timestamp;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};

use super::connect::{self, ConnectionArgs, is_url};
use super::registry::{AgentKey, AgentRecord, PreferredBinding, Registry, tokens};
use super::{block_on, card, logout, show};
use crate::command::{Exit, Failure, Output, print, say};

/// The subcommands of `attache agents`.
#[derive(Debug, Subcommand)]
pub(crate) enum Agents {
    /// Give an agent a name, and keep how it is reached
    ///
    /// What is kept is in `attache/agents.json` below the user's configuration directory, which only the user can read.
    Add(Box<Add>),
    /// Give all agents of a server the names that they have there
    ///
    /// The credentials of the flags are kept with each of them. An agent at another origin than the server is left out.
    Import(Box<Import>),
    /// List the agents that have names
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Forget the name of an agent, and its credentials
    ///
    /// Tokens of a login are revoked, as `attache logout` does.
    Rm {
        /// The name
        name: String,
    },
    /// See whether agents answer
    ///
    /// The exit code is 3 if one does not.
    Ping {
        /// Only the agent of this name, or at this URL
        #[arg(value_name = "AGENT", value_parser = connect::address)]
        agent: Option<String>,

        #[command(flatten)]
        output: Output,
    },
}

/// A name for an agent.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The name: letters, digits, `-`, `_` and `.`
    #[arg(value_parser = name)]
    name: String,

    /// The URL of the agent, or of its card; also `unix:PATH`, `stdio:COMMAND`, `ws://…`, `grpc-jsonrpc://…`
    #[arg(value_parser = agent_url)]
    url: String,

    /// Replace the agent that has the name already, and forget its credentials
    #[arg(long)]
    replace: bool,

    /// Talk to it only if its card is signed with a key in this file: a JSON Web Key, a set of them, or PEM
    #[arg(long, value_name = "PATH")]
    key: Option<PathBuf>,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The agents of a server.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The URL of the server
    #[arg(value_parser = url)]
    url: String,

    /// What the names begin with
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,

    /// Replace agents that have such names already, and forget their credentials
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    connection: ConnectionArgs,
}

fn name(text: &str) -> Result<String, &'static str> {
    let may = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(may) {
        Ok(text.to_owned())
    } else {
        Err("expected letters, digits, `-`, `_` and `.`, a letter or a digit first")
    }
}

fn agent_url(text: &str) -> Result<String, &'static str> {
    let address = complete_address(text).unwrap_or_else(|| text.to_owned());
    if is_agent_url(&address) {
        Ok(address)
    } else {
        Err(
            "expected a URL that begins with `http://` or `https://`, or with `unix:`, `stdio:`, `ws://`, `wss://` or `grpc-jsonrpc://`",
        )
    }
}

fn url(text: &str) -> Result<String, &'static str> {
    let address = complete_address(text).unwrap_or_else(|| text.to_owned());
    if is_url(&address) {
        Ok(address)
    } else {
        Err("expected a URL that begins with `http://` or `https://`")
    }
}

impl Agents {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Add(add) => add.run(),
            Self::Import(import) => block_on(import.run()),
            Self::List { output } => list(&output),
            Self::Rm { name } => {
                let before = Registry::change(|registry| {
                    registry.agents.remove(&name).ok_or_else(|| {
                        Failure::usage(format!("no agent is called `{name}`"))
                            .hint("`attache agents list` shows those that have names")
                    })
                })?;
                let taken = logout::forget_tokens(&AgentKey::Name(name.clone()))?;
                say(format_args!("forgot `{name}`"));
                give_back(&before, taken)
            }
            Self::Ping { agent, output } => block_on(ping(agent, output)),
        }
    }
}

impl Add {
    fn run(self) -> Result<(), Failure> {
        let Self { name, url, replace, key, connection } = self;
        let mut known = connection.keep(url)?;
        known.signed_with = key.as_deref().map(card::pinned).transpose()?;
        let before = Registry::change(|registry| {
            if !replace && let Some(there) = registry.agents.get(&name) {
                let text = format!("`{name}` is the name of the agent at {} already", there.url);
                return Err(Failure::usage(text).hint("give it another name, or use `--replace`"));
            }
            let before = registry.agents.insert(name.clone(), known.clone());
            Ok(before.unwrap_or(known))
        })?;
        // The tokens of the agent that had this name are not for the new one.
        let taken = logout::forget_tokens(&AgentKey::Name(name.clone()))?;
        say(format_args!("added `{name}`: try `attache card {name}`"));
        give_back(&before, taken)
    }
}

impl Import {
    async fn run(self) -> Result<(), Failure> {
        let Self { url, prefix, replace, connection } = self;
        let known = connection.keep(url.clone())?;
        let agent = known.clone().connect(url).await?;
        let listed = agent.client.named_agents().await.map_err(|error| {
            if matches!(error, ClientError::Http { status: 404 | 405 | 410, .. }) {
                return Failure::new(format!("the server at {} has no list of agents", known.url))
                    .hint("give its agent a name with `attache agents add NAME URL`");
            }
            agent.failed(&error)
        })?;
        let origin = agent.client.card_origin();
        let (mut added, mut replaced) = (Vec::new(), Vec::new());
        let mut registry_failure = None;
        Registry::change(|registry| {
            for agent in listed {
                let called = match name(&format!("{prefix}{}", agent.name)) {
                    Ok(called) => called,
                    Err(error) => {
                        say(format_args!("left out `{}`: {error}", show::line(&agent.name)));
                        continue;
                    }
                };
                let its_origin = url::Url::parse(&agent.url).map(|url| url.origin().ascii_serialization());
                if its_origin.ok().as_ref() != Some(&origin) {
                    // Its credentials would be sent to another server.
                    say(format_args!(
                        "left out `{called}`: it is at {}, not at {origin}",
                        show::line(&agent.url)
                    ));
                    continue;
                }
                if !replace && let Some(there) = registry.agents.get(&called) {
                    if there.url != agent.url {
                        let text = format!("`{called}` is the name of the agent at {} already", there.url);
                        registry_failure = Some(
                            Failure::usage(text).hint("use `--prefix TEXT` for other names, or `--replace`"),
                        );
                    }
                    continue;
                }
                let record = AgentRecord { url: agent.url, ..known.clone() };
                if let Some(before) = registry.agents.insert(called.clone(), record) {
                    replaced.push((called.clone(), before));
                }
                added.push(called);
            }
            Ok(())
        })?;
        for (called, before) in replaced {
            // The tokens of the agent that had this name are not for the new one.
            let taken = logout::forget_tokens(&AgentKey::Name(called))?;
            logout::give_back(&before, taken).await;
        }
        for called in &added {
            say(format_args!("added `{called}`"));
        }
        match registry_failure {
            Some(failure) => Err(failure),
            None if added.is_empty() => {
                say(format_args!("there are no new agents"));
                Ok(())
            }
            None => {
                say(format_args!("try `attache card {}`", added[0]));
                Ok(())
            }
        }
    }
}

/// Revokes tokens that have been removed from the file.
fn give_back(before: &AgentRecord, taken: Vec<(TokenKey, Tokens)>) -> Result<(), Failure> {
    if taken.is_empty() {
        return Ok(());
    }
    block_on(async {
        logout::give_back(before, taken).await;
        Ok(())
    })
}

impl AgentRecord {
    /// The kinds of credentials that are stored: their names in JSON and in text.
    fn credentials(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let kept = [
            (self.token.is_some(), "token", "token"),
            (self.token_file.is_some(), "tokenFile", "token file"),
            (self.user.is_some(), "user", "user"),
            (self.api_key.is_some(), "apiKey", "API key"),
            (self.certificate.is_some(), "certificate", "certificate"),
        ];
        kept.into_iter().filter_map(|(is_kept, member, name)| is_kept.then_some((member, name)))
    }
}

/// An agent in JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    name: &'a str,
    url: &'a str,
    binding: Option<PreferredBinding>,
    credentials: Vec<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    trusted_origins: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<LoginState>,
}

/// The state of a login.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum LoginState {
    Current,
    Expired,
}

impl LoginState {
    /// The state for an agent, if there was a login.
    fn of(name: &str, known: &AgentRecord, tokens: &[(TokenKey, Tokens)], now: Timestamp) -> Option<Self> {
        let login = known.login.as_ref()?;
        let is_current = tokens.iter().any(|(key, tokens)| {
            let can_renew = tokens.refresh.is_some() || login.client_secret.is_some();
            key.account.as_deref() == Some(name) && (can_renew || !tokens.is_stale(now))
        });
        Some(if is_current { Self::Current } else { Self::Expired })
    }
}

impl<'a> Row<'a> {
    fn new(name: &'a str, known: &'a AgentRecord, login: Option<LoginState>) -> Self {
        Self {
            name,
            url: &known.url,
            binding: known.binding,
            credentials: known.credentials().map(|(member, _)| member).collect(),
            trusted_origins: &known.trusted_origins,
            login,
        }
    }
}

fn list(output: &Output) -> Result<(), Failure> {
    let agents = Registry::read()?.agents;
    let has_login = agents.values().any(|known| known.login.is_some());
    let tokens = if has_login { tokens()?.list().map_err(Failure::new)? } else { Vec::new() };
    let now = SystemClock.now();
    let login = |name: &str, known: &AgentRecord| LoginState::of(name, known, &tokens, now);
    if output.json {
        let rows: Vec<_> =
            agents.iter().map(|(name, known)| Row::new(name, known, login(name, known))).collect();
        return print(&show::json_lines(&BTreeMap::from([("agents", rows)]))?);
    }
    if agents.is_empty() {
        return print("no agent has a name; `attache agents add NAME URL` gives one\n");
    }
    let row = |(name, known): (&String, &AgentRecord)| {
        let binding = known.binding.map(|binding| match binding {
            PreferredBinding::Jsonrpc => "JSON-RPC",
            PreferredBinding::HttpJson => "HTTP+JSON",
            PreferredBinding::Grpc => "gRPC",
            PreferredBinding::Websocket => "WebSocket",
            PreferredBinding::GrpcJsonrpc => "gRPC envelope",
            PreferredBinding::Unix => "Unix socket",
            PreferredBinding::RedisStreams => "Redis Streams",
        });
        let credentials = known.credentials().map(|(_, name)| name);
        let login = login(name, known).map(|state| match state {
            LoginState::Current => "logged in",
            LoginState::Expired => "login expired",
        });
        let trusted = known.trusted_origins.iter().map(|origin| format!("trusts {}", show::line(origin)));
        let about = binding.into_iter().chain(credentials).chain(login).map(str::to_owned);
        let about: Vec<_> = about.chain(trusted).collect();
        vec![name.clone(), show::line(&known.url), about.join(", ")]
    };
    print(&show::table(&agents.iter().map(row).collect::<Vec<_>>()))
}

async fn ping(agent: Option<String>, output: Output) -> Result<(), Failure> {
    let agents: Vec<(String, AgentRecord)> = match agent {
        None => Registry::read()?.agents.into_iter().collect(),
        Some(agent) => {
            let known = connect::known(&agent)?;
            vec![(agent, known)]
        }
    };
    if agents.is_empty() {
        return Err(Failure::usage("no agent has a name")
            .hint("`attache agents add NAME URL` gives one, or `attache agents ping URL`"));
    }
    let count = agents.len();
    let (mut rows, mut values, mut silent) = (Vec::new(), Vec::<Value>::new(), 0);
    for (name, known) in agents {
        let began = Instant::now();
        let answer = known.connect(name.clone()).await;
        let millis = began.elapsed().as_millis();
        match answer {
            Ok(agent) => {
                let card = agent.client.card();
                let described = format!("{} {}", show::line(&card.name), show::line(&card.version));
                rows.push(vec![name.clone(), format!("{millis} ms"), described]);
                values.push(json!({
                    "name": name, "ok": true, "millis": millis, "agent": card.name, "version": card.version
                }));
            }
            Err(failure) => {
                silent += 1;
                rows.push(vec![name.clone(), "no answer".to_owned(), show::line(&failure.error)]);
                values.push(json!({ "name": name, "ok": false, "error": failure.error }));
            }
        }
    }
    if output.json {
        print(&show::json_lines(&json!({ "agents": values }))?)?;
    } else {
        print(&show::table(&rows))?;
    }
    match silent {
        0 => Ok(()),
        silent => {
            Err(Failure::new(format!("{silent} of {count} agents did not answer")).exit(Exit::Unreachable))
        }
    }
}
