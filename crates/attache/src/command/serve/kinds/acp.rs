//! A coding agent that speaks ACP.

use attache::core::DefaultWorkspace;
use attache_agents::acp::{Acp, AcpOptions};
use futures::StreamExt;

use super::{AgentKind, BuildRequest, BuiltAgent, CheckContext, Serve, TurnTimes};
use crate::command::Failure;
use crate::config::{self, NamedAgent, Problems};

pub(super) struct AcpKind;

impl AgentKind for AcpKind {
    type Settings = config::Acp;
    const NAME: &'static str = "acp";
    const ABOUT: &'static str = "A coding agent that speaks ACP";

    fn is_asked_for(serve: &Serve) -> bool {
        serve.acp.acp.is_some()
    }

    fn at_root(serve: &Serve, file: &config::Settings) -> Result<config::Acp, Failure> {
        let (command, workspace) = (serve.acp.acp.clone(), serve.acp.workspace.clone());
        let pass_environment = serve.acp.pass_env.clone();
        Ok(config::Acp { command, workspace, pass_environment, ..file.acp.clone() })
    }

    fn of_named(agent: &NamedAgent) -> Option<config::Acp> {
        agent.acp.clone()
    }

    fn check(acp: &config::Acp, _: &CheckContext<'_>, problems: &mut Problems<'_>) {
        problems.take(["command"], acp.words());
        if let Some(path) = acp.missing_workspace() {
            let failure = Failure::usage(format!("`{}` is not a directory", path.display()));
            problems.add(
                ["workspace"],
                failure.hint("name an existing directory with `--workspace PATH`, or leave it out"),
            );
        }
    }

    fn times(acp: &config::Acp) -> TurnTimes {
        let times = acp.options(None).map(|options| {
            TurnTimes::new(
                [options.start_timeout, options.timeout, options.permission_timeout],
                // First the prompt is ended, then the program.
                options.grace.saturating_mul(2),
            )
        });
        times.unwrap_or_default()
    }

    async fn build(acp: config::Acp, request: BuildRequest) -> Result<BuiltAgent, Failure> {
        let agent = Acp::new(options(&acp, &request)?).map_err(Failure::new)?;
        let (card, cards) = (agent.card(), agent.cards().boxed());
        Ok(BuiltAgent::with_updates(agent, card, cards, request.card))
    }
}

/// The options of a coding agent. What its section does not set is as for all conversations.
fn options(acp: &config::Acp, request: &BuildRequest) -> Result<AcpOptions, Failure> {
    let rules = request.context.conversation.rules();
    Ok(acp.options(request.name.as_deref())?.with(|options| {
        if acp.idle.is_none() {
            options.idle = rules.contexts.idle;
        }
        if acp.max_sessions.is_none() {
            options.max_sessions = rules.contexts.max;
        }
        // A directory that is shared by default replaces the private ones, unless the section names some.
        if acp.data_directory.is_none() && rules.workspaces.default != DefaultWorkspace::None {
            options.data_directory = None;
        }
        options.conversation = rules;
    }))
}
