//! `attache logout`: forgets how somebody logged in, and has the tokens revoked that came of it.

use std::time::Duration;

use attache::client::{ClientError, OAuth, Revocation, TokenKey, Tokens};
use clap::Args;
use serde_json::{Value, json};

use super::reach::known;
use super::registry::{Called, Known, Registry, tokens};
use super::show;
use crate::command::{Failure, Output, print, say};

/// Whom to forget.
///
/// Authorization servers that say how are asked to revoke the tokens that they gave out. What cannot be revoked is forgotten here
/// all the same.
#[derive(Debug, Args)]
pub(crate) struct Logout {
    /// The agent: its URL, the URL of its card, or a name of `attache agents`
    #[arg(value_name = "AGENT")]
    agent: String,

    #[command(flatten)]
    output: Output,
}

/// How long an authorization server may take. Somebody waits who is logged out already.
const PATIENCE: Duration = Duration::from_secs(10);

impl Logout {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let before = known(&self.agent)?;
        let called = Called::of(&self.agent)
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
            say(format_args!("nobody was logged in to `{agent}`"));
        }
        let revoked = give_back(&before, taken).await;
        if self.output.json {
            let value = json!({"agent": self.agent, "forgotten": forgotten, "tokens": revoked});
            return print(&show::json_lines(&value)?);
        }
        Ok(())
    }
}

/// Has the servers that gave out tokens revoke them, and says what has become of them. They are forgotten here already, so that one
/// who cannot be asked changes nothing about that.
pub(crate) async fn give_back(agent: &Known, taken: Vec<(TokenKey, Tokens)>) -> Vec<Value> {
    let mut revoked = Vec::new();
    for (key, tokens) in taken {
        let outcome = revoke(agent, &key, &tokens).await;
        say(format_args!("{}", told(&key, &outcome)));
        revoked.push(as_json(&key, &outcome));
    }
    revoked
}

/// Has the server that gave out tokens revoke them.
async fn revoke(agent: &Known, key: &TokenKey, tokens: &Tokens) -> Result<Revocation, Failure> {
    let options = agent.options()?.call_timeout(PATIENCE).connect_timeout(PATIENCE);
    let oauth = client(agent, key).map_err(Failure::new)?;
    oauth.revoke(key, tokens, options).await.map_err(|error| {
        // Which server it is about is said anyway.
        if let ClientError::Revocation { why, .. } = error { Failure::new(why) } else { Failure::new(error) }
    })
}

/// The client that tokens were given to.
fn client(agent: &Known, key: &TokenKey) -> Result<OAuth, ClientError> {
    match agent.login.as_ref().filter(|login| login.client_id == key.client) {
        Some(login) => login.oauth(key.account.as_deref()),
        // Somebody has logged in otherwise since. The server was agreed to when the tokens were got.
        None => OAuth::new(&key.client).server(&key.server),
    }
}

/// Where an authorization server is, without what is there.
fn server(key: &TokenKey) -> String {
    let url = url::Url::parse(&key.server);
    url.map_or_else(|_| key.server.clone(), |url| url.origin().ascii_serialization())
}

/// What became of tokens, for people.
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

/// What became of tokens, for programs.
fn as_json(key: &TokenKey, outcome: &Result<Revocation, Failure>) -> Value {
    let (revocation, error) = match outcome {
        Ok(Revocation::Revoked) => ("revoked", None),
        Ok(Revocation::AccessRemains) => ("accessRemains", None),
        Ok(_) => ("notOffered", None),
        Err(failure) => ("failed", Some(failure.to_string())),
    };
    json!({"server": server(key), "client": key.client, "revocation": revocation, "error": error})
}

/// Forgets the tokens of an agent, and gives them back.
pub(crate) fn forget_tokens(called: &Called) -> Result<Vec<(TokenKey, Tokens)>, Failure> {
    let is_its = |key: &TokenKey| match called {
        Called::Name(name) => key.account.as_ref() == Some(name),
        Called::Origin(origin) => key.account.is_none() && key.agent == *origin,
    };
    tokens()?.take(is_its).map_err(Failure::new)
}
