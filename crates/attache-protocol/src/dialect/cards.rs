//! The card of an agent, for those who came before 1.0.
//!
//! [`dual_card`] is one document for both generations: the card of 1.0, member by member, with those of 0.3 beside. They
//! do not get in each other's way: a scheme of 1.0 is one member of an object, whose others are the scheme of 0.3. It is what
//! the official Python server sends, so its readers of either generation, and those of the JavaScript one, take it. A
//! signature covers the members of 1.0 only and stays good.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider,
    AgentSkill, OAuthFlows, SecurityRequirement, SecurityScheme, Version, binding,
};

/// The version that cards of 0.3 state.
const V0_3: &str = "0.3.0";

/// The card of 1.0 with the members of 0.3, if 0.3 is spoken at one of the agent's addresses.
///
/// It is spoken where an interface says so. Where none does, it is at those of JSON-RPC, which tell the versions apart.
pub fn dual_card(card: &AgentCard) -> impl Serialize {
    let older = older(card);
    let known = !older.is_empty();
    ShownCard {
        supported_interfaces: Some(&card.supported_interfaces),
        security_requirements: &card.security_requirements,
        signatures: &card.signatures,
        capabilities: ShownCapabilities {
            extended_agent_card: card.capabilities.extended_agent_card,
            state_transition_history: known.then_some(false),
            ..ShownCapabilities::new(&card.capabilities)
        },
        security_schemes: schemes(card, |scheme| ShownScheme {
            current: Some(scheme),
            older: known.then(|| OlderScheme::new(scheme, Flows::All)),
        }),
        skills: skills(card, |skill| ShownSkill {
            security_requirements: &skill.security_requirements,
            security: if known { security(&skill.security_requirements) } else { Vec::new() },
            ..ShownSkill::new(skill)
        }),
        ..ShownCard::new(card, &older)
    }
}

/// The card of 1.0 alone: without the addresses where something older is spoken.
pub fn pure_card(card: &AgentCard) -> AgentCard {
    let mut card = card.clone();
    card.supported_interfaces.retain(|interface| !is_older(interface));
    card
}

/// The card as 0.3 had it.
pub fn v0_3_card(card: &AgentCard) -> impl Serialize {
    let mut older = older(card);
    if older.is_empty() {
        older.extend(card.supported_interfaces.first());
    }
    ShownCard::new(card, &older)
}

/// The card as 0.1 and AgentOS had it, for an agent whose JSON-RPC endpoint is at `url`.
pub fn v0_1_card(card: &AgentCard, url: &str) -> impl Serialize {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Oldest<'a> {
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
        skills: Vec<ShownSkill<'a>>,
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

    let needed = card.security_requirements.iter().flat_map(|requirement| requirement.schemes.keys());
    let schemes = needed.filter_map(|name| card.security_schemes.get(name)).map(header_scheme).collect();
    Oldest {
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
        skills: skills(card, |skill| ShownSkill { security: Vec::new(), ..ShownSkill::new(skill) }),
    }
}

/// The name of a scheme as 0.1 had it: what stands in the `Authorization` header, where it is that.
fn header_scheme(scheme: &SecurityScheme) -> String {
    match scheme {
        SecurityScheme::HttpAuth(http) => http.scheme.to_ascii_lowercase(),
        SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => "bearer".to_owned(),
        SecurityScheme::ApiKey(_) => "apiKey".to_owned(),
        SecurityScheme::MutualTls(_) => "mutualTLS".to_owned(),
    }
}

fn is_older(interface: &AgentInterface) -> bool {
    interface.protocol_version.parse::<Version>().is_ok_and(|version| version < Version::V1_0)
}

/// The interfaces where 0.3 is spoken, best first. Those of a tenant are not: who speaks 0.3 cannot name it.
fn older(card: &AgentCard) -> Vec<&AgentInterface> {
    let open = || card.supported_interfaces.iter().filter(|interface| interface.tenant.is_none());
    let stated: Vec<_> = open().filter(|interface| is_older(interface)).collect();
    if stated.is_empty() {
        return open().filter(|interface| interface.protocol_binding == binding::JSONRPC).collect();
    }
    stated
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownCard<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    supported_interfaces: Option<&'a [AgentInterface]>,
    #[serde(flatten)]
    older: Option<OlderMembers<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a AgentProvider>,
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    documentation_url: Option<&'a str>,
    capabilities: ShownCapabilities<'a>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    security_schemes: BTreeMap<&'a str, ShownScheme<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    security_requirements: &'a [SecurityRequirement],
    default_input_modes: &'a [String],
    default_output_modes: &'a [String],
    skills: Vec<ShownSkill<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    signatures: &'a [AgentCardSignature],
    #[serde(skip_serializing_if = "Option::is_none")]
    icon_url: Option<&'a str>,
}

/// What a card has only for 0.3.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OlderMembers<'a> {
    protocol_version: &'static str,
    url: &'a str,
    preferred_transport: &'a str,
    additional_interfaces: Vec<Address<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    security: Vec<Needed<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    supports_authenticated_extended_card: bool,
}

#[derive(Serialize)]
struct Address<'a> {
    url: &'a str,
    transport: &'a str,
}

/// Schemes that together suffice, each with its scopes.
type Needed<'a> = BTreeMap<&'a str, &'a [String]>;

fn security(requirements: &[SecurityRequirement]) -> Vec<Needed<'_>> {
    fn needed(requirement: &SecurityRequirement) -> Needed<'_> {
        requirement.schemes.iter().map(|(name, scopes)| (name.as_str(), scopes.list.as_slice())).collect()
    }
    requirements.iter().map(needed).collect()
}

impl<'a> ShownCard<'a> {
    /// The card of 0.3.
    fn new(card: &'a AgentCard, older: &[&'a AgentInterface]) -> Self {
        let address = |interface: &&'a AgentInterface| Address {
            url: &interface.url,
            transport: &interface.protocol_binding,
        };
        let older = older.first().map(|preferred| OlderMembers {
            protocol_version: V0_3,
            url: &preferred.url,
            preferred_transport: &preferred.protocol_binding,
            additional_interfaces: older.iter().map(address).collect(),
            security: security(&card.security_requirements),
            supports_authenticated_extended_card: card.capabilities.extended_agent_card == Some(true),
        });
        Self {
            name: &card.name,
            description: &card.description,
            supported_interfaces: None,
            older,
            provider: card.provider.as_ref(),
            version: &card.version,
            documentation_url: card.documentation_url.as_deref(),
            capabilities: ShownCapabilities::new(&card.capabilities),
            security_schemes: schemes(card, |scheme| ShownScheme {
                current: None,
                older: Some(OlderScheme::new(scheme, Flows::Known)),
            }),
            security_requirements: &[],
            default_input_modes: &card.default_input_modes,
            default_output_modes: &card.default_output_modes,
            skills: skills(card, ShownSkill::new),
            signatures: &[],
            icon_url: card.icon_url.as_deref(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownCapabilities<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    streaming: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notifications: Option<bool>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    extensions: &'a [AgentExtension],
    #[serde(skip_serializing_if = "Option::is_none")]
    extended_agent_card: Option<bool>,
    /// Tasks here do not tell the states they went through.
    #[serde(skip_serializing_if = "Option::is_none")]
    state_transition_history: Option<bool>,
}

impl<'a> ShownCapabilities<'a> {
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
struct ShownSkill<'a> {
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
    security: Vec<Needed<'a>>,
}

fn skills<'a>(card: &'a AgentCard, show: impl Fn(&'a AgentSkill) -> ShownSkill<'a>) -> Vec<ShownSkill<'a>> {
    card.skills.iter().map(show).collect()
}

impl<'a> ShownSkill<'a> {
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
struct ShownScheme<'a> {
    #[serde(flatten)]
    current: Option<&'a SecurityScheme>,
    #[serde(flatten)]
    older: Option<OlderScheme<'a>>,
}

fn schemes<'a>(
    card: &'a AgentCard,
    show: impl Fn(&'a SecurityScheme) -> ShownScheme<'a>,
) -> BTreeMap<&'a str, ShownScheme<'a>> {
    card.security_schemes.iter().map(|(name, scheme)| (name.as_str(), show(scheme))).collect()
}

/// A scheme that says what `type` it is.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OlderScheme<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(flatten)]
    terms: Terms<'a>,
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum Terms<'a> {
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

/// One flow. Its scopes are always there: they are required.
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

/// What is written of flows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flows {
    /// What 0.3 knows.
    Known,
    /// All, since newer readers of a dual card look at the older members first.
    All,
}

impl<'a> OlderScheme<'a> {
    fn new(scheme: &'a SecurityScheme, written: Flows) -> Self {
        let (r#type, description, terms) = match scheme {
            SecurityScheme::ApiKey(key) => {
                ("apiKey", &key.description, Terms::ApiKey { name: &key.name, r#in: &key.location })
            }
            SecurityScheme::HttpAuth(http) => {
                let bearer_format = http.bearer_format.as_deref();
                ("http", &http.description, Terms::Http { scheme: &http.scheme, bearer_format })
            }
            SecurityScheme::OAuth2(oauth) => {
                let metadata_url = oauth.oauth2_metadata_url.as_deref();
                let flows = flow(&oauth.flows, written).into_iter().collect();
                ("oauth2", &oauth.description, Terms::OAuth2 { flows, metadata_url })
            }
            SecurityScheme::OpenIdConnect(open) => {
                let open_id_connect_url = open.open_id_connect_url.as_str();
                ("openIdConnect", &open.description, Terms::OpenIdConnect { open_id_connect_url })
            }
            SecurityScheme::MutualTls(tls) => ("mutualTLS", &tls.description, Terms::MutualTls {}),
        };
        Self { r#type, description: description.as_deref(), terms }
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
