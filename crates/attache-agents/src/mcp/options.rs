//! The options of an MCP server.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use attache_client::{OAuth, Secret};
use attache_outbound::Policy;
use url::Url;

use super::{McpError, StoredLogin};
use crate::model::Model;

/// Where an MCP server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpServer {
    /// A program on this machine, with its arguments. It talks over its standard input and output.
    Program(Vec<String>),
    /// A server with streamable HTTP.
    Url(Url),
}

impl McpServer {
    /// A program with its arguments.
    pub fn program<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        Self::Program(command.into_iter().map(Into::into).collect())
    }

    /// A server with streamable HTTP, such as `https://tools.example.com/mcp`.
    pub fn url(url: &str) -> Result<Self, McpError> {
        let invalid = |why: &str| {
            let text = format!("the URL of an MCP server {why}, such as `https://tools.example.com/mcp`");
            McpError::Invalid(text)
        };
        let url = Url::parse(url).map_err(|error| invalid(&format!("cannot be parsed ({error})")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid("must begin with `http://` or `https://`"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("must have no user name and no password"));
        }
        Ok(Self::Url(url))
    }
}

impl fmt::Display for McpServer {
    /// The name of the program, or the URL without its query, which can have secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(command) => f.write_str(command.first().map_or("", String::as_str)),
            Self::Url(url) => write!(f, "{}{}", url.origin().ascii_serialization(), url.path()),
        }
    }
}

/// Which MCP server is used, and how.
#[derive(Clone)]
#[non_exhaustive]
pub struct McpOptions {
    /// The server.
    pub server: McpServer,
    /// The name in the card. The title or the name of the server, unless set.
    pub name: Option<String>,
    /// The description in the card. What the server says about itself, unless set.
    pub description: Option<String>,
    /// The tools that are skills, by name. All tools of the server, if empty.
    pub tools: Vec<String>,

    /// The working directory of a program. The server's own, unless set.
    pub directory: Option<PathBuf>,
    /// Environment variables for a program.
    pub environment: BTreeMap<String, String>,
    /// Environment variables of the server that a program gets as well. It always gets `PATH`, `HOME`, `LANG`, `LC_ALL`, `TZ` and
    /// `TMPDIR`, and no others.
    pub pass_environment: Vec<String>,
    /// How long a program has after SIGTERM, before it is killed, and how long a server has to read the cancellation of a call. 2
    /// seconds unless set.
    pub grace: Duration,

    /// Whether every call has a process for itself. A question of a program does not say which call it belongs to, so this is done
    /// after its first question in any case. `false` unless set.
    pub exclusive: bool,

    /// The token for a URL, sent as `Authorization: Bearer …`.
    pub token: Option<Secret>,
    /// Further headers for a URL.
    pub headers: BTreeMap<String, Secret>,
    /// The OAuth client for a URL. It requests tokens with its secret, or uses those of its token store, when the server asks for a login.
    pub oauth: Option<OAuth>,
    /// A stored login for a URL. Its tokens are used and renewed when the server asks for a login.
    pub login: Option<StoredLogin>,
    /// Which addresses may be called. Any address unless set, because the operator chose the URL.
    pub policy: Option<Policy>,

    /// Directories that the server is told about (roots). None unless set.
    pub roots: Vec<PathBuf>,
    /// The model that answers sampling requests of the server. They are refused unless set.
    pub sampling: Option<Model>,

    /// How long the server may take to start and to list its tools. 1 minute unless set.
    pub start_timeout: Duration,
    /// How long a call may take, without the time that it waits for the answer to a question. 10 minutes unless set.
    pub call_timeout: Duration,
    /// How long a call waits for the answer to a question. Then it is canceled. 10 minutes unless set.
    pub question_timeout: Duration,
    /// How many bytes the result of a call may have. 16 MiB unless set.
    pub max_output: usize,
    /// How many calls run at once. 64 unless set. More calls wait. As many calls can wait for answers to questions, and as many for
    /// permissions.
    pub max_calls: usize,
}

impl McpOptions {
    /// Uses this server.
    pub fn new(server: McpServer) -> Self {
        Self {
            server,
            name: None,
            description: None,
            tools: Vec::new(),
            directory: None,
            environment: BTreeMap::new(),
            pass_environment: Vec::new(),
            grace: Duration::from_secs(2),
            exclusive: false,
            token: None,
            headers: BTreeMap::new(),
            oauth: None,
            login: None,
            policy: None,
            roots: Vec::new(),
            sampling: None,
            start_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(600),
            question_timeout: Duration::from_secs(600),
            max_output: 16 * 1024 * 1024,
            max_calls: 64,
        }
    }

    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Checks options that exclude each other.
    pub(super) fn check(&self) -> Result<(), McpError> {
        let invalid = |text: &str| Err(McpError::Invalid(text.to_owned()));
        if self.max_calls == 0 {
            return invalid("the number of calls at once must be at least 1");
        }
        match &self.server {
            McpServer::Program(command) if command.first().is_none_or(String::is_empty) => {
                invalid("the command of the MCP server is empty")
            }
            McpServer::Program(_)
                if self.token.is_some()
                    || self.oauth.is_some()
                    || self.login.is_some()
                    || !self.headers.is_empty() =>
            {
                invalid(
                    "a token, headers and OAuth are for an MCP server with a URL; give a program its secrets as environment variables",
                )
            }
            McpServer::Url(_) if self.oauth.is_some() && self.login.is_some() => {
                invalid("an MCP server can have an OAuth client or a stored login, not both")
            }
            McpServer::Url(_) if self.token.is_some() && self.oauth.is_some() => {
                invalid("an MCP server can have a token or an OAuth client, not both")
            }
            McpServer::Program(_) | McpServer::Url(_) => Ok(()),
        }
    }
}

impl fmt::Debug for McpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpOptions").field("server", &self.server.to_string()).finish_non_exhaustive()
    }
}
