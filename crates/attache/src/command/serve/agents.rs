//! The kinds of agents that `attache serve` knows: [`KINDS`] is the only place that lists them.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::str::FromStr;

use attache::prelude::*;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{EnumAccess, Error as _, VariantAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::functions::{self, Tokens};
use super::{Parts, Prepared, Serve, model, program, stopping};
use crate::command::Failure;
use crate::config::Callers;

/// A kind of agent.
pub(crate) struct AgentKind {
    /// Its name, for `--agent` and for the file.
    pub(super) name: &'static str,
    /// What it is, for `--help` and for the schema.
    about: &'static str,
    /// Checks the settings of this kind before the server takes a port.
    pub(super) check: fn(&Serve, Option<&Callers>) -> Result<Tokens, Failure>,
    /// Makes the agent and serves it until the process is stopped.
    pub(super) run: fn(Serve, Prepared, Parts) -> Serving,
}

/// A server that runs until the process is stopped.
type Serving = Pin<Box<dyn Future<Output = Result<(), Failure>>>>;

/// All kinds. The first one is the default.
static KINDS: [AgentKind; 4] = [
    AgentKind {
        name: NAMES[0],
        about: "The functions that iii workers register, as skills",
        check: |serve, callers| serve.functions.check(&serve.settings, callers),
        run: |serve, prepared, parts| Box::pin(functions::serve(serve, prepared, parts)),
    },
    AgentKind {
        name: NAMES[1],
        about: "Gives back what it gets",
        check: |serve, _| check_echo(serve),
        run: |serve, prepared, parts| Box::pin(serve_echo(serve, prepared, parts)),
    },
    AgentKind {
        name: NAMES[2],
        about: "A program on this machine",
        check: |serve, _| program::check(serve),
        run: |serve, prepared, parts| Box::pin(program::serve(serve, prepared, parts)),
    },
    AgentKind {
        name: NAMES[3],
        about: "A language model",
        check: |serve, _| model::check(serve),
        run: |serve, prepared, parts| Box::pin(model::serve(serve, prepared, parts)),
    },
];

const NAMES: [&str; 4] = ["functions", "echo", "program", "model"];

fn check_echo(serve: &Serve) -> Result<Tokens, Failure> {
    match serve.functions.demo.demo {
        true => Err(Failure::usage("`--demo` adds sample functions, which `--agent echo` does not have")
            .hint("leave `--agent` out")),
        false => Ok(Tokens::default()),
    }
}

async fn serve_echo(serve: Serve, prepared: Prepared, parts: Parts) -> Result<(), Failure> {
    let store = serve.store.open().await?;
    let announcement = serve.announcement(&prepared)?;
    let listening = serve.listen(Server::echo(), store, prepared, parts).await?;
    announcement.say(&listening.local_address().map_err(Failure::new)?, None);
    stopping::run(listening).await
}

/// The name of a kind of agent, as the settings have it.
#[derive(Clone, Copy)]
pub(crate) struct AgentName(&'static AgentKind);

impl AgentName {
    pub(super) fn kind(self) -> &'static AgentKind {
        self.0
    }

    /// A program as the agent.
    pub(super) fn program() -> Self {
        Self(&KINDS[2])
    }

    /// A language model as the agent.
    pub(super) fn model() -> Self {
        Self(&KINDS[3])
    }

    /// Reads a name from a flag, and lists all names in `--help`.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        let values = KINDS.iter().map(|kind| PossibleValue::new(kind.name).help(kind.about));
        PossibleValuesParser::new(values).try_map(|name| name.parse::<Self>())
    }
}

impl FromStr for AgentName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let kind = KINDS.iter().find(|kind| kind.name == name);
        kind.map(Self).ok_or_else(|| format!("there is no agent `{name}`"))
    }
}

impl fmt::Debug for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AgentName").field(&self.0.name).finish()
    }
}

impl PartialEq for AgentName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Serialize for AgentName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name)
    }
}

impl<'de> Deserialize<'de> for AgentName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl<'de> Visitor<'de> for Name {
            type Value = AgentName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an agent")
            }

            fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<AgentName, A::Error> {
                let (name, variant) = data.variant::<String>()?;
                variant.unit_variant()?;
                name.parse().map_err(|_| A::Error::unknown_variant(&name, &NAMES))
            }
        }

        deserializer.deserialize_enum("Kind", &NAMES, Name)
    }
}

impl JsonSchema for AgentName {
    fn schema_name() -> Cow<'static, str> {
        "Kind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let kind = |kind: &AgentKind| json_schema!({"description": kind.about, "type": "string", "const": kind.name});
        let kinds: Vec<_> = KINDS.iter().map(kind).collect();
        json_schema!({"description": "The agents that come with the command.", "oneOf": kinds})
    }
}
