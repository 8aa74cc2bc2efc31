//! `attache logout`: forgets how somebody logged in.

use clap::Args;

use super::reach::{is_url, named};
use super::registry::{Called, Registry, tokens};
use super::show;
use crate::command::{Failure, say};

/// Whom to forget.
///
/// What is forgotten here may still be good there: whoever runs the authorization server can revoke it.
#[derive(Debug, Args)]
pub(crate) struct Logout {
    /// The agent: its URL, the URL of its card, or a name of `attache agents`
    #[arg(value_name = "AGENT")]
    agent: String,
}

impl Logout {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if !is_url(&self.agent) {
            named(&self.agent)?;
        }
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
        let forgotten = forget_tokens(&called)? > 0 || forgotten;
        let agent = show::line(&self.agent);
        if forgotten {
            say(format_args!("logged out of `{agent}`"));
        } else {
            say(format_args!("nobody was logged in to `{agent}`"));
        }
        Ok(())
    }
}

/// Forgets the tokens of an agent, and says how many there were.
pub(crate) fn forget_tokens(called: &Called) -> Result<usize, Failure> {
    let is_other = |account: Option<&str>, agent: &str| match called {
        Called::Name(name) => account != Some(name),
        Called::Origin(origin) => account.is_some() || agent != origin,
    };
    tokens()?.retain(|key| is_other(key.account.as_deref(), &key.agent)).map_err(Failure::new)
}
