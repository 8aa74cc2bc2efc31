//! The agents that have names: a file below the user's configuration directory, which only the user can read.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use attache::client::{Binding, ClientError, FileTokens, OAuth, Secret};
use attache::signing::private;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::command::Failure;

/// An agent that has a name, and how to reach it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Known {
    pub(crate) url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) binding: Option<Preferred>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<Kept>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<Kept>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api_key: Option<Kept>,
    /// How somebody logged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) login: Option<Login>,
    /// The certificate to show, with its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate: Option<PathBuf>,
    /// Certificates that that of the agent may lead to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// The origins that credentials are sent to besides that of the URL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) trusted_origins: Vec<String>,
    /// The keys that the card must be signed with, as a set of JSON Web Keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signed_with: Option<serde_json::Value>,
}

impl Known {
    /// An agent that nothing is known about but where it is.
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

    /// Whether nothing is known that would have to be kept.
    fn is_bare(&self) -> bool {
        // Where credentials may be sent is nothing to keep where there are none.
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

/// Who logged in, and where. The tokens are kept elsewhere.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Login {
    pub(crate) client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_secret: Option<Kept>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) secret_in_body: bool,
    /// Whether it is a program that gets tokens by itself.
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
    /// The same for the client. Accounts of agents that have names are kept apart.
    pub(crate) fn oauth(&self, account: Option<&str>) -> Result<OAuth, ClientError> {
        let mut oauth = OAuth::new(&self.client_id).scopes(&self.scopes);
        for server in &self.servers {
            oauth = oauth.server(server)?;
        }
        if let Some(Kept(secret)) = &self.client_secret {
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

/// What is known about an agent is kept under its name or, if it has none, under where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Called {
    Name(String),
    /// The scheme, the host and the port.
    Origin(String),
}

impl Called {
    /// How an agent is called that a user says this for; nothing if it is neither a name nor an address.
    pub(crate) fn of(text: &str) -> Option<Self> {
        if !text.starts_with("http://") && !text.starts_with("https://") {
            return Some(Self::Name(text.to_owned()));
        }
        url::Url::parse(text).ok().map(|url| Self::Origin(url.origin().ascii_serialization()))
    }

    /// What tells its tokens from those of other names for the same agent.
    pub(crate) fn account(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Origin(_) => None,
        }
    }
}

/// Where tokens are kept: beside the names.
pub(crate) fn tokens() -> Result<FileTokens, Failure> {
    place().map(|path| FileTokens::new(path.with_file_name("tokens.json")))
}

/// A binding that is used rather than the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Preferred {
    /// JSON-RPC
    Jsonrpc,
    /// HTTP+JSON
    HttpJson,
    /// gRPC
    Grpc,
}

impl From<Preferred> for Binding {
    fn from(preferred: Preferred) -> Self {
        match preferred {
            Preferred::Jsonrpc => Self::JsonRpc,
            Preferred::HttpJson => Self::HttpJson,
            Preferred::Grpc => Self::Grpc,
        }
    }
}

/// A secret that is written to the file and shown nowhere.
#[derive(Debug, Clone)]
pub(crate) struct Kept(pub(crate) Secret);

impl From<String> for Kept {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl Serialize for Kept {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.reveal())
    }
}

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// All of them.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Registry {
    pub(crate) agents: BTreeMap<String, Known>,
    /// What is known about agents without names, by where they are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    logins: BTreeMap<String, Known>,
}

/// Where the file is.
pub(crate) fn place() -> Result<PathBuf, Failure> {
    let config = dirs::config_dir().ok_or_else(|| {
        Failure::usage("this user has no configuration directory to keep the names of agents in")
            .hint("set `HOME`, or `XDG_CONFIG_HOME`")
    })?;
    Ok(config.join("attache").join("agents.json"))
}

impl Registry {
    /// What is known about an agent.
    pub(crate) fn known(&self, called: &Called) -> Option<&Known> {
        match called {
            Called::Name(name) => self.agents.get(name),
            Called::Origin(origin) => self.logins.get(origin),
        }
    }

    /// Changes what is known about an agent that there may be something known about.
    pub(crate) fn update(&mut self, called: &Called, change: impl FnOnce(&mut Known)) {
        match called {
            Called::Name(name) => {
                if let Some(known) = self.agents.get_mut(name) {
                    change(known);
                }
            }
            Called::Origin(origin) => {
                let known = self.logins.entry(origin.clone()).or_insert_with(|| Known::at(origin.clone()));
                change(known);
                if known.is_bare() {
                    self.logins.remove(origin);
                }
            }
        }
    }

    /// Reads the file. One that does not exist has no agents in it.
    pub(crate) fn read() -> Result<Self, Failure> {
        let path = place()?;
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
            // Where, but not what: there are secrets in it.
            let (line, column) = (error.line(), error.column());
            Failure::new(format!(
                "`{}` is not a list of agents: line {line}, column {column}",
                path.display()
            ))
            .hint("mend the file, or remove it and add the agents again with `attache agents add`")
        })
    }

    /// Changes the file: at every moment it is the old one or the new one, and two commands at once do not undo each other.
    pub(crate) fn change<T>(change: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        let path = place()?;
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
