//! `attache logout`: removes a login, and revokes its tokens.

use std::time::Duration;

use attache::client::{ClientError, OAuth, Revocation, TokenKey, Tokens};
use clap::Args;
use serde_json::{Value, json};

use super::connect::{address, known};
use super::registry::{AgentKey, AgentRecord, Registry, tokens};
use super::{mcp_login, show};
use crate::command::{Failure, Output, print, say};

/// Whom to forget.
///
/// Authorization servers that say how are asked to revoke the tokens that they gave out. What cannot be revoked is forgotten here
/// all the same.
#[derive(Debug, Args)]
pub(crate) struct Logout {
    /// The agent: its URL, the URL of its card, or a name of `attache agents`
    #[arg(value_name = "AGENT", value_parser = address)]
    agent: String,

    /// Log out of an MCP server, by its URL
    #[arg(long)]
    mcp: bool,

    #[command(flatten)]
    output: Output,
}

/// How long an authorization server may take. The tokens are removed before, so the user need not wait longer.
const PATIENCE: Duration = Duration::from_secs(10);

impl Logout {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        if self.mcp {
            return mcp_login::logout(&self.agent, &self.output).await;
        }
        let before = known(&self.agent)?;
        let called = AgentKey::of(&self.agent)
            .ok_or_else(|| Failure::usage(format!("`{}` is not a URL", self.agent)))?;
        let forgotten = Registry::change(|registry| {
            let mut forgotten = false;
            registry.update(&called, |known| {
                let file = known.token_file.take().is_some();
                let kept =
                    [&mut known.token, &mut known.user, &mut known.api_key].map(|kept| kept.take().is_some());
                forgotten = known.login.take().is_some() || file || kept.contains(&true);
            });
            Ok(forgotten)
        })?;
        let taken = forget_tokens(&called)?;
        let forgotten = forgotten || !taken.is_empty();
        let agent = show::line(&self.agent);
        if forgotten {
            say(format_args!("logged out of `{agent}`"));
        } else {
            say(format_args!("there was no login to `{agent}`"));
        }
        let revoked = give_back(&before, taken).await;
        if self.output.json {
            let value = json!({"agent": self.agent, "forgotten": forgotten, "tokens": revoked});
            return print(&show::json_lines(&value)?);
        }
        Ok(())
    }
}

/// Asks the servers that issued tokens to revoke them, and reports the results. The tokens have been removed from the file, so a
/// server that does not answer changes nothing.
pub(crate) async fn give_back(agent: &AgentRecord, taken: Vec<(TokenKey, Tokens)>) -> Vec<Value> {
    let mut revoked = Vec::new();
    for (key, tokens) in taken {
        let outcome = revoke(agent, &key, &tokens).await;
        say(format_args!("{}", told(&key, &outcome)));
        revoked.push(as_json(&key, &outcome));
    }
    revoked
}

/// Asks the server that issued tokens to revoke them.
async fn revoke(agent: &AgentRecord, key: &TokenKey, tokens: &Tokens) -> Result<Revocation, Failure> {
    let options = agent.options()?.call_timeout(PATIENCE).connect_timeout(PATIENCE);
    let oauth = client(agent, key).map_err(Failure::new)?;
    oauth.revoke(key, tokens, options).await.map_err(|error| {
        // The caller adds the name of the server.
        if let ClientError::Revocation { why, .. } = error { Failure::new(why) } else { Failure::new(error) }
    })
}

/// The client that the tokens were issued to.
fn client(agent: &AgentRecord, key: &TokenKey) -> Result<OAuth, ClientError> {
    match agent.login.as_ref().filter(|login| login.client_id == key.client) {
        Some(login) => login.oauth(key.account.as_deref()),
        // Another login has replaced this one. The user agreed to the server when it issued the tokens.
        None => OAuth::new(&key.client).server(&key.server),
    }
}

/// The origin of an authorization server.
fn server(key: &TokenKey) -> String {
    let url = url::Url::parse(&key.server);
    url.map_or_else(|_| key.server.clone(), |url| url.origin().ascii_serialization())
}

/// The result of a revocation, as text.
fn told(key: &TokenKey, outcome: &Result<Revocation, Failure>) -> String {
    let server = server(key);
    let server = show::line(&server);
    match outcome {
        Ok(Revocation::Revoked) => format!("{server} has revoked the tokens"),
        Ok(Revocation::AccessRemains) => {
            format!("{server} has revoked the refresh token; the access token is good until it expires")
        }
        Ok(_) => {
            format!("{server} does not revoke tokens: they are forgotten here, and good until they expire")
        }
        Err(failure) => format!(
            "\x1b[1;33mwarning:\x1b[0m the tokens are forgotten here, but {server} has not revoked them, so they are good until they expire: {}",
            show::clean(&failure.to_string())
        ),
    }
}

/// The result of a revocation, as JSON.
fn as_json(key: &TokenKey, outcome: &Result<Revocation, Failure>) -> Value {
    let (revocation, error) = match outcome {
        Ok(Revocation::Revoked) => ("revoked", None),
        Ok(Revocation::AccessRemains) => ("accessRemains", None),
        Ok(_) => ("notOffered", None),
        Err(failure) => ("failed", Some(failure.to_string())),
    };
    json!({"server": server(key), "client": key.client, "revocation": revocation, "error": error})
}

/// Removes the tokens of an agent from the file, and returns them.
pub(crate) fn forget_tokens(called: &AgentKey) -> Result<Vec<(TokenKey, Tokens)>, Failure> {
    let is_its = |key: &TokenKey| match called {
        AgentKey::Name(name) => key.account.as_ref() == Some(name),
        AgentKey::Origin(origin) => key.account.is_none() && key.agent == *origin,
    };
    tokens()?.take(is_its).map_err(Failure::new)
}
