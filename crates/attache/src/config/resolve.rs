//! Settling what holds, and saying where it came from.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use serde_json::{Value, json};

use super::declare::{self, Row, Sense};
use super::wrong::Wrong;
use super::{ConfigFile, Settled};
use crate::Arguments;
use crate::command::Failure;

/// A setting, and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) key: String,
    pub(crate) value: Shown,
    pub(crate) source: Source,
}

impl Resolved {
    /// Whether a change of it is felt without a restart.
    pub(crate) fn is_reloaded(&self) -> bool {
        declare::is_reloaded(&self.key)
    }
}

/// A value as it can be shown: secrets are masked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shown {
    Nothing,
    Switch(bool),
    Text(String),
    List(Vec<String>),
}

impl Shown {
    fn of(value: &Value) -> Self {
        let text = |value: &Value| without_password(&text(value));
        match value {
            Value::Null => Self::Nothing,
            Value::Bool(switch) => Self::Switch(*switch),
            Value::Array(values) => Self::List(values.iter().map(text).collect()),
            Value::String(_) | Value::Number(_) | Value::Object(_) => Self::Text(text(value)),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Nothing => Value::Null,
            Self::Switch(switch) => json!(switch),
            Self::Text(text) => json!(text),
            Self::List(texts) => json!(texts),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("not set"),
            Self::Switch(switch) => write!(f, "{switch}"),
            Self::Text(text) if text.is_empty() => f.write_str("\"\""),
            Self::Text(text) => f.write_str(text),
            Self::List(texts) if texts.is_empty() => f.write_str("none"),
            Self::List(texts) => f.write_str(&texts.join(", ")),
        }
    }
}

/// A URL without the password in it.
fn without_password(text: &str) -> String {
    let masked = || {
        let (scheme, rest) = text.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        let (user, _) = authority.rsplit_once('@')?;
        let name = user.split(':').next()?;
        Some(format!("{scheme}://{name}:{}{}", super::MASK, &rest[user.len()..]))
    };
    masked().unwrap_or_else(|| text.to_owned())
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File {
        path: String,
        line: usize,
        /// The variables of the environment that are part of it.
        variables: Vec<String>,
    },
    Environment(String),
    Flag(String),
}

impl Source {
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Default => json!({"kind": "default"}),
            Self::File { path, line, variables } if variables.is_empty() => {
                json!({"kind": "file", "file": path, "line": line})
            }
            Self::File { path, line, variables } => {
                json!({"kind": "file", "file": path, "line": line, "variables": variables})
            }
            Self::Environment(variable) => json!({"kind": "environment", "variable": variable}),
            Self::Flag(flag) => json!({"kind": "flag", "flag": flag}),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line, variables } => {
                write!(f, "{path}:{line}")?;
                variables.iter().try_for_each(|variable| write!(f, " ${variable}"))
            }
            Self::Environment(variable) => write!(f, "${variable}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// What the file says, by key.
type Said = BTreeMap<String, Value>;

/// The command, whose flags for the server can all be given in the environment too.
pub(crate) fn arguments() -> Command {
    dressed(&Said::new())
}

/// The same with what the file says as defaults.
fn dressed(said: &Said) -> Command {
    dress_below(Arguments::command(), said)
}

fn dress_below(command: Command, said: &Said) -> Command {
    let goes_by_a_file = command.get_arguments().any(|argument| argument.get_id() == "config");
    // In this way they stay in their order.
    match goes_by_a_file {
        true => command.mut_args(|argument| dress(argument, said)),
        false => command.mut_subcommands(|command| dress_below(command, said)),
    }
}

fn dress(argument: Arg, said: &Said) -> Arg {
    let Some(row) = declare::by_argument(argument.get_id().as_str()) else { return argument };
    let (is_switch, repeats) = (
        matches!(argument.get_action(), ArgAction::SetTrue),
        matches!(argument.get_action(), ArgAction::Append),
    );
    let argument = if is_switch {
        // What the file switches on can be switched off again.
        argument
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_value("false")
            .default_missing_value("true")
            .hide_default_value(true)
            .value_parser(BoolishValueParser::new())
            .hide_possible_values(true)
            .value_name("BOOL")
    } else if repeats {
        // In the environment, several are written with spaces between them.
        argument.value_delimiter(' ')
    } else {
        argument
    };
    let argument = argument.env(row.variable.as_str());
    match said.get(&row.key) {
        Some(value) => argument.default_values(as_flag(row, value)),
        None => argument,
    }
}

/// A value as text, without quotes.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What the file says, as the flag would be given.
fn as_flag(row: &Row, value: &Value) -> Vec<String> {
    match (row.sense, value) {
        (Sense::Opposite, Value::Bool(switch)) => vec![(!switch).to_string()],
        (Sense::Seconds, value) => vec![text(value).trim_end_matches('s').to_owned()],
        (_, Value::Array(values)) => values.iter().map(text).collect(),
        (_, value) => vec![text(value)],
    }
}

/// Why a command cannot go on.
pub(crate) enum Stop {
    /// It was called the wrong way, or for help.
    Usage(clap::Error),
    /// Something is wrong with the file.
    Failed(Failure),
}

impl From<clap::Error> for Stop {
    fn from(error: clap::Error) -> Self {
        Self::Usage(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Usage(error) => Self::usage(error.to_string().trim()),
            Stop::Failed(failure) => failure,
        }
    }
}

/// Reads the command line, and for what goes by settings also the file.
pub(crate) fn settle(words: &[OsString]) -> Result<Arguments, Stop> {
    let mut command = arguments();
    let matches = command.try_get_matches_from_mut(words)?;
    let mut parsed = Arguments::from_arg_matches(&matches)?;
    let Some(named) = parsed.command.settings_file().map(|file| file.config.clone()) else {
        return Ok(parsed);
    };
    let file = match parsed.command.serve() {
        Some(_) => ConfigFile::find(named.as_deref(), &|_| true)?,
        None => {
            let given = given(&command, &matches);
            ConfigFile::find(named.as_deref(), &|section| concerns(section, given))?
        }
    };
    let Some(file) = file else {
        if let Some(serve) = parsed.command.serve() {
            serve.settled.resolved = resolved(&matches, None);
        }
        return Ok(parsed);
    };
    let said = file.said()?;
    let matches = dressed(&said).try_get_matches_from(words).map_err(|error| blame(error, &file))?;
    parsed = Arguments::from_arg_matches(&matches)?;
    if let Some(serve) = parsed.command.serve() {
        let resolved = resolved(&matches, Some((&file, &said)));
        serve.settled = Settled { file: Some(file), resolved };
    }
    Ok(parsed)
}

/// Whether a flag of a subcommand is about something in this section of the file.
fn concerns(section: &str, command: &Command) -> bool {
    let mut rows =
        command.get_arguments().filter_map(|argument| declare::by_argument(argument.get_id().as_str()));
    rows.any(|row| row.key.split('.').next() == Some(section))
}

/// The subcommand that was given.
fn given<'a>(command: &'a Command, matches: &ArgMatches) -> &'a Command {
    let below = matches.subcommand().and_then(|(name, below)| Some((command.find_subcommand(name)?, below)));
    below.map_or(command, |(command, below)| given(command, below))
}

/// What was given to the subcommand itself.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| innermost(below))
}

/// An error about a value that the file has: without the file there was none.
fn blame(error: clap::Error, file: &ConfigFile) -> Stop {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return error.into();
    };
    let flag = argument.trim_start_matches("--").split([' ', '=', '[']).next().unwrap_or_default();
    let Some(row) = declare::by_argument(&flag.replace('-', "_")) else { return error.into() };
    let text = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    file.wrong(&row.key, Wrong::new(text)).into()
}

impl ConfigFile {
    /// What the file says, by key; secrets are masked.
    fn said(&self) -> Result<Said, Failure> {
        let settings = serde_json::to_value(&self.settings).map_err(Failure::new)?;
        let mut said = Said::new();
        gather(&settings, String::new(), &mut said);
        // An empty list says something only where it is written.
        said.retain(|key, _| self.root.at(key).is_some());
        Ok(said)
    }

    fn source(&self, key: &str) -> Source {
        let node = self.root.at(key);
        Source::File {
            path: self.path.display().to_string(),
            line: node.map_or(1, |node| node.place.line),
            variables: node.map(|node| node.variables().to_vec()).unwrap_or_default(),
        }
    }
}

fn gather(value: &Value, path: String, said: &mut Said) {
    match value {
        Value::Null => {}
        Value::Object(members) => {
            for (key, value) in members {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                gather(value, path, said);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_object) => {
            for (index, value) in values.iter().enumerate() {
                gather(value, format!("{path}[{index}]"), said);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            said.insert(path, value.clone());
        }
    }
}

fn resolved(matches: &ArgMatches, file: Option<(&ConfigFile, &Said)>) -> Vec<Resolved> {
    let innermost = innermost(matches);
    let from_file =
        |key: &str| file.filter(|(_, said)| said.contains_key(key)).map(|(file, _)| file.source(key));
    let settings = declare::rows().iter().map(|row| {
        let source = match innermost.value_source(row.argument) {
            Some(ValueSource::CommandLine) => Source::Flag(format!("--{}", row.argument.replace('_', "-"))),
            Some(ValueSource::EnvVariable) => Source::Environment(row.variable.clone()),
            Some(_) | None => from_file(&row.key).unwrap_or(Source::Default),
        };
        Resolved { key: row.key.clone(), value: shown(innermost, row), source }
    });
    let mut all: Vec<_> = settings.collect();
    if let Some((file, said)) = file {
        let alone = said.iter().filter(|(key, _)| !declare::rows().iter().any(|row| row.key == **key));
        all.extend(alone.map(|(key, value)| Resolved {
            key: key.clone(),
            value: Shown::of(value),
            source: file.source(key),
        }));
    }
    all
}

fn shown(matches: &ArgMatches, row: &Row) -> Shown {
    if let Ok(Some(switch)) = matches.try_get_one::<bool>(row.argument) {
        return Shown::Switch(if row.sense == Sense::Opposite { !switch } else { *switch });
    }
    let raw = matches.get_raw(row.argument).into_iter().flatten();
    let mut texts: Vec<_> = raw.map(|text| without_password(&text.to_string_lossy())).collect();
    match row.sense {
        Sense::List => Shown::List(texts),
        Sense::Seconds => texts.pop().map_or(Shown::Nothing, |seconds| Shown::Text(format!("{seconds}s"))),
        Sense::Same | Sense::Opposite => texts.pop().map_or(Shown::Nothing, Shown::Text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_flag_and_every_flag_a_setting() {
        let command = arguments();
        let serve = command.find_subcommand("serve").unwrap();
        let flags: Vec<_> = serve.get_arguments().map(|argument| argument.get_id().as_str()).collect();
        for row in declare::rows() {
            assert!(flags.contains(&row.argument), "{}", row.argument);
        }
        let without: Vec<_> = flags.into_iter().filter(|flag| declare::by_argument(flag).is_none()).collect();
        assert_eq!(without, ["config"]);
    }

    #[test]
    fn the_variable_of_a_flag_is_called_like_it() {
        let command = arguments();
        let serve = command.find_subcommand("serve").unwrap();
        for argument in serve.get_arguments() {
            let id = argument.get_id().as_str();
            let variable = argument.get_env().unwrap().to_str().unwrap();
            let expected = format!("ATTACHE_{}", id.to_uppercase());
            // `ATTACHE_KEYRING` is the keyring itself.
            let expected = if id == "keyring" { "ATTACHE_KEYRING_FILE" } else { expected.as_str() };
            assert_eq!(variable, expected);
        }
    }

    #[test]
    fn of_the_file_a_command_reads_what_its_flags_are_about() {
        let sections = |words: &[&str]| {
            let mut command = arguments();
            let matches = command.try_get_matches_from_mut(["attache"].iter().chain(words)).unwrap();
            let given = given(&command, &matches);
            let all = ["store", "keyring", "signing", "auth", "limits", "listen"];
            all.into_iter().filter(|section| concerns(section, given)).collect::<Vec<_>>()
        };
        assert_eq!(sections(&["store", "check"]), ["store", "keyring"]);
        assert_eq!(sections(&["push", "dead", "list"]), ["store", "keyring"]);
        assert_eq!(sections(&["keys", "rotate"]), ["signing"]);
    }

    #[test]
    fn a_password_in_a_url_is_masked() {
        assert_eq!(without_password("https://a:b@c/d"), "https://a:********@c/d");
        assert_eq!(without_password("https://b@c"), "https://b:********@c");
        assert_eq!(without_password("https://c/d@e"), "https://c/d@e");
        assert_eq!(without_password("sqlite:/a@b"), "sqlite:/a@b");
    }
}
