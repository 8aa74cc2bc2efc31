//! Reads the card of any version into the model of 1.0.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::json::lenient::{self, Object};
use crate::operation::parse;
use crate::{
    AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentProvider, AgentSkill,
    ApiKeySecurityScheme, Error, HttpAuthSecurityScheme, Json, MutualTlsSecurityScheme, OAuth2SecurityScheme,
    OAuthFlows, OpenIdConnectSecurityScheme, SecurityRequirement, SecurityScheme, StringList, binding,
};

/// Reads a card of 1.0, 0.3 or 0.2. A dual card is read as a card of 1.0.
///
/// The preferred interface of a card of 0.3 comes first. Unknown security schemes are left out, so a requirement that names one
/// cannot be satisfied. Signatures are left out as well, since they cover the members of 0.3.
pub fn read_card(json: &[u8]) -> Result<AgentCard, Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct VersionMembers {
        #[serde(alias = "supported_interfaces", deserialize_with = "lenient::null")]
        supported_interfaces: Vec<serde::de::IgnoredAny>,
        url: Option<serde::de::IgnoredAny>,
    }
    let members: VersionMembers = parse(json)?;
    if members.supported_interfaces.is_empty() && members.url.is_some() {
        parse::<CardV0_3>(json).map(Into::into)
    } else {
        parse(json)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CardV0_3 {
    #[serde(deserialize_with = "lenient::null")]
    name: String,
    #[serde(deserialize_with = "lenient::null")]
    description: String,
    #[serde(deserialize_with = "lenient::null")]
    version: String,
    #[serde(deserialize_with = "lenient::null")]
    url: String,
    #[serde(deserialize_with = "lenient::string")]
    preferred_transport: Option<String>,
    #[serde(deserialize_with = "lenient::objects")]
    additional_interfaces: Vec<Address>,
    #[serde(deserialize_with = "lenient::string")]
    protocol_version: Option<String>,
    #[serde(deserialize_with = "lenient::optional_object")]
    provider: Option<AgentProvider>,
    #[serde(deserialize_with = "lenient::string")]
    documentation_url: Option<String>,
    #[serde(deserialize_with = "lenient::string")]
    icon_url: Option<String>,
    #[serde(deserialize_with = "lenient::object")]
    capabilities: Capabilities,
    #[serde(deserialize_with = "lenient::null")]
    security_schemes: BTreeMap<String, Json>,
    #[serde(deserialize_with = "lenient::null")]
    security: Vec<Requirement>,
    #[serde(deserialize_with = "lenient::null")]
    default_input_modes: Vec<String>,
    #[serde(deserialize_with = "lenient::null")]
    default_output_modes: Vec<String>,
    #[serde(deserialize_with = "lenient::objects")]
    skills: Vec<Skill>,
    supports_authenticated_extended_card: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Address {
    #[serde(deserialize_with = "lenient::null")]
    url: String,
    #[serde(deserialize_with = "lenient::null")]
    transport: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Capabilities {
    streaming: Option<bool>,
    push_notifications: Option<bool>,
    #[serde(deserialize_with = "lenient::objects")]
    extensions: Vec<AgentExtension>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Skill {
    #[serde(flatten)]
    skill: AgentSkill,
    #[serde(deserialize_with = "lenient::null")]
    security: Vec<Requirement>,
}

/// Schemes that a caller must satisfy together, each with its scopes.
type Requirement = BTreeMap<String, Vec<String>>;

fn requirements(security: Vec<Requirement>) -> Vec<SecurityRequirement> {
    let requirement = |requirement: Requirement| SecurityRequirement {
        schemes: requirement.into_iter().map(|(name, list)| (name, StringList { list })).collect(),
    };
    security.into_iter().map(requirement).collect()
}

impl From<CardV0_3> for AgentCard {
    fn from(card: CardV0_3) -> Self {
        let version = card.protocol_version.unwrap_or_else(|| "0.3".to_owned());
        let interface = |url: String, transport: String| {
            let protocol_version = version.clone();
            AgentInterface { url, protocol_binding: transport, tenant: None, protocol_version }
        };
        let preferred = card.preferred_transport.unwrap_or_else(|| binding::JSONRPC.to_owned());
        let mut supported_interfaces = vec![interface(card.url, preferred)];
        for Address { url, transport } in card.additional_interfaces {
            let other = interface(url, transport);
            if !supported_interfaces.contains(&other) {
                supported_interfaces.push(other);
            }
        }
        let skill = |Skill { skill, security }: Skill| AgentSkill {
            security_requirements: requirements(security),
            ..skill
        };
        let scheme = |(name, scheme): (String, Json)| Some((name, SchemeV0_3::read(&scheme)?));
        Self {
            name: card.name,
            description: card.description,
            supported_interfaces,
            provider: card.provider,
            version: card.version,
            documentation_url: card.documentation_url,
            capabilities: AgentCapabilities {
                streaming: card.capabilities.streaming,
                push_notifications: card.capabilities.push_notifications,
                extensions: card.capabilities.extensions,
                extended_agent_card: card.supports_authenticated_extended_card,
            },
            security_schemes: card.security_schemes.into_iter().filter_map(scheme).collect(),
            security_requirements: requirements(card.security),
            default_input_modes: card.default_input_modes,
            default_output_modes: card.default_output_modes,
            skills: card.skills.into_iter().map(skill).collect(),
            signatures: Vec::new(),
            icon_url: card.icon_url,
        }
    }
}

/// A scheme of 0.3, which has a `type`.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
enum SchemeV0_3 {
    #[serde(rename = "apiKey")]
    ApiKey { description: Option<String>, name: String, r#in: String },
    #[serde(rename = "http")]
    Http { description: Option<String>, scheme: String, bearer_format: Option<String> },
    #[serde(rename = "oauth2")]
    OAuth2 {
        description: Option<String>,
        // `Value` and not `Json`: serde buffers the members of a tagged enum, and raw JSON text does not survive that.
        flows: BTreeMap<String, Value>,
        #[serde(rename = "oauth2MetadataUrl")]
        metadata_url: Option<String>,
    },
    #[serde(rename = "openIdConnect")]
    OpenIdConnect { description: Option<String>, open_id_connect_url: String },
    #[serde(rename = "mutualTLS")]
    MutualTls { description: Option<String> },
}

/// The flows in order of preference. 1.0 has only one flow, so flows that need no person come first.
const FLOWS: [&str; 5] = ["clientCredentials", "deviceCode", "authorizationCode", "password", "implicit"];

impl SchemeV0_3 {
    /// Reads a scheme. `None` if its type is unknown.
    fn read(json: &Json) -> Option<SecurityScheme> {
        Some(match json.read::<Object<Self>>().ok()?.0 {
            Self::ApiKey { description, name, r#in: location } => {
                SecurityScheme::ApiKey(ApiKeySecurityScheme { description, location, name })
            }
            Self::Http { description, scheme, bearer_format } => {
                SecurityScheme::HttpAuth(HttpAuthSecurityScheme { description, scheme, bearer_format })
            }
            Self::OAuth2 { description, flows, metadata_url } => {
                // A flow has the same members in both versions.
                let flow = |name: &&str| {
                    let flow = Map::from_iter([((*name).to_owned(), flows.get(*name)?.clone())]);
                    OAuthFlows::deserialize(Value::Object(flow)).ok()
                };
                let flows = FLOWS.iter().find_map(flow)?;
                SecurityScheme::OAuth2(OAuth2SecurityScheme {
                    description,
                    flows,
                    oauth2_metadata_url: metadata_url,
                })
            }
            Self::OpenIdConnect { description, open_id_connect_url } => {
                SecurityScheme::OpenIdConnect(OpenIdConnectSecurityScheme {
                    description,
                    open_id_connect_url,
                })
            }
            Self::MutualTls { description } => {
                SecurityScheme::MutualTls(MutualTlsSecurityScheme { description })
            }
        })
    }
}
