//! The settings of a program that is served as an agent.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use attache::core::DefaultWorkspace;
use attache_agents::program::{ProgramOptions, Protocol};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::conversation::private_directories;
use super::settings::Program;

/// A program and its arguments: in the file a list or a text, as a flag a text. A text is split as a shell does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandLine(Vec<String>);

impl FromStr for CommandLine {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(shlex::split(text).ok_or("a quote is not closed")?)
    }
}

impl CommandLine {
    fn new(words: Vec<String>) -> Result<Self, &'static str> {
        match words.first().is_some_and(|program| !program.is_empty()) {
            true => Ok(Self(words)),
            false => Err("expected a program, such as `./agent.py --fast`"),
        }
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only a NUL cannot be quoted, and no program can be started with one.
        f.write_str(&shlex::try_join(self.0.iter().map(String::as_str)).unwrap_or_default())
    }
}

impl Serialize for CommandLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CommandLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;

        impl<'de> Visitor<'de> for Words {
            type Value = CommandLine;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a program and its arguments, as a list or as text")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<CommandLine, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<CommandLine, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    words.push(word);
                }
                CommandLine::new(words).map_err(A::Error::custom)
            }
        }

        deserializer.deserialize_any(Words)
    }
}

impl JsonSchema for CommandLine {
    fn schema_name() -> Cow<'static, str> {
        "CommandLine".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["array", "string"],
            "items": {"type": "string"},
            "minItems": 1,
            "examples": [["./agent.py", "--fast"]],
        })
    }
}

/// How a program and the server talk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProgramProtocol {
    /// The program reads the text of the message and writes the answer
    Text,
    /// One JSON object per line, in both directions
    Json,
}

impl Program {
    /// Whether the program holds conversations, with directories of their own.
    pub(crate) fn is_json(&self) -> bool {
        match self.protocol {
            None | Some(ProgramProtocol::Text) => false,
            Some(ProgramProtocol::Json) => true,
        }
    }

    /// The directory that all conversations work in, if it does not exist.
    pub(crate) fn missing_workspace(&self) -> Option<&PathBuf> {
        self.workspace.as_ref().filter(|path| !path.is_dir())
    }

    /// The directory of a conversation whose caller names none. `name` is the name of the program among several agents.
    pub(crate) fn default_workspace(&self, name: Option<&str>, usual: DefaultWorkspace) -> DefaultWorkspace {
        match (&self.workspace, &self.data_directory, usual) {
            (Some(path), _, _) => DefaultWorkspace::Shared(path.clone()),
            (None, Some(data), _) => DefaultWorkspace::Private(data.clone()),
            // A program with a directory of its own needs no other one.
            (None, None, DefaultWorkspace::None) if self.directory.is_none() => {
                private_directories(name).map_or(DefaultWorkspace::None, DefaultWorkspace::Private)
            }
            (None, None, usual) => usual,
        }
    }

    /// The options of the program. `command` is the command of the flag, which replaces that of the file.
    pub(crate) fn options(&self, command: &CommandLine) -> ProgramOptions {
        ProgramOptions::new(command.0.clone()).with(|options| {
            options.protocol = match self.protocol {
                None | Some(ProgramProtocol::Text) => Protocol::Text,
                Some(ProgramProtocol::Json) => Protocol::Json,
            };
            options.directory.clone_from(&self.directory);
            let environment = self.environment.iter();
            options.environment = environment.map(|(name, value)| (name.clone(), value.0.clone())).collect();
            options.pass_environment.clone_from(&self.pass_environment);
            options.show_errors = self.show_errors;
            if let Some(time) = &self.timeout {
                options.timeout = time.0.0;
            }
            if let Some(time) = &self.grace {
                options.grace = time.0.0;
            }
            if let Some(time) = &self.idle {
                options.idle = time.0.0;
            }
            if let Some(size) = &self.max_output {
                options.max_output = usize::try_from(size.0.0).unwrap_or(usize::MAX);
            }
            if let Some(count) = &self.processes {
                options.max_processes = usize::try_from(count.0.0.get()).unwrap_or(usize::MAX);
            }
        })
    }
}

impl CommandLine {
    /// The program and its arguments.
    pub(crate) fn words(&self) -> &[String] {
        &self.0
    }

    /// The name of the program, without its folder and its extension.
    pub(crate) fn name(&self) -> &str {
        let program = self.0.first().map(String::as_str).unwrap_or_default();
        let file = program.rsplit(['/', '\\']).next().unwrap_or(program);
        file.split_once('.').map_or(file, |(stem, _)| stem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_has_a_private_directory_unless_the_settings_name_another_one() {
        let default = |text: &str, usual: DefaultWorkspace| {
            serde_json::from_str::<Program>(text).unwrap().default_workspace(Some("a"), usual)
        };
        let (none, shared) = (DefaultWorkspace::None, |path: &str| DefaultWorkspace::Shared(path.into()));
        let private =
            private_directories(Some("a")).map_or(DefaultWorkspace::None, DefaultWorkspace::Private);
        assert_eq!(default("{}", none.clone()), private);
        assert_eq!(default("{}", shared("/c")), shared("/c"));
        assert_eq!(default(r#"{"directory": "/b"}"#, none.clone()), none);
        let data = DefaultWorkspace::Private("/d".into());
        assert_eq!(default(r#"{"data-directory": "/d", "directory": "/b"}"#, shared("/c")), data);
        assert_eq!(default(r#"{"workspace": ".", "data-directory": "/d"}"#, shared("/c")), shared("."));
    }

    #[test]
    fn a_command_is_a_list_or_is_split_like_a_shell_does() {
        let text: CommandLine = "./agent.py 'two words' --fast".parse().unwrap();
        assert_eq!(text.0, ["./agent.py", "two words", "--fast"]);
        assert_eq!(text.name(), "agent");
        let list: CommandLine = serde_json::from_str(r#"["./agent.py", "two words", "--fast"]"#).unwrap();
        assert_eq!(list, text);
        assert_eq!(text.to_string().parse::<CommandLine>().unwrap(), text);
        for wrong in [r#""""#, "[]", r#"[""]"#, r#""'a""#, "5"] {
            assert!(serde_json::from_str::<CommandLine>(wrong).is_err(), "{wrong}");
        }
    }
}
