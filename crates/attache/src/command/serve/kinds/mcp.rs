//! The tools of an MCP server.

use std::path::{Path, PathBuf};

use attache::core::Conversation;
use attache_agents::mcp::{Mcp, McpError, McpServer};
use futures::StreamExt;

use super::{
    AgentKind, BuildRequest, BuiltAgent, CheckContext, Serve, TurnTimes, Unconnected, model, passed_variables,
};
use crate::command::Failure;
use crate::command::client::{mcp_login_hint, stored_mcp_login};
use crate::config::{self, NamedAgent, Problems};

pub(super) struct McpKind;

impl AgentKind for McpKind {
    type Settings = config::Mcp;
    const NAME: &'static str = "mcp";
    const ABOUT: &'static str = "The tools of an MCP server, as skills";
    const OFFERS_TOOLS: bool = true;
    const CONNECTS: Option<Unconnected> = Some(Unconnected { restartable: false, reports: true });

    fn is_asked_for(serve: &Serve) -> bool {
        serve.mcp.mcp.is_some()
    }

    fn at_root(serve: &Serve, file: &config::Settings) -> Result<config::Mcp, Failure> {
        let pass_environment = passed_variables(serve, file, &file.mcp.pass_environment);
        Ok(config::Mcp { command: serve.mcp.mcp.clone(), pass_environment, ..file.mcp.clone() })
    }

    fn of_named(agent: &NamedAgent) -> Option<config::Mcp> {
        agent.mcp.clone()
    }

    fn check(mcp: &config::Mcp, _: &CheckContext<'_>, problems: &mut Problems<'_>) {
        mcp.check(problems);
        let Some(model) = &mcp.sampling else { return };
        problems.section("sampling", |problems| {
            for key in model.useless_for_sampling() {
                let text =
                    format!("`sampling.{key}` has no effect: a model that answers an MCP server has none");
                problems.add([key], Failure::usage(text));
            }
            model::check_access(model, problems);
        });
    }

    fn times(mcp: &config::Mcp) -> TurnTimes {
        let times = mcp.options(None).map(|options| {
            TurnTimes::new(
                [options.start_timeout, options.call_timeout, options.question_timeout],
                options.grace,
            )
        });
        times.unwrap_or_default()
    }

    fn secret_files(mcp: &config::Mcp) -> Vec<PathBuf> {
        mcp.secret_files().map(Path::to_owned).collect()
    }

    async fn build(mcp: config::Mcp, request: BuildRequest) -> Result<BuiltAgent, Failure> {
        let sampling = mcp.sampling.as_ref();
        let sampling =
            sampling.map(|model| model::without_tools(model, Conversation::default())).transpose()?;
        let mut options = mcp.options(sampling)?;
        let url = if let McpServer::Url(url) = &options.server { Some(url.clone()) } else { None };
        if let Some(url) = &url
            && options.token.is_none()
            && options.oauth.is_none()
        {
            options.login = stored_mcp_login(url)?;
        }
        let agent = Mcp::connect(options).await.map_err(|error| {
            let needs_login = matches!(error, McpError::Login { .. });
            let failure = Failure::new(error);
            match url.filter(|_| needs_login) {
                Some(url) => failure.hint(mcp_login_hint(&url)),
                None => failure,
            }
        })?;
        let (card, cards) = (agent.card(), agent.cards().boxed());
        let built = BuiltAgent::with_updates(agent.clone(), card, cards, request.card);
        Ok(BuiltAgent { mcp: Some(agent), ..built })
    }
}
