//! The name of the agent at the root of the server: a kind of agent, or one of the named agents.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;

use attache::server::NamedAgent;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::kinds::{KINDS, RegisteredKind};

/// The name of the default: the functions of iii workers.
const FUNCTIONS: &str = "functions";

/// What the kinds are called and what they are, for `--help` and for the schema. The first one is the default.
fn described() -> impl Iterator<Item = (&'static str, &'static str)> {
    let functions = (FUNCTIONS, "The functions that iii workers register, as skills");
    std::iter::once(functions).chain(KINDS.iter().map(|kind| (kind.name, kind.about)))
}

/// The agent at the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentName {
    /// The functions of iii workers.
    Functions,
    Kind(&'static RegisteredKind),
    /// One of the agents below `agents` in the file.
    Named(String),
}

impl AgentName {
    /// Checks a name below `agents`. The error says what would be right.
    pub(crate) fn check_named(name: &str) -> Result<(), String> {
        if described().any(|(kind, _)| kind == name) {
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
        let kinds = described().map(|(name, about)| PossibleValue::new(name).help(about));
        Some(Box::new(
            kinds.chain([PossibleValue::new("NAME").help("One of `agents` in the configuration file")]),
        ))
    }
}

impl FromStr for AgentName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match KINDS.iter().find(|kind| kind.name == name) {
            Some(kind) => Ok(Self::Kind(kind)),
            None if name == FUNCTIONS => Ok(Self::Functions),
            None => Self::check_named(name).map(|()| Self::Named(name.to_owned())),
        }
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Functions => f.write_str(FUNCTIONS),
            Self::Kind(kind) => f.write_str(kind.name),
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
        let kinds = described()
            .map(|(name, about)| json_schema!({"description": about, "type": "string", "const": name}));
        let named = json_schema!({"description": "One of `agents`", "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]*$"});
        let all: Vec<_> = kinds.chain([named]).collect();
        json_schema!({"description": "The agent at the root.", "anyOf": all})
    }
}
