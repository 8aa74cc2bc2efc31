//! An agent that gives back what it gets.

use attache::core::Echo;
use attache::prelude::*;

use super::{AgentKind, BuildRequest, BuiltAgent, CheckContext, Serve};
use crate::command::Failure;
use crate::config::{self, NamedAgent, Problems};

pub(super) struct EchoKind;

impl AgentKind for EchoKind {
    type Settings = ();
    const NAME: &'static str = "echo";
    const ABOUT: &'static str = "Gives back what it gets";
    const IS_SWITCH: bool = true;

    fn is_asked_for(_: &Serve) -> bool {
        false
    }

    fn at_root(_: &Serve, _: &config::Settings) -> Result<(), Failure> {
        Ok(())
    }

    fn of_named(agent: &NamedAgent) -> Option<()> {
        agent.echo.then_some(())
    }

    fn check((): &(), _: &CheckContext<'_>, _: &mut Problems<'_>) {}

    async fn build((): (), request: BuildRequest) -> Result<BuiltAgent, Failure> {
        let card = Card::new("Echo", "Gives back what it gets")
            .skill(Skill::new("echo", "Echo").description("Gives back what it gets").example("Hello"))
            .input_modes(["*/*"])
            .output_modes(["*/*"]);
        Ok(BuiltAgent::new(Echo, card, request.card))
    }
}
