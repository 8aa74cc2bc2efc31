//! The file that `attache config init` writes: every setting with its description and its default, commented out.
//!
//! It is made from the declarations, so a new setting is in it by itself. Defaults of flags are declared with them. Those of the other
//! settings are in [`DEFAULTS`], and a test compares each of them with what the server does without the setting. Settings without a default
//! have an example from [`EXAMPLES`], and say so.

mod values;

use std::fmt::Write;

use clap::{Arg, Command};

use self::values::{DEFAULTS, EXAMPLES};
use super::declare::{self, Row, Sense};

const INTRODUCTION: &str = "\
# The settings of `attache serve`.
#
# Each line that begins with `#` and a key is a setting: remove the `#` to set it. Its value is the default, unless the
# comment says that it is not set and that the value is an example. After `Default:` it is what holds without the setting,
# where its section is used.
#
# `attache serve` reads `attache.yml` in the working directory, or the file that `--config` names. `attache config check`
# checks a file, and `attache config show` prints each value and its source. `${NAME}` in a value is replaced by the
# environment variable NAME, and `$$` is a dollar sign. Sizes are `64KiB` or `8MiB`, times `250ms`, `30s`, `15m` or `30d`.
";

/// What stands before an example.
const NOT_SET: &str = "Not set. Example:";

/// What stands before a default that no flag has.
const DEFAULT: &str = "Default:";

/// The width that descriptions are wrapped at.
const WIDTH: usize = 110;

/// The file.
pub(crate) fn template() -> String {
    let mut out = INTRODUCTION.to_owned();
    let command = super::arguments();
    let serve = command.find_subcommand("serve");
    let described = declare::described();
    for (key, description) in described {
        let is_section = described
            .iter()
            .any(|(other, _)| other.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with('.')));
        let name = key.rsplit('.').next().unwrap_or(key);
        let indent = "  ".repeat(key.matches('.').count());
        // Writing to a text cannot fail.
        let _ = write_setting(&mut out, key, &indent, name, description, is_section, serve);
    }
    out
}

fn write_setting(
    out: &mut String,
    key: &str,
    indent: &str,
    name: &str,
    description: &str,
    is_section: bool,
    serve: Option<&Command>,
) -> std::fmt::Result {
    if indent.is_empty() {
        out.push('\n');
    }
    let mut prose = String::from(indent);
    prose.push('#');
    for word in format!("{description}.").split(' ') {
        if prose.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{prose}")?;
            prose = format!("{indent}#");
        }
        write!(prose, " {word}")?;
    }
    writeln!(out, "{prose}")?;
    if is_section {
        return writeln!(out, "{indent}{name}:");
    }
    if let Some(default) = serve.and_then(|serve| default_of(serve, key)) {
        return writeln!(out, "{indent}#{name}: {default}");
    }
    let of_key = |list: &'static [(&str, &'static str)]| list.iter().find(|(of, _)| *of == key);
    if let Some((_, default)) = of_key(DEFAULTS) {
        writeln!(out, "{indent}# {DEFAULT}")?;
        return writeln!(out, "{indent}#{name}: {default}");
    }
    writeln!(out, "{indent}# {NOT_SET}")?;
    let example = of_key(EXAMPLES).map_or("", |(_, example)| example);
    let mut lines = example.split('\n');
    let first = lines.next().map(|first| format!("{name}: {first}")).unwrap_or_default();
    writeln!(out, "{indent}#{}", first.trim_end())?;
    lines.try_for_each(|line| writeln!(out, "{indent}#{line}"))
}

/// The default of a setting, as the file has it. `None` if it is not set by default.
fn default_of(serve: &Command, key: &str) -> Option<String> {
    let row = declare::rows().iter().find(|row| row.key == key)?;
    let argument = serve.get_arguments().find(|argument| argument.get_id() == row.argument)?;
    let values: Vec<_> = defaults(argument).map(|value| as_value(row, &value)).collect();
    match (row.sense, values.as_slice()) {
        (_, []) => None,
        (Sense::List, values) => Some(format!("[{}]", values.join(", "))),
        (Sense::Same | Sense::Seconds | Sense::Opposite, values) => values.first().cloned(),
    }
}

fn defaults(argument: &Arg) -> impl Iterator<Item = String> {
    argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned())
}

fn as_value(row: &Row, value: &str) -> String {
    let value = match row.sense {
        Sense::Opposite => (value != "true").to_string(),
        Sense::Seconds => format!("{value}s"),
        Sense::Same | Sense::List => value.to_owned(),
    };
    quoted(&value)
}

/// A text in YAML, in quotes only if it needs them.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:+ —,".contains(c);
    let first_is_plain = text.starts_with(|c: char| c.is_alphanumeric() || c == '/');
    match first_is_plain && text.chars().all(is_plain) && !text.contains(": ") && !text.ends_with([':', ' '])
    {
        true => text.to_owned(),
        false => serde_json::Value::from(text).to_string(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::command::Command as Subcommand;
    use crate::config::redis::{push_queue, redis_streams};
    use crate::config::{ConfigFile, DisplayValue, Problems, ResolvedSettings, parse_arguments};

    /// The file of the repository, which `attache config init -` prints.
    const IN_REPOSITORY: &str = include_str!("../../../../attache.example.yml");

    /// Which settings to switch on.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Which {
        All,
        Defaults,
    }

    /// The file with its settings switched on.
    fn switched_on(text: &str, which: Which) -> String {
        let mut is_example = false;
        let mut out = String::new();
        for line in text.lines() {
            let indent = line.len() - line.trim_start().len();
            let rest = line[indent..].strip_prefix('#');
            let is_prose = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
            match rest {
                // An example goes on with lines that are indented.
                Some(rest) if is_prose && !(is_example && rest.starts_with("  ")) => {
                    is_example = [NOT_SET, DEFAULT].contains(&rest.trim());
                    out.push_str(line);
                }
                Some(_) if is_example && which == Which::Defaults => out.push_str(line),
                Some(rest) => out.push_str(&format!("{}{rest}", &line[..indent])),
                None => out.push_str(line),
            }
            out.push('\n');
        }
        out
    }

    /// The file with every setting in it.
    pub(in crate::config) fn everything() -> String {
        switched_on(&template(), Which::All)
    }

    fn resolved(text: &str) -> Vec<(String, DisplayValue)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("attache.yml");
        std::fs::write(&path, text).unwrap();
        let arguments = ["attache", "config", "show", "--config", path.to_str().unwrap()];
        let parsed = parse_arguments(&arguments.map(Into::into));
        let Ok(crate::Arguments { command: mut command @ Subcommand::Config(_) }) = parsed else {
            panic!("the file is not read")
        };
        let settings = &command.serve().unwrap().settings;
        settings.resolved.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect()
    }

    #[test]
    fn the_example_is_what_config_init_writes() {
        assert!(
            IN_REPOSITORY == template(),
            "attache.example.yml is not up to date: run `cargo xtask docs`, or `attache config init - > attache.example.yml`"
        );
    }

    #[test]
    fn each_value_that_is_not_an_example_is_the_default() {
        let defaults = switched_on(&template(), Which::Defaults);
        assert!(
            defaults.contains("\nlisten: [127.0.0.1:3111]\n") && defaults.contains("\n  body: 8MiB\n"),
            "{defaults}"
        );
        assert!(defaults.contains("\n#base-url: "), "{defaults}");
        assert_eq!(resolved(&defaults), resolved(""));
        assert_eq!(resolved(&template()), resolved(""));
    }

    #[test]
    fn each_example_is_for_a_setting_without_a_default() {
        let command = super::super::arguments();
        let serve = command.find_subcommand("serve").unwrap();
        for (key, _) in EXAMPLES.iter().chain(DEFAULTS) {
            assert!(declare::described().iter().any(|(known, _)| known == key), "{key}");
            assert_eq!(default_of(serve, key), None, "{key}");
        }
        for (key, _) in DEFAULTS {
            assert!(!EXAMPLES.iter().any(|(other, _)| other == key), "{key} has a default and an example");
        }
    }

    /// What each section needs to be used.
    const NEEDED: [(&str, &str); 7] = [
        ("program", "command: ./agent.py"),
        ("model", "url: https://models.example.com/v1, name: m"),
        ("acp", "command: agent"),
        ("mcp", "command: server"),
        ("redis", "url: redis://127.0.0.1:6379/0"),
        ("push.redis", "url: redis://127.0.0.1:6379/0"),
        ("remote", "url: https://agents.example.com"),
    ];

    /// What a server with these settings does, as far as settings with a default decide it.
    fn effect(text: &str) -> String {
        let path = std::path::Path::new("attache.yml");
        let mut file = ConfigFile::read(path, text, &|_| None, &|_| true, None);
        let errors = std::mem::take(&mut file.errors);
        assert!(errors.is_empty(), "{text}: {}", crate::command::Failure::all(errors));
        let settings = file.settings;
        let rules = settings.conversation(None).unwrap().rules();
        let input = &rules.input;
        let sizes = [input.max_text, input.max_data, input.max_media, input.max_file, input.max_total];
        let program = settings.program.command.as_ref().map(|command| settings.program.options(command));
        let model = &settings.model;
        let options = model.options("https://models.example.com/v1", "m", None);
        let limits = (options.max_context, options.max_rounds, options.max_retries);
        let model = (limits, options.tool_timeout, options.silence, model.media_types());
        let acp = settings.acp.options(None).ok();
        let mcp = settings.mcp.options(None).ok().map(|options| {
            let times =
                [options.grace, options.start_timeout, options.call_timeout, options.question_timeout];
            (times, options.exclusive, options.max_output, options.max_calls)
        });
        let redis = settings.redis.url.as_ref().map(|url| url.0.to_string());
        let none = ResolvedSettings::default();
        let mut problems = Problems::of(&none);
        let redis = redis_streams(redis.as_deref(), Some(&settings.redis), &mut problems);
        let queue = push_queue(&settings.push, &mut problems);
        let wrong = problems.result().map_err(|failure| failure.to_string());
        let store = std::sync::Arc::new(attache::core::MemoryStore::default());
        let remote = settings.remote.options(store, attache_agents::AgentCredentials::default(), None);
        let remote = remote.ok().map(|options| {
            let limits = (options.max_bytes, options.max_links);
            (options.refresh, options.timeout, options.wait, options.show_remote_ids, limits)
        });
        let mut work = attache::core::Options::default();
        settings.work_options(&mut work);
        let conversations = (rules.contexts, sizes, input.fetch.is_some());
        let others = (work.reports.namespace, settings.safe_mode.unwrap_or_default());
        format!(
            "{conversations:?} {program:?} {model:?} {acp:?} {mcp:?} {redis:?} {queue:?} {wrong:?} {remote:?} {others:?}"
        )
    }

    /// Another value of a setting with this default.
    fn another(key: &str, default: &str) -> String {
        match default {
            "true" => "false".to_owned(),
            "false" => "true".to_owned(),
            "queue" => "reject".to_owned(),
            "store" => "redis".to_owned(),
            "completed" => "input-required".to_owned(),
            "ask" => "deny".to_owned(),
            "remote" => "always".to_owned(),
            "text" => "json".to_owned(),
            "attache" if key == "metadata-namespace" => "iac_code".to_owned(),
            name if name.starts_with("attache") => format!("{name}-2"),
            number => format!("7{}", number.trim_start_matches(|digit: char| digit.is_ascii_digit())),
        }
    }

    #[test]
    fn each_value_that_is_labelled_as_a_default_holds_without_the_setting() {
        for (key, default) in DEFAULTS {
            let with = |value: Option<&str>| match key.rsplit_once('.') {
                None => effect(&value.map(|value| format!("{key}: {value}\n")).unwrap_or_default()),
                Some((section, name)) => {
                    let needed =
                        NEEDED.iter().find(|(of, _)| *of == section).map(|(_, needed)| (*needed).to_owned());
                    let set = value.map(|value| format!("{name}: {value}"));
                    let all: Vec<_> = needed.into_iter().chain(set).collect();
                    let all = all.join(", ");
                    match section.split_once('.') {
                        Some(("push", "redis")) => {
                            effect(&format!("push: {{ queue: redis, redis: {{ {all} }} }}\n"))
                        }
                        Some(_) | None => effect(&format!("{section}: {{ {all} }}\n")),
                    }
                }
            };
            assert_eq!(with(Some(default)), with(None), "{key}: {default} is not the default");
            let other = another(key, default);
            assert_ne!(with(Some(&other)), with(None), "{key}: {other} has no effect that this test sees");
        }
    }

    #[test]
    fn text_is_quoted_where_yaml_would_read_something_else() {
        for (text, expected) in [
            ("127.0.0.1:3111", "127.0.0.1:3111"),
            ("memory:", "\"memory:\""),
            ("*", "\"*\""),
            ("a: b", "\"a: b\""),
            ("", "\"\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
