//! The settings of an MCP server that is served as an agent.

use std::path::Path;

use attache::client::OAuth;
use attache_agents::OAuthSettings;
use attache_agents::mcp::{McpOptions, McpServer};
use attache_agents::model::Model as ModelAgent;

use super::problems::Problems;
use super::settings::Mcp;
use crate::command::Failure;

impl Mcp {
    /// Where the server is. A command that is a URL is the URL of a server.
    pub(crate) fn server(&self) -> Result<McpServer, Failure> {
        let words = self.command.as_ref().map(|command| command.words());
        let is_url = |word: &String| word.starts_with("http://") || word.starts_with("https://");
        let url = |url: &str| McpServer::url(url).map_err(Failure::usage);
        match (words, &self.url) {
            (Some(_), Some(_)) => Err(Failure::usage("an MCP server has a `command` or a `url`, not both")),
            (Some([word]), None) if is_url(word) => url(word),
            (Some(words), None) => Ok(McpServer::program(words)),
            (None, Some(given)) => url(&given.0.0),
            (None, None) => Err(Failure::usage("no MCP server is named").hint(
                "name it with `--mcp COMMAND`, or with `mcp.command` or `mcp.url` in the configuration file",
            )),
        }
    }

    /// Checks the settings, except those of the model.
    pub(crate) fn check(&self, problems: &mut Problems<'_>) {
        let place = if self.url.is_some() { "url" } else { "command" };
        problems.take([place, "command", "url"], self.server());
        problems.take(["token"], self.both_tokens());
        problems.take(["token-file"], self.token());
        problems.take(["oauth"], self.oauth());
    }

    fn both_tokens(&self) -> Result<(), Failure> {
        match self.token.is_some() && self.token_file.is_some() {
            true => Err(Failure::usage("there is both a `token` and a `token-file`")),
            false => Ok(()),
        }
    }

    /// The token for a URL: from the settings, or from its file.
    fn token(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.token_file else {
            return Ok(self.token.as_ref().map(|token| token.0.clone()));
        };
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("`{}` cannot be read: {error}", path.display())))?;
        Ok(Some(text.trim().to_owned()))
    }

    fn oauth(&self) -> Result<Option<OAuth>, Failure> {
        let oauth = self.oauth.as_ref();
        oauth.map(|oauth| oauth.oauth().map_err(|fault| Failure::usage(fault.text))).transpose()
    }

    /// The files with secrets that the settings name.
    pub(crate) fn secret_files(&self) -> impl Iterator<Item = &Path> {
        let of_oauth = self.oauth.as_ref().and_then(OAuthSettings::secret_file);
        let of_model = self.sampling.as_ref().and_then(|model| model.key_file.as_deref());
        [self.token_file.as_deref(), of_oauth, of_model].into_iter().flatten()
    }

    /// The options of the agent. `sampling` is the model that answers the server, if one is configured.
    pub(crate) fn options(&self, sampling: Option<ModelAgent>) -> Result<McpOptions, Failure> {
        let server = self.server()?;
        self.both_tokens()?;
        let (token, oauth) = (self.token()?, self.oauth()?);
        Ok(McpOptions::new(server).with(|options| {
            options.name.clone_from(&self.name);
            options.description.clone_from(&self.description);
            options.tools.clone_from(&self.tools);
            options.directory.clone_from(&self.directory);
            let environment = self.environment.iter();
            options.environment = environment.map(|(name, value)| (name.clone(), value.0.clone())).collect();
            options.pass_environment.clone_from(&self.pass_environment);
            options.token = token.map(Into::into);
            let headers = self.headers.iter();
            options.headers = headers.map(|(name, value)| (name.clone(), value.0.clone().into())).collect();
            options.oauth = oauth;
            options.exclusive = self.exclusive;
            options.roots.clone_from(&self.roots);
            options.sampling = sampling;
            if let Some(time) = &self.grace {
                options.grace = time.0.0;
            }
            if let Some(time) = &self.start_timeout {
                options.start_timeout = time.0.0;
            }
            if let Some(time) = &self.timeout {
                options.call_timeout = time.0.0;
            }
            if let Some(time) = &self.question_timeout {
                options.question_timeout = time.0.0;
            }
            if let Some(size) = &self.max_output {
                options.max_output = usize::try_from(size.0.0).unwrap_or(usize::MAX);
            }
            if let Some(count) = &self.calls {
                options.max_calls = usize::try_from(count.0.0.get()).unwrap_or(usize::MAX);
            }
        }))
    }
}
