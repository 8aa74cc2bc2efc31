//! The agent card: how an agent describes itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json::lenient;
use crate::{JsonObject, SecurityRequirement, SecurityScheme, StringList};

/// The names of the bindings that the protocol defines.
pub mod binding {
    /// JSON-RPC 2.0 over HTTP.
    pub const JSONRPC: &str = "JSONRPC";
    /// Plain HTTP with JSON bodies.
    pub const HTTP_JSON: &str = "HTTP+JSON";
    /// gRPC.
    pub const GRPC: &str = "GRPC";
    /// JSON-RPC over WebSocket, as existing peers name it.
    pub const WEBSOCKET: &str = "websocket";
    /// JSON-RPC in gRPC messages, as existing peers name it.
    pub const GRPC_JSONRPC: &str = "grpc-jsonrpc";
    /// JSON-RPC in lines over a Unix socket, as existing peers name it.
    pub const UNIX: &str = "unix";
    /// JSON-RPC in lines over standard input and output, as existing peers name it.
    pub const STDIO: &str = "stdio";
    /// JSON-RPC in entries of Redis streams, as existing peers name it.
    pub const REDIS_STREAMS: &str = "redis-streams";
}

/// How an agent describes itself.
///
/// ```
/// use attache_protocol::{AgentCard, AgentSkill};
///
/// let card = AgentCard::new("Recipes", "Finds something to cook")
///     .version("2.1.0")
///     .skill(AgentSkill::new("search", "Search recipes").tags(["food"]).example("something with leeks"));
/// assert_eq!(card.skills[0].id, "search");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentCard {
    /// The agent's name.
    #[serde(deserialize_with = "lenient::null")]
    pub name: String,
    /// What it does.
    #[serde(deserialize_with = "lenient::null")]
    pub description: String,
    /// The addresses and bindings of the agent, in order of preference.
    #[serde(alias = "supported_interfaces", deserialize_with = "lenient::objects")]
    pub supported_interfaces: Vec<AgentInterface>,
    /// The organization that runs the agent.
    #[serde(deserialize_with = "lenient::optional_object", skip_serializing_if = "Option::is_none")]
    pub provider: Option<AgentProvider>,
    /// The agent's own version.
    #[serde(deserialize_with = "lenient::null")]
    pub version: String,
    /// The URL of its documentation.
    #[serde(alias = "documentation_url", skip_serializing_if = "Option::is_none")]
    pub documentation_url: Option<String>,
    /// Its optional capabilities.
    #[serde(deserialize_with = "lenient::object")]
    pub capabilities: AgentCapabilities,
    /// The authentication schemes, by name.
    #[serde(
        alias = "security_schemes",
        deserialize_with = "lenient::null",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub security_schemes: BTreeMap<String, SecurityScheme>,
    /// The required schemes. A caller must satisfy one of the entries.
    #[serde(
        alias = "security_requirements",
        deserialize_with = "lenient::objects",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub security_requirements: Vec<SecurityRequirement>,
    /// The media types it accepts, unless a skill has its own.
    #[serde(alias = "default_input_modes", deserialize_with = "lenient::null")]
    pub default_input_modes: Vec<String>,
    /// The media types it produces, unless a skill has its own.
    #[serde(alias = "default_output_modes", deserialize_with = "lenient::null")]
    pub default_output_modes: Vec<String>,
    /// Its skills.
    #[serde(deserialize_with = "lenient::objects")]
    pub skills: Vec<AgentSkill>,
    /// Signatures over the card.
    #[serde(deserialize_with = "lenient::objects", skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<AgentCardSignature>,
    /// The URL of an icon.
    #[serde(alias = "icon_url", skip_serializing_if = "Option::is_none")]
    pub icon_url: Option<String>,
}

impl AgentCard {
    /// A card with a name and a description. The version is `1.0.0`; input and output are text.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        let text = || vec!["text/plain".to_owned()];
        Self {
            name: name.into(),
            description: description.into(),
            version: "1.0.0".to_owned(),
            default_input_modes: text(),
            default_output_modes: text(),
            ..Self::default()
        }
    }

    /// Sets the agent's own version.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Adds a skill.
    pub fn skill(mut self, skill: AgentSkill) -> Self {
        self.skills.push(skill);
        self
    }

    /// Sets the organization that runs the agent.
    pub fn provider(mut self, organization: impl Into<String>, url: impl Into<String>) -> Self {
        self.provider = Some(AgentProvider { url: url.into(), organization: organization.into() });
        self
    }

    /// Sets the URL of the documentation.
    pub fn documentation(mut self, url: impl Into<String>) -> Self {
        self.documentation_url = Some(url.into());
        self
    }

    /// Sets the media types it accepts.
    pub fn input_modes<S: Into<String>>(mut self, modes: impl IntoIterator<Item = S>) -> Self {
        self.default_input_modes = modes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the media types it produces.
    pub fn output_modes<S: Into<String>>(mut self, modes: impl IntoIterator<Item = S>) -> Self {
        self.default_output_modes = modes.into_iter().map(Into::into).collect();
        self
    }

    /// Gives the skills without media types of their own those of the card. Some clients require them in every skill.
    pub fn fill_skill_modes(&mut self) {
        for skill in &mut self.skills {
            if skill.input_modes.is_empty() {
                skill.input_modes.clone_from(&self.default_input_modes);
            }
            if skill.output_modes.is_empty() {
                skill.output_modes.clone_from(&self.default_output_modes);
            }
        }
    }

    /// Declares an extension.
    pub fn extension(mut self, extension: AgentExtension) -> Self {
        self.capabilities.extensions.push(extension);
        self
    }

    /// The URIs of the extensions that every request must activate.
    pub fn required_extensions(&self) -> impl Iterator<Item = &str> {
        self.capabilities.extensions.iter().filter(|e| e.required).map(|e| e.uri.as_str())
    }

    /// All media types that the skills of the agent accept.
    pub fn all_input_modes(&self) -> impl Iterator<Item = &str> {
        let skills = self.skills.iter().flat_map(|skill| &skill.input_modes);
        self.default_input_modes.iter().chain(skills).map(String::as_str)
    }
}

/// An address and its binding.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentInterface {
    /// The address: a URL, or `host:port` for gRPC.
    #[serde(deserialize_with = "lenient::null")]
    pub url: String,
    /// One of [`binding`]'s names, or the URI of another binding.
    #[serde(alias = "protocol_binding", deserialize_with = "lenient::null")]
    pub protocol_binding: String,
    /// The `tenant` that a client must send with every request.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The protocol version at this address, as `Major.Minor`.
    #[serde(alias = "protocol_version", deserialize_with = "lenient::null")]
    pub protocol_version: String,
}

impl AgentInterface {
    /// An interface of protocol 1.0.
    pub fn new(url: impl Into<String>, binding: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            protocol_binding: binding.into(),
            tenant: None,
            protocol_version: "1.0".to_owned(),
        }
    }
}

/// The organization that runs an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentProvider {
    /// The URL of the organization.
    #[serde(deserialize_with = "lenient::null")]
    pub url: String,
    /// The name of the organization.
    #[serde(deserialize_with = "lenient::null")]
    pub organization: String,
}

/// The optional capabilities of an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentCapabilities {
    /// Whether it streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// Whether it sends push notifications.
    #[serde(alias = "push_notifications", skip_serializing_if = "Option::is_none")]
    pub push_notifications: Option<bool>,
    /// The extensions it supports.
    #[serde(deserialize_with = "lenient::objects", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<AgentExtension>,
    /// Whether there is an extended card for authenticated clients.
    #[serde(alias = "extended_agent_card", skip_serializing_if = "Option::is_none")]
    pub extended_agent_card: Option<bool>,
}

/// An extension of the protocol that an agent supports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentExtension {
    /// Its URI.
    #[serde(deserialize_with = "lenient::null", skip_serializing_if = "String::is_empty")]
    pub uri: String,
    /// How the agent uses it.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether every request must activate it.
    #[serde(deserialize_with = "lenient::null", skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Its parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<JsonObject>,
}

impl AgentExtension {
    /// An optional extension.
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into(), ..Self::default() }
    }

    /// Describes how the agent uses it.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// Requires every request to activate it.
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

/// A skill of an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentSkill {
    /// Its id.
    #[serde(deserialize_with = "lenient::null")]
    pub id: String,
    /// Its name, for people.
    #[serde(deserialize_with = "lenient::null")]
    pub name: String,
    /// What it does.
    #[serde(deserialize_with = "lenient::null")]
    pub description: String,
    /// Keywords for a search.
    #[serde(deserialize_with = "lenient::null")]
    pub tags: Vec<String>,
    /// Example messages.
    #[serde(deserialize_with = "lenient::null", skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// The media types it accepts, instead of the card's.
    #[serde(
        alias = "input_modes",
        deserialize_with = "lenient::null",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub input_modes: Vec<String>,
    /// The media types it produces, instead of the card's.
    #[serde(
        alias = "output_modes",
        deserialize_with = "lenient::null",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub output_modes: Vec<String>,
    /// The authentication that it requires.
    #[serde(
        alias = "security_requirements",
        deserialize_with = "lenient::objects",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub security_requirements: Vec<SecurityRequirement>,
}

impl AgentSkill {
    /// A skill with an id and a name. The name is also the description, and the id is the only tag.
    pub fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        let (id, name) = (id.into(), name.into());
        Self { tags: vec![id.clone()], description: name.clone(), id, name, ..Self::default() }
    }

    /// Sets the description.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// Sets the keywords for a search.
    pub fn tags<S: Into<String>>(mut self, tags: impl IntoIterator<Item = S>) -> Self {
        self.tags = tags.into_iter().map(Into::into).collect();
        self
    }

    /// Adds an example message.
    pub fn example(mut self, text: impl Into<String>) -> Self {
        self.examples.push(text.into());
        self
    }

    /// Sets the media types it accepts.
    pub fn input_modes<S: Into<String>>(mut self, modes: impl IntoIterator<Item = S>) -> Self {
        self.input_modes = modes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the media types it produces.
    pub fn output_modes<S: Into<String>>(mut self, modes: impl IntoIterator<Item = S>) -> Self {
        self.output_modes = modes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the scopes that callers need, for all authentication schemes. The server that publishes the card replaces
    /// [`SecurityRequirement::ANY_SCHEME`] with the names of its schemes.
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        let scopes = StringList { list: scopes.into_iter().map(Into::into).collect() };
        let schemes = [(SecurityRequirement::ANY_SCHEME.to_owned(), scopes)].into();
        self.security_requirements = vec![SecurityRequirement { schemes }];
        self
    }
}

/// A signature over a card: a JWS whose payload is the card itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentCardSignature {
    /// The protected header, base64url.
    #[serde(deserialize_with = "lenient::null")]
    pub protected: String,
    /// The signature, base64url.
    #[serde(deserialize_with = "lenient::null")]
    pub signature: String,
    /// The unprotected header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<JsonObject>,
}
