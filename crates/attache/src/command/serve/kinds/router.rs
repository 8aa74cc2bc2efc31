//! A router to the other agents of the server.

use std::sync::Arc;

use attache_agents::router::Router;
use futures::StreamExt;

use super::{AgentKind, AgentSection, BuildRequest, BuiltAgent, CheckContext, Serve, is_of_kind};
use crate::command::Failure;
use crate::config::{self, NamedAgent, Problems};

pub(super) struct RouterKind;

impl AgentKind for RouterKind {
    type Settings = config::Router;
    const NAME: &'static str = "router";
    const ABOUT: &'static str = "Passes each message to one of the named agents";
    const USES_OTHERS: bool = true;

    fn is_asked_for(_: &Serve) -> bool {
        false
    }

    fn at_root(_: &Serve, file: &config::Settings) -> Result<config::Router, Failure> {
        Ok(file.router.clone())
    }

    fn of_named(agent: &NamedAgent) -> Option<config::Router> {
        agent.router.clone()
    }

    fn check(router: &config::Router, context: &CheckContext<'_>, problems: &mut Problems<'_>) {
        let is_router = |agent: &NamedAgent| is_of_kind(agent, AgentSection::uses_others);
        let routes = |agent: &NamedAgent| !is_router(agent) && !agent.has_own_callers();
        if context.is_root && !context.named.values().any(routes) {
            if !problems.is_wrong("agents") {
                let failure = Failure::usage("there are no agents to pass messages to");
                problems.add(
                    [""],
                    failure.hint(
                        "define them below `agents` in the configuration file, without `auth` of their own",
                    ),
                );
            }
            return;
        }
        let not_routed =
            |name: &str| Failure::usage(format!("there is no agent `{name}` that is not a router itself"));
        for (place, name) in router.agents() {
            if problems.is_wrong(&format!("agents.{name}")) {
                continue;
            }
            let failure = match context.named.get(name) {
                None if context.is_root => context.no_agent(name),
                None => not_routed(name),
                // A router to a router could pass a message on for ever.
                Some(agent) if is_router(agent) => not_routed(name),
                Some(agent) if agent.has_own_callers() => Failure::usage(format!(
                    "the agent `{name}` has `auth` of its own, and a router would let in other callers"
                ))
                .hint(format!(
                    "callers reach it at `/agents/{name}`; without `auth` it has the callers of the server"
                )),
                Some(_) => continue,
            };
            // Without an item that is wrong, the numbers in the list are not those in the file.
            let list = place.split('[').next().unwrap_or(&place);
            problems.add([&place, list], failure);
        }
    }

    async fn build(router: config::Router, request: BuildRequest) -> Result<BuiltAgent, Failure> {
        let made = Router::new(router.options(), request.others).map_err(|error| {
            Failure::usage(error.to_string()).hint("define it below `agents` in the configuration file")
        })?;
        let built = BuiltAgent::with_updates(made.clone(), made.card(), made.cards().boxed(), request.card);
        let follow = Arc::new(move |section: &AgentSection, others| {
            made.set(section.settings::<config::Router>()?.options(), others).map_err(Failure::new)
        });
        Ok(BuiltAgent { follow: Some(follow), ..built })
    }
}
