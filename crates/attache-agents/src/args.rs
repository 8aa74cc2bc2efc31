//! The flags of delegation, for all commands that have it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use attache_client::{KeySet, Verifier};
use attache_core::Store;
use attache_iii::engine::Token;
use attache_iii::secrets;
use attache_outbound::{IpNet, Policy, SetupError};
use clap::Args;

use crate::AgentCredentials;
use crate::delegation::{Delegation, DelegationOptions};

/// The flags of delegation.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Delegation")]
pub struct DelegationArgs {
    /// Offer no delegation: neither the functions such as `a2a::send_task` nor `/api/a2a`
    ///
    /// For all but one of several processes at the same engine.
    #[arg(long)]
    no_delegation: bool,

    /// Allow delegation to agents on this machine, for development
    #[arg(long, conflicts_with = "no_delegation")]
    allow_loopback_agents: bool,

    /// Allow delegation to agents in this network although it is not public, such as `10.1.0.0/16`; may be repeated
    #[arg(long, value_name = "NETWORK", value_parser = network, conflicts_with = "no_delegation")]
    allow_agent_network: Vec<IpNet>,

    /// A file with keys that sign the cards of agents, as a JWKS or as PEM; may be repeated
    ///
    /// A card that has signatures must have a valid one of these keys. Cards without signatures are accepted. Without keys, signatures are
    /// not verified.
    #[arg(long, value_name = "PATH", conflicts_with = "no_delegation")]
    agent_keys: Vec<PathBuf>,

    /// How many records of delegated tasks are kept; the oldest tasks that have ended are removed first
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = count)]
    max_delegated_tasks: usize,

    /// Require the token in this file for `/api/a2a`; without a token, only programs on this machine may use it
    ///
    /// The token can also be given as `ATTACHE_API_TOKEN`.
    #[arg(long, value_name = "PATH", env = "ATTACHE_API_TOKEN_FILE")]
    api_token_file: Option<PathBuf>,
}

impl DelegationArgs {
    /// The same flags, with `--allow-loopback-agents`.
    #[must_use]
    pub fn allowing_loopback(mut self) -> Self {
        self.allow_loopback_agents = true;
        self
    }

    /// Creates the delegation with these credentials for agents, and these [keys](Self::card_trust) that sign their cards. `None` if
    /// the flags turn it off.
    pub fn start(
        &self,
        store: Arc<dyn Store>,
        credentials: AgentCredentials,
        card_trust: Option<Verifier>,
    ) -> Result<Option<Delegation>, SetupError> {
        if self.no_delegation {
            return Ok(None);
        }
        Delegation::new(store, DelegationOptions { card_trust, ..self.options(credentials) }).map(Some)
    }

    /// The files with keys that sign the cards of agents.
    pub fn agent_keys(&self) -> &[PathBuf] {
        &self.agent_keys
    }

    /// The file with the token of the HTTP API, if one is named.
    pub fn api_token_file(&self) -> Option<&Path> {
        self.api_token_file.as_deref()
    }

    /// Reads a file with keys that sign the cards of agents. An error names the file.
    pub fn read_keys(path: &Path) -> Result<KeySet, String> {
        let shown = path.display();
        let keys = std::fs::read(path).map_err(|error| format!("`{shown}` cannot be read: {error}"))?;
        let is_pem = keys.trim_ascii_start().starts_with(b"-----");
        let keys = if is_pem { KeySet::from_pem(&keys) } else { KeySet::from_json(&keys) };
        keys.map_err(|error| format!("`{shown}`: {error}"))
    }

    /// Reads the keys that sign the cards of agents. An error names the file.
    pub fn card_trust(&self) -> Result<Option<Verifier>, String> {
        let read = |path: &PathBuf| Self::read_keys(path).map_err(|error| format!("`--agent-keys`: {error}"));
        let keys = self.agent_keys.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok((!keys.is_empty()).then(|| keys.into_iter().fold(Verifier::new(), Verifier::pin)))
    }

    fn options(&self, credentials: AgentCredentials) -> DelegationOptions {
        let policy = Policy::default().allow_loopback(self.allow_loopback_agents);
        DelegationOptions {
            policy: policy.allow(self.allow_agent_network.iter().copied()),
            credentials,
            max_tasks: self.max_delegated_tasks,
            ..DelegationOptions::default()
        }
    }

    /// The token of the HTTP API, from the file or else from the environment. An error names the flag or the variable.
    pub fn token(&self) -> Result<Option<Token>, String> {
        let (token, from) = match (&self.api_token_file, std::env::var(API_TOKEN_VARIABLE)) {
            (Some(path), _) => {
                let flag = format!("--api-token-file {}", path.display());
                let token = std::fs::read_to_string(path);
                (token.map_err(|error| format!("`{flag}` cannot be read: {error}"))?, flag)
            }
            (None, Ok(token)) => (token, API_TOKEN_VARIABLE.to_owned()),
            (None, Err(_)) => return Ok(None),
        };
        let token = token.trim();
        match secrets::flaw(token) {
            Some(flaw) => Err(format!("the token of `{from}` {flaw}")),
            None => Ok(Some(Token::new(token))),
        }
    }
}

/// The environment variable with the token of the HTTP API.
pub const API_TOKEN_VARIABLE: &str = "ATTACHE_API_TOKEN";

/// Reads a network, or an address as the network of this address alone, for a flag.
pub fn network(text: &str) -> Result<IpNet, &'static str> {
    let address = || text.parse::<std::net::IpAddr>().map(IpNet::from);
    text.parse().or_else(|_| address()).map_err(|_| "expected a network such as `10.1.0.0/16`, or an address")
}

fn count(text: &str) -> Result<usize, &'static str> {
    match text.parse() {
        Ok(count) if (1..=1_000_000).contains(&count) => Ok(count),
        Ok(_) | Err(_) => Err("expected a number from 1 to 1000000"),
    }
}
