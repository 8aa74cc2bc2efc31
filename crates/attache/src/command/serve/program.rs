//! A program on this machine as an agent.

use attache::prelude::*;
use attache_agents::program::Program;

use super::functions::Tokens;
use super::{Parts, Prepared, Serve, stopping};
use crate::command::Failure;

/// Checks that there is a program.
pub(super) fn check(serve: &Serve) -> Result<Tokens, Failure> {
    if serve.functions.demo.demo {
        return Err(Failure::usage("`--demo` adds sample functions, which a program does not have")
            .hint("leave out one of them"));
    }
    match &serve.program.program {
        Some(_) => Ok(Tokens::default()),
        None => Err(Failure::usage("`agent` is `program`, and no program is named").hint(
            "name it with `--program './agent.py'`, or with `program.command` in the configuration file",
        )),
    }
}

/// Serves a program until the process is stopped.
pub(super) async fn serve(serve: Serve, prepared: Prepared, parts: Parts) -> Result<(), Failure> {
    check(&serve)?;
    let store = serve.store.open().await?;
    let announcement = serve.announcement(&prepared)?;
    let Some(command) = &serve.program.program else { return Ok(()) };
    let section = serve.settings.file.as_ref().map(|file| &file.settings.program);
    let options = section.cloned().unwrap_or_default().options(command);
    let name = command.name();
    let card = Card::new(name, format!("The program {name}"))
        .input_modes(["*/*"])
        .skill(Skill::new(name, name).description(format!("Runs {name} for each message")));
    let server = Server::new(Program::new(options)).card(card);
    let listening = serve.listen(server, store, prepared, parts).await?;
    announcement.say(&listening.local_address().map_err(Failure::new)?, None);
    stopping::run(listening).await
}
