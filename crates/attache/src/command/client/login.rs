//! `attache login`: stores credentials for the other commands.

use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};

use attache::client::{ClientError, Flow, LoginMethod, LoginPrompt};
use clap::Args;
use serde_json::json;

use super::connect::{self, Agent, Tls, Trust, failed};
use super::registry::{AgentKey, AgentRecord, Registry, StoredSecret, tokens};
use super::{mcp_login, registry, show};
use crate::command::{Exit, Failure, Output, print, say};

/// The environment variable with the secret of the client.
pub(crate) const CLIENT_SECRET_VARIABLE: &str = "ATTACHE_CLIENT_SECRET";

/// The arguments of `attache login`.
#[derive(Debug, Args)]
#[command(after_help = "\
What comes of it is kept below the user's configuration directory, in files that only the user can read. `attache logout`
forgets it. For example:
  attache login https://agent.example.com --client-id my-laptop
  attache login partner --client-id ci --client-secret-file secret.txt --client-credentials
  attache login --mcp https://tools.example.com/mcp
  echo \"$TOKEN\" | attache login partner --token-stdin")]
pub(crate) struct Login {
    /// The agent: its URL, the URL of its card, or a name of `attache agents`; with `--mcp` the URL of an MCP server
    #[arg(value_name = "AGENT", value_parser = connect::address)]
    pub(super) agent: String,

    /// Log in to an MCP server, for `attache serve --mcp URL`
    #[arg(long, conflicts_with_all = ["token_stdin", "api_key_stdin", "basic", "origins", "cert", "ca"])]
    mcp: bool,

    /// What the authorization server knows this program by
    #[arg(long, value_name = "ID", env = "ATTACHE_CLIENT_ID")]
    pub(super) client_id: Option<String>,

    /// The file that the secret of this program is in; without it, what is in `ATTACHE_CLIENT_SECRET`
    #[arg(long, value_name = "PATH")]
    pub(super) client_secret_file: Option<PathBuf>,

    /// Send the secret in the body of requests instead of a header
    #[arg(long)]
    pub(super) secret_in_body: bool,

    /// The authorization server that may be asked; without it you are asked whether the one on the card is right
    #[arg(long, value_name = "URL")]
    pub(super) server: Vec<String>,

    /// A scope to ask for, besides those that the card asks for
    #[arg(long, value_name = "SCOPE")]
    pub(super) scope: Vec<String>,

    /// The resource to ask for, where the authorization server gives out tokens for several
    #[arg(long, value_name = "URI")]
    pub(super) resource: Option<String>,

    /// Log in on another device, with a code
    #[arg(long, group = "way")]
    pub(super) device: bool,

    /// Log in as a program, with its secret
    #[arg(long, group = "way")]
    pub(super) client_credentials: bool,

    /// Only say which page to open
    #[arg(long, conflicts_with_all = ["device", "client_credentials"])]
    pub(super) no_browser: bool,

    /// Keep the token that is on standard input
    #[arg(long, group = "way")]
    token_stdin: bool,

    /// Keep the API key that is on standard input
    #[arg(long, group = "way")]
    api_key_stdin: bool,

    /// Keep this name, and the password that is asked for
    #[arg(long, value_name = "NAME", group = "way")]
    basic: Option<String>,

    #[command(flatten)]
    trust: Trust,

    #[command(flatten)]
    pub(super) output: Output,

    #[command(flatten)]
    tls: Tls,
}

impl Login {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        if self.mcp {
            return mcp_login::login(self).await;
        }
        let called = AgentKey::of(&self.agent)
            .ok_or_else(|| Failure::usage(format!("`{}` is not a URL", self.agent)))?;
        let known = connect::known(&self.agent)?;
        if self.token_stdin {
            let token = StoredSecret::from(from_stdin("token")?);
            return self.keep(&called, "a token", |known| {
                // A request can carry only one of them.
                (known.login, known.token_file) = (None, None);
                known.token = Some(token);
            });
        }
        if self.api_key_stdin {
            let key = StoredSecret::from(from_stdin("API key")?);
            return self.keep(&called, "an API key", |known| known.api_key = Some(key));
        }
        if let Some(name) = &self.basic {
            if name.is_empty() || name.contains(':') {
                return Err(Failure::usage("`--basic` needs a name without a colon in it"));
            }
            let user = StoredSecret::from(format!("{name}:{}", password(name)?));
            return self.keep(&called, "a name and a password", |known| known.user = Some(user));
        }
        self.oauth(called, known).await
    }

    /// Stores the credentials of the user.
    fn keep(
        &self,
        called: &AgentKey,
        what: &str,
        change: impl FnOnce(&mut AgentRecord),
    ) -> Result<(), Failure> {
        Registry::change(|registry| {
            registry.update(called, |known| {
                change(known);
                known.trusted_origins.extend(self.trust.origins.clone());
            });
            Ok(())
        })?;
        let agent = show::word(&self.agent);
        say(format_args!("kept {what} for `{}`: try `attache card {agent}`", show::line(&self.agent)));
        if self.output.json { print(&show::json_lines(&json!({ "agent": self.agent }))?) } else { Ok(()) }
    }

    async fn oauth(self, called: AgentKey, known: AgentRecord) -> Result<(), Failure> {
        // The card is public, so reading it needs no credentials.
        let known = AgentRecord { login: None, ..known }.with(self.tls.absolute()?);
        let (cert, ca) = (known.certificate.clone(), known.ca.clone());
        // The stored login of another client is not used.
        let is_same =
            |login: &registry::Login| self.client_id.as_ref().is_none_or(|id| *id == login.client_id);
        let before = stored(&called)?.filter(is_same);
        let agent = known.connect(self.agent.clone()).await?;
        let offers = LoginMethod::from_card(&agent.client.card());
        let wanted = match (self.device, self.client_credentials) {
            (true, _) => Some(Flow::Device),
            (_, true) => Some(Flow::ClientCredentials),
            (false, false) => None,
        };
        let (offer, flow) = choose(&agent, &offers, wanted)?;
        let login = registry::Login {
            client_id: self
                .client_id
                .or_else(|| before.as_ref().map(|login| login.client_id.clone()))
                .ok_or_else(|| {
                    Failure::usage(
                        "`--client-id` is missing: the authorization server must know this program",
                    )
                    .hint(format!("the operator of {} gives out ids", offer.servers().join(", ")))
                })?,
            client_secret: match secret(self.client_secret_file.as_deref())? {
                Some(secret) => Some(secret),
                None => before.as_ref().and_then(|login| login.client_secret.clone()),
            },
            secret_in_body: self.secret_in_body || before.as_ref().is_some_and(|login| login.secret_in_body),
            program: flow == Flow::ClientCredentials,
            servers: self.server,
            scopes: if self.scope.is_empty() {
                before.as_ref().map(|login| login.scopes.clone()).unwrap_or_default()
            } else {
                self.scope
            },
            resource: self.resource.or_else(|| before.as_ref().and_then(|login| login.resource.clone())),
        };
        let login = agreed(&agent, offer, login, before.map(|login| login.servers).unwrap_or_default())?;
        let no_browser = self.no_browser;
        let failed = |error| failed_login(&error, &agent);
        let oauth = login.oauth(called.account()).map_err(failed)?.store(tokens()?);
        let visit = move |visit: LoginPrompt<'_>| show_visit(visit, no_browser);
        let key = oauth.login(&agent.client, offer, flow, &visit).await.map_err(failed)?;
        Registry::change(|registry| {
            registry.update(&called, |known| {
                // A request can carry only one of them.
                (known.token, known.token_file) = (None, None);
                known.login = Some(login);
                known.certificate = cert;
                known.ca = ca;
                known.trusted_origins.extend(self.trust.origins);
            });
            Ok(())
        })?;
        let servers = offer.servers();
        say(format_args!(
            "logged in at {}: try `attache send {} hello`",
            show::line(&servers.join(", ")),
            agent.word()
        ));
        if self.output.json {
            let value = json!({
                "agent": agent.called(), "scheme": offer.scheme(), "servers": servers,
                "flow": name_of(flow), "scopes": key.scopes,
            });
            return print(&show::json_lines(&value)?);
        }
        Ok(())
    }
}

/// The stored login, if there is one.
fn stored(called: &AgentKey) -> Result<Option<registry::Login>, Failure> {
    Ok(Registry::read()?.known(called).and_then(|known| known.login.clone()))
}

/// The failure of a login. The usual hint, `attache login`, is left out.
fn failed_login(error: &ClientError, agent: &Agent) -> Failure {
    if matches!(error, ClientError::Login { .. }) {
        return Failure::new(error).exit(Exit::Unauthorized);
    }
    failed(error, agent.called())
}

/// The first offer of the card that fits the flags.
fn choose<'a>(
    agent: &Agent,
    offers: &'a [LoginMethod],
    wanted: Option<Flow>,
) -> Result<(&'a LoginMethod, Flow), Failure> {
    let exact = |offer: &&LoginMethod| wanted.is_none() || offer.flow() == wanted;
    // The metadata of a server may list more flows than the card.
    let offer = offers.iter().find(exact).or_else(|| offers.iter().find(|offer| offer.flow().is_none()));
    match offer.or(offers.first()) {
        Some(offer) => Ok((offer, wanted.or(offer.flow()).unwrap_or(Flow::Browser))),
        None => Err(Failure::usage(format!("`{}` offers no way to log in", agent.called())).hint(format!(
            "`attache card {}` says what it asks for; `--token-stdin`, `--api-key-stdin` and `--basic` keep it",
            agent.word()
        ))),
    }
}

/// The login with the authorization servers that the user agrees to. The agent's own server needs no agreement: it gets the token
/// in any case.
fn agreed(
    agent: &Agent,
    offer: &LoginMethod,
    mut login: registry::Login,
    before: Vec<String>,
) -> Result<registry::Login, Failure> {
    let servers = offer.servers();
    agree("the card", &agent.client.card_origin(), &servers, &[login.servers, before].concat())?;
    login.servers = servers;
    Ok(login)
}

/// Asks the user about the authorization servers that are neither known nor the server itself, which gets the token in any case. `who`
/// names them.
pub(super) fn agree(who: &str, own: &str, servers: &[String], known: &[String]) -> Result<(), Failure> {
    let is_new = |server: &String| {
        let mut known = known.iter().filter_map(|known| url::Url::parse(known).ok());
        server != own && !known.any(|known| known.origin().ascii_serialization() == *server)
    };
    let new: Vec<&String> = servers.iter().filter(|server| is_new(server)).collect();
    if !new.is_empty() {
        let named = new.iter().map(|server| show::line(server)).collect::<Vec<_>>().join(" and ");
        let hint = new.iter().map(|server| format!("--server {}", show::word(server))).collect::<Vec<_>>();
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(Failure::usage(format!(
                "{who} wants you to log in at {named}, which is another server"
            ))
            .hint(format!("if that is right, say so with `{}`", hint.join(" "))));
        }
        let mut letters = who.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase()).unwrap_or_default();
        say(format_args!("{first}{} wants you to log in at {named}. Is that right? [y/N]", letters.as_str()));
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer).map_err(Failure::new)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Err(Failure::new("not logged in").exit(Exit::Unauthorized));
        }
    }
    Ok(())
}

/// Prints what the user has to do, and opens the browser if there is one.
pub(super) fn show_visit(visit: LoginPrompt<'_>, no_browser: bool) {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = match visit {
        LoginPrompt::Browser { url } => {
            let opened = !no_browser && has_display() && open::that_detached(url).is_ok();
            let begin =
                if opened { "Log in with the browser. If it did not open:" } else { "To log in, open:" };
            write!(text, "{begin}\n  {}", show::line(url))
        }
        LoginPrompt::Code { url, code, url_with_code } => {
            let or = url_with_code.map(|url| format!("\nor open {}", show::line(url))).unwrap_or_default();
            write!(text, "To log in, open {} and enter the code\n  {}{or}", show::line(url), show::line(code))
        }
        _ => Ok(()),
    };
    say(format_args!("{text}"));
}

/// Whether there is a display for a browser.
fn has_display() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    cfg!(not(target_os = "linux")) || set("DISPLAY") || set("WAYLAND_DISPLAY")
}

pub(super) fn name_of(flow: Flow) -> &'static str {
    match flow {
        Flow::Browser => "browser",
        Flow::Device => "device",
        Flow::ClientCredentials => "clientCredentials",
        _ => "other",
    }
}

pub(super) fn secret(file: Option<&Path>) -> Result<Option<StoredSecret>, Failure> {
    let text = match file {
        None => std::env::var(CLIENT_SECRET_VARIABLE).ok(),
        Some(path) => Some(std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!("`--client-secret-file {}` cannot be read: {error}", path.display()))
        })?),
    };
    match (text.as_deref().map(str::trim), file) {
        (Some(""), Some(path)) => Err(Failure::usage(format!("there is no secret in `{}`", path.display()))),
        (Some("") | None, _) => Ok(None),
        (Some(secret), _) => Ok(Some(StoredSecret::from(secret.to_owned()))),
    }
}

fn from_stdin(what: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(64 * 1024).read_to_string(&mut text);
    read.map_err(|error| Failure::usage(format!("the {what} cannot be read: {error}")))?;
    match text.trim() {
        "" => Err(Failure::usage(format!("there is no {what} on standard input"))),
        text => Ok(text.to_owned()),
    }
}

fn password(name: &str) -> Result<String, Failure> {
    if !std::io::stdin().is_terminal() {
        return from_stdin("password");
    }
    let prompt = format!("Password of {}: ", show::line(name));
    match rpassword::prompt_password(prompt) {
        Ok(password) if password.is_empty() => Err(Failure::usage("the password is empty")),
        Ok(password) => Ok(password),
        Err(error) => Err(Failure::usage(format!("the password cannot be read: {error}"))),
    }
}
