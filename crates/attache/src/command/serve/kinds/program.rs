//! A program on this machine.

use attache::prelude::*;
use attache_agents::program::{Program, Protocol};

use super::{AgentKind, BuildRequest, BuiltAgent, CheckContext, Serve, TurnTimes, passed_variables};
use crate::command::Failure;
use crate::config::{self, CommandLine, NamedAgent, Problems};

pub(super) struct ProgramKind;

impl AgentKind for ProgramKind {
    type Settings = config::Program;
    const NAME: &'static str = "program";
    const ABOUT: &'static str = "A program on this machine";

    fn is_asked_for(serve: &Serve) -> bool {
        serve.program.program.is_some()
    }

    fn at_root(serve: &Serve, file: &config::Settings) -> Result<config::Program, Failure> {
        // The flag is that of coding agents, whose section in the file does not count here.
        let flag = serve.acp.workspace.clone().filter(|path| file.acp.workspace.as_ref() != Some(path));
        let workspace = flag.or_else(|| file.program.workspace.clone());
        let pass_environment = passed_variables(serve, file, &file.program.pass_environment);
        let command = serve.program.program.clone();
        Ok(config::Program { command, workspace, pass_environment, ..file.program.clone() })
    }

    fn of_named(agent: &NamedAgent) -> Option<config::Program> {
        agent.program.clone()
    }

    fn check(program: &config::Program, _: &CheckContext<'_>, problems: &mut Problems<'_>) {
        problems.take(["command"], command(program));
        if program.budget.as_ref().is_some_and(|budget| budget.tokens.is_some()) {
            let text = "a program uses no tokens: its `budget` can have a `time` only";
            problems.add(["budget.tokens"], Failure::usage(text));
        }
        if let Some(path) = program.missing_workspace() {
            let failure = Failure::usage(format!("`{}` is not a directory", path.display()));
            problems.add(
                ["workspace"],
                failure.hint("name an existing directory with `--workspace PATH`, or leave it out"),
            );
        }
        let of_conversations =
            [("workspace", &program.workspace), ("data-directory", &program.data_directory)];
        for (key, _) in of_conversations.iter().filter(|(_, path)| path.is_some() && !program.is_json()) {
            let text = "`workspace` and `data-directory` of a program need `protocol: json`";
            let hint = "`directory` is the working directory of a program with text";
            problems.add([key, "protocol"], Failure::usage(text).hint(hint));
        }
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
        let mut rules = request.context.conversation.rules();
        let name_among_others = request.name.as_deref();
        rules.workspaces.default = program.default_workspace(name_among_others, rules.workspaces.default);
        let mut options = program.options(command);
        let modes = match options.protocol {
            Protocol::Text => vec!["*/*".to_owned()],
            Protocol::Json => rules.input.modes(),
        };
        options.conversation = rules;
        let whole = Skill::new(name, name).description(format!("Runs {name} for each message"));
        let mut card = Card::new(name, format!("The program {name}")).input_modes(modes);
        card.skills = request.card.whole(whole);
        let agent = Program::new(options);
        Ok(match &program.budget {
            Some(budget) => BuiltAgent::new(request.budget(budget).await?.limit(agent), card, request.card),
            None => BuiltAgent::new(agent, card, request.card),
        })
    }
}

fn command(program: &config::Program) -> Result<&CommandLine, Failure> {
    program.command.as_ref().ok_or_else(|| {
        Failure::usage("no program is named").hint(
            "name it with `--program './agent.py'`, or with `program.command` in the configuration file",
        )
    })
}
