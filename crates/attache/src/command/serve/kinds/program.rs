//! A program on this machine.

use attache::prelude::*;
use attache_agents::program::{Program, Protocol};

use super::{AgentKind, BuildRequest, BuiltAgent, Place, Serve, TurnTimes, all};
use crate::command::Failure;
use crate::config::{self, CommandLine, NamedAgent};

pub(super) struct ProgramKind;

impl AgentKind for ProgramKind {
    type Settings = config::Program;
    const NAME: &'static str = "program";
    const ABOUT: &'static str = "A program on this machine";

    fn is_asked_for(serve: &Serve) -> bool {
        serve.program.program.is_some()
    }

    fn at_root(serve: &Serve, file: &config::Settings) -> Result<config::Program, Failure> {
        Ok(config::Program { command: serve.program.program.clone(), ..file.program.clone() })
    }

    fn of_named(agent: &NamedAgent) -> Option<config::Program> {
        agent.program.clone()
    }

    fn check(program: &config::Program, _: &Place<'_>) -> Result<(), Failure> {
        let counts_tokens = program.budget.as_ref().is_some_and(|budget| budget.tokens.is_some());
        let budget = match counts_tokens {
            true => Err(Failure::usage("a program uses no tokens: its `budget` can have a `time` only")),
            false => Ok(()),
        };
        all([budget, command(program).map(|_| ())])
    }

    fn times(program: &config::Program) -> TurnTimes {
        let options = command(program).map(|command| program.options(command));
        let times = options.map(|options| {
            // A turn can wait for a place as long as its program may take.
            let phases = [options.timeout, options.timeout, options.permission_timeout];
            TurnTimes::new(phases, options.grace)
        });
        times.unwrap_or_default()
    }

    async fn build(program: config::Program, request: BuildRequest) -> Result<BuiltAgent, Failure> {
        let command = command(&program)?;
        let name = command.name();
        let rules = request.context.conversation.rules();
        let mut options = program.options(command);
        let modes = match options.protocol {
            Protocol::Text => vec!["*/*".to_owned()],
            Protocol::Json => rules.input.modes(),
        };
        options.conversation = rules;
        let card = Card::new(name, format!("The program {name}"))
            .input_modes(modes)
            .skill(Skill::new(name, name).description(format!("Runs {name} for each message")));
        let agent = Program::new(options);
        Ok(match &program.budget {
            Some(budget) => BuiltAgent::new(request.budget(budget).await?.limit(agent), card, request.card),
            None => BuiltAgent::new(agent, card, request.card),
        })
    }
}

fn command(program: &config::Program) -> Result<&CommandLine, Failure> {
    program.command.as_ref().ok_or_else(|| {
        Failure::usage("`agent` is `program`, and no program is named").hint(
            "name it with `--program './agent.py'`, or with `program.command` in the configuration file",
        )
    })
}
