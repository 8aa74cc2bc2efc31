//! The settings of a language model that is served as an agent.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use attache_agents::model::ModelOptions;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::settings::Model;
use super::units::Described;

/// A JSON value. Text that looks like a number or a Boolean is one, as in YAML.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct AnyValue(Value);

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = AnyValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<AnyValue, E> {
                Ok(AnyValue(Value::Null))
            }

            fn visit_str<E>(self, text: &str) -> Result<AnyValue, E> {
                Ok(AnyValue(match serde_json::from_str(text) {
                    Ok(value @ (Value::Bool(_) | Value::Number(_))) => value,
                    Ok(_) | Err(_) => text.into(),
                }))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<AnyValue, A::Error> {
                let mut values = Vec::new();
                while let Some(AnyValue(value)) = list.next_element()? {
                    values.push(value);
                }
                Ok(AnyValue(values.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyValue, A::Error> {
                let mut members = serde_json::Map::new();
                while let Some((key, AnyValue(value))) = map.next_entry::<String, _>()? {
                    members.insert(key, value);
                }
                Ok(AnyValue(members.into()))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

impl JsonSchema for AnyValue {
    fn schema_name() -> Cow<'static, str> {
        "AnyValue".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!(true)
    }
}

/// What a model can call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelTool {
    /// The tools of a named agent that is an MCP server.
    Mcp(String),
    /// A named agent.
    Agent(String),
    /// The functions at the root.
    Functions,
}

impl FromStr for ModelTool {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("mcp", name)) if !name.is_empty() => Ok(Self::Mcp(name.to_owned())),
            Some(("agent", name)) if !name.is_empty() => Ok(Self::Agent(name.to_owned())),
            None if text == "functions" => Ok(Self::Functions),
            Some(_) | None => Err("expected `mcp:NAME`, `agent:NAME` or `functions`"),
        }
    }
}

impl fmt::Display for ModelTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mcp(name) => write!(f, "mcp:{name}"),
            Self::Agent(name) => write!(f, "agent:{name}"),
            Self::Functions => f.write_str("functions"),
        }
    }
}

impl Described for ModelTool {
    const NAME: &'static str = "ModelTool";
    const PATTERN: &'static str = "^(mcp:.+|agent:.+|functions)$";
    const EXAMPLE: &'static str = "mcp:files";
}

impl Model {
    /// What the model can call.
    pub(crate) fn tools(&self) -> Vec<ModelTool> {
        self.tools.iter().map(|tool| tool.0.clone()).collect()
    }

    /// The settings that are set and have no effect for a model that answers the requests of an MCP server.
    pub(crate) fn useless_for_sampling(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("tools", !self.tools.is_empty()),
            ("images", self.images),
            ("files", !self.files.is_empty()),
            ("tool-timeout", self.tool_timeout.is_some()),
            ("max-rounds", self.max_rounds.is_some()),
            ("budget", self.budget.is_some()),
        ];
        given.into_iter().filter_map(|(key, is_given)| is_given.then_some(key))
    }

    /// The media types of what the model gets besides text.
    pub(crate) fn media_types(&self) -> Vec<&str> {
        let images = self.images.then_some("image/*");
        images.into_iter().chain(self.files.iter().map(String::as_str)).collect()
    }

    /// How long a turn may wait for a tool and for the endpoint, where the settings say so.
    pub(crate) fn longest_waits(&self) -> impl Iterator<Item = Duration> {
        [&self.tool_timeout, &self.silence].into_iter().flatten().map(|time| time.0.0)
    }

    /// Whether the model calls other agents.
    pub(crate) fn calls_agents(&self) -> bool {
        self.tools.iter().any(|tool| matches!(tool.0, ModelTool::Agent(_) | ModelTool::Functions))
    }

    /// The options of the model. The flags, which are given, replace the values of the file.
    pub(crate) fn options(&self, url: &str, name: &str, key: Option<String>) -> ModelOptions {
        ModelOptions::new(url, name).with(|options| {
            options.key = key.map(Into::into);
            options.system.clone_from(&self.system);
            options.parameters =
                self.parameters.iter().map(|(key, AnyValue(value))| (key.clone(), value.clone())).collect();
            if let Some(size) = &self.max_context {
                options.max_context = usize::try_from(size.0.0).unwrap_or(usize::MAX);
            }
            options.files.clone_from(&self.files);
            if let Some(time) = &self.tool_timeout {
                options.tool_timeout = time.0.0;
            }
            if let Some(count) = &self.max_rounds {
                options.max_rounds = usize::try_from(count.0.0.get()).unwrap_or(usize::MAX);
            }
            if let Some(count) = self.retries {
                options.max_retries = count;
            }
            if let Some(time) = &self.silence {
                options.silence = time.0.0;
            }
        })
    }
}
