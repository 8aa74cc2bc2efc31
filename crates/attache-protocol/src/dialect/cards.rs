//! Writes the card of an agent for clients before 1.0.
//!
//! [`dual_card`] is one document for 1.0 and 0.3: the card of 1.0 with the members of 0.3. The two do not conflict. A security
//! scheme of 1.0 is one member of an object, and the other members are the scheme of 0.3. The official Python server sends the
//! same document, so the Python and JavaScript SDKs of both versions can read it. A signature covers the members of 1.0 only and
//! stays valid.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider,
    AgentSkill, OAuthFlows, SecurityRequirement, SecurityScheme, Version, binding,
};

/// The `protocolVersion` of cards of 0.3.
const V0_3: &str = "0.3.0";

/// The card of 1.0, with the members of 0.3 if an interface of the agent supports 0.3.
///
/// An interface supports 0.3 if its protocol version is below 1.0. If no interface does, those of JSON-RPC support it, since
/// JSON-RPC recognizes the version of each request.
pub fn dual_card(card: &AgentCard) -> impl Serialize {
    let interfaces = v0_3_interfaces(card);
    let has_v0_3 = !interfaces.is_empty();
    CardJson {
        supported_interfaces: Some(&card.supported_interfaces),
        security_requirements: &card.security_requirements,
        signatures: &card.signatures,
        capabilities: CapabilitiesJson {
            extended_agent_card: card.capabilities.extended_agent_card,
            state_transition_history: has_v0_3.then_some(false),
            ..CapabilitiesJson::new(&card.capabilities)
        },
        security_schemes: schemes(card, |scheme| SchemeJson {
            v1_0: Some(scheme),
            v0_3: has_v0_3.then(|| SchemeV0_3::new(scheme, Flows::All)),
        }),
        skills: skills(card, |skill| SkillJson {
            security_requirements: &skill.security_requirements,
            security: if has_v0_3 { security(&skill.security_requirements) } else { Vec::new() },
            ..SkillJson::new(skill)
        }),
        ..CardJson::new(card, &interfaces)
    }
}

/// The card of 1.0 without the interfaces of earlier versions.
pub fn pure_card(card: &AgentCard) -> AgentCard {
    let mut card = card.clone();
    card.supported_interfaces.retain(|interface| !is_before_v1_0(interface));
    card
}

/// The card of 0.3.
pub fn v0_3_card(card: &AgentCard) -> impl Serialize {
    let mut interfaces = v0_3_interfaces(card);
    if interfaces.is_empty() {
        interfaces.extend(card.supported_interfaces.first());
    }
    CardJson::new(card, &interfaces)
}

/// The card of 0.1 and AgentOS, for an agent whose JSON-RPC endpoint is `url`.
pub fn v0_1_card(card: &AgentCard, url: &str) -> impl Serialize {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct CardV0_1<'a> {
        name: &'a str,
        description: &'a str,
        url: String,
        version: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        provider: Option<&'a AgentProvider>,
        #[serde(skip_serializing_if = "Option::is_none")]
        documentation_url: Option<&'a str>,
        capabilities: Capabilities<'a>,
        authentication: Authentication,
        default_input_modes: &'a [String],
        default_output_modes: &'a [String],
        skills: Vec<SkillJson<'a>>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Capabilities<'a> {
        tools: Vec<&'a str>,
        streaming: bool,
        push_notifications: bool,
        state_transition_history: bool,
    }
    #[derive(Serialize)]
    struct Authentication {
        schemes: BTreeSet<String>,
    }

    let required = card.security_requirements.iter().flat_map(|requirement| requirement.schemes.keys());
    let schemes = required.filter_map(|name| card.security_schemes.get(name)).map(header_scheme).collect();
    CardV0_1 {
        name: &card.name,
        description: &card.description,
        url: url.to_owned(),
        version: &card.version,
        provider: card.provider.as_ref(),
        documentation_url: card.documentation_url.as_deref(),
        capabilities: Capabilities {
            tools: card.skills.iter().map(|skill| skill.id.as_str()).collect(),
            streaming: card.capabilities.streaming.unwrap_or_default(),
            push_notifications: card.capabilities.push_notifications.unwrap_or_default(),
            state_transition_history: false,
        },
        authentication: Authentication { schemes },
        default_input_modes: &card.default_input_modes,
        default_output_modes: &card.default_output_modes,
        skills: skills(card, |skill| SkillJson { security: Vec::new(), ..SkillJson::new(skill) }),
    }
}

/// The name of a scheme in 0.1: the scheme of the `Authorization` header, if the scheme uses that header.
fn header_scheme(scheme: &SecurityScheme) -> String {
    match scheme {
        SecurityScheme::HttpAuth(http) => http.scheme.to_ascii_lowercase(),
        SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => "bearer".to_owned(),
        SecurityScheme::ApiKey(_) => "apiKey".to_owned(),
        SecurityScheme::MutualTls(_) => "mutualTLS".to_owned(),
    }
}

fn is_before_v1_0(interface: &AgentInterface) -> bool {
    interface.protocol_version.parse::<Version>().is_ok_and(|version| version < Version::V1_0)
}

/// The interfaces that support 0.3, in order of preference. Interfaces of a tenant do not: a request of 0.3 has no tenant.
fn v0_3_interfaces(card: &AgentCard) -> Vec<&AgentInterface> {
    let without_tenant = || card.supported_interfaces.iter().filter(|interface| interface.tenant.is_none());
    let stated: Vec<_> = without_tenant().filter(|interface| is_before_v1_0(interface)).collect();
    if stated.is_empty() {
        return without_tenant().filter(|interface| interface.protocol_binding == binding::JSONRPC).collect();
    }
    stated
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CardJson<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    supported_interfaces: Option<&'a [AgentInterface]>,
    #[serde(flatten)]
    v0_3: Option<MembersV0_3<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a AgentProvider>,
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    documentation_url: Option<&'a str>,
    capabilities: CapabilitiesJson<'a>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    security_schemes: BTreeMap<&'a str, SchemeJson<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    security_requirements: &'a [SecurityRequirement],
    default_input_modes: &'a [String],
    default_output_modes: &'a [String],
    skills: Vec<SkillJson<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    signatures: &'a [AgentCardSignature],
    #[serde(skip_serializing_if = "Option::is_none")]
    icon_url: Option<&'a str>,
}

/// The members of a card that only 0.3 has.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MembersV0_3<'a> {
    protocol_version: &'static str,
    url: &'a str,
    preferred_transport: &'a str,
    additional_interfaces: Vec<Address<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    security: Vec<Requirement<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    supports_authenticated_extended_card: bool,
}

#[derive(Serialize)]
struct Address<'a> {
    url: Cow<'a, str>,
    transport: &'a str,
}

/// Schemes that a caller must satisfy together, each with its scopes.
type Requirement<'a> = BTreeMap<&'a str, &'a [String]>;

fn security(requirements: &[SecurityRequirement]) -> Vec<Requirement<'_>> {
    fn requirement(requirement: &SecurityRequirement) -> Requirement<'_> {
        requirement.schemes.iter().map(|(name, scopes)| (name.as_str(), scopes.list.as_slice())).collect()
    }
    requirements.iter().map(requirement).collect()
}

/// `host:port` of a gRPC interface. The gRPC clients of the SDKs for 0.3 pass it to their libraries as it is, and those take no URL.
fn grpc_target(url: &str) -> Cow<'_, str> {
    let (rest, port) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(rest), _) => (rest, 80),
        (None, Some(rest)) => (rest, 443),
        (None, None) => return url.into(),
    };
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        true => authority.into(),
        false => format!("{authority}:{port}").into(),
    }
}

impl<'a> CardJson<'a> {
    /// The card of 0.3.
    fn new(card: &'a AgentCard, interfaces: &[&'a AgentInterface]) -> Self {
        let address = |interface: &&'a AgentInterface| Address {
            url: match interface.protocol_binding.as_str() {
                binding::GRPC => grpc_target(&interface.url),
                _ => interface.url.as_str().into(),
            },
            transport: &interface.protocol_binding,
        };
        let v0_3 = interfaces.first().map(|preferred| MembersV0_3 {
            protocol_version: V0_3,
            url: &preferred.url,
            preferred_transport: &preferred.protocol_binding,
            additional_interfaces: interfaces.iter().map(address).collect(),
            security: security(&card.security_requirements),
            supports_authenticated_extended_card: card.capabilities.extended_agent_card == Some(true),
        });
        Self {
            name: &card.name,
            description: &card.description,
            supported_interfaces: None,
            v0_3,
            provider: card.provider.as_ref(),
            version: &card.version,
            documentation_url: card.documentation_url.as_deref(),
            capabilities: CapabilitiesJson::new(&card.capabilities),
            security_schemes: schemes(card, |scheme| SchemeJson {
                v1_0: None,
                v0_3: Some(SchemeV0_3::new(scheme, Flows::Known)),
            }),
            security_requirements: &[],
            default_input_modes: &card.default_input_modes,
            default_output_modes: &card.default_output_modes,
            skills: skills(card, SkillJson::new),
            signatures: &[],
            icon_url: card.icon_url.as_deref(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CapabilitiesJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    streaming: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notifications: Option<bool>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    extensions: &'a [AgentExtension],
    #[serde(skip_serializing_if = "Option::is_none")]
    extended_agent_card: Option<bool>,
    /// Always false: tasks do not list their earlier states.
    #[serde(skip_serializing_if = "Option::is_none")]
    state_transition_history: Option<bool>,
}

impl<'a> CapabilitiesJson<'a> {
    fn new(capabilities: &'a AgentCapabilities) -> Self {
        Self {
            streaming: capabilities.streaming,
            push_notifications: capabilities.push_notifications,
            extensions: &capabilities.extensions,
            extended_agent_card: None,
            state_transition_history: Some(false),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SkillJson<'a> {
    id: &'a str,
    name: &'a str,
    description: &'a str,
    tags: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    examples: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    input_modes: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    output_modes: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    security_requirements: &'a [SecurityRequirement],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    security: Vec<Requirement<'a>>,
}

fn skills<'a>(card: &'a AgentCard, json: impl Fn(&'a AgentSkill) -> SkillJson<'a>) -> Vec<SkillJson<'a>> {
    card.skills.iter().map(json).collect()
}

impl<'a> SkillJson<'a> {
    fn new(skill: &'a AgentSkill) -> Self {
        Self {
            id: &skill.id,
            name: &skill.name,
            description: &skill.description,
            tags: &skill.tags,
            examples: &skill.examples,
            input_modes: &skill.input_modes,
            output_modes: &skill.output_modes,
            security_requirements: &[],
            security: security(&skill.security_requirements),
        }
    }
}

#[derive(Serialize)]
struct SchemeJson<'a> {
    #[serde(flatten)]
    v1_0: Option<&'a SecurityScheme>,
    #[serde(flatten)]
    v0_3: Option<SchemeV0_3<'a>>,
}

fn schemes<'a>(
    card: &'a AgentCard,
    json: impl Fn(&'a SecurityScheme) -> SchemeJson<'a>,
) -> BTreeMap<&'a str, SchemeJson<'a>> {
    card.security_schemes.iter().map(|(name, scheme)| (name.as_str(), json(scheme))).collect()
}

/// A scheme of 0.3, which has a `type`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SchemeV0_3<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(flatten)]
    members: SchemeMembers<'a>,
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum SchemeMembers<'a> {
    ApiKey {
        name: &'a str,
        r#in: &'a str,
    },
    Http {
        scheme: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        bearer_format: Option<&'a str>,
    },
    OAuth2 {
        flows: BTreeMap<&'static str, Flow<'a>>,
        #[serde(rename = "oauth2MetadataUrl", skip_serializing_if = "Option::is_none")]
        metadata_url: Option<&'a str>,
    },
    OpenIdConnect {
        open_id_connect_url: &'a str,
    },
    MutualTls {},
}

/// A flow. Its scopes are required, so they are always written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Flow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    authorization_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_authorization_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_url: Option<&'a str>,
    scopes: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pkce_required: bool,
}

impl<'a> Flow<'a> {
    fn new(scopes: &'a BTreeMap<String, String>, refresh_url: &'a Option<String>) -> Self {
        Self {
            authorization_url: None,
            device_authorization_url: None,
            token_url: None,
            refresh_url: refresh_url.as_deref(),
            scopes,
            pkce_required: false,
        }
    }
}

/// The flows and members that are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flows {
    /// Those of 0.3.
    Known,
    /// All of them: some readers of 1.0 prefer the members of 0.3 in a dual card.
    All,
}

impl<'a> SchemeV0_3<'a> {
    fn new(scheme: &'a SecurityScheme, written: Flows) -> Self {
        let (r#type, description, members) = match scheme {
            SecurityScheme::ApiKey(key) => {
                ("apiKey", &key.description, SchemeMembers::ApiKey { name: &key.name, r#in: &key.location })
            }
            SecurityScheme::HttpAuth(http) => {
                let bearer_format = http.bearer_format.as_deref();
                ("http", &http.description, SchemeMembers::Http { scheme: &http.scheme, bearer_format })
            }
            SecurityScheme::OAuth2(oauth) => {
                let metadata_url = oauth.oauth2_metadata_url.as_deref();
                let flows = flow(&oauth.flows, written).into_iter().collect();
                ("oauth2", &oauth.description, SchemeMembers::OAuth2 { flows, metadata_url })
            }
            SecurityScheme::OpenIdConnect(open) => {
                let open_id_connect_url = open.open_id_connect_url.as_str();
                ("openIdConnect", &open.description, SchemeMembers::OpenIdConnect { open_id_connect_url })
            }
            SecurityScheme::MutualTls(tls) => ("mutualTLS", &tls.description, SchemeMembers::MutualTls {}),
        };
        Self { r#type, description: description.as_deref(), members }
    }
}

fn flow(flows: &OAuthFlows, written: Flows) -> Option<(&'static str, Flow<'_>)> {
    Some(match flows {
        OAuthFlows::AuthorizationCode(flow) => (
            "authorizationCode",
            Flow {
                authorization_url: Some(&flow.authorization_url),
                token_url: Some(&flow.token_url),
                pkce_required: flow.pkce_required && written == Flows::All,
                ..Flow::new(&flow.scopes, &flow.refresh_url)
            },
        ),
        OAuthFlows::ClientCredentials(flow) => {
            let token_url = Some(flow.token_url.as_str());
            ("clientCredentials", Flow { token_url, ..Flow::new(&flow.scopes, &flow.refresh_url) })
        }
        OAuthFlows::Implicit(flow) => {
            let authorization_url = Some(flow.authorization_url.as_deref().unwrap_or_default());
            ("implicit", Flow { authorization_url, ..Flow::new(&flow.scopes, &flow.refresh_url) })
        }
        OAuthFlows::Password(flow) => {
            let token_url = Some(flow.token_url.as_deref().unwrap_or_default());
            ("password", Flow { token_url, ..Flow::new(&flow.scopes, &flow.refresh_url) })
        }
        OAuthFlows::DeviceCode(_) if written == Flows::Known => return None,
        OAuthFlows::DeviceCode(flow) => (
            "deviceCode",
            Flow {
                device_authorization_url: Some(&flow.device_authorization_url),
                token_url: Some(&flow.token_url),
                ..Flow::new(&flow.scopes, &flow.refresh_url)
            },
        ),
    })
}
