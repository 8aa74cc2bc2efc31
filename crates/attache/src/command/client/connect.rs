//! Connects to an agent: finds its URL and its credentials, and explains failures.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use attache::client::{
    Binding, Client, ClientError, ClientOptions, CommandErrors, Commands, ConnectFailure, KeySet,
    RootCertificates, SchemeCredentials, TlsIdentity, TrustedOrigins, Verifier, complete_address,
    is_agent_url,
};
use attache::protocol::{AgentCard, ErrorKind, TaskId};
use clap::Args;

use super::card::asks_for;
use super::registry::{AgentKey, AgentRecord, PreferredBinding, Registry, StoredSecret, file_path, tokens};
use super::show;
use crate::command::{Exit, Failure};

/// The heading of these options in help.
pub(crate) const CONNECTION: &str = "Connection";

/// The environment variable with the token for agents without a token of their own.
pub(crate) const TOKEN_VARIABLE: &str = "ATTACHE_TOKEN";

/// The bindings that carry JSON-RPC.
const CARRIES_JSONRPC: [Binding; 6] = [
    Binding::JsonRpc,
    Binding::WebSocket,
    Binding::Unix,
    Binding::GrpcJsonRpc,
    Binding::Stdio,
    Binding::RedisStreams,
];

/// The agent, and how to connect to it.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The agent: its URL, the URL of its card, or a name of `attache agents`; also `unix:PATH`, `stdio:COMMAND`, `ws://…`,
    /// `grpc-jsonrpc://…`, `redis-streams://…`
    #[arg(value_name = "AGENT", index = 1, value_parser = address)]
    agent: String,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// How to connect to an agent. Credentials are sent only if the card of the agent asks for them, and only to the origin of the
/// agent's URL and to trusted origins.
#[derive(Debug, Args)]
#[command(next_help_heading = CONNECTION)]
pub(crate) struct ConnectionArgs {
    /// The token to authenticate with; without it the one kept with the agent's name, then that in `ATTACHE_TOKEN`
    #[arg(long, value_name = "TOKEN", value_parser = clap::value_parser!(StoredSecret))]
    token: Option<StoredSecret>,

    /// The file that the token is in
    #[arg(long, value_name = "PATH", conflicts_with = "token")]
    token_file: Option<PathBuf>,

    /// The name and the password to authenticate with
    #[arg(long, value_name = "NAME:PASSWORD", value_parser = user)]
    user: Option<StoredSecret>,

    /// The API key to authenticate with
    #[arg(long, value_name = "KEY", value_parser = clap::value_parser!(StoredSecret))]
    api_key: Option<StoredSecret>,

    #[command(flatten)]
    trust: Trust,

    /// The binding to use, if the agent has several
    #[arg(long, visible_alias = "prefer", value_enum)]
    binding: Option<PreferredBinding>,

    #[command(flatten)]
    tls: Tls,
}

/// Where credentials may be sent.
#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// Also send credentials to this origin (scheme, host and port) if the agent's card leads there; can be repeated
    #[arg(long = "trust-origin", value_name = "URL", value_parser = origin)]
    pub(crate) origins: Vec<String>,
}

fn origin(text: &str) -> Result<String, ClientError> {
    TrustedOrigins::new().trust(text).map(|_| text.to_owned())
}

/// Certificates.
#[derive(Debug, Args)]
pub(crate) struct Tls {
    /// The certificate to show, in a PEM file together with its private key
    #[arg(long, value_name = "PATH")]
    cert: Option<PathBuf>,

    /// Also trust servers whose certificates lead to one of those in this PEM file
    #[arg(long, value_name = "PATH")]
    ca: Option<PathBuf>,
}

impl Tls {
    /// Makes the paths absolute, so that they hold in every working directory.
    pub(crate) fn absolute(self) -> Result<Self, Failure> {
        let absolute = |path: Option<PathBuf>| {
            path.map(|path| {
                std::path::absolute(&path)
                    .map_err(|error| Failure::usage(format!("`{}` cannot be found: {error}", path.display())))
            })
            .transpose()
        };
        Ok(Self { cert: absolute(self.cert)?, ca: absolute(self.ca)? })
    }
}

fn user(text: &str) -> Result<StoredSecret, &'static str> {
    match text.split_once(':') {
        Some((name, _)) if !name.is_empty() => Ok(StoredSecret::from(text.to_owned())),
        Some(_) | None => Err("expected a name and a password with a colon between them"),
    }
}

impl ConnectionArgs {
    /// The record of an agent that gets a name.
    pub(crate) fn keep(self, url: String) -> Result<AgentRecord, Failure> {
        let Self { token, token_file, user, api_key, trust, binding, tls } = self;
        // Later commands read the file, possibly in another working directory.
        let token_file = token_file
            .map(|path| std::path::absolute(&path).map_err(|error| unreadable(&path, &error)))
            .transpose()?;
        if let Some(path) = &token_file {
            read_token(path)?;
        }
        let known = AgentRecord::at(url).with(tls.absolute()?);
        known.check_certificates()?;
        Ok(AgentRecord { binding, token, token_file, user, api_key, trusted_origins: trust.origins, ..known })
    }
}

impl AgentRecord {
    /// The record, overridden by the flags.
    fn under(self, connection: &ConnectionArgs) -> Self {
        let said = connection.token.is_some() || connection.token_file.is_some();
        Self {
            url: self.url,
            binding: connection.binding.or(self.binding),
            token: if said { connection.token.clone() } else { self.token },
            token_file: if said { connection.token_file.clone() } else { self.token_file },
            user: connection.user.clone().or(self.user),
            api_key: connection.api_key.clone().or(self.api_key),
            login: self.login,
            certificate: connection.tls.cert.clone().or(self.certificate),
            ca: connection.tls.ca.clone().or(self.ca),
            trusted_origins: [self.trusted_origins, connection.trust.origins.clone()].concat(),
            signed_with: self.signed_with,
        }
    }

    /// The record, with these certificates if there are any.
    pub(crate) fn with(self, tls: Tls) -> Self {
        Self { certificate: tls.cert.or(self.certificate), ca: tls.ca.or(self.ca), ..self }
    }

    /// Reads the certificate files, so that errors in them are reported now.
    fn check_certificates(&self) -> Result<(Option<TlsIdentity>, Option<RootCertificates>), Failure> {
        let read = |flag: &str, path: &Path| {
            std::fs::read(path).map_err(|error| {
                Failure::usage(format!("`{flag} {}` cannot be read: {error}", path.display()))
            })
        };
        let wrong = |flag: &str, path: &Path, error: ClientError| {
            Failure::usage(format!("`{flag} {}` is of no use: {error}", path.display()))
        };
        let identity = self.certificate.as_deref().map(|path| {
            TlsIdentity::from_pem(&read("--cert", path)?).map_err(|error| wrong("--cert", path, error))
        });
        let roots = self.ca.as_deref().map(|path| {
            RootCertificates::from_pem(&read("--ca", path)?).map_err(|error| wrong("--ca", path, error))
        });
        Ok((identity.transpose()?, roots.transpose()?))
    }

    /// The options for TLS.
    pub(crate) fn options(&self) -> Result<ClientOptions, Failure> {
        let (identity, roots) = self.check_certificates()?;
        // The user gives the address, so it may be a command.
        let commands = Commands::Allowed(CommandErrors::PassOn);
        let mut options = ClientOptions::default().commands(commands).roots(roots.into_iter().collect());
        options.identity = identity;
        options.redis = super::redis::redis_credentials()?;
        Ok(options)
    }

    /// Connects to the agent.
    pub(crate) async fn connect(self, called: String) -> Result<Agent, Failure> {
        self.connect_trusting(called, None).await
    }

    /// Connects to the agent, if its card is trusted.
    pub(crate) async fn connect_trusting(
        self,
        called: String,
        trust: Option<Verifier>,
    ) -> Result<Agent, Failure> {
        self.connect_over(called, trust, &[]).await
    }

    /// Connects to the agent over one of these bindings, unless the record asks for another one.
    async fn connect_over(
        self,
        called: String,
        trust: Option<Verifier>,
        bindings: &[Binding],
    ) -> Result<Agent, Failure> {
        let options = self.options()?;
        let pinned = self.signed_with.as_ref().map(|keys| {
            let keys = KeySet::from_json(keys.to_string().as_bytes());
            keys.map(|keys| Verifier::new().pin(keys)).map_err(|error| {
                Failure::new(format!("the keys that are kept with `{called}` cannot be used: {error}"))
            })
        });
        let card_trust = trust.or(pinned.transpose()?);
        let mut trusted = self.trusted_origins.iter();
        let trusted_origins = trusted
            .try_fold(TrustedOrigins::new(), |all, origin| all.trust(origin))
            .map_err(|error| failed(&error, &called))?;
        let Self { url, binding, token, token_file, user, api_key, login, .. } = self;
        let account = AgentKey::of(&called);
        let oauth = match &login {
            Some(login) => {
                let account = account.as_ref().and_then(AgentKey::account);
                let oauth = login.oauth(account).map_err(|error| failed(&error, &called))?;
                Some(oauth.store(tokens()?))
            }
            None => None,
        };
        let token = match (token, token_file) {
            (Some(token), _) => Some(token),
            (None, Some(path)) => Some(read_token(&path)?),
            // A login has tokens of its own.
            (None, None) if oauth.is_some() => None,
            (None, None) => {
                std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()).map(StoredSecret::from)
            }
        };
        let mut options = options.trusted_origins(trusted_origins);
        options.card_trust = card_trust;
        let mut keys = SchemeCredentials::new();
        let has_keys = token.is_some() || user.is_some() || api_key.is_some() || oauth.is_some();
        if let Some(StoredSecret(token)) = token {
            keys = keys.token(token.reveal());
        }
        if let Some((name, password)) =
            user.as_ref().and_then(|StoredSecret(user)| user.reveal().split_once(':'))
        {
            keys = keys.basic(name, password);
        }
        if let Some(StoredSecret(key)) = api_key {
            keys = keys.api_key(key.reveal());
        }
        if has_keys {
            options = options.with_credentials((keys, oauth));
        }
        match binding {
            Some(binding) => options = options.prefer(Binding::from(binding)),
            None => options = bindings.iter().copied().fold(options, ClientOptions::prefer),
        }
        match Client::connect_with(&url, options).await {
            Ok(client) => Ok(Agent { client, called }),
            Err(error) => Err(failed(&error, &called)),
        }
    }
}

fn read_token(path: &Path) -> Result<StoredSecret, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    match text.trim() {
        "" => Err(Failure::usage(format!("there is no token in `{}`", path.display()))),
        token => Ok(StoredSecret::from(token.to_owned())),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("`--token-file {}` cannot be read: {error}", path.display()))
}

/// The agent that the user names. An address without a scheme becomes a URL.
pub(crate) fn address(text: &str) -> Result<String, Infallible> {
    Ok(complete_address(text).unwrap_or_else(|| text.to_owned()))
}

/// Whether this is an `http` or `https` URL.
pub(crate) fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

impl AgentArgs {
    /// Connects to the agent.
    pub(crate) async fn connect(self) -> Result<Agent, Failure> {
        self.connect_trusting(None).await
    }

    /// Connects to the agent, if its card is trusted.
    pub(crate) async fn connect_trusting(self, trust: Option<Verifier>) -> Result<Agent, Failure> {
        known(&self.agent)?.under(&self.connection).connect_trusting(self.agent, trust).await
    }

    /// Connects to an interface that carries JSON-RPC.
    pub(crate) async fn connect_for_jsonrpc(self) -> Result<Agent, Failure> {
        let record = known(&self.agent)?.under(&self.connection);
        match record.binding {
            Some(PreferredBinding::HttpJson | PreferredBinding::Grpc) => {
                let text = "only JSON-RPC can be forwarded, and `--binding` asks for another binding";
                Err(Failure::usage(text).hint("leave out `--binding`"))
            }
            None
            | Some(
                PreferredBinding::Jsonrpc
                | PreferredBinding::Websocket
                | PreferredBinding::GrpcJsonrpc
                | PreferredBinding::Unix
                | PreferredBinding::RedisStreams,
            ) => record.connect_over(self.agent, None, &CARRIES_JSONRPC).await,
        }
    }

    /// Whether the registry has the keys that must sign the card.
    pub(crate) fn has_pinned_keys(&self) -> Result<bool, Failure> {
        Ok(known(&self.agent)?.signed_with.is_some())
    }
}

/// The record of an agent, by its name or its URL.
pub(crate) fn known(agent: &str) -> Result<AgentRecord, Failure> {
    if !is_agent_url(agent) {
        return named(agent);
    }
    let at = AgentRecord::at(agent.to_owned());
    // Without a configuration directory there are no records.
    let (Some(called), Ok(_)) = (AgentKey::of(agent), file_path()) else { return Ok(at) };
    let kept = Registry::read()?.known(&called).cloned();
    Ok(kept.map_or(at, |kept| AgentRecord { url: agent.to_owned(), ..kept }))
}

/// The agent that has this name.
pub(crate) fn named(name: &str) -> Result<AgentRecord, Failure> {
    let mut registry = Registry::read()?;
    registry.agents.remove(name).ok_or_else(|| {
        let hint = if name.contains([':', '/', '.']) || name == "localhost" {
            format!("if it is an address, begin it with `http://` or `https://`: `http://{name}`")
        } else {
            "`attache agents list` shows those that have names; `attache agents add NAME URL` names one"
                .to_owned()
        };
        Failure::usage(format!("no agent is called `{name}`")).hint(hint)
    })
}

/// An agent with a connection.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) client: Client,
    /// The name or the URL that the user gave.
    called: String,
}

impl Agent {
    /// The name or the URL that the user gave.
    pub(crate) fn called(&self) -> &str {
        &self.called
    }

    /// What the user calls it, as it is written in a shell.
    pub(crate) fn word(&self) -> String {
        show::word(&self.called)
    }

    /// The failure for an error of the client.
    pub(crate) fn failed(&self, error: &ClientError) -> Failure {
        failed_at(error, &self.called, Some(&self.client.card()))
    }

    /// A command about a task, for hints.
    pub(crate) fn about(&self, command: &str, task: &TaskId) -> String {
        format!("attache {command} {} {}", self.word(), show::word(task.as_str()))
    }
}

/// The failure for an error of the client, with a hint.
pub(crate) fn failed(error: &ClientError, called: &str) -> Failure {
    failed_at(error, called, None)
}

/// The same for an agent whose card is known.
fn failed_at(error: &ClientError, called: &str, card: Option<&AgentCard>) -> Failure {
    let agent = show::word(called);
    let credentials = match card.and_then(|card| asks_for(card, &format!("attache login {agent}"))) {
        Some(accepted) => format!("it accepts {accepted}"),
        None => format!(
            "log in with `attache login {agent}`, or use `--token`, `--token-file`, `--user` or `--api-key`; \
             `attache card {agent}` says what it asks for"
        ),
    };
    let kind = if let ClientError::Interrupted { cause, .. } = error { cause.kind() } else { error.kind() };
    let failure = Failure::new(error);
    match kind {
        Some(ErrorKind::Unauthenticated) => {
            return failure.exit(Exit::Unauthorized).hint(credentials);
        }
        Some(ErrorKind::PermissionDenied) => {
            return failure.exit(Exit::Unauthorized).hint("ask the operator of the agent for permission");
        }
        Some(ErrorKind::TaskNotFound) => {
            return failure.hint(format!("`attache task list {agent}` shows the tasks that are yours"));
        }
        Some(_) | None => {}
    }
    match error {
        ClientError::Connect { url, why } => {
            let hint = match why {
                ConnectFailure::NotTls => {
                    let plain = url.replacen("https://", "http://", 1);
                    let plain = plain.split("/.well-known/").next().unwrap_or(&plain);
                    format!("if the agent has no TLS, use `{}`", show::line(plain))
                }
                ConnectFailure::Certificate(_) => {
                    "if you trust the authority that issued it, name its certificate with `--ca PATH`".to_owned()
                }
                ConnectFailure::Ended(_) => {
                    "does the command serve an agent on its standard input and output, as `attache serve --stdio` does?"
                        .to_owned()
                }
                ConnectFailure::UnknownName => {
                    "is the name right, and is this machine connected to the network?".to_owned()
                }
                ConnectFailure::Refused | ConnectFailure::Timeout | ConnectFailure::Other(_) | _ => {
                    "is it running, and is this its address? `attache serve --demo` starts one to try".to_owned()
                }
            };
            failure.exit(Exit::Unreachable).hint(hint)
        }
        ClientError::Timeout { .. } | ClientError::Broken(_) | ClientError::Interrupted { .. } => failure
            .exit(Exit::Unreachable)
            .hint(format!("try again; `attache task list {agent}` shows what has become of your tasks")),
        // The body of an error page is not useful here.
        ClientError::Http { status: status @ (404 | 410), url, .. } => {
            Failure::new(format!("there is nothing at `{url}` (HTTP status {status})"))
                .exit(Exit::Unreachable)
                .hint("the agent may be below another path; the URL of its card, which ends in `.json`, can be given too")
        }
        ClientError::Http { status: 502..=504, .. } => failure
            .exit(Exit::Unreachable)
            .hint("the agent behind this address does not answer; try again later"),
        ClientError::Credentials { .. } => failure.exit(Exit::Unauthorized).hint(credentials),
        ClientError::Withheld { leads_to, can_be_trusted: true, .. } => {
            let flag = format!("--trust-origin {}", show::word(leads_to));
            failure.exit(Exit::Unauthorized).hint(format!(
                "if `{}` belongs to the same agent, `{flag}` has the credentials sent there as well",
                show::line(leads_to)
            ))
        }
        ClientError::Withheld { can_be_trusted: false, .. } => failure
            .exit(Exit::Unauthorized)
            .hint("the operator of the agent has to offer an interface that begins with `https://`"),
        ClientError::Login { .. } => {
            failure.exit(Exit::Unauthorized).hint(format!("`attache login {agent}` logs in again"))
        }
        ClientError::Invalid(_) => failure.exit(Exit::Usage),
        ClientError::NoInterface { wanted, .. } if !wanted.is_empty() => {
            failure.hint("leave out `--binding` to use what there is")
        }
        ClientError::Setup(_)
        | ClientError::Refused { .. }
        | ClientError::OtherOrigin { .. }
        | ClientError::Tokens(_)
        | ClientError::Untrusted { .. }
        | ClientError::NoInterface { .. }
        | ClientError::Http { .. }
        | ClientError::TooLarge { .. }
        | ClientError::Protocol(_)
        | ClientError::Remote(_)
        | _ => failure,
    }
}
