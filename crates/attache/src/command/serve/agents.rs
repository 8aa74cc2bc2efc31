//! The name of the agent at the root of the server: a kind of agent, or one of the named agents.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;

use attache::server::NamedAgent;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A kind of agent that can be at the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Functions,
    Echo,
    Program,
    Model,
    Acp,
    Mcp,
    Remote,
    Router,
}

impl Kind {
    /// All kinds. The first one is the default.
    const ALL: [Self; 8] = [
        Self::Functions,
        Self::Echo,
        Self::Program,
        Self::Model,
        Self::Acp,
        Self::Mcp,
        Self::Remote,
        Self::Router,
    ];

    /// Its name, for `--agent` and for the file.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Functions => "functions",
            Self::Echo => "echo",
            Self::Program => "program",
            Self::Model => "model",
            Self::Acp => "acp",
            Self::Mcp => "mcp",
            Self::Remote => "remote",
            Self::Router => "router",
        }
    }

    /// What it is, for `--help` and for the schema.
    fn about(self) -> &'static str {
        match self {
            Self::Functions => "The functions that iii workers register, as skills",
            Self::Echo => "Gives back what it gets",
            Self::Program => "A program on this machine",
            Self::Model => "A language model",
            Self::Acp => "A coding agent that speaks ACP",
            Self::Mcp => "The tools of an MCP server, as skills",
            Self::Remote => "A remote A2A agent",
            Self::Router => "Passes each message to one of the named agents",
        }
    }
}

/// The agent at the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentName {
    Kind(Kind),
    /// One of the agents below `agents` in the file.
    Named(String),
}

impl AgentName {
    /// Checks a name below `agents`. The error says what would be right.
    pub(crate) fn check_named(name: &str) -> Result<(), String> {
        if Kind::ALL.iter().any(|kind| kind.name() == name) {
            return Err(format!("`{name}` is the name of a kind of agent: choose another name"));
        }
        NamedAgent::check_name(name).map_err(|error| error.to_string())
    }

    /// Reads a name from a flag, and lists the kinds in `--help`.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        NameParser
    }
}

#[derive(Clone)]
struct NameParser;

impl TypedValueParser for NameParser {
    type Value = AgentName;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<AgentName, clap::Error> {
        StringValueParser::new().try_map(|text| text.parse::<AgentName>()).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let kinds = Kind::ALL.into_iter().map(|kind| PossibleValue::new(kind.name()).help(kind.about()));
        Some(Box::new(
            kinds.chain([PossibleValue::new("NAME").help("One of `agents` in the configuration file")]),
        ))
    }
}

impl FromStr for AgentName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match Kind::ALL.into_iter().find(|kind| kind.name() == name) {
            Some(kind) => Ok(Self::Kind(kind)),
            None => Self::check_named(name).map(|()| Self::Named(name.to_owned())),
        }
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => f.write_str(kind.name()),
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl Serialize for AgentName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AgentName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for AgentName {
    fn schema_name() -> Cow<'static, str> {
        "Kind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let kind =
            |kind: Kind| json_schema!({"description": kind.about(), "type": "string", "const": kind.name()});
        let kinds = Kind::ALL.into_iter().map(kind);
        let named = json_schema!({"description": "One of `agents`", "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]*$"});
        let all: Vec<_> = kinds.chain([named]).collect();
        json_schema!({"description": "The agent at the root.", "anyOf": all})
    }
}
