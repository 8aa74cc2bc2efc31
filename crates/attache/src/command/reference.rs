//! The reference of the command as Markdown, generated from its arguments.

use std::fmt::Write;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command};

use super::Failure;
use super::client::CONNECTION;

const INTRODUCTION: &str = "\
# The `attache` command

`cargo xtask docs` writes this page from the command itself; `cargo xtask test` fails if it is not up to date. [The guide](../command.md)
has examples.

Every command prints data to standard output and everything else to standard error. Colours and spinners are for terminals only;
`NO_COLOR` turns colours off.
";

/// Prints the reference.
pub(super) fn print() -> Result<(), Failure> {
    let mut command = crate::config::arguments();
    command.build();
    super::print(&page(&mut command).map_err(Failure::new)?)
}

/// A command that takes all options for the connection.
const CARD: &str = "card";

/// The commands that take all options of the server.
const CONFIG: &str = "attache config";

fn page(command: &mut Command) -> Result<String, std::fmt::Error> {
    let mut out = INTRODUCTION.to_owned();
    writeln!(out, "\n## Exit codes\n\n| code | meaning |\n|---|---|")?;
    for line in super::EXIT_CODES.lines().skip(1) {
        if let Some((code, meaning)) = line.trim().split_once(' ') {
            writeln!(out, "| {code} | {} |", cell(meaning))?;
        }
    }
    let card = command.find_subcommand(CARD).into_iter().flat_map(Command::get_arguments);
    writeln!(
        out,
        "\n## Connection\n\nThe commands that talk to an agent all take these. Credentials are sent only if the card of the agent asks for them."
    )?;
    table(&mut out, &card.filter(|arg| is_connection(arg)).collect::<Vec<_>>())?;
    for subcommand in command.get_subcommands_mut() {
        section(&mut out, "attache", subcommand)?;
    }
    Ok(out)
}

fn section(out: &mut String, above: &str, command: &mut Command) -> std::fmt::Result {
    if command.is_hide_set() || command.get_name() == "help" {
        return Ok(());
    }
    let name = format!("{above} {}", command.get_name());
    let depth = name.split(' ').count();
    writeln!(out, "\n{} {name}\n", "#".repeat(depth))?;
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        writeln!(out, "{}", sentence(about))?;
    }
    if command.has_subcommands() {
        for subcommand in command.get_subcommands_mut() {
            section(out, &name, subcommand)?;
        }
        return Ok(());
    }
    let usage = command.render_usage().to_string();
    writeln!(out, "\n```text\n{}\n```", usage.trim_start_matches("Usage: "))?;
    let mut shown: Vec<&Arg> = command.get_arguments().filter(|arg| is_shown(arg)).collect();
    // Positional arguments come first, in their order.
    shown.sort_by_key(|arg| arg.get_index().unwrap_or(usize::MAX));
    let (connection, shown): (Vec<_>, Vec<_>) = shown.into_iter().partition(|arg| is_connection(arg));
    let of_server = |arg: &&Arg| above == CONFIG && arg.get_id() != "json" && arg.get_id() != "config";
    let (of_server, shown): (Vec<_>, Vec<_>) = shown.into_iter().partition(of_server);
    table(out, &shown)?;
    if !of_server.is_empty() {
        writeln!(
            out,
            "\nAnd the options of [`attache serve`](#attache-serve), which beat the file here as they do there."
        )?;
    }
    if !connection.is_empty() {
        writeln!(out, "\nAnd the options for the [connection](#connection).")?;
    }
    if let Some(more) = command.get_after_help() {
        writeln!(out, "\n```text\n{}\n```", more.to_string().trim_end())?;
    }
    Ok(())
}

fn table(out: &mut String, arguments: &[&Arg]) -> std::fmt::Result {
    if !arguments.is_empty() {
        writeln!(out, "\n| argument | what it is |\n|---|---|")?;
    }
    for arg in arguments {
        writeln!(out, "| {} | {} |", spelled(arg), about(arg))?;
    }
    Ok(())
}

fn is_connection(arg: &Arg) -> bool {
    arg.get_help_heading() == Some(CONNECTION)
}

fn is_shown(arg: &Arg) -> bool {
    !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
}

/// An argument as users write it.
fn spelled(arg: &Arg) -> String {
    let takes_values = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let values: Vec<_> = arg
        .get_value_names()
        .into_iter()
        .flatten()
        .map(|name| name.to_string())
        .filter(|_| takes_values)
        .collect();
    let flags =
        [arg.get_short().map(|short| format!("-{short}")), arg.get_long().map(|long| format!("--{long}"))];
    let aliases = arg.get_visible_aliases().into_iter().flatten().map(|alias| format!("--{alias}"));
    let flags: Vec<_> = flags.into_iter().flatten().chain(aliases).collect();
    if flags.is_empty() {
        return format!("`{}`", values.join(" "));
    }
    // A switch, whose value is optional.
    let optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0);
    let value = match values.as_slice() {
        [] => String::new(),
        values if optional => format!("[={}]", values.join(" ")),
        values => format!(" {}", values.join(" ")),
    };
    flags.iter().map(|flag| format!("`{flag}{value}`")).collect::<Vec<_>>().join(", ")
}

fn about(arg: &Arg) -> String {
    let mut text = arg.get_long_help().or(arg.get_help()).map(sentence).unwrap_or_default();
    let takes_values = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let choices = arg.get_possible_values();
    if takes_values && !arg.is_hide_possible_values_set() && !choices.is_empty() {
        let choices: Vec<_> = choices.iter().map(|choice| format!("`{}`", choice.get_name())).collect();
        text.push_str(&format!(" One of {}.", choices.join(", ")));
    }
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .filter(|value| !value.is_empty())
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    if takes_values && !arg.is_hide_default_value_set() && !defaults.is_empty() {
        text.push_str(&format!(" Default: {}.", defaults.join(", ")));
    }
    if let Some(variable) = arg.get_env() {
        text.push_str(&format!(" Environment: `{}`.", variable.to_string_lossy()));
    }
    cell(&text)
}

/// The help text. Each paragraph ends with a full stop.
fn sentence(text: &StyledStr) -> String {
    let ended = |text: &str| {
        let text = text.trim_end();
        if text.ends_with(['.', ':', '?']) { text.to_owned() } else { format!("{text}.") }
    };
    text.to_string().split("\n\n").map(ended).collect::<Vec<_>>().join("\n\n")
}

fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
