//! The registry: agents with names and logins, in a file that only the user can read.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use attache::client::{Binding, ClientError, FileTokens, OAuth, Secret, is_agent_url};
use attache_files as private;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::command::Failure;

/// What the registry has about an agent: its URL, its credentials and its login.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AgentRecord {
    pub(crate) url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) binding: Option<PreferredBinding>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<StoredSecret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<StoredSecret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api_key: Option<StoredSecret>,
    /// The login, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) login: Option<Login>,
    /// The client certificate, with its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate: Option<PathBuf>,
    /// Root certificates for the agent's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// Other origins that credentials may be sent to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) trusted_origins: Vec<String>,
    /// The keys that the card must be signed with, as a set of JSON Web Keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signed_with: Option<serde_json::Value>,
}

impl AgentRecord {
    /// A record with the URL alone.
    pub(crate) fn at(url: String) -> Self {
        Self {
            url,
            binding: None,
            token: None,
            token_file: None,
            user: None,
            api_key: None,
            login: None,
            certificate: None,
            ca: None,
            trusted_origins: Vec::new(),
            signed_with: None,
        }
    }

    /// Whether the record has nothing that must be stored.
    fn is_bare(&self) -> bool {
        // Trusted origins without credentials have no effect.
        let Self {
            url: _,
            binding,
            token,
            token_file,
            user,
            api_key,
            login,
            certificate,
            ca,
            trusted_origins: _,
            signed_with,
        } = self;
        binding.is_none()
            && token.is_none()
            && token_file.is_none()
            && user.is_none()
            && api_key.is_none()
            && login.is_none()
            && certificate.is_none()
            && ca.is_none()
            && signed_with.is_none()
    }
}

/// A login. Its tokens are in another file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Login {
    pub(crate) client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_secret: Option<StoredSecret>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) secret_in_body: bool,
    /// Whether a program logged in, with its own secret.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) program: bool,
    /// The authorization servers that the user agreed to.
    pub(crate) servers: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) scopes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource: Option<String>,
}

impl Login {
    /// The login for the client. Agents with names have accounts of their own.
    pub(crate) fn oauth(&self, account: Option<&str>) -> Result<OAuth, ClientError> {
        let mut oauth = OAuth::new(&self.client_id).scopes(&self.scopes);
        for server in &self.servers {
            oauth = oauth.server(server)?;
        }
        if let Some(StoredSecret(secret)) = &self.client_secret {
            oauth = oauth.secret(secret.clone());
        }
        if self.secret_in_body {
            oauth = oauth.secret_in_body();
        }
        if self.program {
            oauth = oauth.program();
        }
        if let Some(resource) = &self.resource {
            oauth = oauth.resource(resource);
        }
        Ok(account.into_iter().fold(oauth, OAuth::account))
    }
}

/// A login to an MCP server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct McpRecord {
    /// The issuer of the tokens.
    pub(crate) issuer: String,
    /// The scopes that the MCP server asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) scopes: Vec<String>,
    pub(crate) login: Login,
}

/// The key of a record: the name of the agent or, without a name, its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentKey {
    Name(String),
    /// The scheme, the host and the port.
    Origin(String),
}

impl AgentKey {
    /// The key for the text that the user gave. `None` if it is neither a name nor a URL.
    pub(crate) fn of(text: &str) -> Option<Self> {
        if !is_agent_url(text) {
            return Some(Self::Name(text.to_owned()));
        }
        // A WebSocket has the origin of its HTTP server. A socket and a command have none.
        let text = match text.split_once("://") {
            Some(("ws", rest)) => format!("http://{rest}"),
            Some(("wss", rest)) => format!("https://{rest}"),
            Some(_) | None => text.to_owned(),
        };
        let origin = url::Url::parse(&text).ok()?.origin();
        origin.is_tuple().then(|| Self::Origin(origin.ascii_serialization()))
    }

    /// The account of its tokens, which separates several names of one agent.
    pub(crate) fn account(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Origin(_) => None,
        }
    }
}

/// The file of tokens, in the same directory.
pub(crate) fn tokens() -> Result<FileTokens, Failure> {
    file_path().map(|path| FileTokens::new(path.with_file_name("tokens.json")))
}

/// The binding to use, if the agent has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PreferredBinding {
    /// JSON-RPC
    Jsonrpc,
    /// HTTP+JSON
    HttpJson,
    /// gRPC
    Grpc,
    /// JSON-RPC over WebSocket
    Websocket,
    /// JSON-RPC in the gRPC envelope
    GrpcJsonrpc,
    /// JSON-RPC over a Unix socket
    Unix,
    /// JSON-RPC over Redis Streams
    RedisStreams,
}

impl From<PreferredBinding> for Binding {
    fn from(preferred: PreferredBinding) -> Self {
        match preferred {
            PreferredBinding::Jsonrpc => Self::JsonRpc,
            PreferredBinding::HttpJson => Self::HttpJson,
            PreferredBinding::Grpc => Self::Grpc,
            PreferredBinding::Websocket => Self::WebSocket,
            PreferredBinding::GrpcJsonrpc => Self::GrpcJsonRpc,
            PreferredBinding::Unix => Self::Unix,
            PreferredBinding::RedisStreams => Self::RedisStreams,
        }
    }
}

/// A secret that is stored in the file and never printed.
#[derive(Debug, Clone)]
pub(crate) struct StoredSecret(pub(crate) Secret);

impl From<String> for StoredSecret {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl Serialize for StoredSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.reveal())
    }
}

impl<'de> Deserialize<'de> for StoredSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// All records.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Registry {
    pub(crate) agents: BTreeMap<String, AgentRecord>,
    /// Agents without names, by origin.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    logins: BTreeMap<String, AgentRecord>,
    /// Logins to MCP servers, by URL.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) mcp: BTreeMap<String, McpRecord>,
}

/// The path of the file.
pub(crate) fn file_path() -> Result<PathBuf, Failure> {
    let config = dirs::config_dir().ok_or_else(|| {
        Failure::usage("this user has no configuration directory to keep the names of agents in")
            .hint("set `HOME`, or `XDG_CONFIG_HOME`")
    })?;
    Ok(config.join("attache").join("agents.json"))
}

impl Registry {
    /// The record of an agent.
    pub(crate) fn known(&self, called: &AgentKey) -> Option<&AgentRecord> {
        match called {
            AgentKey::Name(name) => self.agents.get(name),
            AgentKey::Origin(origin) => self.logins.get(origin),
        }
    }

    /// Changes the record of an agent, or adds one.
    pub(crate) fn update(&mut self, called: &AgentKey, change: impl FnOnce(&mut AgentRecord)) {
        match called {
            AgentKey::Name(name) => {
                if let Some(known) = self.agents.get_mut(name) {
                    change(known);
                }
            }
            AgentKey::Origin(origin) => {
                let known =
                    self.logins.entry(origin.clone()).or_insert_with(|| AgentRecord::at(origin.clone()));
                change(known);
                if known.is_bare() {
                    self.logins.remove(origin);
                }
            }
        }
    }

    /// Reads the file. Without a file the registry is empty.
    pub(crate) fn read() -> Result<Self, Failure> {
        let path = file_path()?;
        let text = match private::read(&path) {
            Ok(private::Content::Private(text, _)) => text,
            Ok(private::Content::Exposed) => {
                return Err(Failure::new(format!(
                    "`{}` has credentials in it, and others can read it",
                    path.display()
                ))
                .hint(format!("`chmod 600 {}` keeps them out", path.display())));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => {
                return Err(Failure::new(format!("`{}` cannot be read: {error}", path.display())));
            }
        };
        serde_json::from_str(&text).map_err(|error| {
            // The error names the position but not the text, which may be a secret.
            let (line, column) = (error.line(), error.column());
            Failure::new(format!(
                "`{}` is not a list of agents: line {line}, column {column}",
                path.display()
            ))
            .hint("mend the file, or remove it and add the agents again with `attache agents add`")
        })
    }

    /// Changes the file atomically, under a lock, so that two commands at once do not overwrite each other.
    pub(crate) fn change<T>(change: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        let path = file_path()?;
        let failed = |error: io::Error| {
            Failure::new(format!("`{}` cannot be written: {error}", path.display()))
                .hint("the directory must be writable for this user")
        };
        let _lock = private::lock(&path).map_err(failed)?;
        let mut registry = Self::read()?;
        let result = change(&mut registry)?;
        let text = serde_json::to_vec_pretty(&registry).map_err(io::Error::from);
        text.and_then(|text| private::write(&path, &text)).map_err(failed)?;
        Ok(result)
    }
}
