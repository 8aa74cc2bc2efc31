//! Finds the value of each setting, and its source.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use serde_json::{Value, json};

use super::declare::{self, Row, Sense};
use super::error::ConfigError;
use super::{ConfigFile, ResolvedSettings};
use crate::Arguments;
use crate::command::Failure;

/// The value of a setting, and its source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) key: String,
    pub(crate) value: DisplayValue,
    pub(crate) source: Source,
}

impl Resolved {
    /// Whether a reload of the file applies a change of it.
    pub(crate) fn is_reloaded(&self) -> bool {
        declare::is_reloaded(&self.key)
    }
}

/// A value that can be printed: secrets are masked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DisplayValue {
    Nothing,
    Switch(bool),
    Text(String),
    List(Vec<String>),
}

impl DisplayValue {
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

impl fmt::Display for DisplayValue {
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

/// Masks the password in a URL.
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

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File {
        path: String,
        line: usize,
        /// The environment variables in the value.
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

/// The values in the file, by key.
type FileValues = BTreeMap<String, Value>;

/// The command. Each flag of the server can also be set by an environment variable.
pub(crate) fn arguments() -> Command {
    with_defaults(&FileValues::new())
}

/// The command, with the values of the file as defaults.
fn with_defaults(in_file: &FileValues) -> Command {
    with_defaults_below(Arguments::command(), in_file)
}

fn with_defaults_below(command: Command, in_file: &FileValues) -> Command {
    let reads_settings = command.get_arguments().any(|argument| argument.get_id() == "config");
    // `mut_args` keeps the order of the arguments.
    match reads_settings {
        true => command.mut_args(|argument| with_default(argument, in_file)),
        false => command.mut_subcommands(|command| with_defaults_below(command, in_file)),
    }
}

fn with_default(argument: Arg, in_file: &FileValues) -> Arg {
    let Some(row) = declare::by_argument(argument.get_id().as_str()) else { return argument };
    let (is_switch, repeats) = (
        matches!(argument.get_action(), ArgAction::SetTrue),
        matches!(argument.get_action(), ArgAction::Append),
    );
    let argument = if is_switch {
        // `--flag=false` overrides a `true` in the file.
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
        // An environment variable separates several values by spaces.
        argument.value_delimiter(' ')
    } else {
        argument
    };
    let argument = argument.env(row.variable.as_str());
    match in_file.get(&row.key) {
        Some(value) => argument.default_values(as_flag(row, value)),
        None => argument,
    }
}

/// A value as text, without quotes.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The values that the flag would be given for a value in the file.
fn as_flag(row: &Row, value: &Value) -> Vec<String> {
    match (row.sense, value) {
        (Sense::Opposite, Value::Bool(switch)) => vec![(!switch).to_string()],
        (Sense::Seconds, value) => vec![text(value).trim_end_matches('s').to_owned()],
        (_, Value::Array(values)) => values.iter().map(text).collect(),
        (_, value) => vec![text(value)],
    }
}

/// Why the command stops before it runs.
pub(crate) enum Stop {
    /// The arguments are wrong, or ask for help.
    Usage(clap::Error),
    /// The file is wrong.
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

/// Parses the command line and, for a subcommand that uses settings, the file.
pub(crate) fn parse_arguments(args: &[OsString]) -> Result<Arguments, Stop> {
    let mut command = arguments();
    let matches = command.try_get_matches_from_mut(args)?;
    let mut parsed = Arguments::from_arg_matches(&matches)?;
    let Some(named) = parsed.command.settings_file().map(|file| file.config.clone()) else {
        return Ok(parsed);
    };
    let file = match parsed.command.serve() {
        Some(serve) => ConfigFile::find(named.as_deref(), &|_| true, serve.compat())?,
        None => {
            let given = given(&command, &matches);
            ConfigFile::find(named.as_deref(), &|section| concerns(section, given), None)?
        }
    };
    let Some(mut file) = file else {
        if let Some(serve) = parsed.command.serve() {
            serve.settings.resolved = resolved(&matches, None);
        }
        return Ok(parsed);
    };
    let mut in_file = file.values()?;
    let matches = loop {
        match with_defaults(&in_file).try_get_matches_from(args) {
            Ok(matches) => break matches,
            Err(error) => {
                let (key, error) = blame(error)?;
                let failure = file.error(&key, error);
                if in_file.remove(&key).is_none() {
                    return Err(failure.into());
                }
                file.errors.push(failure);
                file.wrong.push(key);
            }
        }
    };
    parsed = Arguments::from_arg_matches(&matches)?;
    if !file.errors.is_empty() && !parsed.command.reports_all_errors() {
        return Err(Failure::all(file.errors).into());
    }
    if let Some(serve) = parsed.command.serve() {
        let resolved = resolved(&matches, Some((&file, &in_file)));
        serve.settings = ResolvedSettings { file: Some(file), resolved };
    }
    Ok(parsed)
}

/// Whether a subcommand has a flag for a setting in this section of the file.
fn concerns(section: &str, command: &Command) -> bool {
    let mut rows =
        command.get_arguments().filter_map(|argument| declare::by_argument(argument.get_id().as_str()));
    rows.any(|row| row.key.split('.').next() == Some(section))
}

/// The innermost subcommand on the command line.
fn given<'a>(command: &'a Command, matches: &ArgMatches) -> &'a Command {
    let below = matches.subcommand().and_then(|(name, below)| Some((command.find_subcommand(name)?, below)));
    below.map_or(command, |(command, below)| given(command, below))
}

/// The arguments of the innermost subcommand.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| innermost(below))
}

/// Blames the file for an error: the same arguments were valid without the file. Returns the key in the file.
fn blame(error: clap::Error) -> Result<(String, ConfigError), clap::Error> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return Err(error);
    };
    let flag = argument.trim_start_matches("--").split([' ', '=', '[']).next().unwrap_or_default();
    let Some(row) = declare::by_argument(&flag.replace('-', "_")) else { return Err(error) };
    let text = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    Ok((row.key.clone(), ConfigError::new(text)))
}

impl ConfigFile {
    /// The values in the file, by key; secrets are masked.
    fn values(&self) -> Result<FileValues, Failure> {
        let settings = serde_json::to_value(&self.settings).map_err(Failure::new)?;
        let mut in_file = FileValues::new();
        gather(&settings, String::new(), &mut in_file);
        // An empty list counts only if the file has it.
        in_file.retain(|key, _| self.root.at(key).is_some());
        Ok(in_file)
    }

    fn source(&self, key: &str) -> Source {
        let node = self.root.at(key);
        Source::File {
            path: self.path.display().to_string(),
            line: node.map_or(1, |node| node.position.line),
            variables: node.map(|node| node.variables().to_vec()).unwrap_or_default(),
        }
    }
}

fn gather(value: &Value, path: String, in_file: &mut FileValues) {
    match value {
        Value::Null => {}
        Value::Object(members) => {
            for (key, value) in members {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                gather(value, path, in_file);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_object) => {
            for (index, value) in values.iter().enumerate() {
                gather(value, format!("{path}[{index}]"), in_file);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            in_file.insert(path, value.clone());
        }
    }
}

fn resolved(matches: &ArgMatches, file: Option<(&ConfigFile, &FileValues)>) -> Vec<Resolved> {
    let innermost = innermost(matches);
    let from_file =
        |key: &str| file.filter(|(_, in_file)| in_file.contains_key(key)).map(|(file, _)| file.source(key));
    let settings = declare::rows().iter().map(|row| {
        let source = match innermost.value_source(row.argument) {
            Some(ValueSource::CommandLine) => Source::Flag(format!("--{}", row.argument.replace('_', "-"))),
            Some(ValueSource::EnvVariable) => Source::Environment(row.variable.clone()),
            Some(_) | None => from_file(&row.key).unwrap_or(Source::Default),
        };
        Resolved { key: row.key.clone(), value: shown(innermost, row), source }
    });
    let mut all: Vec<_> = settings.collect();
    if let Some((file, in_file)) = file {
        let alone = in_file.iter().filter(|(key, _)| !declare::rows().iter().any(|row| row.key == **key));
        all.extend(alone.map(|(key, value)| Resolved {
            key: key.clone(),
            value: DisplayValue::of(value),
            source: file.source(key),
        }));
    }
    all
}

fn shown(matches: &ArgMatches, row: &Row) -> DisplayValue {
    if let Ok(Some(switch)) = matches.try_get_one::<bool>(row.argument) {
        return DisplayValue::Switch(if row.sense == Sense::Opposite { !switch } else { *switch });
    }
    let raw = matches.get_raw(row.argument).into_iter().flatten();
    let mut texts: Vec<_> = raw.map(|text| without_password(&text.to_string_lossy())).collect();
    match row.sense {
        Sense::List => DisplayValue::List(texts),
        Sense::Seconds => {
            texts.pop().map_or(DisplayValue::Nothing, |seconds| DisplayValue::Text(format!("{seconds}s")))
        }
        Sense::Same | Sense::Opposite => texts.pop().map_or(DisplayValue::Nothing, DisplayValue::Text),
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
            // `ATTACHE_KEYRING` holds the keyring itself.
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
