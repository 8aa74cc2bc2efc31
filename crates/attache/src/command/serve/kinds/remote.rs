//! A remote A2A agent.

use std::time::Duration;

use attache_agents::AgentCredentials;
use attache_agents::gateway::Gateway;
use futures::StreamExt;

use super::{AgentKind, BuildRequest, BuiltAgent, CheckContext, Serve, TurnTimes, Unconnected};
use crate::command::{Failure, redis_credentials};
use crate::config::{self, AgentUrl, NamedAgent, Problems};

pub(super) struct RemoteKind;

impl AgentKind for RemoteKind {
    type Settings = config::Remote;
    const NAME: &'static str = "remote";
    const ABOUT: &'static str = "A remote A2A agent";

    const CONNECTS: Option<Unconnected> = Some(Unconnected { restartable: true, reports: false });

    fn is_asked_for(serve: &Serve) -> bool {
        serve.remote.remote.is_some()
    }

    fn at_root(serve: &Serve, file: &config::Settings) -> Result<config::Remote, Failure> {
        let url = serve.remote.remote.as_deref().map(|url| {
            let parsed: Result<AgentUrl, _> = url.parse();
            parsed.map(config::FromText).map_err(|expected| {
                Failure::usage(format!("`{url}` is not the address of an agent: {expected}"))
            })
        });
        let url = url.transpose()?;
        Ok(config::Remote { url, ..file.remote.clone() })
    }

    fn of_named(agent: &NamedAgent) -> Option<config::Remote> {
        agent.remote.clone()
    }

    fn check(remote: &config::Remote, _: &CheckContext<'_>, problems: &mut Problems<'_>) {
        problems.take(["url"], remote.url());
        problems.take(["redis"], remote.redis());
    }

    fn times(remote: &config::Remote) -> TurnTimes {
        TurnTimes::new([remote.timeout()], Duration::ZERO)
    }

    async fn build(remote: config::Remote, request: BuildRequest) -> Result<BuiltAgent, Failure> {
        let context = &request.context;
        let credentials = AgentCredentials::new(context.agents.clone(), config::AGENTS);
        let mut options = remote.options(context.store.clone(), credentials, context.own_url.clone())?;
        options.client.redis = redis_credentials()?;
        let agent = Gateway::connect(options).await.map_err(|error| {
            Failure::new(error).hint("check the address, or wait for the agent with `remote.wait: true`")
        })?;
        let (card, cards) = (agent.card(), agent.cards().boxed());
        Ok(BuiltAgent::with_updates(agent, card, cards, request.card))
    }
}
